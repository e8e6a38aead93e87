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

fn undo() -> Undo<'static> {
    Undo {
        effect: "unpay".into(),
        module: "agents::refund".into(),
        contract: RecordedContract::Keyed,
        args: b"\x01\x80"[..].into(),
        digest: 6,
        key: Some("k:2".into()),
    }
}

fn question() -> Question<'static> {
    Question {
        title: "refund?".into(),
        about: b"\x01\xa1v"[..].into(),
        by: vec!["ann".into(), "lead".into()],
        digest: 8,
        deadline: Some(80_000),
    }
}

/// An entry of every kind, with every outcome, contract, answer, end and way to resolve in one of them.
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
        born: 1_600_000_000_000,
        parent: Some(Parent { run: "boss".into(), generation: Generation(1), step: StepNo(7), seed: 9 }),
        undos: vec![undo()],
    };
    let bare = |contract| Call { effect: None, key: None, contract, ..call() };
    let failed = || End::Failed { value: value(), message: "no".into() };
    let cancelled = || End::Cancelled { reason: "enough".into(), by: "ann".into() };
    let restarted = || End::Restarted {
        workflow: "refund".into(),
        module: "agents::refund".into(),
        explicit_name: false,
        args: value(),
        digest: 4,
    };
    let signal = |id| Signal { id, value: value() };
    let spawned = |detached| Child { run: "run-9".into(), detached, workflow: "refund".into(), digest: 2 };
    let answered = |answer, by: &'static str| Kind::QuestionAnswered { step, answer, by: by.into() };
    let child_ended = |end| Kind::ChildEnded { step, run: "run-9".into(), end };
    let site = 9;
    let kinds = [
        Kind::RunStarted(started),
        Kind::RunEnding(End::Completed { value: value() }),
        Kind::RunEnding(failed()),
        Kind::RunEnded(End::Completed { value: value() }),
        Kind::RunEnded(failed()),
        Kind::RunEnding(cancelled()),
        Kind::RunEnded(cancelled()),
        Kind::RunEnding(restarted()),
        Kind::RunEnded(restarted()),
        Kind::EffectQueued(call()),
        Kind::EffectCalled(bare(RecordedContract::ReadOnly)),
        Kind::EffectCalled(bare(RecordedContract::Idempotent)),
        Kind::EffectCalled(bare(RecordedContract::AtMostOnce)),
        Kind::TimerSet { path: path(), site, deadline: u64::MAX, absolute: true },
        Kind::VersionChosen { path: path(), site, version: 4 },
        Kind::StepClosed { step },
        Kind::SignalAwaited { path: path(), site, signal: "steer".into(), drain: false },
        Kind::SignalAwaited { path: path(), site, signal: "steer".into(), drain: true },
        Kind::QuestionAsked { path: path(), site, question: question() },
        Kind::ChildSpawned { path: path(), site, child: spawned(false) },
        Kind::ChildSpawned { path: path(), site, child: spawned(true) },
        Kind::MessageSent { path: path(), site, to: "boss".into(), signal: "steer".into(), value: value(), digest: 3 },
        Kind::ValuePublished { path: path(), site, name: "progress".into(), value: value(), digest: 3 },
        Kind::UndoAdded { path: path(), site, undo: undo() },
        Kind::EffectResult { step, attempt, outcome: Outcome::Ok(value()), unsure: false },
        Kind::EffectResult { step, attempt, outcome: Outcome::Err(value()), unsure: true },
        Kind::EffectResult { step, attempt, outcome: Outcome::Fault(RecordedFault(fault)), unsure: true },
        Kind::TimerFired { step },
        Kind::SignalReceived { step, messages: vec![signal(1), signal(u128::MAX)] },
        answered(Answered::Granted(value()), "ann"),
        answered(Answered::Refused("too much".into()), "lead"),
        answered(Answered::Expired, ""),
        child_ended(ChildEnd::Completed { value: value() }),
        child_ended(ChildEnd::Failed { value: value(), message: "no".into() }),
        child_ended(ChildEnd::Cancelled { reason: "enough".into() }),
        child_ended(ChildEnd::IdTaken),
        Kind::CancelRequested { reason: "enough".into(), by: "ann".into() },
        Kind::EffectCalledAgain { step, attempt },
        Kind::EffectFailed { step, attempt, error: Outcome::Err(value()), retry_at: 70_000, unsure: false },
        Kind::EffectNotStarted { step, attempt },
        Kind::EffectInDoubt { step, attempt, reason: "?".into() },
        Kind::EffectResolved { step, attempt, how: Resolved::Succeeded, by: "reconcile".into() },
        Kind::EffectResolved { step, attempt, how: Resolved::Failed, by: "a person".into() },
        Kind::EffectResolved { step, attempt, how: Resolved::RunAgain, by: "a person".into() },
        Kind::SignalSetAside { step, signal: signal(1), reason: "no number".into() },
        Kind::UndoCalled { undo: 300 },
        Kind::ResolutionSetAside {
            step,
            attempt,
            how: Resolved::Succeeded,
            value: value(),
            by: "ann".into(),
            reason: "no number".into(),
        },
    ];
    kinds.into_iter().map(|kind| Entry { at: 1_700_000_000_000, kind }).collect()
}

fn written(entry: &Entry<'_>) -> Bytes {
    let mut frames = BytesMut::new();
    entry.write(&mut frames).unwrap();
    frames.freeze()
}

fn entry_of(name: &str) -> Entry<'static> {
    every_kind().into_iter().find(|entry| entry.kind.name() == name).unwrap()
}

/// A frame as it is on disk for ever, for each of [`every_kind`].
const GOLDEN: [&str; 47] = [
    "70000000a70f3ace14da1b7301fd0068e5cf8b0100000006726566756e640e6167656e74733a3a726566756e64010301a176fe0000000000000000000000000000008005302e312e3005fd00806e87740100000104626f73730107090105756e7061790e6167656e74733a3a726566756e64020201800601036b3a32",
    "100000008e0d59ad15d7fbfd01fd0068e5cf8b01000001000301a176",
    "130000005c5b63eed9a3e52b01fd0068e5cf8b01000001010301a176026e6f",
    "10000000d4d8c734cc66eb4801fd0068e5cf8b01000002000301a176",
    "130000001f619c3ee71647de01fd0068e5cf8b01000002010301a176026e6f",
    "17000000c4ef06cc414e32ae01fd0068e5cf8b010000010206656e6f75676803616e6e",
    "170000002c0ca9f5ef5b5cb301fd0068e5cf8b010000020206656e6f75676803616e6e",
    "28000000b583fdc002e1871201fd0068e5cf8b010000010306726566756e640e6167656e74733a3a726566756e64000301a17604",
    "28000000424f4b016736f9f501fd0068e5cf8b010000020306726566756e640e6167656e74733a3a726566756e64000301a17604",
    "3d000000bf82ea017b35e64e01fd0068e5cf8b01000003096a6f696e5b305d2f310370617902010663686172676502020180fe100f0e0d0c0b0a09080706050403020101036b3a3107",
    "32000000aeb309191384def901fd0068e5cf8b01000004096a6f696e5b305d2f3103706179020000020180fe100f0e0d0c0b0a0908070605040302010007",
    "320000000b943daf00bdf8cf01fd0068e5cf8b01000004096a6f696e5b305d2f3103706179020001020180fe100f0e0d0c0b0a0908070605040302010007",
    "32000000a85431cb273c831d01fd0068e5cf8b01000004096a6f696e5b305d2f3103706179020003020180fe100f0e0d0c0b0a0908070605040302010007",
    "25000000a68c8f8535ee9b6601fd0068e5cf8b01000005096a6f696e5b305d2f31037061790209fdffffffffffffffff01",
    "1c000000adc5ab78fa14be9a01fd0068e5cf8b01000006096a6f696e5b305d2f3103706179020904",
    "0c000000b5b26d5d549e3e8001fd0068e5cf8b0100000703",
    "22000000d2971df784eecdfa01fd0068e5cf8b01000008096a6f696e5b305d2f3103706179020905737465657200",
    "22000000841a4f1b8f65ff6c01fd0068e5cf8b01000008096a6f696e5b305d2f3103706179020905737465657201",
    "3800000082bd5edce997145501fd0068e5cf8b01000009096a6f696e5b305d2f3103706179020907726566756e643f0301a1760203616e6e046c6561640801fc80380100",
    "2a00000074cc26cc84ae5be001fd0068e5cf8b0100000a096a6f696e5b305d2f310370617902090572756e2d390006726566756e6402",
    "2a0000005c1e8e73e908519201fd0068e5cf8b0100000a096a6f696e5b305d2f310370617902090572756e2d390106726566756e6402",
    "2b000000b4b6a5138c85055e01fd0068e5cf8b0100000b096a6f696e5b305d2f3103706179020904626f73730573746565720301a17603",
    "290000005118468ceca9ac1301fd0068e5cf8b0100000c096a6f696e5b305d2f310370617902090870726f67726573730301a17603",
    "3a000000f7e7d696faf7f1b001fd0068e5cf8b0100000d096a6f696e5b305d2f3103706179020905756e7061790e6167656e74733a3a726566756e64020201800601036b3a32",
    "130000006425f83c395b99e801fd0068e5cf8b0100000e0302000301a17600",
    "130000007bf89edf1efc1eb601fd0068e5cf8b0100000e0302010301a17601",
    "3f00000096758d3154beb88501fd0068e5cf8b0100000e0302022f81a854696d65644f757483a6656666656374a3706179a7617474656d707402aa74696d656f75745f6d73ce000493e001",
    "0c00000086a1f0161982dd3e01fd0068e5cf8b0100000f03",
    "27000000f2dfb975d32a581f01fd0068e5cf8b010000100302010301a176feffffffffffffffffffffffffffffffff0301a176",
    "15000000ab34f9307abbffa701fd0068e5cf8b0100001103000301a17603616e6e",
    "1b0000009abd93c18fe41de401fd0068e5cf8b01000011030108746f6f206d756368046c656164",
    "0e000000542e94d2ceec174401fd0068e5cf8b01000011030200",
    "17000000f064f96c321f259301fd0068e5cf8b01000012030572756e2d39000301a176",
    "1a0000007ba1182a20fdf96f01fd0068e5cf8b01000012030572756e2d39010301a176026e6f",
    "1a0000009f5069f2d4033fc301fd0068e5cf8b01000012030572756e2d390206656e6f756768",
    "1300000089f40b18a94cadb101fd0068e5cf8b01000012030572756e2d3903",
    "160000003d5fabaf8abb2ad501fd0068e5cf8b0100001306656e6f75676803616e6e",
    "0d000000821f6369539446af01fd0068e5cf8b010000140302",
    "1800000068cead18327e256301fd0068e5cf8b010000150302010301a176fc7011010000",
    "0d000000fb560845608d719c01fd0068e5cf8b010000160302",
    "0f00000001474030c3a8f1ed01fd0068e5cf8b010000170302013f",
    "18000000bf0fecf0506e49d701fd0068e5cf8b01000018030200097265636f6e63696c65",
    "17000000a119509d8175eea101fd0068e5cf8b01000018030201086120706572736f6e",
    "17000000709bdf5381d736ca01fd0068e5cf8b01000018030202086120706572736f6e",
    "1b000000813e0e4a59b0102201fd0068e5cf8b0100001903010301a176096e6f206e756d626572",
    "0e0000005241287424fb213b01fd0068e5cf8b0100001afb2c01",
    "20000000423ad630cf5c778201fd0068e5cf8b0100001b0302000301a17603616e6e096e6f206e756d626572",
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
fn what_is_decoded_quickly_is_what_bincode_decodes_whatever_the_bytes() {
    let mut quick = 0;
    let mut check = |body: &[u8]| {
        if let Some(entry) = quick::decode(body) {
            assert_eq!(decode_any(body), Ok(entry), "{body:02x?}");
            quick += 1;
        }
    };
    for entry in every_kind() {
        let body = &written(&entry)[FRAME_HEAD..];
        check(body);
        for at in 0..body.len() {
            check(&body[..at]);
            for byte in 0..=u8::MAX {
                let mut changed = body.to_vec();
                changed[at] = byte;
                check(&changed);
                // Numbers of every width, and what is left over.
                changed.splice(at..=at, [byte, 1, 0, 0, 0, 0, 0, 0, 0]);
                check(&changed);
            }
        }
    }
    assert!(quick > 10_000, "{quick}");
    let call = Entry { at: u64::MAX, kind: Kind::EffectQueued(call()) };
    let result = Kind::EffectResult {
        step: StepNo(300),
        attempt: Attempt(70_000),
        outcome: Outcome::Err(b""[..].into()),
        unsure: true,
    };
    for entry in [call, Entry { at: 70_000, kind: result }] {
        assert_eq!(quick::decode(&written(&entry)[FRAME_HEAD..]), Some(entry));
    }
}

#[test]
fn a_frame_that_is_cut_off_or_changed_in_any_bit_is_noticed() {
    let whole = written(&entry_of("effect.queued"));
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
    let mut bytes = written(&entry_of("step.closed")).to_vec();
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

#[test]
fn the_text_of_a_path_is_what_is_displayed_of_it() {
    for scope in ["", "join[0]/1", "a%2Fb[0]"] {
        for name in ["pay", "", "a/b[1]%\n", "ä", "\u{85}"] {
            for n in [0, 9, 10, 99, 4_294_967_295] {
                let path = Path { scope: scope.into(), name: name.into(), n };
                assert_eq!(path.text(), path.to_string());
            }
        }
    }
}
