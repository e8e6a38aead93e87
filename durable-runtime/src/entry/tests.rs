use super::*;

fn path() -> Path<'static> {
    Path { scope: "join[0]/1".into(), name: "pay".into(), n: 2 }
}

fn call() -> Call<'static> {
    Call {
        path: path(),
        effect: Some("charge".into()),
        contract: RecordedContract::Keyed,
        args: b"\x01\x80"[..].into(),
        digest: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        key: Some("k:1".into()),
        site: 7,
    }
}

/// An entry of every kind, with every outcome, contract and way to resolve in one of them.
fn every_kind() -> Vec<Entry<'static>> {
    let (step, attempt) = (StepNo(3), Attempt(2));
    let value = || Cow::Borrowed(&b"\x01\xa1v"[..]);
    let fault = Fault::TimedOut { effect: "pay".into(), attempt: 2, timeout_ms: 300_000 };
    let started = RunStarted {
        workflow: "refund".into(),
        module: "agents::refund".into(),
        explicit_name: true,
        args: value(),
        digest: 1 << 127,
        build: "0.1.0".into(),
        seed: 5,
    };
    let bare = |contract| Call { effect: None, key: None, contract, ..call() };
    let failed = || End::Failed { value: value(), message: "no".into() };
    let kinds = [
        Kind::RunStarted(started),
        Kind::RunEnding(End::Completed { value: value() }),
        Kind::RunEnding(failed()),
        Kind::RunEnded(End::Completed { value: value() }),
        Kind::RunEnded(failed()),
        Kind::EffectQueued(call()),
        Kind::EffectCalled(bare(RecordedContract::ReadOnly)),
        Kind::EffectCalled(bare(RecordedContract::Idempotent)),
        Kind::EffectCalled(bare(RecordedContract::AtMostOnce)),
        Kind::TimerSet { path: path(), site: 9, deadline: u64::MAX, absolute: true },
        Kind::VersionChosen { path: path(), site: 9, version: 4 },
        Kind::StepClosed { step },
        Kind::EffectResult { step, attempt, outcome: Outcome::Ok(value()), unsure: false },
        Kind::EffectResult { step, attempt, outcome: Outcome::Err(value()), unsure: true },
        Kind::EffectResult { step, attempt, outcome: Outcome::Fault(RecordedFault(fault)), unsure: true },
        Kind::TimerFired { step },
        Kind::EffectCalledAgain { step, attempt },
        Kind::EffectFailed { step, attempt, error: Outcome::Err(value()), retry_at: 70_000, unsure: false },
        Kind::EffectNotStarted { step, attempt },
        Kind::EffectInDoubt { step, attempt, reason: "?".into() },
        Kind::EffectResolved { step, attempt, how: Resolved::Succeeded, by: "reconcile".into() },
        Kind::EffectResolved { step, attempt, how: Resolved::Failed, by: "a person".into() },
        Kind::EffectResolved { step, attempt, how: Resolved::RunAgain, by: "a person".into() },
    ];
    kinds.into_iter().map(|kind| Entry { at: 1_700_000_000_000, kind }).collect()
}

fn written(entry: &Entry<'_>) -> Bytes {
    let mut frames = BytesMut::new();
    entry.write(&mut frames).unwrap();
    frames.freeze()
}

/// A frame as it is on disk for ever, for each of [`every_kind`].
const GOLDEN: [&str; 23] = [
    "3e000000f2273f00cc39066c01fd0068e5cf8b0100000006726566756e640e6167656e74733a3a726566756e64010301a176fe0000000000000000000000000000008005302e312e3005",
    "100000008e0d59ad15d7fbfd01fd0068e5cf8b01000001000301a176",
    "130000005c5b63eed9a3e52b01fd0068e5cf8b01000001010301a176026e6f",
    "10000000d4d8c734cc66eb4801fd0068e5cf8b01000002000301a176",
    "130000001f619c3ee71647de01fd0068e5cf8b01000002010301a176026e6f",
    "3d000000bf82ea017b35e64e01fd0068e5cf8b01000003096a6f696e5b305d2f310370617902010663686172676502020180fe100f0e0d0c0b0a09080706050403020101036b3a3107",
    "32000000aeb309191384def901fd0068e5cf8b01000004096a6f696e5b305d2f3103706179020000020180fe100f0e0d0c0b0a0908070605040302010007",
    "320000000b943daf00bdf8cf01fd0068e5cf8b01000004096a6f696e5b305d2f3103706179020001020180fe100f0e0d0c0b0a0908070605040302010007",
    "32000000a85431cb273c831d01fd0068e5cf8b01000004096a6f696e5b305d2f3103706179020003020180fe100f0e0d0c0b0a0908070605040302010007",
    "25000000a68c8f8535ee9b6601fd0068e5cf8b01000005096a6f696e5b305d2f31037061790209fdffffffffffffffff01",
    "1c000000adc5ab78fa14be9a01fd0068e5cf8b01000006096a6f696e5b305d2f3103706179020904",
    "0c000000b5b26d5d549e3e8001fd0068e5cf8b0100000703",
    "13000000e7fc379bc338c61401fd0068e5cf8b010000080302000301a17600",
    "130000005335d495d844918401fd0068e5cf8b010000080302010301a17601",
    "3f0000004a755ffd4117aa3c01fd0068e5cf8b010000080302022f81a854696d65644f757483a6656666656374a3706179a7617474656d707402aa74696d656f75745f6d73ce000493e001",
    "0c0000005f5baa7c87f7a5d701fd0068e5cf8b0100000903",
    "0d000000d6d4dc7ce25f83f301fd0068e5cf8b0100000a0302",
    "180000009cda92283f23203001fd0068e5cf8b0100000b0302010301a176fc7011010000",
    "0d000000be358cafd9a2289a01fd0068e5cf8b0100000c0302",
    "0f000000e8e7930302fab00501fd0068e5cf8b0100000d0302013f",
    "18000000fb0da5595263fca701fd0068e5cf8b0100000e030200097265636f6e63696c65",
    "1700000001e8d4f73d625de201fd0068e5cf8b0100000e030201086120706572736f6e",
    "17000000c2b851445ff9649e01fd0068e5cf8b0100000e030202086120706572736f6e",
];

#[test]
fn the_bytes_of_every_kind_of_entry_stay_as_they_are() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let frames: Vec<String> = every_kind().iter().map(|entry| hex(&written(entry))).collect();
    assert_eq!(frames, GOLDEN, "a store that exists would not be read any more");
}

#[test]
fn every_kind_of_entry_comes_back_equal() {
    let (mut frames, entries) = (BytesMut::new(), every_kind());
    for entry in &entries {
        entry.write(&mut frames).unwrap();
    }
    let mut back = Vec::new();
    each_entry(Seq(4), frames.freeze(), |seq, _, entry| -> Result<(), (Seq, EntryError)> {
        assert_eq!((seq.0 as usize - 4, entry), (back.len(), &entries[back.len()]));
        back.push(seq);
        Ok(())
    })
    .unwrap();
    assert_eq!(back.len(), entries.len());
}

#[test]
fn a_frame_that_is_cut_off_or_changed_in_any_bit_is_noticed() {
    let whole = written(&every_kind()[5]);
    for length in 1..whole.len() {
        assert_eq!(next_frame(&mut whole.slice(..length)), Err(EntryError::Short), "{length} bytes");
    }
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(next_frame(&mut bytes.into()).is_err(), "bit {bit}");
    }
}

#[test]
fn an_entry_of_a_later_version_says_so() {
    let mut bytes = written(&every_kind()[11]).to_vec();
    bytes[FRAME_HEAD - 1] = VERSION + 1;
    let sum = xxh3_64(&bytes[12..]);
    bytes[4..12].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(next_frame(&mut bytes.into()), Err(EntryError::Version(VERSION + 1)));
}

#[test]
fn an_entry_that_is_too_long_leaves_what_was_gathered() {
    let mut frames = BytesMut::from(&b"before"[..]);
    let value = vec![0; ENTRY_BYTES_MAX].into();
    let entry = Entry { at: 0, kind: Kind::RunEnded(End::Completed { value }) };
    assert!(matches!(entry.write(&mut frames), Err(EntryError::TooLong(_))));
    assert_eq!(frames, &b"before"[..]);
}

/// Hostile bytes, from a seed: whole entries with bytes changed, cut, doubled and put in, and bytes of chance.
#[test]
fn hostile_bytes_neither_panic_nor_allocate_without_bound() {
    let mut state = 17_u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let entries: Vec<Vec<u8>> = every_kind().iter().map(|entry| written(entry)[FRAME_HEAD..].to_vec()).collect();
    let mut read = 0;
    for _ in 0..20_000 {
        let mut bytes = match random(4) {
            0 => (0..random(60)).map(|_| random(256) as u8).collect(),
            _ => entries[random(entries.len())].clone(),
        };
        for _ in 0..random(4) {
            let at = random(bytes.len() + 1);
            match random(4) {
                0 => bytes.truncate(at),
                // The marks of bincode's longest numbers.
                1 => bytes.splice(at..at, [253, 255, 255, 255, 255, 255, 255, 255, 255]).for_each(drop),
                2 => bytes.extend_from_within(at..),
                _ if at < bytes.len() => bytes[at] = random(256) as u8,
                _ => bytes.push(254),
            }
        }
        if let Ok(entry) = decode(&bytes) {
            // What decodes is an entry like any other.
            assert_eq!(decode(&written(&entry)[FRAME_HEAD..]).unwrap(), entry);
            read += 1;
        }
        let _ = next_frame(&mut bytes.into());
    }
    assert!(read > 1_000, "{read} of the entries were still read: the rest tests nothing alone");
}

#[test]
fn no_two_paths_have_one_text() {
    let path = |scope: &'static str, name: &'static str, n| Path { scope: scope.into(), name: name.into(), n };
    let paths = [
        path("", "a/b", 0),
        path("", "a", 0),
        path("a", "b", 0),
        path("a[0]", "b", 0),
        path("", "a[0]/b", 0),
        path("", "a%2Fb", 0),
        path("", "a\n", 0),
        path("", "a", 1),
    ];
    let texts: std::collections::BTreeSet<String> = paths.iter().map(Path::to_string).collect();
    assert_eq!(texts.len(), paths.len(), "{texts:?}");
}
