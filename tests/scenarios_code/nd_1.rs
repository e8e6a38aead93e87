//! O-ND-1: parallel branches that finish in a different order than they began.
//!
//! K4 after each outcome in turn is a cut of the log behind that outcome, in which the next process finds it.

use std::hash::{DefaultHasher, Hash, Hasher};

use durable::EffectContext;

use crate::support::{BOTH, Backend, Bench, World, every_cut};

#[durable::effect(idempotent)]
async fn ask(cx: &EffectContext, #[resource] world: &World, what: &str) -> String {
    world.note(cx, what);
    world.pass(what).await;
    format!("<{what}>")
}

#[durable::workflow]
async fn two_branches() -> String {
    let left = async { ask("a1").await + &ask("a2").await };
    let right = async { ask("b1").await + &ask("b2").await };
    let (left, right) = durable::join((left, right)).await;
    ask(&format!("sum {left} {right}")).await
}

const SUM: &str = "<sum <a1><a2> <b1><b2>>";

#[durable::workflow]
async fn nested() -> Vec<Vec<String>> {
    durable::join_all((0..2).map(|outer| async move {
        durable::join_all((0..5).map(|inner| async move {
            ask(&format!("{outer}.{inner}.first")).await + &ask(&format!("{outer}.{inner}.second")).await
        }))
        .await
    }))
    .await
}

/// What takes as many turns of the executor as its input's hash and the run's id say.
#[durable::effect(read_only)]
async fn vary(cx: &EffectContext, #[resource] world: &World, what: &str) -> String {
    world.note(cx, what);
    let mut hash = DefaultHasher::new();
    (cx.run_id().as_str(), what).hash(&mut hash);
    for _ in 0..hash.finish() % 40 {
        tokio::task::yield_now().await;
    }
    what.to_owned()
}

#[durable::workflow]
async fn varied() -> Vec<String> {
    durable::join_all((0..4).map(|i| async move { vary(&format!("{i}a")).await + &vary(&format!("{i}b")).await })).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slow_branch_keeps_its_own_results() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.world.close("a1");
        let run = bench.runtime.start("slow", two_branches()).await.unwrap();
        bench.world.until_noted("ask", 3).await;
        bench.world.open("a1");
        assert_eq!(run.returned().await.unwrap(), SUM);
        assert_eq!(bench.world.inputs("ask"), ["a1", "b1", "b2", "a2", "sum <a1><a2> <b1><b2>"]);
        bench.replays("slow").await;
        every_cut(&bench, "slow").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_branches_end_in_any_order_and_replay_in_it() {
    let all: Vec<String> = (0..10).map(|i| format!("{}.{}", i / 5, i % 5)).collect();
    for seed in 0..8_u64 {
        let bench = Bench::on(Backend::Memory).await;
        let gates = all.iter().flat_map(|branch| [format!("{branch}.first"), format!("{branch}.second")]);
        gates.for_each(|gate| bench.world.close(gate));
        let run = bench.runtime.start("nested", nested()).await.unwrap();
        // Any order in which each branch's first effect ends before its second.
        let mut left: Vec<(&String, u32)> = all.iter().map(|branch| (branch, 0)).collect();
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        while !left.is_empty() {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let i = (dice >> 33) as usize % left.len();
            let (branch, over) = &mut left[i];
            let gate = format!("{branch}.{}", ["first", "second"][*over as usize]);
            crate::support::until("the body", async || bench.world.inputs("ask").contains(&gate)).await;
            bench.world.open(&gate);
            *over += 1;
            if *over == 2 {
                left.remove(i);
            }
        }
        let returned = run.returned().await.unwrap();
        for (branch, text) in all.iter().zip(returned.into_iter().flatten()) {
            assert_eq!(text, format!("<{branch}.first><{branch}.second>"));
        }
        assert_eq!(bench.world.bodies("ask"), 20);
        bench.replays("nested").await;
        if seed == 0 {
            every_cut(&bench, "nested").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_runs_with_bodies_of_any_length_all_end() {
    let bench = Bench::on(Backend::Memory).await;
    let mut runs = Vec::new();
    for n in 0..200 {
        runs.push(bench.runtime.start(format!("varied-{n}"), varied()).await.unwrap());
    }
    for (n, run) in runs.iter().enumerate() {
        assert_eq!(run.returned().await.unwrap(), ["0a0b", "1a1b", "2a2b", "3a3b"]);
        crate::support::replays(&bench.tape(&format!("varied-{n}")), &bench.clock, 1).await.unwrap();
    }
    assert_eq!(bench.world.bodies("vary"), 1_600);
}
