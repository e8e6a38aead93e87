//! O-ID-3: the body ran, and its outcome cannot be written.

use std::sync::{Arc, Mutex};

use durable::{Code, EffectContext, Runtime, Status, TestClock, store::memory::MemoryStore};
use serde_json::json;

use crate::{
    bench::{BEGINNING, Bench, millis, refused, secs, until},
    odd_store::{Mood, moody},
    replay::Tape,
    world::World,
};

#[durable::effect(at_most_once)]
async fn charge(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    world.pass("charge").await;
    Ok("charged".into())
}

#[durable::effect(idempotent)]
async fn refund(cx: &EffectContext, #[resource] world: &World) -> durable::Result<String> {
    world.note(cx, "");
    Ok("refunded".into())
}

#[durable::workflow]
async fn buy() -> durable::Result<String> {
    match charge().await {
        Ok(receipt) => Ok(receipt),
        Err(_) => refund().await,
    }
}

/// A store in memory and a way to spoil its mood; the run's body has begun.
struct Day {
    memory: Arc<MemoryStore>,
    mood: Arc<Mutex<Mood>>,
    runtime: Runtime,
    world: World,
    clock: TestClock,
}

impl Day {
    async fn begun() -> Day {
        let (memory, mood) = (Arc::new(MemoryStore::new()), Arc::new(Mutex::new(Mood::Fine)));
        let (world, clock) = (World::new(), TestClock::at(BEGINNING));
        world.close("charge");
        let builder = Runtime::builder().resource(world.clone()).clock(clock.clone());
        let runtime = builder.open_store(moody(memory.clone(), mood.clone())).await.unwrap();
        runtime.start("buy", buy()).await.unwrap();
        world.until_noted("charge", 1).await;
        Day { memory, mood, runtime, world, clock }
    }

    /// From here on the store is of that mood, and the body returns.
    async fn spoiled(mood: Mood) -> Day {
        let day = Day::begun().await;
        day.set(mood);
        day.world.open("charge");
        day
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    async fn status(&self) -> Status {
        self.runtime.run("buy").await.unwrap().status().await.unwrap()
    }

    async fn until_word(&self, word: &str) -> Status {
        until(word, async || self.status().await.as_str() == word).await;
        self.status().await
    }

    /// Lets time pass until the run has ended.
    async fn end(&self) -> String {
        until("the end", async || {
            self.clock.advance(millis(500));
            self.status().await.is_terminal()
        })
        .await;
        self.runtime.run("buy").await.unwrap().returned_as::<durable::Result<String>>().await.unwrap().unwrap()
    }

    fn bodies(&self) -> (usize, usize) {
        (self.world.bodies("charge"), self.world.bodies("refund"))
    }

    /// The next process, on what is in the store now.
    async fn next(&self) -> Bench {
        Bench::of(Arc::new(self.memory.reopened()), self.world.next(), &self.clock).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_the_run_until_there_is_room_and_the_code_never_hears_of_it() {
    for mood in [Mood::Refuses, Mood::Loses] {
        let day = Day::spoiled(mood).await;
        let status = day.until_word("storage trouble").await;
        let Status::StorageTrouble { reason } = &status else { panic!("{status:?}") };
        assert!(reason.contains("the disk is full") || reason.contains("the connection broke"), "{reason}");
        assert!(status.next_action().is_some());
        // Half a minute of it.
        for _ in 0..60 {
            day.clock.advance(millis(500));
            assert_eq!(day.status().await.as_str(), "storage trouble");
        }
        assert_eq!(
            day.runtime.run("buy").await.unwrap().log().await.unwrap().len(),
            2,
            "only what is durable is shown"
        );
        assert_eq!(day.bodies(), (1, 0));
        // A crash now leaves the charge in doubt.
        let next = day.next().await;
        assert_eq!(next.held("buy").await.effect, "charge");
        next.stands("buy").await;
        // The process that lives writes what it has as soon as it can.
        day.set(Mood::Fine);
        assert_eq!(day.end().await, "charged");
        assert_eq!(day.bodies(), (1, 0), "{mood:?}");
        crate::replay::check(&Tape::of(&*day.memory, "buy"), &day.clock).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_acknowledgement_is_read_back_and_nothing_is_written_twice() {
    let day = Day::spoiled(Mood::Forgets).await;
    assert_eq!(day.end().await, "charged");
    assert_eq!(day.bodies(), (1, 0));
    assert_eq!(day.runtime.run("buy").await.unwrap().log().await.unwrap().len(), 4);
    crate::replay::check(&Tape::of(&*day.memory, "buy"), &day.clock).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_changes_its_mood_at_every_write_gets_each_entry_once() {
    let day = Day::begun().await;
    let moods = [Mood::Refuses, Mood::Forgets, Mood::Loses, Mood::Fine];
    let (mood, stop) = (day.mood.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let stopped = stop.clone();
    let changing = tokio::spawn(async move {
        for next in moods.into_iter().cycle() {
            if stopped.load(std::sync::atomic::Ordering::Relaxed) {
                return;
            }
            *mood.lock().unwrap() = next;
            tokio::task::yield_now().await;
        }
    });
    day.runtime.start("many", many()).await.unwrap();
    let run = day.runtime.run("many").await.unwrap();
    until("the end", async || {
        day.clock.advance(millis(500));
        run.status().await.unwrap().is_terminal()
    })
    .await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    changing.await.unwrap();
    assert_eq!(day.world.bodies("refund"), 20);
    let log = run.log().await.unwrap();
    assert_eq!(log.iter().filter(|entry| entry.name == "effect.result").count(), 20);
    crate::replay::check(&Tape::of(&*day.memory, "many"), &day.clock).await.unwrap();
}

#[durable::workflow]
async fn many() -> durable::Result<()> {
    for _ in 0..20 {
        refund().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_never_taken_parks_the_run_once_and_for_all_restarts() {
    let day = Day::spoiled(Mood::Rejects).await;
    let status = day.until_word("parked").await;
    let Status::Parked(parked) = status else { panic!("{status:?}") };
    assert_eq!(parked.code, Code::RecordRejected);
    assert!(parked.why.contains("a row of this kind is not allowed"), "{}", parked.why);
    let error = refused(day.runtime.run("buy").await.unwrap().returned_as::<durable::Result<String>>().await);
    assert_eq!(error.parked(), Some(&parked), "whoever waits is told");
    assert_eq!(day.bodies(), (1, 0));

    let mut bench = day.next().await;
    for _ in 0..5 {
        let again = bench.parked("buy").await;
        assert_eq!((again.code, again.since), (parked.code, parked.since), "it has stood there since");
        bench.advance(secs(120)).await;
        assert_eq!((bench.world.bodies("charge"), bench.world.bodies("refund")), (1, 0));
        bench = bench.restarted().await;
    }
    // A person lets it go on: the step ended, and what it returned cannot be recorded.
    bench.parked("buy").await;
    bench.runtime.retry("buy").await.unwrap();
    assert_eq!(bench.end("buy").await, json!({ "Ok": "refunded" }));
    assert_eq!(bench.world.bodies("charge"), 1);
    let log = bench.log("buy").await;
    let result = log.iter().find(|entry| entry.name == "effect.result").unwrap();
    assert!(result.to_string().contains("NotRecordable"), "{result}");
    bench.replays("buy").await;
}
