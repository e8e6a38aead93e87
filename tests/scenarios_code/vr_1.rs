//! O-VR-1: a step inserted, removed, moved, renamed; with a gate and without.
//!
//! "Parked after each position" is a cut of the old code's log at each of its places.

use durable::Code;

use crate::{
    scripted::{Op, script, scripted},
    support::{BOTH, Backend, Bench, every_cut, replays},
};

fn v1() -> Vec<Op> {
    vec![Op::A(1), Op::Sleep(60), Op::B(2), Op::C(3)]
}

/// The old code's finished run.
async fn old_run(backend: Backend, id: &str, ops: Vec<Op>) -> Bench {
    script(id, ops);
    let bench = Bench::on(backend).await;
    bench.runtime.start(id, scripted(id.to_owned())).await.unwrap();
    bench.end(id).await.unwrap();
    bench.replays(id).await;
    bench
}

/// Commands of the first `cut` entries.
fn asked(log: &[durable::LogEntry], cut: usize) -> usize {
    let commands = ["effect.called", "timer.set", "version.chosen"];
    log[..cut].iter().filter(|entry| commands.contains(&entry.name)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_gate_only_runs_that_were_past_the_change_diverge() {
    // The change, and how many of the old commands are as before.
    let changes = [
        ("inserted", vec![Op::A(1), Op::Sleep(60), Op::Named("x", 9), Op::B(2), Op::C(3)], 2),
        ("removed", vec![Op::A(1), Op::Sleep(60), Op::C(3)], 2),
        ("swapped", vec![Op::A(1), Op::Sleep(60), Op::C(3), Op::B(2)], 2),
        ("renamed", vec![Op::A(1), Op::Sleep(60), Op::Named("b2", 2), Op::C(3)], 2),
        ("removed last", vec![Op::A(1), Op::Sleep(60), Op::B(2)], 3),
        ("removed first", vec![Op::Sleep(60), Op::B(2), Op::C(3)], 0),
    ];
    for (change, new, same) in changes {
        let id = format!("change-{}", change.replace(' ', "-"));
        let bench = old_run(Backend::Memory, &id, v1()).await;
        let (tape, log) = (bench.tape(&id), bench.log(&id).await);
        for cut in 1..tape.frames.len() {
            script(&id, new.clone());
            let next = Bench::after(&tape, cut, &bench.clock).await;
            if asked(&log, cut) <= same {
                next.end(&id).await.unwrap_or_else(|e| panic!("{change} cut at {cut}: {e}"));
                next.replays(&id).await;
                continue;
            }
            let error = next.parked(&id).await;
            assert_eq!(error.code(), Code::Diverged, "{change} cut at {cut}: {error}");
            assert!(error.to_string().contains("durable::version"), "{error}");
            assert!(next.world.ledger().is_empty());
            assert_eq!(next.tape(&id).frames, tape.frames[..cut]);
            script(&id, v1());
            next.runtime.retry(&id).await.unwrap();
            next.end(&id).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_gate_old_runs_go_the_old_way_and_new_ones_the_new() {
    let changes = [
        ("g-inserted", vec![Op::Named("x", 9), Op::B(2)], vec![Op::B(2)], vec![Op::C(3)]),
        ("g-removed", vec![], vec![Op::B(2)], vec![Op::C(3)]),
        ("g-swapped", vec![Op::C(3), Op::B(2)], vec![Op::B(2), Op::C(3)], vec![]),
        ("g-renamed", vec![Op::Named("b2", 2)], vec![Op::B(2)], vec![Op::C(3)]),
    ];
    for (id, new, old, after) in changes {
        let bench = old_run(Backend::Memory, id, v1()).await;
        let (tape, log) = (bench.tape(id), bench.log(id).await);
        let mut gated = vec![Op::A(1), Op::Sleep(60), Op::Gate("change", new, old)];
        gated.extend(after);
        script(id, gated.clone());
        for cut in 1..tape.frames.len() {
            let next = Bench::after(&tape, cut, &bench.clock).await;
            next.end(id).await.unwrap_or_else(|e| panic!("{id} cut at {cut}: {e}"));
            let log_after = next.log(id).await;
            let chose = log_after.iter().any(|entry| entry.name == "version.chosen");
            // Who had asked for `b` before the gate was built never meets it.
            assert_eq!(chose, asked(&log, cut) <= 2, "{id} cut at {cut}");
            assert!(chose || crate::support::end_of(&log_after) == crate::support::end_of(&log), "{id} cut at {cut}");
            next.replays(id).await;
            if chose {
                // The side once taken is kept for ever.
                every_cut(&next, id).await;
            }
        }
        // Removing the gate is a divergence for runs that have it in their logs.
        let bench = Bench::on(Backend::Memory).await;
        bench.runtime.start(id, scripted(id.to_owned())).await.unwrap();
        bench.end(id).await.unwrap();
        script(id, v1());
        let log = bench.log(id).await;
        let gate = log.iter().position(|entry| entry.name == "version.chosen").unwrap();
        let next = Bench::after(&bench.tape(id), gate + 1, &bench.clock).await;
        let error = next.parked(id).await;
        assert_eq!(error.code(), Code::Diverged);
        assert!(error.to_string().contains("version.chosen change"), "{error}");
        assert!(next.world.ledger().is_empty());
    }
}

/// A gate in one of two branches, and what the other one asks in the meantime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_in_one_branch_changes_nothing_in_the_other() {
    let left = |gated: bool| match gated {
        true => vec![Op::A(1), Op::Gate("left", vec![Op::C(5), Op::B(2)], vec![Op::B(2)]), Op::A(2)],
        false => vec![Op::A(1), Op::B(2), Op::A(2)],
    };
    let right = vec![Op::B(11), Op::A(12), Op::B(13), Op::Sleep(5), Op::C(14)];
    for backend in BOTH {
        let bench = old_run(backend, "branches", vec![Op::Both(left(false), right.clone())]).await;
        let (tape, log) = (bench.tape("branches"), bench.log("branches").await);
        script("branches", [Op::Both(left(true), right.clone())]);
        let of_right = |log: &[durable::LogEntry]| -> Vec<String> {
            let called = log.iter().filter(|entry| ["effect.called", "timer.set"].contains(&entry.name));
            let mut paths: Vec<_> =
                called.filter_map(|entry| entry.path.clone()).filter(|path| path.contains("join[0]/1/")).collect();
            // What was called again after the cut is one step.
            paths.dedup();
            paths
        };
        for cut in 1..tape.frames.len() {
            let next = Bench::after(&tape, cut, &bench.clock).await;
            next.end("branches").await.unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
            let after = next.log("branches").await;
            assert_eq!(of_right(&after), of_right(&log), "cut at {cut}");
            let past =
                log[..cut].iter().any(|entry| entry.path.as_deref().is_some_and(|p| p.ends_with("0/play[0]/b[0]")));
            assert_eq!(after.iter().any(|entry| entry.name == "version.chosen"), !past, "cut at {cut}");
            replays(&next.tape("branches"), &bench.clock, 3).await.unwrap();
        }
        // New runs take the new side, whatever the order in which the branches go on.
        let new = Bench::on(Backend::Memory).await;
        new.world.close("a1");
        new.world.close("a12");
        new.runtime.start("branches", scripted("branches".into())).await.unwrap();
        new.world.until_noted("a", 2).await;
        new.world.open("a12");
        new.until_status("branches", "asleep in one branch", |_| new.world.inputs("b").contains(&"13".to_owned()))
            .await;
        new.world.open("a1");
        new.end("branches").await.unwrap();
        assert!(new.world.inputs("c").contains(&"5".to_owned()));
        new.replays("branches").await;
        every_cut(&new, "branches").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gate_asked_in_many_places_has_one_answer() {
    let gate = |n| Op::Gate("many", vec![Op::Named("new", n)], vec![Op::Named("old", n)]);
    let bench =
        old_run(Backend::Memory, "many-gates", vec![Op::A(1), Op::Named("old", 2), Op::Sleep(1), Op::A(3)]).await;
    let tape = bench.tape("many-gates");
    script("many-gates", [Op::A(1), gate(2), Op::Sleep(1), Op::A(3), gate(4), Op::Both(vec![gate(5)], vec![gate(6)])]);
    for cut in 1..tape.frames.len() {
        let next = Bench::after(&tape, cut, &bench.clock).await;
        next.end("many-gates").await.unwrap();
        let paths: Vec<_> = next.log("many-gates").await.iter().filter_map(|e| e.path.clone()).collect();
        let (new, old) = (paths.iter().any(|p| p.contains("new[")), paths.iter().any(|p| p.contains("old[")));
        assert!(new != old, "cut at {cut}: one run follows one version: {paths:?}");
        next.replays("many-gates").await;
    }
}
