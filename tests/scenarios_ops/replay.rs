//! The replay check that ends every scenario: the log is fed to the same code in a world where every body would be seen.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use durable::{
    Generation, RunId, Seq, Status, TestClock,
    store::{Batch, Head, Store, Write, Written, memory::MemoryStore},
};

use crate::{bench::Bench, world::World};

/// How often a log is replayed.
const REPLAYS: usize = 50;

/// A run's log, taken off a store.
pub(crate) struct Tape {
    run: RunId,
    head: Head,
    pub(crate) frames: Vec<Bytes>,
}

impl Tape {
    pub(crate) fn of(store: &dyn Store, id: &str) -> Tape {
        let run = RunId::new(id).unwrap();
        let head = store.run(&run).unwrap().unwrap().head;
        let (mut frames, mut at) = (Vec::new(), Seq(0));
        loop {
            let page = store.read(&run, Generation(0), at, 1 << 20).unwrap();
            let Some(last) = page.last() else { return Tape { run, head, frames } };
            at = last.first.plus(last.count.into());
            for record in page {
                let mut bytes = record.frames;
                while let Some(length) = bytes.first_chunk::<4>() {
                    let length = u32::from_le_bytes(*length) as usize;
                    frames.push(bytes.split_to(12 + length));
                }
            }
        }
    }

    /// A store in memory that holds the first `len` entries; without the last one of a run that has ended it is listed as
    /// unfinished.
    pub(crate) fn store(&self, len: usize) -> Arc<MemoryStore> {
        let (store, run) = (Arc::new(MemoryStore::new()), self.run.clone());
        let head = Head { live: self.head.live || len < self.frames.len(), ..self.head.clone() };
        now(&store, Write::Create { run: run.clone(), count: 1, frames: self.frames[0].clone(), head });
        let Written::Claimed(epoch) = now(&store, Write::Claim { run: run.clone() }) else {
            panic!("a claim is answered with an epoch")
        };
        for (n, frame) in self.frames[1..len].iter().enumerate() {
            let mut frames = BytesMut::new();
            frames.extend_from_slice(frame);
            let (at, count, frames) = (Seq(1 + n as u64), 1, frames.freeze());
            let (run, generation) = (run.clone(), Generation(0));
            now(
                &store,
                Write::Append(Batch { run, epoch, generation, at, count, frames, acts: Vec::new(), head: None }),
            );
        }
        now(&store, Write::Release { run, epoch });
        store
    }

    /// The next process, on a log that was cut there.
    pub(crate) async fn opened(&self, len: usize, world: World, clock: &TestClock) -> Bench {
        Bench::of(self.store(len), world, clock).await
    }
}

/// A store in memory has done what it was told when `submit` returns.
fn now(store: &MemoryStore, write: Write) -> Written {
    let (done, wait) = std::sync::mpsc::channel();
    store.submit(write, Box::new(move |result| done.send(result).unwrap()));
    wait.recv().unwrap().unwrap()
}

/// Replays the log of a run that has ended, without its terminal entry, which the code (or the fold, from `run.ending` on) must then
/// reach again: no body, no other entry, the same end.
pub(crate) async fn check(tape: &Tape, clock: &TestClock) -> Result<(), String> {
    let (id, last) = (tape.run.as_str(), tape.frames.len() - 1);
    let whole = tape.opened(tape.frames.len(), World::new(), clock).await;
    let before = whole.end(id).await;
    for n in 0..REPLAYS {
        let bench = tape.opened(last, World::new(), clock).await;
        let run = bench.runtime.run(id).await.unwrap();
        let after: serde_json::Value = tokio::time::timeout(Duration::from_secs(60), run.returned_as())
            .await
            .map_err(|_| format!("replay {n} waits for something"))?
            .map_err(|e| format!("replay {n}: {e}"))?;
        if before != after {
            return Err(format!("replay {n} ended with {after}, not with {before}"));
        }
        untouched(tape, &bench, last).map_err(|why| format!("replay {n}: {why}"))?;
        if Tape::of(&*bench.store, id).frames.len() != tape.frames.len() {
            return Err(format!("replay {n} added entries"));
        }
    }
    Ok(())
}

/// Replays the log of a run that waits: it waits again, nothing runs, nothing is added.
pub(crate) async fn stands(tape: &Tape, clock: &TestClock) -> Result<(), String> {
    let id = tape.run.as_str();
    for n in 0..REPLAYS {
        let bench = tape.opened(tape.frames.len(), World::new(), clock).await;
        let status = bench.until_status(id, "replayed", |status| *status != Status::Opening).await;
        if let Status::Parked(parked) = status {
            return Err(format!("replay {n}: {}", parked.why));
        }
        bench.looked().await;
        untouched(tape, &bench, tape.frames.len()).map_err(|why| format!("replay {n}: {why}"))?;
        if Tape::of(&*bench.store, id).frames.len() != tape.frames.len() {
            return Err(format!("replay {n} added entries"));
        }
    }
    Ok(())
}

fn untouched(tape: &Tape, bench: &Bench, len: usize) -> Result<(), String> {
    let ledger = bench.world.ledger();
    if !ledger.is_empty() {
        return Err(format!("bodies ran: {ledger:?}"));
    }
    let now = Tape::of(&*bench.store, tape.run.as_str()).frames;
    match now[..len] == tape.frames[..len] {
        true => Ok(()),
        false => Err("the log has changed".to_owned()),
    }
}

mod control {
    //! The check must catch code that has changed.

    use std::sync::atomic::{AtomicBool, Ordering};

    use durable::EffectContext;

    use super::{Tape, check};
    use crate::{
        bench::{Backend, Bench},
        world::World,
    };

    static CHANGED: AtomicBool = AtomicBool::new(false);

    #[durable::effect(idempotent)]
    async fn step(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
        world.note(cx, n);
        n
    }

    #[durable::workflow]
    async fn changing() -> u32 {
        let n = if durable::untracked(|| CHANGED.load(Ordering::Relaxed)) { 2 } else { 1 };
        step(1).await + step(n).await
    }

    #[tokio::test]
    async fn the_replay_check_catches_code_that_asks_for_something_else() {
        let bench = Bench::on(Backend::Memory).await;
        bench.runtime.start("run", changing()).await.unwrap();
        bench.end("run").await;
        bench.replays("run").await;
        let tape = Tape::of(&*bench.store, "run");
        CHANGED.store(true, Ordering::Relaxed);
        let why = check(&tape, &bench.clock).await.unwrap_err();
        assert!(why.contains("the code and the log disagree"), "{why}");
    }

    #[tokio::test]
    async fn the_replay_check_catches_a_body_that_runs() {
        let bench = Bench::on(Backend::Memory).await;
        bench.world.close("never");
        bench.runtime.start("run", waiting()).await.unwrap();
        bench.world.until_noted("wait", 1).await;
        let tape = Tape::of(&*bench.store, "run");
        let why = super::stands(&tape, &bench.clock).await.unwrap_err();
        assert!(why.contains("bodies ran") || why.contains("added entries"), "{why}");
    }

    #[durable::effect(idempotent)]
    async fn wait(cx: &EffectContext, #[resource] world: &World) {
        world.note(cx, "");
        world.pass("never").await;
    }

    #[durable::workflow]
    async fn waiting() {
        wait().await;
    }
}
