//! Group 8: branches together.

use std::time::Duration;

use crate::{
    effects::{Amount, decline, double, give, late, next},
    row::{Row, go, row},
    tolerant::{limited, limited_by_percent},
};

#[durable::workflow]
async fn two() -> durable::Result<String> {
    let left = async { Ok(give("a").await? + &give("b").await?) };
    let (left, right): (durable::Result<String>, _) = durable::join((left, give("c"))).await;
    Ok(left? + &right?)
}

#[durable::workflow]
async fn unnamed() -> durable::Result<String> {
    let (left, right) = durable::join((give("a"), give("b"))).await;
    Ok(left? + &right?)
}

#[durable::workflow]
async fn named() -> durable::Result<String> {
    let both = durable::join((give("a").named("left"), give("b").named("right")));
    let (left, right) = both.named("both").await;
    Ok(left? + &right?)
}

#[durable::workflow]
async fn mixed() -> durable::Result<(String, u64, Amount, Option<bool>)> {
    let all = durable::join((give("a"), next(1), double(Amount { cents: 5 }), async { None }));
    let (text, number, amount, nothing) = all.await;
    Ok((text?, number, amount?, nothing))
}

#[durable::workflow]
async fn none() -> durable::Result<Vec<String>> {
    let none: [durable::EffectCall<durable::Result<String>>; 0] = [];
    durable::try_join_all(none).await
}

#[durable::workflow]
async fn first_failure_stops() -> durable::Result<Vec<String>> {
    durable::try_join_all([give("a"), decline("b"), give("c")]).at_most(1).await
}

#[durable::workflow]
async fn raises() -> durable::Result<(String, String)> {
    durable::try_join((late("never"), decline("b"))).await
}

#[durable::workflow]
async fn in_order() -> durable::Result<Vec<String>> {
    durable::try_join_all(["a", "b", "c"].map(late)).await
}

#[durable::workflow]
async fn one_sleeps() -> durable::Result<String> {
    let slow = async {
        durable::sleep(Duration::from_secs(60)).await;
        give("b").await
    };
    let (quick, slow) = durable::try_join((give("a"), slow)).await?;
    Ok(quick + &slow)
}

#[durable::workflow]
async fn own_form() -> durable::Result<(u64, u64)> {
    let (one, two) = durable::try_join((double(Amount { cents: 5 }), double(Amount { cents: 10 }))).await?;
    Ok((one.cents, two.cents))
}

#[durable::workflow]
async fn one_at_a_time(at_most: usize) -> durable::Result<Vec<String>> {
    durable::try_join_all([give("a"), give("b")]).at_most(at_most).await
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Report {
    succeeded: Vec<(usize, String)>,
    failed: Vec<(usize, String)>,
}

#[durable::workflow]
async fn reports() -> Report {
    let all = durable::join_all([give("a"), decline("b"), give("c"), decline("d")]).await;
    let (mut succeeded, mut failed) = (Vec::new(), Vec::new());
    for (i, outcome) in all.into_iter().enumerate() {
        match outcome {
            Ok(text) => succeeded.push((i, text)),
            Err(failure) => failed.push((i, failure.message().to_owned())),
        }
    }
    Report { succeeded, failed }
}

#[durable::workflow]
async fn nested() -> durable::Result<Vec<Vec<String>>> {
    let inner = |outer: u32| durable::try_join_all((0..2).map(move |i| give(&format!("{outer}{i}"))));
    durable::try_join_all([inner(0), inner(1)]).await
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("8-1", "two branches", go!(two()))
            .log(
                r#"
                effect.called join[0]/0/async[0]/give[0] args={"text":"a"}
                effect.called join[0]/1/give[0] args={"text":"c"}
                | effect.result join[0]/0/async[0]/give[0]
                | effect.called join[0]/0/async[0]/give[1] args={"text":"b"}
                | effect.result join[0]/0/async[0]/give[1]
                | effect.result join[0]/1/give[0]
                "#,
            )
            .completed(r#"{"Ok":"abc"}"#),
        row("8-2", "branches without names are named by their places", go!(unnamed()))
            .log(
                "
                effect.called join[0]/0/give[0]
                effect.called join[0]/1/give[0]
                | effect.result join[0]/0/give[0]
                | effect.result join[0]/1/give[0]
                ",
            )
            .completed(r#"{"Ok":"ab"}"#),
        row("8-3", "branches with names", go!(named()))
            .log(
                "
                effect.called both[0]/0/left[0]
                effect.called both[0]/1/right[0]
                | effect.result both[0]/0/left[0]
                | effect.result both[0]/1/right[0]
                ",
            )
            .completed(r#"{"Ok":"ab"}"#),
        row("8-4", "results of different types", go!(mixed()))
            .log(
                r#"
                effect.called join[0]/0/give[0]
                effect.called join[0]/1/next[0]
                effect.called join[0]/2/double[0]
                | effect.result join[0]/0/give[0] value={"Ok":"a"}
                | effect.result join[0]/1/next[0] value=2
                | effect.result join[0]/2/double[0] value={"Ok":{"cents":"0.10 EUR"}}
                "#,
            )
            .completed(r#"{"Ok":["a",2,{"cents":"0.10 EUR"},null]}"#),
        row("8-5", "no branches: over at once", go!(none())).completed(r#"{"Ok":[]}"#),
        row("8-6", "stops at the first failure, and later branches never begin", go!(first_failure_stops()))
            .log(
                "
                effect.called try_join_all[0]/0/give[0]
                effect.result try_join_all[0]/0/give[0]
                effect.called try_join_all[0]/1/decline[0]
                effect.result try_join_all[0]/1/decline[0]
                ",
            )
            .failed(r#"{"Err":{"message":"b","kind":"declined"}}"#),
        row("8-7", "a branch's failure is the run's, and the branch still open is closed", go!(raises()))
            .log(
                "
                effect.called try_join[0]/0/late[0]
                effect.called try_join[0]/1/decline[0]
                effect.result try_join[0]/1/decline[0]
                step.closed try_join[0]/0/late[0]
                ",
            )
            .failed(r#"{"Err":{"message":"b","kind":"declined"}}"#),
        row("8-8", "stops once two have succeeded", go!(limited("++.".into(), 2, 0, 3)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/give[0]
                effect.called until[0]/set[0]/1/async[0]/give[0]
                effect.called until[0]/set[0]/2/async[0]/late[0]
                | effect.result until[0]/set[0]/0/async[0]/give[0]
                | effect.result until[0]/set[0]/1/async[0]/give[0]
                step.closed until[0]/set[0]/2/async[0]/late[0]
                ",
            )
            .completed(r#""++.""#),
        row("8-9", "one failure is tolerated", go!(limited("+-+".into(), 3, 1, 3)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/give[0]
                effect.called until[0]/set[0]/1/async[0]/decline[0]
                effect.called until[0]/set[0]/2/async[0]/give[0]
                | effect.result until[0]/set[0]/0/async[0]/give[0]
                | effect.result until[0]/set[0]/1/async[0]/decline[0]
                | effect.result until[0]/set[0]/2/async[0]/give[0]
                ",
            )
            .completed(r#""+-+""#),
        row("8-10", "too many failures stop it; what has not begun never does", go!(limited("--.+".into(), 4, 1, 2)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/decline[0]
                effect.called until[0]/set[0]/1/async[0]/decline[0]
                | effect.result until[0]/set[0]/0/async[0]/decline[0]
                | effect.called until[0]/set[0]/2/async[0]/late[0]
                | effect.result until[0]/set[0]/1/async[0]/decline[0]
                step.closed until[0]/set[0]/2/async[0]/late[0]
                ",
            )
            .completed(r#""--..""#),
        row("8-11", "results by index, whatever the order in which they come", go!(in_order()))
            .opens("c", "effect.called try_join_all[0]/2/late[0]")
            .opens("b", "effect.result try_join_all[0]/2/late[0]")
            .opens("a", "effect.result try_join_all[0]/1/late[0]")
            .log(
                "
                effect.called try_join_all[0]/0/late[0]
                effect.called try_join_all[0]/1/late[0]
                effect.called try_join_all[0]/2/late[0]
                effect.result try_join_all[0]/2/late[0]
                effect.result try_join_all[0]/1/late[0]
                effect.result try_join_all[0]/0/late[0]
                ",
            )
            .completed(r#"{"Ok":["a","b","c"]}"#),
        row("8-12", "flat: a branch has no record of its own", go!(nested()))
            .build(|builder| builder.bodies_at_once(1))
            .log(
                "
                effect.called try_join_all[0]/0/try_join_all[0]/0/give[0]
                effect.queued try_join_all[0]/0/try_join_all[0]/1/give[0]
                effect.queued try_join_all[0]/1/try_join_all[0]/0/give[0]
                effect.queued try_join_all[0]/1/try_join_all[0]/1/give[0]
                effect.result try_join_all[0]/0/try_join_all[0]/0/give[0]
                effect.called try_join_all[0]/0/try_join_all[0]/1/give[0]
                effect.result try_join_all[0]/0/try_join_all[0]/1/give[0]
                effect.called try_join_all[0]/1/try_join_all[0]/0/give[0]
                effect.result try_join_all[0]/1/try_join_all[0]/0/give[0]
                effect.called try_join_all[0]/1/try_join_all[0]/1/give[0]
                effect.result try_join_all[0]/1/try_join_all[0]/1/give[0]
                ",
            )
            .completed(r#"{"Ok":[["00","01"],["10","11"]]}"#),
        row("8-13", "more failures than the percentage stop it", go!(limited_by_percent("--..".into(), 25)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/decline[0]
                effect.called until[0]/set[0]/1/async[0]/decline[0]
                effect.called until[0]/set[0]/2/async[0]/late[0]
                effect.called until[0]/set[0]/3/async[0]/late[0]
                | effect.result until[0]/set[0]/0/async[0]/decline[0]
                | effect.result until[0]/set[0]/1/async[0]/decline[0]
                step.closed until[0]/set[0]/2/async[0]/late[0]
                step.closed until[0]/set[0]/3/async[0]/late[0]
                ",
            )
            .completed(r#""--..""#),
        row("8-14", "one branch sleeps: the finished one is not repeated on resume", go!(one_sleeps()))
            .resumed_at("effect.result try_join[0]/0/give[0]")
            .log(
                "
                effect.called try_join[0]/0/give[0] attempt=1
                timer.set try_join[0]/1/async[0]/sleep[0] in=1m
                effect.result try_join[0]/0/give[0]
                timer.fired try_join[0]/1/async[0]/sleep[0]
                effect.called try_join[0]/1/async[0]/give[0]
                effect.result try_join[0]/1/async[0]/give[0]
                ",
            )
            .completed(r#"{"Ok":"ab"}"#),
        row("8-15", "branches that give a type with a written form of its own", go!(own_form()))
            .log(
                r#"
                effect.called try_join[0]/0/double[0] args={"amount":{"cents":"0.05 EUR"}}
                effect.called try_join[0]/1/double[0] args={"amount":{"cents":"0.10 EUR"}}
                | effect.result try_join[0]/0/double[0] value={"Ok":{"cents":"0.10 EUR"}}
                | effect.result try_join[0]/1/double[0] value={"Ok":{"cents":"0.20 EUR"}}
                "#,
            )
            .completed(r#"{"Ok":[10,20]}"#),
        row("8-16", "all fail, as many as are tolerated", go!(limited("---".into(), 3, 3, 1)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/decline[0]
                effect.result until[0]/set[0]/0/async[0]/decline[0]
                effect.called until[0]/set[0]/1/async[0]/decline[0]
                effect.result until[0]/set[0]/1/async[0]/decline[0]
                effect.called until[0]/set[0]/2/async[0]/decline[0]
                effect.result until[0]/set[0]/2/async[0]/decline[0]
                ",
            )
            .completed(r#""---""#),
        row(
            "8-17",
            "the successes asked for are never reached: over when all are",
            go!(limited("+-+".into(), 3, 3, 1)),
        )
        .log(
            "
            effect.called until[0]/set[0]/0/async[0]/give[0]
            effect.result until[0]/set[0]/0/async[0]/give[0]
            effect.called until[0]/set[0]/1/async[0]/decline[0]
            effect.result until[0]/set[0]/1/async[0]/decline[0]
            effect.called until[0]/set[0]/2/async[0]/give[0]
            effect.result until[0]/set[0]/2/async[0]/give[0]
            ",
        )
        .completed(r#""+-+""#),
        row("8-18", "both limits, and the failures come first", go!(limited("--++".into(), 2, 1, 1)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/decline[0]
                effect.result until[0]/set[0]/0/async[0]/decline[0]
                effect.called until[0]/set[0]/1/async[0]/decline[0]
                effect.result until[0]/set[0]/1/async[0]/decline[0]
                ",
            )
            .completed(r#""--..""#),
        row("8-19", "none at a time is no setting: it counts as one at a time", go!(one_at_a_time(0)))
            .log(
                "
                effect.called try_join_all[0]/0/give[0]
                effect.result try_join_all[0]/0/give[0]
                effect.called try_join_all[0]/1/give[0]
                effect.result try_join_all[0]/1/give[0]
                ",
            )
            .completed(r#"{"Ok":["a","b"]}"#),
        row("8-20", "which succeeded and which failed is told from the results", go!(reports()))
            .log(
                "
                effect.called join_all[0]/0/give[0]
                effect.called join_all[0]/1/decline[0]
                effect.called join_all[0]/2/give[0]
                effect.called join_all[0]/3/decline[0]
                | effect.result join_all[0]/0/give[0]
                | effect.result join_all[0]/1/decline[0]
                | effect.result join_all[0]/2/give[0]
                | effect.result join_all[0]/3/decline[0]
                ",
            )
            .completed(r#"{"succeeded":[[0,"a"],[2,"c"]],"failed":[[1,"b"],[3,"d"]]}"#),
        row("8-21", "a join in a join", go!(nested()))
            .log(
                "
                effect.called try_join_all[0]/0/try_join_all[0]/0/give[0]
                effect.called try_join_all[0]/0/try_join_all[0]/1/give[0]
                effect.called try_join_all[0]/1/try_join_all[0]/0/give[0]
                effect.called try_join_all[0]/1/try_join_all[0]/1/give[0]
                | effect.result try_join_all[0]/0/try_join_all[0]/0/give[0]
                | effect.result try_join_all[0]/0/try_join_all[0]/1/give[0]
                | effect.result try_join_all[0]/1/try_join_all[0]/0/give[0]
                | effect.result try_join_all[0]/1/try_join_all[0]/1/give[0]
                ",
            )
            .completed(r#"{"Ok":[["00","01"],["10","11"]]}"#),
        row("8-22", "failures of exactly the percentage do not stop it", go!(limited_by_percent("-+++".into(), 25)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/decline[0]
                effect.called until[0]/set[0]/1/async[0]/give[0]
                effect.called until[0]/set[0]/2/async[0]/give[0]
                effect.called until[0]/set[0]/3/async[0]/give[0]
                | effect.result until[0]/set[0]/0/async[0]/decline[0]
                | effect.result until[0]/set[0]/1/async[0]/give[0]
                | effect.result until[0]/set[0]/2/async[0]/give[0]
                | effect.result until[0]/set[0]/3/async[0]/give[0]
                ",
            )
            .completed(r#""-+++""#),
    ]
}
