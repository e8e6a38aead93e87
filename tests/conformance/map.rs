//! Group 9: one step, or several, for each of many items.

use std::time::Duration;

use durable::EffectContext;
use serde::{Deserialize, Serialize};

use crate::{
    common::ledger::World,
    effects::{Amount, decline, double, give, late},
    row::{Row, go, row},
    tolerant::{limited, limited_by_percent},
};

const MINUTE: Duration = Duration::from_secs(60);

#[durable::workflow]
async fn gives_all(items: Vec<String>) -> durable::Result<Vec<String>> {
    durable::try_join_all(items.iter().map(|item| give(item))).await
}

fn items(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[durable::workflow]
async fn with_index(items: Vec<String>) -> durable::Result<Vec<String>> {
    durable::try_join_all(items.iter().enumerate().map(|(i, item)| give(&format!("{i}:{item}")))).await
}

#[durable::workflow]
async fn until_one_fails(at_most: usize) -> durable::Result<Vec<String>> {
    let steps = ["a", "b", "c"].map(|item| if item == "b" { decline(item) } else { give(item) });
    durable::try_join_all(steps).at_most(at_most).await
}

#[durable::workflow]
async fn all_late(items: Vec<String>) -> durable::Result<Vec<String>> {
    durable::try_join_all(items.iter().map(|item| late(item))).await
}

#[durable::workflow]
async fn two_each(items: Vec<String>) -> durable::Result<Vec<String>> {
    let branch = |item: String| async move { Ok(give(&item).await? + &give("!").await?) };
    durable::try_join_all(items.into_iter().map(branch)).at_most(1).await
}

#[durable::workflow]
async fn item_names(items: Vec<String>) -> durable::Result<Vec<String>> {
    durable::try_join_all(items.iter().map(|item| give(item).named(item.clone()))).named("orders").await
}

#[durable::workflow]
async fn doubles(cents: Vec<u64>) -> durable::Result<Vec<u64>> {
    let doubled = durable::try_join_all(cents.into_iter().map(|cents| double(Amount { cents }))).await?;
    Ok(doubled.iter().map(|amount| amount.cents).collect())
}

#[durable::part]
async fn maybe_sleeps(item: &str) -> durable::Result<String> {
    if item == "slow" {
        durable::sleep(MINUTE).await;
    }
    give(item).await
}

#[durable::workflow]
async fn one_sleeps(items: Vec<String>) -> durable::Result<Vec<String>> {
    durable::try_join_all(items.iter().map(|item| maybe_sleeps(item))).await
}

/// For 9-16: no value may be longer, and all results together are.
const LONGEST: usize = 1_000;

#[durable::workflow]
async fn long_together() -> durable::Result<usize> {
    let all = durable::try_join_all((0..3).map(|i| give(&i.to_string().repeat(LONGEST / 2)))).at_most(1).await?;
    durable::sleep(MINUTE).await;
    give("after").await?;
    Ok(all.concat().len())
}

/// One after the other, so that a row says them in one order.
#[durable::workflow]
async fn then_sleeps(items: Vec<String>) -> durable::Result<String> {
    let steps = items.iter().map(|item| if item == "bad" { decline(item) } else { give(item) });
    let all = durable::join_all(steps).at_most(1).await;
    durable::sleep(MINUTE).await;
    let said = all.iter().map(|outcome| match outcome {
        Ok(text) => text.as_str(),
        Err(failure) => failure.kind().unwrap_or_default(),
    });
    give(&said.collect::<Vec<_>>().join(" ")).await
}

/// All amounts, written in one line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
struct Amounts(Vec<u64>);

impl From<Amounts> for String {
    fn from(amounts: Amounts) -> String {
        amounts.0.iter().map(u64::to_string).collect::<Vec<_>>().join("+")
    }
}

impl From<String> for Amounts {
    fn from(text: String) -> Amounts {
        Amounts(text.split('+').filter_map(|cents| cents.parse().ok()).collect())
    }
}

impl Clone for Amounts {
    fn clone(&self) -> Amounts {
        Amounts(self.0.clone())
    }
}

#[durable::effect(idempotent)]
async fn add_up(cx: &EffectContext, #[resource] world: &World, amounts: Amounts) -> u64 {
    world.enter(cx, &String::from(amounts.clone())).await;
    amounts.0.iter().sum()
}

/// The whole of a join as one value with a form of its own.
#[durable::workflow]
async fn own_form_of_all(cents: Vec<u64>) -> durable::Result<Amounts> {
    let steps = cents.into_iter().map(|cents| double(Amount { cents }));
    let all: Vec<_> = durable::try_join_all(steps).at_most(1).await?.iter().map(|amount| amount.cents).collect();
    durable::sleep(MINUTE).await;
    let sum = add_up(Amounts(all.clone())).await;
    Ok(Amounts([all, vec![sum]].concat()))
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("9-1", "an effect for each item", go!(gives_all(items("tea milk"))))
            .log(
                r#"
                effect.called try_join_all[0]/0/give[0] args={"text":"tea"}
                effect.called try_join_all[0]/1/give[0] args={"text":"milk"}
                | effect.result try_join_all[0]/0/give[0] value={"Ok":"tea"}
                | effect.result try_join_all[0]/1/give[0] value={"Ok":"milk"}
                "#,
            )
            .completed(r#"{"Ok":["tea","milk"]}"#),
        row("9-2", "without a name: named by its place", go!(gives_all(items("tea"))))
            .log(
                "
                effect.called try_join_all[0]/0/give[0]
                effect.result try_join_all[0]/0/give[0]
                ",
            )
            .completed(r#"{"Ok":["tea"]}"#),
        row("9-3", "an item and its index", go!(with_index(items("tea milk"))))
            .log(
                r#"
                effect.called try_join_all[0]/0/give[0] args={"text":"0:tea"}
                effect.called try_join_all[0]/1/give[0] args={"text":"1:milk"}
                | effect.result try_join_all[0]/0/give[0]
                | effect.result try_join_all[0]/1/give[0]
                "#,
            )
            .completed(r#"{"Ok":["0:tea","1:milk"]}"#),
        row("9-4", "no items", go!(gives_all(items("")))).completed(r#"{"Ok":[]}"#),
        row("9-5", "the first failure stops it, and later items never begin", go!(until_one_fails(1)))
            .log(
                "
                effect.called try_join_all[0]/0/give[0]
                effect.result try_join_all[0]/0/give[0]
                effect.called try_join_all[0]/1/decline[0]
                effect.result try_join_all[0]/1/decline[0]
                ",
            )
            .failed(r#"{"Err":{"message":"b","kind":"declined"}}"#),
        row("9-6", "an item's failure is the run's", go!(until_one_fails(1)))
            .log(
                r#"
                effect.called try_join_all[0]/0/give[0]
                effect.result try_join_all[0]/0/give[0]
                effect.called try_join_all[0]/1/decline[0]
                effect.result try_join_all[0]/1/decline[0] value={"Err":{"message":"b","kind":"declined"}}
                "#,
            )
            .failed(r#"{"Err":{"message":"b","kind":"declined"}}"#),
        row("9-7", "stops once two have succeeded", go!(limited("+-+++".into(), 2, 5, 1)))
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
            .completed(r#""+-+..""#),
        row("9-8", "one failure is tolerated", go!(limited("-+".into(), 2, 1, 1)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/decline[0]
                effect.result until[0]/set[0]/0/async[0]/decline[0]
                effect.called until[0]/set[0]/1/async[0]/give[0]
                effect.result until[0]/set[0]/1/async[0]/give[0]
                ",
            )
            .completed(r#""-+""#),
        row("9-9", "too many failures stop it", go!(limited("-+-+".into(), 4, 1, 1)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/decline[0]
                effect.result until[0]/set[0]/0/async[0]/decline[0]
                effect.called until[0]/set[0]/1/async[0]/give[0]
                effect.result until[0]/set[0]/1/async[0]/give[0]
                effect.called until[0]/set[0]/2/async[0]/decline[0]
                effect.result until[0]/set[0]/2/async[0]/decline[0]
                ",
            )
            .completed(r#""-+-.""#),
        row("9-10", "more failures than the percentage stop it", go!(limited_by_percent("--.".into(), 34)))
            .log(
                "
                effect.called until[0]/set[0]/0/async[0]/decline[0]
                effect.called until[0]/set[0]/1/async[0]/decline[0]
                effect.called until[0]/set[0]/2/async[0]/late[0]
                | effect.result until[0]/set[0]/0/async[0]/decline[0]
                | effect.result until[0]/set[0]/1/async[0]/decline[0]
                step.closed until[0]/set[0]/2/async[0]/late[0]
                ",
            )
            .completed(r#""--.""#),
        row("9-11", "results by index, whatever the order in which they come", go!(all_late(items("a b c"))))
            .opens("b", "effect.called try_join_all[0]/2/late[0]")
            .opens("c", "effect.result try_join_all[0]/1/late[0]")
            .opens("a", "effect.result try_join_all[0]/2/late[0]")
            .log(
                "
                effect.called try_join_all[0]/0/late[0]
                effect.called try_join_all[0]/1/late[0]
                effect.called try_join_all[0]/2/late[0]
                effect.result try_join_all[0]/1/late[0]
                effect.result try_join_all[0]/2/late[0]
                effect.result try_join_all[0]/0/late[0]
                ",
            )
            .completed(r#"{"Ok":["a","b","c"]}"#),
        row("9-12", "flat: an item has no record of its own", go!(two_each(items("a b"))))
            .log(
                "
                effect.called try_join_all[0]/0/async[0]/give[0]
                effect.result try_join_all[0]/0/async[0]/give[0]
                effect.called try_join_all[0]/0/async[0]/give[1]
                effect.result try_join_all[0]/0/async[0]/give[1]
                effect.called try_join_all[0]/1/async[0]/give[0]
                effect.result try_join_all[0]/1/async[0]/give[0]
                effect.called try_join_all[0]/1/async[0]/give[1]
                effect.result try_join_all[0]/1/async[0]/give[1]
                ",
            )
            .completed(r#"{"Ok":["a!","b!"]}"#),
        row("9-13", "each item gives its step a name", go!(item_names(items("tea milk"))))
            .log(
                r#"
                effect.called orders[0]/0/tea[0] effect="give"
                effect.called orders[0]/1/milk[0] effect="give"
                | effect.result orders[0]/0/tea[0]
                | effect.result orders[0]/1/milk[0]
                "#,
            )
            .completed(r#"{"Ok":["tea","milk"]}"#),
        row("9-14", "items of a type with a written form of its own", go!(doubles(vec![5, 10])))
            .log(
                r#"
                effect.called try_join_all[0]/0/double[0] args={"amount":{"cents":"0.05 EUR"}}
                effect.called try_join_all[0]/1/double[0] args={"amount":{"cents":"0.10 EUR"}}
                | effect.result try_join_all[0]/0/double[0] value={"Ok":{"cents":"0.10 EUR"}}
                | effect.result try_join_all[0]/1/double[0] value={"Ok":{"cents":"0.20 EUR"}}
                "#,
            )
            .completed(r#"{"Ok":[10,20]}"#),
        row("9-15", "one item sleeps: finished ones are not repeated on resume", go!(one_sleeps(items("slow tea"))))
            .resumed_at("effect.result try_join_all[0]/1/maybe_sleeps[0]/give[0]")
            .log(
                "
                timer.set try_join_all[0]/0/maybe_sleeps[0]/sleep[0]
                effect.called try_join_all[0]/1/maybe_sleeps[0]/give[0] attempt=1
                effect.result try_join_all[0]/1/maybe_sleeps[0]/give[0]
                timer.fired try_join_all[0]/0/maybe_sleeps[0]/sleep[0]
                effect.called try_join_all[0]/0/maybe_sleeps[0]/give[0] attempt=1
                effect.result try_join_all[0]/0/maybe_sleeps[0]/give[0]
                ",
            )
            .completed(r#"{"Ok":["slow","tea"]}"#),
        row(
            "9-16",
            "results that are together above the record limit: made again from those of the items",
            go!(long_together()),
        )
        .build(|builder| builder.value_bytes_max(LONGEST))
        .resumed_at("timer.set sleep[0]")
        .log(
            "
            effect.called try_join_all[0]/0/give[0] attempt=1
            effect.result try_join_all[0]/0/give[0]
            effect.called try_join_all[0]/1/give[0] attempt=1
            effect.result try_join_all[0]/1/give[0]
            effect.called try_join_all[0]/2/give[0] attempt=1
            effect.result try_join_all[0]/2/give[0]
            timer.set sleep[0]
            timer.fired sleep[0]
            effect.called give[0]
            effect.result give[0]
            ",
        )
        .completed(r#"{"Ok":1500}"#),
        row("9-17", "a sleep after all succeeded: nothing is repeated", go!(then_sleeps(items("tea milk"))))
            .resumed_at("timer.set sleep[0]")
            .log(
                r#"
                effect.called join_all[0]/0/give[0] attempt=1
                effect.result join_all[0]/0/give[0]
                effect.called join_all[0]/1/give[0] attempt=1
                effect.result join_all[0]/1/give[0]
                timer.set sleep[0] in=1m
                timer.fired sleep[0]
                effect.called give[0] args={"text":"tea milk"}
                effect.result give[0]
                "#,
            )
            .completed(r#"{"Ok":"tea milk"}"#),
        row(
            "9-18",
            "a sleep after one failed: the failure is kept, and not tried again",
            go!(then_sleeps(items("tea bad"))),
        )
        .resumed_at("timer.set sleep[0]")
        .log(
            r#"
            effect.called join_all[0]/0/give[0] attempt=1
            effect.result join_all[0]/0/give[0]
            effect.called join_all[0]/1/decline[0] attempt=1
            effect.result join_all[0]/1/decline[0] value={"Err":{"message":"bad","kind":"declined"}}
            timer.set sleep[0] in=1m
            timer.fired sleep[0]
            effect.called give[0] args={"text":"tea declined"}
            effect.result give[0]
            "#,
        )
        .completed(r#"{"Ok":"tea declined"}"#),
        row(
            "9-19",
            "the whole of the results as one type with a written form of its own",
            go!(own_form_of_all(vec![5, 10])),
        )
        .log(OWN_FORM_OF_ALL)
        .completed(r#"{"Ok":"10+20+30"}"#),
        row("9-20", "the same over a replay", go!(own_form_of_all(vec![5, 10])))
            .resumed_at("timer.set sleep[0]")
            .log(OWN_FORM_OF_ALL)
            .completed(r#"{"Ok":"10+20+30"}"#),
    ]
}

const OWN_FORM_OF_ALL: &str = r#"
    effect.called try_join_all[0]/0/double[0] args={"amount":{"cents":"0.05 EUR"}}
    effect.result try_join_all[0]/0/double[0] value={"Ok":{"cents":"0.10 EUR"}}
    effect.called try_join_all[0]/1/double[0] args={"amount":{"cents":"0.10 EUR"}}
    effect.result try_join_all[0]/1/double[0] value={"Ok":{"cents":"0.20 EUR"}}
    timer.set sleep[0]
    timer.fired sleep[0]
    effect.called add_up[0] args={"amounts":"10+20"}
    effect.result add_up[0] value=30
"#;
