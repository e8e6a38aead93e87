//! What a hostile reviewer would try with the shape of the code: nothing at all, ten thousand of it, sets that move, futures
//! that are none of ours, recursion. And that the replay check catches what it is there for.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use durable::{Code, EffectContext};

use crate::support::{Backend, Bench, World, every_cut, every_cut_ends, replays, until};

#[durable::effect(idempotent)]
async fn get(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    world.pass(&format!("get {n}")).await;
    n
}

#[durable::effect(read_only)]
async fn peek(#[resource] world: &World, n: u32) -> u32 {
    world.pass(&format!("peek {n}")).await;
    n
}

// ---- the null controls of the replay check ----

static LIVES: AtomicU32 = AtomicU32::new(0);

/// What it asks depends on how often it was polled from the beginning in this process.
#[durable::workflow]
async fn forgets(how: String) -> u32 {
    let life = LIVES.fetch_add(1, Ordering::SeqCst);
    match how.as_str() {
        "asks another" => get(life).await,
        "returns another" => get(7).await + life,
        "asks more" => {
            let mut sum = get(7).await;
            if life > 0 {
                sum += get(8).await;
            }
            sum
        }
        _ => unreachable!("no such way"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replay_check_catches_code_that_does_another_thing_each_time() {
    for how in ["asks another", "returns another", "asks more"] {
        LIVES.store(0, Ordering::SeqCst);
        let bench = Bench::on(Backend::Memory).await;
        bench.runtime.start("forgets", forgets(how.into())).await.unwrap().returned().await.unwrap();
        let found = replays(&bench.tape("forgets"), &bench.clock, 1).await;
        assert!(found.is_err(), "{how} was not found");
    }
    // And a run that was held back in a body is none that stands.
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("get 1");
    bench.runtime.start("many", many_at_a_time(3, 1)).await.unwrap();
    bench.world.until_noted("get", 1).await;
    let mut tape = bench.tape("many");
    tape.frames.truncate(1);
    assert!(crate::support::stands(&tape, &bench.clock).await.is_err());
}

// ---- nothing, and a lot ----

#[durable::workflow]
async fn nothing() -> usize {
    let none: Vec<u32> = durable::join_all(Vec::<durable::EffectCall<u32>>::new()).await;
    let tried = durable::try_join_all((0..0).map(|_| async { Err::<u32, ()>(()) })).await;
    let mut set = durable::Set::<durable::EffectCall<u32>>::new();
    let next = set.next().await;
    let block = async {}.await;
    let after = get(1).await;
    none.len() + tried.map_or(9, |all| all.len()) + usize::from(next.is_some()) + size_of_val(&block) + after as usize
}

#[durable::workflow]
async fn race_of_none(limited: bool) -> u32 {
    let none = durable::race(Vec::<durable::EffectCall<u32>>::new());
    if limited {
        return durable::timeout(Duration::from_secs(60), none).await.unwrap_or(5);
    }
    none.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_branches_at_all_are_over_at_once_and_a_race_of_none_parks_its_run() {
    let bench = Bench::on(Backend::Memory).await;
    assert_eq!(bench.runtime.start("nothing", nothing()).await.unwrap().returned().await.unwrap(), 1);
    bench.replays("nothing").await;
    every_cut(&bench, "nothing").await;
    let run = bench.runtime.start("limited", race_of_none(true)).await.unwrap();
    bench.end("limited").await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 5);
    bench.replays("limited").await;
    bench.runtime.start("for ever", race_of_none(false)).await.unwrap();
    assert_eq!(bench.parked("for ever").await.code(), Code::WaitsForNothing);
    bench.stands("for ever").await;
}

#[durable::workflow]
async fn many_at_a_time(n: u32, at_most: usize) -> u64 {
    let all = durable::join_all((0..n).map(get)).at_most(at_most).await;
    all.into_iter().map(u64::from).sum()
}

#[durable::workflow]
async fn many_race(n: u32) -> u32 {
    durable::race((0..n).map(peek).collect::<Vec<_>>()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_branches_are_joined_and_raced() {
    let bench = Bench::on(Backend::Memory).await;
    let n = 10_000;
    let sum = u64::from(n) * u64::from(n - 1) / 2;
    assert_eq!(bench.runtime.start("all", many_at_a_time(n, usize::MAX)).await.unwrap().returned().await.unwrap(), sum);
    assert_eq!(bench.runtime.start("some", many_at_a_time(n, 7)).await.unwrap().returned().await.unwrap(), sum);
    assert_eq!(bench.world.bodies("get"), 2 * n as usize);
    (0..n).filter(|i| *i != 777).for_each(|i| bench.world.close(format!("peek {i}")));
    assert_eq!(bench.runtime.start("race", many_race(n)).await.unwrap().returned().await.unwrap(), 777);
    let closed = bench.log("race").await.iter().filter(|entry| entry.name == "step.closed").count();
    assert_eq!(closed, n as usize - 1);
    for id in ["all", "some", "race"] {
        replays(&bench.tape(id), &bench.clock, 1).await.unwrap();
    }
    until("the losers to be stopped", async || bench.runtime.bodies().is_empty()).await;
}

// ---- sets and begun steps that move between scopes ----

#[durable::part]
async fn first_of<F>(mut set: durable::Set<F>) -> (u32, durable::Set<F>)
where
    F: durable::Step<Output = u32>,
{
    let first = set.next().await.unwrap_or(99);
    (first, set)
}

/// The set is filled and awaited in a part, and goes on in the workflow and in a branch.
#[durable::workflow]
async fn set_moves() -> Vec<u32> {
    #[durable::part]
    async fn one(n: u32) -> u32 {
        // The first ones ask nothing, so that nothing has needed the set's path before it moves.
        match n {
            0 => 0,
            n => get(n).await,
        }
    }
    let mut set = durable::Set::new();
    set.add(one(0));
    let (first, mut set) = first_of(set).await;
    let mut out = vec![first];
    set.add(one(1));
    out.extend(set.next().await);
    set.add(one(2));
    set.add(one(3));
    let (next, mut set) = first_of(set).await;
    out.push(next);
    let (in_branch, beside) = durable::join((async { set.next().await.unwrap_or(98) }, get(4))).await;
    out.extend([in_branch, beside]);
    out.push(set.len() as u32);
    out
}

/// The set's step is over while the set is not awaited, and another combinator has taken the place of the branch in which it was.
#[durable::workflow]
async fn set_is_left() -> Vec<u32> {
    let mut set = durable::Set::new();
    set.add(get(50));
    {
        let lent = std::sync::Mutex::new(Some(&mut set));
        durable::join_all((0..8).map(|i| {
            let lent = &lent;
            async move {
                let set = if i == 5 { lent.lock().ok().and_then(|mut lent| lent.take()) } else { None };
                if let Some(set) = set {
                    let _ = durable::timeout(Duration::from_secs(1), set.next()).await;
                }
            }
        }))
        .await;
    }
    get(51).await;
    let mut all = durable::join_all((60..68).map(get)).at_most(1).await;
    all.extend(set.next().await);
    all
}

#[durable::part]
#[allow(clippy::async_yields_async, reason = "what is begun here is awaited by whoever called")]
async fn begins(n: u32) -> durable::Begun<u32> {
    durable::begin(get(n)).await
}

#[durable::workflow]
async fn begun_moves() -> Vec<u32> {
    let one = begins(1).await;
    let two = begins(2).await;
    let inline = durable::begin(many_at_a_time(3, 2)).await;
    let (a, b) = durable::join((async { two.await }, async { one.await })).await;
    let kept = vec![begins(3).await, begins(4).await, begins(5).await];
    drop(kept.into_iter().nth(1));
    vec![a, b, inline.await as u32]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_and_begun_steps_move_between_scopes() {
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("get 3");
    bench.runtime.start("set", set_moves()).await.unwrap();
    bench.world.until_noted("get", 4).await;
    bench.world.open("get 3");
    bench.end("set").await.unwrap();
    let out = bench.runtime.run("set").await.unwrap().returned_as::<Vec<u32>>().await.unwrap();
    assert_eq!(out, [0, 1, 2, 3, 4, 0]);
    let begun = bench.runtime.start("begun", begun_moves()).await.unwrap();
    assert_eq!(begun.returned().await.unwrap(), [2, 1, 3]);
    bench.replays("set").await;
    bench.replays("begun").await;
    every_cut_ends(&bench, "set").await;
    every_cut(&bench, "begun").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_is_left_alone_does_not_begin_branches_of_others() {
    let bench = Bench::on(Backend::Memory).await;
    for n in [50, 51, 60, 61] {
        bench.world.close(format!("get {n}"));
    }
    let run = bench.runtime.start("left", set_is_left()).await.unwrap();
    bench.world.until_noted("get", 1).await;
    until("the sleep", async || bench.names("left").await.contains(&"timer.set")).await;
    bench.clock.advance(Duration::from_secs(1));
    bench.world.until_noted("get", 2).await;
    bench.world.open("get 50");
    until("the outcome", async || bench.names("left").await.contains(&"effect.result")).await;
    bench.world.open("get 51");
    bench.world.until_noted("get", 3).await;
    bench.world.open("get 60");
    bench.world.until_noted("get", 4).await;
    // One at a time: nothing but 61 is under way.
    let running: Vec<_> = bench.runtime.bodies().into_iter().map(|body| body.path).collect();
    assert_eq!(running, ["join_all[1]/1/get[0]"]);
    bench.world.open("get 61");
    assert_eq!(run.returned().await.unwrap(), [60, 61, 62, 63, 64, 65, 66, 67, 50]);
    bench.replays("left").await;
}

// ---- recursion ----

#[durable::workflow]
async fn down(n: u32) -> u32 {
    if n == 0 { get(0).await } else { 1 + down(n - 1).await }
}

#[durable::part]
async fn down_by_parts(n: u32) -> u32 {
    if n == 0 { get(0).await } else { 1 + down_by_parts(n - 1).await }
}

#[durable::workflow]
async fn starts_down_by_parts(n: u32) -> u32 {
    down_by_parts(n).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflows_and_parts_call_themselves_to_some_depth() {
    let bench = Bench::on(Backend::Memory).await;
    assert_eq!(bench.runtime.start("down", down(100)).await.unwrap().returned().await.unwrap(), 100);
    let run = bench.runtime.start("parts", starts_down_by_parts(100)).await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 100);
    bench.replays("down").await;
    bench.replays("parts").await;
    every_cut(&bench, "parts").await;
}

// ---- futures that are no steps ----

/// Hides an await from the attribute.
macro_rules! hidden {
    ($future:expr) => {
        $future.await
    };
}

/// Ready at the second poll; wakes whom it was polled by, from within the poll.
struct Twice(bool);

impl Future for Twice {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    }
}

/// Hides a channel from the attribute.
fn channel() -> (tokio::sync::oneshot::Sender<()>, tokio::sync::oneshot::Receiver<()>) {
    tokio::sync::oneshot::channel()
}

#[durable::part]
async fn foreign(kind: &str) {
    match kind {
        "wakes" => hidden!(Twice(false)),
        "tokio sleep" => hidden!(tokio::time::sleep(Duration::from_millis(1))),
        "channel" => {
            let (sender, receiver) = channel();
            let _ = hidden!(receiver);
            drop(sender);
        }
        _ => {
            let mut twice = Twice(false);
            // Polled once, and dropped.
            hidden!(std::future::poll_fn(|cx| {
                let _ = std::pin::Pin::new(&mut twice).poll(cx);
                std::task::Poll::Ready(())
            }));
        }
    }
}

#[durable::workflow]
async fn awaits_foreign(kind: String) -> u32 {
    let n = get(1).await;
    let (m, ()) = durable::join((async { get(2).await }, async { foreign(&kind).await })).await;
    n + m
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_future_parks_its_run_in_the_same_poll() {
    for kind in ["wakes", "tokio sleep", "channel", "dropped"] {
        let bench = Bench::on(Backend::Memory).await;
        bench.runtime.start("foreign", awaits_foreign(kind.into())).await.unwrap();
        let error = bench.parked("foreign").await;
        assert_eq!(error.code(), Code::ForeignAwait, "{kind}: {error}");
        let text = error.to_string();
        for part in
            ["run foreign is parked", "a future that is no step", "after step get (", "shapes.rs:", "into an effect"]
        {
            assert!(text.contains(part), "{kind}: {part} is not in {text}");
        }
        assert_eq!(bench.world.inputs("get"), ["1"], "{kind}: what the poll asked is discarded");
        bench.stands("foreign").await;
    }
}

/// A step that is polled and then dropped by hand is closed like any other.
#[durable::workflow]
async fn polls_and_drops() -> u32 {
    let first = durable::timeout(Duration::ZERO, peek(0)).await;
    let block = async { peek(0).await };
    drop(block);
    let call = get(3);
    drop(call);
    first.unwrap_or(7) + get(4).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_dropped_before_they_are_awaited_ask_nothing() {
    let bench = Bench::on(Backend::Memory).await;
    bench.world.close("peek 0");
    let run = bench.runtime.start("drops", polls_and_drops()).await.unwrap();
    bench.end("drops").await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 11);
    assert_eq!(bench.world.inputs("get"), ["4"]);
    bench.replays("drops").await;
}

/// Names that would break a path if they were not escaped.
#[durable::workflow]
async fn odd_names() -> u32 {
    let mut sum = 0;
    for name in ["", "/", "a/b[0]", "[1]", "%2F", "\u{0}", "é\u{202e}", "get", "join_all[0]/0/get"] {
        sum += get(1).named(name).await;
        sum += get(1).named(name).await;
    }
    sum + get(2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_names_give_paths_of_their_own() {
    let bench = Bench::on(Backend::Memory).await;
    let run = bench.runtime.start("odd", odd_names()).await.unwrap();
    assert_eq!(run.returned().await.unwrap(), 20);
    let ledger = bench.world.ledger();
    let paths: std::collections::BTreeSet<_> = ledger.iter().map(|line| &line.path).collect();
    let keys: std::collections::BTreeSet<_> = ledger.iter().map(|line| &line.key).collect();
    assert_eq!((ledger.len(), paths.len(), keys.len()), (19, 19, 19));
    bench.replays("odd").await;
    every_cut(&bench, "odd").await;
}
