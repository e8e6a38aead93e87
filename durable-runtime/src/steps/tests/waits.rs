//! Signals, questions, what is told to others, shields and cancels.

use super::*;

#[test]
fn a_signal_is_asked_for_at_the_first_poll_and_ready_once_when_it_has_come() {
    let mut run = Run::awaiting(signal::<u64>("go"));
    run.asks(&["signal signal:go[0] of go"]);
    run.asks(&[]);
    assert_eq!(run.after(0, message(&7_u64)), Poll::Ready(7));
    run.asks(&[]);
}

#[test]
fn all_signals_that_are_there_come_at_once_or_none() {
    let mut run = Run::awaiting(signals::<u64>("go").named("steer"));
    run.asks(&["drain steer[0] of go"]);
    assert_eq!(run.after(0, Delivered::Messages(vec![bytes(&1_u64), bytes(&2_u64)])), Poll::Ready(vec![1, 2]));
    let mut run = Run::awaiting(signals::<u64>("go"));
    run.asks(&["drain signals:go[0] of go"]);
    assert_eq!(run.after(0, Delivered::Messages(Vec::new())), Poll::Ready(Vec::new()));
}

#[test]
fn kinds_of_steps_and_effects_of_one_name_do_not_count_together() {
    let mut run = Run::of(async {
        step(send("other", "release", &1), &HERE).await;
        step(publish("release", &2), &HERE).await;
        step(undo(release("a")), &HERE).await;
        let _child = step(spawn(counter("a")), &HERE).await;
        step(join((release("b"), signal::<u64>("release"))), &HERE).await;
    });
    run.asks(&[
        "message send:release[0]: release 1 to other",
        "publish publish:release[0]: release 2",
        "undo undo:release[0] of release under key:a",
        "child spawn:counter[0] of counter",
        "effect join[0]/0/release[0]",
        "signal join[0]/1/signal:release[0] of release",
    ]);
}

#[test]
fn a_question_says_all_and_its_answers_are_three() {
    let question = || Question::new("go?").about(&("a", 1)).by(["ann"]).by(["bob"]).within(Duration::from_secs(9));
    let check = |delivered: Delivered, expected: Answer<u64>| {
        let mut run = Run::awaiting(ask::<u64>(question()));
        run.asks(&["question ask[0]: go? [\"a\",1] by ann,bob within Some(9s)"]);
        assert_eq!(run.after(0, delivered), Poll::Ready(expected));
        run.asks(&[]);
    };
    check(Delivered::Granted(bytes(&5_u64)), Answer::Granted(5));
    check(Delivered::Refused("no".to_owned()), Answer::Refused("no".to_owned()));
    check(Delivered::Expired, Answer::Expired);
    let mut run = Run::awaiting(ask::<()>("short").named("check"));
    run.asks(&["question check[0]: short  by  within None"]);
    assert_eq!(run.after(0, Delivered::Granted(bytes(&()))), Poll::Ready(Answer::Granted(())));
}

#[test]
fn a_record_that_does_not_decode_stops_the_run_and_is_never_ready() {
    let mut run = Run::awaiting(signal::<u64>("go"));
    run.asks(&["signal signal:go[0] of go"]);
    assert!(run.after(0, message(&"text")).is_pending());
    assert_eq!(run.stop(), "undecodable signal go");
    run.asks(&[]);
    let mut run = Run::awaiting(signal::<u64>("go"));
    run.asks(&["signal signal:go[0] of go"]);
    assert!(run.after(0, Delivered::Messages(Vec::new())).is_pending());
    assert_eq!(run.stop(), "undecodable signal go");
    let mut run = Run::awaiting(ask::<u64>("go?"));
    run.asks(&["question ask[0]: go?  by  within None"]);
    assert!(run.after(0, Delivered::Granted(bytes(&"text"))).is_pending());
    assert_eq!(run.stop(), "undecodable question \"go?\"");
}

#[test]
fn a_wait_that_is_dropped_in_a_poll_is_closed_and_outside_of_one_nothing_is_said() {
    let both = branch(async { step(join((signal::<u64>("a"), ask::<u64>("b?"))), &HERE).await.0 });
    let mut run = Run::awaiting(race((both, signal::<u64>("c"))));
    run.asks(&[
        "signal race[0]/0/async[0]/join[0]/0/signal:a[0] of a",
        "question race[0]/0/async[0]/join[0]/1/ask[0]: b?  by  within None",
        "signal race[0]/1/signal:c[0] of c",
    ]);
    assert!(run.after(0, message(&1_u64)).is_pending());
    assert_eq!(run.after(2, message(&2_u64)), Poll::Ready(2));
    assert_eq!(run.asked(), ["closed 1"], "what had come needs no closing");

    let mut run = Run::awaiting(race((signal::<u64>("a"), signal::<u64>("b"))));
    assert!(run.poll().is_pending());
    run.asked();
    assert_eq!(run.after(1, message(&2_u64)), Poll::Ready(2));
    assert_eq!(run.asked(), ["closed 0"]);

    let mut run = Run::awaiting(signal::<u64>("a"));
    assert!(run.poll().is_pending());
    run.asked();
    run.code = None;
    assert!(run.asked().is_empty());
    run.lent(|_| ());
    assert!(run.asked().is_empty());
}

#[test]
fn what_tells_somebody_is_ready_in_the_poll_that_asks_and_never_again() {
    let mut run = Run::awaiting(send("other", "n", &[1, 2]));
    assert_eq!(run.poll(), Poll::Ready(()));
    assert_eq!(run.asked(), ["message send:n[0]: n [1,2] to other"]);
    run.asks(&[]);
    let mut run = Run::awaiting(publish("n", "text").named("told"));
    assert_eq!(run.poll(), Poll::Ready(()));
    assert_eq!(run.asked(), ["publish told[0]: n \"text\""]);
    run.asks(&[]);
    let mut run = Run::awaiting(undo(release("a/b").named("second")));
    assert_eq!(run.poll(), Poll::Ready(()));
    assert_eq!(run.asked(), ["undo undo:second[0] of release under key:a/b"]);
    run.asks(&[]);
    let mut run = Run::awaiting(spawn(counter("a")).detached());
    let Poll::Ready(child) = run.poll() else { panic!("a child is there at once") };
    assert_eq!(run.asked(), ["child spawn:counter[0] of counter, detached"]);
    assert!(child.id().as_str().starts_with("run/counter-"), "{:?}", child.id());
    run.asks(&[]);
    drop(child);
}

#[test]
fn where_the_run_is_being_cancelled_nothing_is_asked_but_undo() {
    fn dead<S: Step<Future: 'static, Output: 'static>>(awaited: S) {
        let mut run = Run::awaiting(awaited);
        run.cancel();
        run.asks(&[]);
        run.asks(&[]);
        assert!(run.core().stop.is_none());
    }
    dead(signal::<u64>("go"));
    dead(signals::<u64>("go"));
    dead(ask::<u64>("go?"));
    dead(spawn(counter("a")));
    dead(send("other", "n", &1));
    dead(publish("n", &1));
    dead(begin(release("a")));
    dead(begin(sleep(Duration::ZERO)));
    dead(release("a"));
    dead(sleep(Duration::ZERO));
    dead(version("change", 1));
    dead(restart_as(counter("a")));
    let mut run = Run::awaiting(undo(release("a")));
    run.cancel();
    assert_eq!(run.poll(), Poll::Ready(()));
    assert_eq!(run.asked(), ["undo undo:release[0] of release under key:a"]);
    let mut run = Run::awaiting(now());
    run.cancel();
    assert!(run.poll().is_ready(), "the time is no command");
}

#[test]
fn under_a_shield_all_goes_on_also_if_it_is_opened_after_the_cancel() {
    let under = || {
        let block = branch(async {
            let n = step(signal::<u64>("n"), &HERE).await;
            step(send("other", "n", &n), &HERE).await;
            n
        });
        Run::of(async move {
            let n = step(shield(block), &HERE).await;
            step(send("other", "outside", &n), &HERE).await;
        })
    };
    for before in [true, false] {
        let mut run = under();
        if before {
            run.cancel();
        }
        run.asks(&["signal shield[0]/async[0]/signal:n[0] of n"]);
        assert!(run.core().shielded(StepNo(0)));
        run.cancel();
        assert!(run.after(0, message(&3_u64)).is_pending());
        assert_eq!(run.asked(), ["message shield[0]/async[0]/send:n[0]: n 3 to other"]);
        run.asks(&[]);
    }
    let mut run = Run::awaiting(shield(release("a")).named("safe"));
    run.asks(&["effect safe[0]/release[0]"]);
    assert_eq!(run.after(0, Delivered::Value(bytes(&1_u64))), Poll::Ready(1));
    run.asks(&[]);
}

#[test]
fn who_waits_for_a_cancel_is_told_in_a_turn_of_its_own_in_the_order_asked() {
    let two = || join((cancelled(), branch(async { step(cancelled(), &HERE).await })));
    let mut run = Run::awaiting(two());
    run.asks(&[]);
    assert!(run.core().awaits_cancel() && !run.core().cancel_turn());
    run.cancel();
    assert!(run.core().cancel_turn());
    assert!(run.poll().is_pending());
    assert!(run.core().awaits_cancel() && run.core().cancel_turn());
    assert!(run.poll().is_ready());
    assert!(!run.core().awaits_cancel() && !run.core().cancel_turn());
    run.asks(&[]);
}

#[test]
fn a_wait_for_a_cancel_forgets_itself_when_it_is_dropped() {
    let mut run = Run::awaiting(race((branch(async { step(signal("n"), &HERE).await }), cancelled())));
    assert!(run.poll().is_pending());
    assert!(run.core().awaits_cancel());
    assert_eq!(run.after(0, message(&())), Poll::Ready(()));
    assert!(!run.core().awaits_cancel());
    let mut run = Run::awaiting(cancelled());
    assert!(run.poll().is_pending());
    run.code = None;
    assert!(run.core().awaits_cancel(), "outside of a poll nothing is lent");
}

#[test]
fn a_loop_that_does_not_heed_a_cancel_comes_to_rest() {
    let mut run = Run::of(async {
        loop {
            step(cancelled(), &HERE).await;
        }
    });
    run.asks(&[]);
    run.cancel();
    let mut turns = 0;
    while run.core().cancel_turn() {
        turns += 1;
        run.asks(&[]);
    }
    assert_eq!(turns, 10_001);
    assert!(!run.core().awaits_cancel());
}
