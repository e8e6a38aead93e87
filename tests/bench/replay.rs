//! The replay check that ends every scenario: the log is fed to the same code in a world where every body would be seen.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use durable::{
    Runtime, Status, StoreError, TestClock,
    store::{Done, Store, Write},
};

use crate::{
    bench::{Bench, until},
    frames,
    pass_on::pass_on,
    tape::{self, Image},
    world::World,
};

/// How often a log is replayed.
pub(crate) const REPLAYS: usize = 50;

/// A run's logs, taken off a store.
pub(crate) struct Tape {
    tape: tape::Tape,
    /// The entries of the newest log.
    pub(crate) frames: Vec<Bytes>,
}

impl Tape {
    pub(crate) fn of(store: &dyn Store, id: &str) -> Tape {
        let Some(tape) = tape::Tape::of(store, id) else { panic!("there is no run {id}") };
        let frames = tape.frames(tape.logs() - 1);
        Tape { tape, frames }
    }

    /// The next process, on a newest log that was cut there.
    pub(crate) async fn opened(&self, len: usize, world: World, clock: &TestClock) -> Bench {
        Bench::of(self.tape.cut(self.tape.logs() - 1, len), world, clock).await
    }
}

/// Passes everything on but the batch that ends a log: that is kept, and whoever appends it has lost the run.
struct Endless {
    inner: Image,
    appended: Arc<Mutex<Vec<Bytes>>>,
}

impl Store for Endless {
    pass_on!(inner);

    fn submit(&self, write: Write, done: Done) {
        let ends = frames::names(&write).contains(&"run.ended");
        if let Write::Append(batch) = &write {
            self.appended.lock().unwrap().extend(frames::split(batch.frames.clone()));
        }
        match ends {
            true => done(Err(StoreError::Fenced)),
            false => self.inner.submit(write, done),
        }
    }
}

/// Replays each log of a run that has ended, without its terminal entry, which the code (or the fold, from `run.ending` on) must then
/// reach again: no body, no other entry, the same end.
pub(crate) async fn check(tape: &Tape, clock: &TestClock) -> Result<(), String> {
    check_times(tape, clock, REPLAYS).await
}

pub(crate) async fn check_times(tape: &Tape, clock: &TestClock, times: usize) -> Result<(), String> {
    for log in 0..tape.tape.logs() {
        let entries = tape.tape.frames(log);
        let Some((end, rest)) = entries.split_last().filter(|(end, _)| frames::name(end) == "run.ended") else {
            return Err(format!("log {log} has no end"));
        };
        for n in 0..times {
            let image = tape.tape.with(log, rest);
            ends_so(tape.tape.run.as_str(), image, end, clock)
                .await
                .map_err(|e| format!("replay {n} of log {log} {e}"))?;
        }
    }
    Ok(())
}

async fn ends_so(id: &str, image: Image, end: &Bytes, clock: &TestClock) -> Result<(), String> {
    let (world, appended) = (World::new(), Arc::new(Mutex::new(Vec::new())));
    let store = Endless { inner: image, appended: appended.clone() };
    let builder = Runtime::builder().resource(world.clone()).clock(clock.clone()).settle(Duration::ZERO);
    let runtime = builder.open_store(store).await.map_err(|e| format!("does not open: {e}"))?;
    let run = runtime.run(id).await.map_err(|e| format!("finds no run: {e}"))?;
    let mut ended = Ok(());
    until("the end of a replay", async || {
        if let Ok(Status::Parked(parked)) = run.status().await {
            ended = Err(format!("is parked: {}", parked.why));
        }
        ended.is_err() || !world.ledger().is_empty() || !appended.lock().unwrap().is_empty()
    })
    .await;
    ended?;
    let ledger = world.ledger();
    if !ledger.is_empty() {
        return Err(format!("ran bodies: {ledger:?}"));
    }
    let mut added = appended.lock().unwrap().clone();
    // Whoever looks at the run has it opened once more, and it gets there again.
    let first = added.iter().position(|frame| frames::name(frame) == "run.ended");
    added.truncate(first.map_or(added.len(), |first| first + 1));
    // Without length, checksum and time.
    match &added[..] {
        [again] if again[22..] == end[22..] => Ok(()),
        [again] if frames::name(again) == "run.ended" => Err("ended in another way".to_owned()),
        _ => Err(format!("added entries: {:?}", added.iter().map(frames::name).collect::<Vec<_>>())),
    }
}

/// Replays the newest log of a run that waits: it waits again, nothing runs, nothing is added.
pub(crate) async fn stands(tape: &Tape, clock: &TestClock) -> Result<(), String> {
    let (id, len) = (tape.tape.run.as_str(), tape.frames.len());
    for n in 0..REPLAYS {
        let bench = tape.opened(len, World::new(), clock).await;
        let status = bench.until_status(id, "replayed", |status| *status != Status::Opening).await;
        if let Status::Parked(parked) = status {
            return Err(format!("replay {n}: {}", parked.why));
        }
        bench.looked().await;
        let ledger = bench.world.ledger();
        if !ledger.is_empty() {
            return Err(format!("replay {n}: bodies ran: {ledger:?}"));
        }
        if Tape::of(&*bench.store, id).frames != tape.frames {
            return Err(format!("replay {n} added entries"));
        }
    }
    Ok(())
}
