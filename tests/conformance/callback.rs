//! Group 4: answers from outside. A token is a signal of a name that nobody else has; a question carries its own.

use std::time::Duration;

use durable::{Answer, Begun, Elapsed, Failure, Question, Recordable, Reply};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    effects::{give, late},
    row::{Row, go, row},
};

const MINUTE: Duration = Duration::from_secs(60);

/// A one-time token, told to the outside under a name, and the time that is left for its answer.
struct Callback {
    token: String,
    deadline: Begun<()>,
}

/// Makes a token: whoever reads what is published under `name` can answer.
#[durable::part]
async fn callback(name: &str, limit: Duration) -> Callback {
    let token = format!("{name}-{}", durable::uuid().await);
    durable::publish(name.to_owned(), &token).await;
    Callback { token, deadline: durable::begin(durable::sleep(limit)).await }
}

impl Callback {
    /// Waits for the answer. One that came while nobody looked counts, although the time was over then.
    #[durable::part]
    async fn get<T: Recordable>(self) -> durable::Result<T> {
        let Callback { token, deadline } = self;
        let answer = async { Some(durable::signal::<durable::Result<T>>(token.clone()).named("answer").await) };
        let over = async {
            deadline.await;
            None
        };
        match durable::race((answer, over)).await {
            Some(answer) => answer,
            None => match durable::signals::<durable::Result<T>>(token).named("late").await.pop() {
                Some(answer) => answer,
                None => Err(Failure::new("nobody answered").with_kind("elapsed")),
            },
        }
    }
}

/// Waits for the answer to a token for as long as a beat comes in time.
#[durable::part]
pub(crate) async fn with_beats<T: Recordable>(token: &str, limit: Duration) -> Result<T, Elapsed> {
    loop {
        let answer = async { Some(durable::signal::<T>(token.to_owned()).named("answer").await) };
        let beat = async {
            durable::signal::<()>(format!("{token}-beat")).named("beat").await;
            None
        };
        if let Some(answer) = durable::timeout(limit, durable::race((answer, beat))).await? {
            return Ok(answer);
        }
    }
}

#[durable::workflow]
async fn waits() -> durable::Result<String> {
    let token = format!("a-{}", durable::uuid().await);
    durable::publish("a", &token).await;
    durable::signal::<durable::Result<String>>(token).named("answer").await
}

#[durable::workflow]
async fn named() -> durable::Result<String> {
    callback("a", MINUTE).named("approval").await.get().named("approved").await
}

/// A person is asked.
#[durable::workflow]
async fn asks(within: Option<Duration>) -> durable::Result<u64> {
    let question = Question::new("how many?");
    let question = match within {
        Some(limit) => question.within(limit),
        None => question,
    };
    match durable::ask::<u64>(question).await {
        Answer::Granted(number) => Ok(number + 1),
        Answer::Refused(why) => Err(Failure::new(why)),
        Answer::Expired => Err(Failure::new("nobody answered")),
    }
}

#[durable::workflow]
async fn asks_then_sleeps() -> durable::Result<String> {
    let number = match asks(None).await {
        Ok(number) => give(&number.to_string()).await,
        Err(failure) => give(&format!("instead: {}", failure.message())).await,
    };
    durable::sleep(MINUTE).await;
    number
}

#[durable::workflow]
async fn beats() -> durable::Result<String> {
    let token = format!("a-{}", durable::uuid().await);
    durable::publish("a", &token).await;
    Ok(with_beats(&token, MINUTE).await?)
}

#[derive(Debug, Serialize, Deserialize)]
enum Declined {
    Card { code: u32 },
    Nobody,
}

#[durable::workflow]
async fn typed_error() -> Result<String, Declined> {
    let token = format!("a-{}", durable::uuid().await);
    durable::publish("a", &token).await;
    let answer = durable::signal::<Result<String, Declined>>(token).named("answer");
    durable::timeout(MINUTE, answer).await.unwrap_or(Err(Declined::Nobody))
}

/// An effect between the making of the token and the wait for its answer.
#[durable::workflow]
async fn effect_between() -> durable::Result<String> {
    let callback = callback("a", MINUTE).await;
    late("between").await?;
    callback.get().await
}

/// A sleep there.
#[durable::workflow]
async fn sleep_between(nap: Duration) -> durable::Result<String> {
    let callback = callback("a", MINUTE).await;
    durable::sleep(nap).await;
    callback.get().await
}

#[durable::workflow]
async fn then_sleeps(naps: u32) -> durable::Result<String> {
    let answer = callback("a", MINUTE).await.get::<String>().await;
    let answer = match answer {
        Ok(answer) => give(&answer).await,
        Err(failure) => give(&format!("instead: {}", failure.message())).await,
    };
    for _ in 0..naps {
        durable::sleep(MINUTE).await;
    }
    answer
}

/// As people write it: `2026-01-05`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Day(u32, u32, u32);

impl Clone for Day {
    fn clone(&self) -> Day {
        Day(self.0, self.1, self.2)
    }
}

impl From<Day> for String {
    fn from(Day(year, month, day): Day) -> String {
        format!("{year:04}-{month:02}-{day:02}")
    }
}

impl TryFrom<String> for Day {
    type Error = String;

    fn try_from(text: String) -> Result<Day, String> {
        let parts: Option<Vec<u32>> = text.split('-').map(|part| part.parse().ok()).collect();
        match parts.as_deref() {
            Some([year, month, day]) => Ok(Day(*year, *month, *day)),
            _ => Err(format!("no day: {text}")),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Booking {
    room: u32,
    day: Day,
}

#[durable::workflow]
async fn typed() -> durable::Result<String> {
    let Booking { room, day: Day(year, month, day) } = callback("a", MINUTE).await.get().await?;
    Ok(format!("room {room}: day {day} of month {month} of {year}"))
}

#[durable::workflow]
async fn one_then_the_other() -> durable::Result<String> {
    let first: String = callback("a", MINUTE).await.get().await?;
    let second: String = callback("b", MINUTE).await.get().await?;
    Ok(first + &second)
}

#[durable::workflow]
async fn both_open(b_first: bool) -> durable::Result<(String, String)> {
    let (a, b) = (callback("a", MINUTE).await, callback("b", MINUTE).await);
    if b_first {
        let b = b.get().await?;
        Ok((a.get().await?, b))
    } else {
        let a = a.get().await?;
        Ok((a, b.get().await?))
    }
}

/// The log of a token that is made, the nth of its run.
fn made(n: u32, name: &str) -> String {
    format!("value.published callback[{n}]/publish:{name}[0] value^={name}- \n timer.set callback[{n}]/sleep[0] in=1m")
}

/// And of the nth wait for an answer, which comes to that token.
fn answered(n: u32, token: u32, message: &str) -> String {
    let log = "
        signal.awaited @/race[0]/0/async[0]/answer[0]
        signal.received @/race[0]/0/async[0]/answer[0] messages=[MESSAGE]
        ";
    let log = log.replace('@', &format!("get[{n}]")).replace("MESSAGE", message);
    log + &format!("step.closed callback[{token}]/sleep[0]")
}

/// The nth turn of [`with_beats`]: what it waits for, and then this.
fn turn(n: u32, then: &str) -> String {
    let log = "
        signal.awaited @/0/race[0]/0/async[0]/answer[0]
        signal.awaited @/0/race[0]/1/async[0]/beat[0]
        timer.set @/1/sleep[0] in=1m
        ";
    (log.to_owned() + then).replace('@', &format!("with_beats[0]/timeout[{n}]"))
}

pub(crate) fn beat(n: u32) -> String {
    let then = "
        signal.received @/0/race[0]/1/async[0]/beat[0] messages=[null]
        step.closed @/0/race[0]/0/async[0]/answer[0]
        step.closed @/1/sleep[0]
        ";
    turn(n, then)
}

pub(crate) fn no_beat(n: u32) -> String {
    let then = "
        timer.fired @/1/sleep[0]
        step.closed @/0/race[0]/0/async[0]/answer[0]
        step.closed @/0/race[0]/1/async[0]/beat[0]
        ";
    turn(n, then)
}

pub(crate) fn answered_after(beats: u32) -> String {
    let then = r#"
        signal.received @/0/race[0]/0/async[0]/answer[0] messages=["yes"]
        step.closed @/0/race[0]/1/async[0]/beat[0]
        step.closed @/1/sleep[0]
        "#;
    turn(beats, then)
}

const WAITED: &str = "signal.awaited get[0]/race[0]/0/async[0]/answer[0]";

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("4-1", "a token is made, waited for, and answered", go!(waits()))
            .hand("signal.awaited answer[0]", |hand| hand.answer("a", json!({"Ok":"yes"})))
            .log(
                r#"
                value.published publish:a[0] name="a" value^=a-
                signal.awaited answer[0] signal^=a-
                signal.received answer[0] messages=[{"Ok":"yes"}]
                "#,
            )
            .completed(r#"{"Ok":"yes"}"#),
        row("4-2", "a token with a name", go!(named()))
            .hand("signal.awaited approved[0]/race[0]/0/async[0]/answer[0]", |hand| {
                hand.answer("a", json!({"Ok":"yes"}))
            })
            .log(
                r#"
                value.published approval[0]/publish:a[0]
                timer.set approval[0]/sleep[0] in=1m
                signal.awaited approved[0]/race[0]/0/async[0]/answer[0]
                signal.received approved[0]/race[0]/0/async[0]/answer[0] messages=[{"Ok":"yes"}]
                step.closed approval[0]/sleep[0]
                "#,
            )
            .completed(r#"{"Ok":"yes"}"#),
        row("4-3", "nobody answers in time", go!(asks(Some(MINUTE))))
            .resumed_at("question.asked ask[0]")
            .log(
                r#"
                question.asked ask[0] title="how many?" in=1m
                question.answered ask[0] answer="expired"
                "#,
            )
            .failed(r#"{"Err":{"message":"nobody answered"}}"#),
        row("4-4", "a beat is missing", go!(beats()))
            .log("value.published publish:a[0]")
            .log(no_beat(0))
            .failed(r#"{"Err":{"message":"not ready within 60s","kind":"elapsed"}}"#),
        row("4-5", "beats keep it open, longer than one of them would, then it is answered", go!(beats()))
            .hand("timer.set with_beats[0]/timeout[0]/1/sleep[0]", |hand| hand.beat("a", 40))
            .hand("timer.set with_beats[0]/timeout[1]/1/sleep[0]", |hand| hand.beat("a", 40))
            .hand("timer.set with_beats[0]/timeout[2]/1/sleep[0]", |hand| hand.answer("a", json!("yes")))
            .log("value.published publish:a[0]")
            .log(beat(0))
            .log(beat(1))
            .log(answered_after(2))
            .completed(r#"{"Ok":"yes"}"#),
        row("4-6", "the sender reports a failure: a typed error", go!(typed_error()))
            .hand("timer.set timeout[0]/1/sleep[0]", |hand| hand.answer("a", json!({"Err":{"Card":{"code":5}}})))
            .log(
                r#"
                value.published publish:a[0]
                signal.awaited timeout[0]/0/answer[0]
                timer.set timeout[0]/1/sleep[0]
                signal.received timeout[0]/0/answer[0] messages=[{"Err":{"Card":{"code":5}}}]
                step.closed timeout[0]/1/sleep[0]
                "#,
            )
            .failed(r#"{"Err":{"Card":{"code":5}}}"#),
        row("4-7", "made, then an effect, then waited for: a failure has come meanwhile", go!(effect_between()))
            .hand("effect.called late[0]", |hand| hand.answer("a", json!({"Err":{"message":"no"}})))
            .opens("between", "effect.called late[0]")
            .log(made(0, "a"))
            .log(
                "
                effect.called late[0]
                effect.result late[0]
                ",
            )
            .log(answered(0, 0, r#"{"Err":{"message":"no"}}"#))
            .failed(r#"{"Err":{"message":"no"}}"#),
        row("4-8", "the same, and nobody answers in time", go!(effect_between()))
            .opens("between", "effect.called late[0]")
            .resumed_at(WAITED)
            .log(made(0, "a"))
            .log(
                "
                effect.called late[0]
                effect.result late[0]
                signal.awaited get[0]/race[0]/0/async[0]/answer[0]
                timer.fired callback[0]/sleep[0]
                step.closed get[0]/race[0]/0/async[0]/answer[0]
                signal.awaited get[0]/late[0] drain=true
                signal.received get[0]/late[0] messages=[]
                ",
            )
            .failed(r#"{"Err":{"message":"nobody answered","kind":"elapsed"}}"#),
        row("4-9", "answered while the run sleeps", go!(sleep_between(MINUTE / 2)))
            .hand("timer.set sleep[0]", |hand| hand.answer("a", json!({"Ok":"yes"})))
            .resumed_at("timer.set sleep[0]")
            .log(made(0, "a"))
            .log(
                "
                timer.set sleep[0] in=30s
                timer.fired sleep[0]
                ",
            )
            .log(answered(0, 0, r#"{"Ok":"yes"}"#))
            .completed(r#"{"Ok":"yes"}"#),
        row("4-10", "failed while the run sleeps", go!(sleep_between(MINUTE / 2)))
            .hand("timer.set sleep[0]", |hand| hand.answer("a", json!({"Err":{"message":"no"}})))
            .resumed_at("timer.set sleep[0]")
            .log(made(0, "a"))
            .log(
                "
                timer.set sleep[0]
                timer.fired sleep[0]
                ",
            )
            .log(answered(0, 0, r#"{"Err":{"message":"no"}}"#))
            .failed(r#"{"Err":{"message":"no"}}"#),
        row("4-11", "over while the run sleeps: seen when it is waited for", go!(sleep_between(2 * MINUTE)))
            .resumed_at("timer.set sleep[0]")
            .resumed_at("timer.fired callback[0]/sleep[0]")
            .log(made(0, "a"))
            .log(
                "
                timer.set sleep[0] in=2m
                timer.fired callback[0]/sleep[0]
                timer.fired sleep[0]
                signal.awaited get[0]/race[0]/0/async[0]/answer[0]
                step.closed get[0]/race[0]/0/async[0]/answer[0]
                signal.awaited get[0]/late[0] drain=true
                signal.received get[0]/late[0] messages=[]
                ",
            )
            .failed(r#"{"Err":{"message":"nobody answered","kind":"elapsed"}}"#),
        row("4-12", "answered, then sleeps: three replays agree", go!(then_sleeps(3)))
            .hand(WAITED, |hand| hand.answer("a", json!({"Ok":"yes"})))
            .resumed_at("timer.set sleep[0]")
            .resumed_at("timer.set sleep[1]")
            .resumed_at("timer.set sleep[2]")
            .log(made(0, "a"))
            .log(answered(0, 0, r#"{"Ok":"yes"}"#))
            .log(
                r#"
                effect.called give[0] args={"text":"yes"} attempt=1
                effect.result give[0]
                timer.set sleep[0]
                timer.fired sleep[0]
                timer.set sleep[1]
                timer.fired sleep[1]
                timer.set sleep[2]
                timer.fired sleep[2]
                "#,
            )
            .completed(r#"{"Ok":"yes"}"#),
        row("4-13", "refused, and that caught, then a sleep: replay takes the same branch", go!(asks_then_sleeps()))
            .hand("question.asked asks[0]/ask[0]", |hand| hand.reply(Reply::refused("no time")))
            .resumed_at("timer.set sleep[0]")
            .log(
                r#"
                question.asked asks[0]/ask[0] title="how many?" deadline=none
                question.answered asks[0]/ask[0] answer="refused" reason="no time"
                effect.called give[0] args={"text":"instead: no time"} attempt=1
                effect.result give[0]
                timer.set sleep[0]
                timer.fired sleep[0]
                "#,
            )
            .completed(r#"{"Ok":"instead: no time"}"#),
        row("4-14", "over, and that caught, then a sleep: replay takes the same branch", go!(then_sleeps(1)))
            .resumed_at("timer.set sleep[0]")
            .log(made(0, "a"))
            .log(
                r#"
                signal.awaited get[0]/race[0]/0/async[0]/answer[0]
                timer.fired callback[0]/sleep[0]
                step.closed get[0]/race[0]/0/async[0]/answer[0]
                signal.awaited get[0]/late[0] drain=true
                signal.received get[0]/late[0] messages=[]
                effect.called give[0] args={"text":"instead: nobody answered"} attempt=1
                effect.result give[0]
                timer.set sleep[0]
                timer.fired sleep[0]
                "#,
            )
            .completed(r#"{"Ok":"instead: nobody answered"}"#),
        row("4-15", "the answer is read as a type with a date", go!(typed()))
            .hand(WAITED, |hand| hand.answer("a", json!({"Ok":{"room":12,"day":"2026-01-05"}})))
            .log(made(0, "a"))
            .log(answered(0, 0, r#"{"Ok":{"room":12,"day":"2026-01-05"}}"#))
            .completed(r#"{"Ok":"room 12: day 5 of month 1 of 2026"}"#),
        row("4-16", "the answer is read as a number", go!(asks(None)))
            .hand("question.asked ask[0]", |hand| hand.reply(Reply::granted(&41)))
            .log(
                r#"
                question.asked ask[0]
                question.answered ask[0] answer="granted" value=41
                "#,
            )
            .completed(r#"{"Ok":42}"#),
        row("4-17", "one token, then another", go!(one_then_the_other()))
            .hand(WAITED, |hand| hand.answer("a", json!({"Ok":"A"})))
            .hand("signal.awaited get[1]/race[0]/0/async[0]/answer[0]", |hand| hand.answer("b", json!({"Ok":"B"})))
            .log(made(0, "a"))
            .log(answered(0, 0, r#"{"Ok":"A"}"#))
            .log(made(1, "b"))
            .log(answered(1, 1, r#"{"Ok":"B"}"#))
            .completed(r#"{"Ok":"AB"}"#),
        row("4-18", "both open, waited for in the order made, answered the other way round", go!(both_open(false)))
            .hand(WAITED, |hand| hand.answer("b", json!({"Ok":"B"})))
            .hand(WAITED, |hand| hand.answer("a", json!({"Ok":"A"})))
            .log(made(0, "a"))
            .log(made(1, "b"))
            .log(answered(0, 0, r#"{"Ok":"A"}"#))
            .log(answered(1, 1, r#"{"Ok":"B"}"#))
            .completed(r#"{"Ok":["A","B"]}"#),
        row("4-19", "both open, waited for the other way round: each answer is its own waiter's", go!(both_open(true)))
            .hand(WAITED, |hand| hand.answer("a", json!({"Ok":"A"})))
            .resumed_at(WAITED)
            .hand(WAITED, |hand| hand.answer("b", json!({"Ok":"B"})))
            .log(made(0, "a"))
            .log(made(1, "b"))
            .log(answered(0, 1, r#"{"Ok":"B"}"#))
            .log(answered(1, 0, r#"{"Ok":"A"}"#))
            .completed(r#"{"Ok":["A","B"]}"#),
    ]
}
