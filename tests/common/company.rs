//! Runs that wait for messages, for people and for each other, and that end in every way there is.

use std::time::Duration;

use durable::{Answer, Question};

use super::effects::{LONG, linger, refuse, save, take_back, wire, wire_back};

/// What a client outside sends to a run of [`company`] and its like: name, id, value. In this order, and again whenever it is
/// not sure.
pub(crate) const WORDS: [(&str, &str, &str); 5] = [
    ("word", "w1", "first"),
    ("steer", "s1", "left"),
    ("word", "w2", "second"),
    ("steer", "s2", "right"),
    ("word", "w3", "third"),
];
/// The question that nobody answers.
pub(crate) const UNANSWERED: &str = "does anybody listen?";
/// What is granted to all other questions.
pub(crate) const GRANTED: u64 = 120;

/// Everything that waits, tells others or ends, `me` being its own id. Goes on in a fresh log, and there completes, or fails and
/// takes back what both logs did. What it returns does not depend on when it is killed.
#[durable::workflow]
pub(crate) async fn company(me: String, fails: bool) -> durable::Result<String> {
    durable::undo(take_back(&format!("{me} founded"))).await;
    save("founded").await?;
    durable::publish("stage", "founded").await;

    let words = (durable::signal::<String>("word").await, durable::signal::<String>("word").await);
    let mut steered = Vec::new();
    while steered.len() < 2 {
        steered.extend(durable::signals::<String>("steer").await);
        durable::sleep(Duration::from_millis(3)).await;
    }
    let question = Question::new("how much?").about(&(&me, 250)).by(["ann", "bob"]).within(LONG);
    let granted = match durable::ask::<u64>(question).await {
        Answer::Granted(cents) => cents,
        Answer::Refused(_) | Answer::Expired => 0,
    };
    let nobody = Question::new(UNANSWERED).within(Duration::from_millis(10));
    let expired = durable::ask::<()>(nobody).await == Answer::Expired;

    let helped = helped(&me).await?;
    let children = children(&me).await;
    let shielded = durable::shield(async {
        let half = save("half").await?;
        let whole = save("whole").await?;
        durable::Result::<_>::Ok(format!("{half} and {whole}"))
    })
    .await?;
    let watched = async { save("watched").await };
    let cancelled = async {
        durable::cancelled().await;
        durable::shield(save("put in order")).await
    };
    let watched = durable::race((watched, cancelled)).await?;

    durable::undo(wire_back(&format!("{me} wired"))).await;
    let wired = wire(&format!("{me} wired")).await?;
    let so_far =
        format!("{words:?}, {steered:?}, {granted} {expired}, {helped}, {children}, {shielded}, {watched}, {wired}");
    durable::restart_as(second_year(me, so_far, fails)).await
}

/// What [`company`] returns.
pub(crate) fn company_of(me: &str, fails: bool) -> Result<String, String> {
    match fails {
        true => Err("refused a third year".to_owned()),
        false => Ok(format!(
            "(\"first\", \"second\"), [\"left\", \"right\"], 120 true, saved bees honey, true true failed cancelled taken away, \
             saved half and saved whole, saved watched, wired {me} wired, third"
        )),
    }
}

/// The fresh log: a word that nobody took in the first one is there.
#[durable::workflow]
async fn second_year(me: String, so_far: String, fails: bool) -> durable::Result<String> {
    durable::undo(take_back(&format!("{me} second year"))).await;
    // Under a name of its own, for the ledger tells steps apart by their paths.
    save("second year").named("save anew").await?;
    let word = durable::signal::<String>("word").await;
    durable::publish("stage", "second year").await;
    if fails {
        refuse("a third year").await?;
    }
    Ok(format!("{so_far}, {word}"))
}

/// The child that is cancelled from outside.
pub(crate) fn doomed(me: &str) -> String {
    format!("{me} doomed")
}

/// A child that is told something and tells something.
#[durable::part]
async fn helped(me: &str) -> durable::Result<String> {
    let helper = durable::spawn(helper(me.to_owned(), "bees".to_owned())).await;
    durable::send(helper.id(), "hint", "honey").await;
    let told = durable::signal::<String>("found").await;
    let returned = helper.await?;
    if told == returned { Ok(told) } else { Ok(format!("{told}, and then {returned}")) }
}

/// Children that nobody wants, that fail, that are cancelled, that may not be made, that outlive their parent.
#[durable::part]
async fn children(me: &str) -> String {
    // Nobody waits for it any more: it is cancelled, and takes back what it did.
    let idle = durable::spawn(idler(me.to_owned(), "idle".to_owned())).await;
    let idle = durable::timeout(Duration::from_millis(5), idle).await.is_err();
    let unwatched = durable::spawn(idler(me.to_owned(), "unwatched".to_owned())).await;
    let unwatched = async { unwatched.await.is_ok() };
    let unwatched = durable::race((unwatched, async { save("beside").await.is_ok() })).await;
    // One that fails takes back all it did, the last first.
    let trip = durable::spawn(trip(me.to_owned())).await.await.map_or("failed", |()| "went");
    // One that somebody else cancels: its parent hears of it.
    let doomed = durable::spawn(idler(me.to_owned(), "doomed".to_owned())).id(doomed(me)).await;
    let cancelled = doomed.await.err().and_then(|e| e.fault().map(|fault| fault.kind().to_owned()));
    let end = if cancelled.as_deref() == Some("child_cancelled") { "cancelled" } else { "idled" };
    let taken = durable::spawn(errand(me.to_owned())).id(me).await.await.map_or("taken", |_| "made");
    let away = durable::spawn(errand(me.to_owned())).detached().await.await.unwrap_or_default();
    drop(durable::spawn(errand(format!("{me} alone"))).detached().await);
    format!("{idle} {unwatched} {trip} {end} {taken} {away}")
}

#[durable::workflow]
async fn helper(boss: String, topic: String) -> durable::Result<String> {
    let hint = durable::signal::<String>("hint").await;
    let found = save(&format!("{topic} {hint}")).await?;
    durable::send(&boss, "found", &found).await;
    Ok(found)
}

/// Waits for what never comes, beside a body that goes on until it is told.
#[durable::workflow]
async fn idler(boss: String, name: String) -> durable::Result<()> {
    durable::undo(take_back(&format!("{boss} {name}"))).await;
    save(&name).await?;
    let never = async {
        durable::signal::<()>("never").await;
        durable::Result::<_>::Ok(String::new())
    };
    durable::join((linger(&name), never)).await.0.map(drop)
}

#[durable::workflow]
async fn trip(boss: String) -> durable::Result<()> {
    for leg in ["train", "ship"] {
        durable::undo(take_back(&format!("{boss} {leg}"))).await;
        save(leg).await?;
    }
    durable::undo(wire_back(&format!("{boss} hotel"))).await;
    wire(&format!("{boss} hotel")).await?;
    refuse("the last leg").await?;
    Ok(())
}

/// Goes on whoever started it.
#[durable::workflow]
async fn errand(boss: String) -> durable::Result<String> {
    save(&format!("{boss}: away")).await?;
    Ok("away".to_owned())
}
