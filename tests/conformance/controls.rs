//! That the runner refuses what is wrong.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{
    common::ledger::Line,
    effect,
    effects::give,
    misnumbered,
    play::{BOTH, Backend, check, compare, play},
    row::{End, Row, go, row},
};

/// The row of that case, changed by `change`, is refused for a reason that says `why`.
async fn refused(id: &str, why: &str, change: impl Fn(Row) -> Row) {
    for backend in BOTH {
        let row = || effect::rows().into_iter().find(|row| row.id == id).unwrap();
        let what = check(&change(row()), backend).await.expect_err("a wrong row passed");
        assert!(what.contains(why), "refused for another reason: {what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_says_what_is_not_so_is_refused() {
    refused("1-1", r#"wanted completed {"Ok":"milk"}"#, |row| row.completed(r#"{"Ok":"milk"}"#)).await;
    refused("1-1", r#"wanted failed {"Ok":"tea"}"#, |row| Row { end: End::Failed(r#"{"Ok":"tea"}"#), ..row }).await;
    let logged = |log: &'static str| move |row: Row| Row { log: log.into(), ..row };
    let called = "effect.called give[0]";
    refused("1-1", "entry 2: wanted the end", logged(called)).await;
    refused("1-1", "entry 1: wanted effect.called other[0]", logged("effect.called other[0]")).await;
    refused("1-1", "entry 1: wanted effect.called give[0] attempt=2", logged("effect.called give[0] attempt=2")).await;
    refused("1-1", "entry 1: wanted effect.called give[0] attempt=none", logged("effect.called give[0] attempt=none"))
        .await;
    refused("1-1", "entry 1: wanted effect.called give[0] effect^=t", logged("effect.called give[0] effect^=t")).await;
    refused("1-1", "entry 3: wanted effect.called give[0]", |row| row.log(called)).await;
    let late = "effect.called fails[0]\n effect.failed fails[0] in=9s";
    refused("1-12", "entry 2: wanted effect.failed fails[0] in=9s", logged(late)).await;
    let together = "| effect.called give[0]\n | effect.called give[0]";
    refused("1-1", "entry 1: wanted effect.called give[0]", logged(together)).await;
    refused("1-1", "it ended before", |row| row.resumed_at("timer.set sleep[0]")).await;
    refused("1-1", "only this once", |row| row.also(|_| Err("only this once".into()))).await;
    // Bodies that the log did not call, or called once; and an outcome of a body that never ran.
    let row = effect::rows().remove(0);
    let mut played = play(&row, Backend::Memory).await.unwrap();
    compare(&row, &played).unwrap();
    let line = played.bodies[0].clone();
    for wrong in [Line { attempt: 2, ..line.clone() }, line] {
        played.bodies.push(wrong);
        assert!(compare(&row, &played).unwrap_err().starts_with("begun without a call, or twice"));
        played.bodies.pop();
    }
    played.bodies.clear();
    assert!(compare(&row, &played).unwrap_err().starts_with("ended without a body"));
}

/// Asks something else each time its code runs.
#[durable::workflow]
async fn forgetful() -> durable::Result<String> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = durable::untracked(|| RUNS.fetch_add(1, Ordering::SeqCst));
    give(&format!("run {run}")).await.map(|_| "done".into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_does_not_replay_is_refused() {
    let row = row("1-0", "a run whose code is not the same on replay", go!(forgetful()))
        .log("effect.called give[0]")
        .log("effect.result give[0]")
        .completed(r#"{"Ok":"done"}"#);
    for backend in BOTH {
        let what = check(&row, backend).await.expect_err("it passed");
        assert!(what.starts_with("replay 0 of 1-0") && what.contains("parked"), "refused for another reason: {what}");
    }
}

#[test]
fn a_missing_number_a_number_twice_and_an_unknown_one_are_refused() {
    let rows = effect::rows;
    assert!(misnumbered("1", 20, &rows()).is_empty());
    assert_eq!(misnumbered("1", 20, &rows()[1..]), ["1-1: 0 rows"]);
    let twice: Vec<Row> = rows().into_iter().chain(rows().into_iter().take(1)).collect();
    assert_eq!(misnumbered("1", 20, &twice), ["1-1: 2 rows"]);
    assert_eq!(misnumbered("1", 19, &rows()), ["1-20: no such case"]);
}
