//! Children, fresh logs, and what cannot be handed on.

use super::*;

#[test]
fn a_child_is_awaited_for_what_it_returns_and_closed_when_it_is_dropped() {
    let mut run = Run::of(async {
        let child = step(spawn(counter("a")), &HERE).await;
        step(child, &HERE).await
    });
    run.asks(&["child spawn:counter[0] of counter"]);
    assert_eq!(run.after(0, Delivered::Value(bytes(&5_u64))), Poll::Ready(5));
    assert!(run.asked().is_empty(), "a child that has ended is not closed");

    let mut run = Run::of(async {
        drop(step(spawn(counter("a")).id("mine"), &HERE).await);
        step(signal::<()>("go"), &HERE).await;
    });
    run.asks(&["child spawn:counter[0] of counter", "closed 0", "signal signal:go[0] of go"]);
}

#[test]
fn a_look_at_a_child_that_is_dropped_leaves_it_as_it_is() {
    let mut run = Run::of(async {
        let mut child = step(spawn(counter("a")), &HERE).await;
        let first = step(race((branch(async { step(signal::<u64>("n"), &HERE).await }), &mut child)), &HERE).await;
        step(signal::<u64>("m"), &HERE).await;
        first + step(&mut child, &HERE).await + step(child, &HERE).await
    });
    run.asks(&["child spawn:counter[0] of counter", "signal race[0]/0/async[0]/signal:n[0] of n"]);
    assert!(run.after(1, message(&1_u64)).is_pending());
    assert_eq!(run.asked(), ["signal signal:m[0] of m"], "and nothing is closed");
    assert!(!run.deliver(0, Delivered::Value(bytes(&2_u64))), "nobody waits for it now");
    assert!(run.after(2, message(&0_u64)).is_pending(), "its outcome was there, and comes once");
    assert!(run.asked().is_empty());
    run.asks(&[]);
}

#[test]
fn a_childs_fault_is_its_error_or_stops_the_run() {
    let mut run = Run::of(async {
        let call: WorkflowCall<Result<u64, Failure>> =
            WorkflowArgs::new(&RESEARCHER).arg(&TEXT, &"a".to_owned()).call();
        let child = step(spawn(call), &HERE).await;
        step(child, &HERE).await
    });
    assert!(run.poll().is_pending());
    let Poll::Ready(Err(failure)) = run.after(0, child_cancelled()) else { panic!("it takes a fault") };
    assert_eq!(failure.kind(), Some("child_cancelled"));

    let mut run = Run::of(async {
        let child = step(spawn(counter("a")).id("child"), &HERE).await;
        step(child, &HERE).await
    });
    assert!(run.poll().is_pending());
    assert!(run.after(0, child_cancelled()).is_pending());
    assert_eq!(run.stop(), "fault child run child of counter: child_cancelled");
}

#[test]
fn arguments_that_every_replay_would_see_otherwise_stop_the_run() {
    let check = |mut run: Run<()>, start: &str| {
        run.asks(&[]);
        let stop = run.stop();
        assert!(stop.starts_with(start) && stop.contains("BTreeSet"), "{stop}");
        run.asks(&[]);
    };
    let workflow = || WorkflowArgs::new(&COUNTER).arg(&SET, &set()).call::<u64>();
    let effect = || EffectArgs::new(&RELEASE).arg(&SET, &set()).call::<u64>();
    check(
        Run::of(async move { drop(step(spawn(workflow()), &HERE).await) }),
        "unrecordable the arguments of workflow counter",
    );
    check(
        Run::of(async move { assert_eq!(step(restart_as(workflow()), &HERE).await, 0) }),
        "unrecordable the arguments of workflow counter",
    );
    check(Run::of(async move { step(undo(effect()), &HERE).await }), "unrecordable the arguments of release");
}

#[test]
fn what_cannot_be_recorded_or_sent_stops_the_run() {
    let check = |mut run: Run<()>, start: &str| {
        run.asks(&[]);
        let stop = run.stop();
        assert!(stop.starts_with(start), "{stop}");
    };
    check(Run::awaiting(send("", "n", &1)), "unrecordable the run that signal n is sent to");
    check(Run::awaiting(send("other", "n", &Some(()))), "unrecordable the value of signal n");
    check(Run::awaiting(send("other", "n", &"x".repeat(2_000))), "unrecordable the value of signal n: it has 200");
    check(Run::awaiting(publish("n", &Some(()))), "unrecordable the value published as n");
    let question = Question::new("go?").about(&Some(()));
    check(
        Run::of(async { drop(step(ask::<()>(question), &HERE).await) }),
        "unrecordable what question \"go?\" is about",
    );
    let child = || spawn(counter("a")).id("");
    check(Run::of(async move { drop(step(child(), &HERE).await) }), "unrecordable the id of a child run of counter");
}

#[test]
fn after_a_restart_was_asked_the_code_asks_for_nothing() {
    let mut run = Run::of(async {
        let restart = branch(async { step(restart_as(counter("next")), &HERE).await });
        let tells = branch(async {
            step(send("other", "n", &1), &HERE).await;
            step(undo(release("a")), &HERE).await;
        });
        step(join((send("other", "before", &0), restart, tells)), &HERE).await
    });
    run.asks(&["message join[0]/0/send:before[0]: before 0 to other"]);
    let restart = run.core().restart.take().unwrap();
    assert_eq!((restart.meta.name, restart.args.to_json()), ("counter", serde_json::json!({ "what": "next" })));
}

#[test]
fn steps_may_be_dropped_where_no_run_is_polled() {
    let mut run: Run<Child<u64>> = Run::awaiting(spawn(counter("a")));
    let Poll::Ready(mut child) = run.poll() else { panic!("a child is there at once") };
    run.asked();
    drop(step(&mut child, &HERE));
    drop(step(child, &HERE));
    drop((step(cancelled(), &HERE), step(signal::<u64>("n"), &HERE), step(shield(release("a")), &HERE)));
    run.lent(|_| ());
    assert!(run.asked().is_empty());
}

#[test]
fn a_look_under_a_shield_shields_a_child_as_long_as_it_lasts() {
    let mut run = Run::of(async {
        let mut child = step(spawn(counter("a")), &HERE).await;
        let look = race((&mut child, signal::<u64>("enough")));
        step(shield(look), &HERE).await;
        step(signal::<()>("go"), &HERE).await;
        drop(child);
    });
    assert!(run.poll().is_pending());
    assert!(run.core().shielded(StepNo(0)));
    assert!(!run.core().take_shield_over());
    assert!(run.after(1, message(&0_u64)).is_pending());
    assert!(!run.core().shielded(StepNo(0)));
    assert!(run.core().take_shield_over());
}

#[test]
fn between_two_looks_under_a_shield_a_child_is_shielded_too() {
    let mut run = Run::of(async {
        let mut child = step(spawn(counter("a")), &HERE).await;
        let looks = branch(async {
            step(race((&mut child, signal::<u64>("enough"))), &HERE).await;
            step(signal::<u64>("n"), &HERE).await;
        });
        step(shield(looks), &HERE).await;
        step(child, &HERE).await
    });
    assert!(run.poll().is_pending());
    assert!(run.after(1, message(&0_u64)).is_pending());
    assert!(run.core().shielded(StepNo(0)));
    assert!(run.after(2, message(&0_u64)).is_pending());
    assert!(!run.core().shielded(StepNo(0)));
}
