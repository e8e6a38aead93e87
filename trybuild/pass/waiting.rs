//! Signals, people, child runs, messages, compensations, cancels: in the shapes in which agents use them.
#![forbid(unsafe_code)]
#![deny(warnings)]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use durable::{Answer, Child, Failure, Fault, Question, RunId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

#[derive(Serialize, Deserialize, Debug, Clone)]
struct Order {
    id: String,
    cents: u64,
}

#[derive(Serialize, Deserialize, Debug)]
enum Steer {
    Stop,
    Focus(String),
}

#[derive(Serialize, Deserialize, Debug)]
enum NoFault {
    No,
}

#[derive(Serialize, Deserialize, Debug)]
enum OwnFault {
    Fault(Fault),
}

impl From<Fault> for OwnFault {
    fn from(fault: Fault) -> OwnFault {
        OwnFault::Fault(fault)
    }
}

#[durable::effect(read_only)]
async fn chat(history: &[String]) -> durable::Result<String> {
    Ok(format!("reply {}", history.len()))
}

#[durable::effect(idempotent)]
async fn reserve(order: &str) -> durable::Result<u64> {
    Ok(order.len() as u64)
}

#[durable::effect(key = "{order}:release:{cents}")]
async fn release(cx: &durable::EffectContext, order: &str, cents: u64) -> durable::Result<()> {
    let _ = (cx.idempotency_key(), order, cents);
    Ok(())
}

#[durable::effect(at_most_once)]
fn shred(order: String) {
    drop(order);
}

#[durable::workflow]
async fn researcher(topic: String, depth: u32) -> durable::Result<String> {
    Ok(format!("{topic} {depth}"))
}

#[durable::workflow]
async fn counter(n: u64) -> u64 {
    n
}

#[durable::workflow]
async fn strict(n: u64) -> Result<u64, NoFault> {
    if n == 0 { Err(NoFault::No) } else { Ok(n) }
}

#[durable::workflow]
async fn own(n: u64) -> Result<u64, OwnFault> {
    Ok(n)
}

// ---- signals ----

#[durable::workflow]
async fn waits() -> u64 {
    let one: u64 = durable::signal("one").await;
    let two = durable::signal::<u64>(String::from("two")).named("second").await;
    let Order { cents, .. } = durable::signal("order").await;
    let unit: () = durable::signal("go").await;
    let pairs = durable::signals::<(u64, BTreeSet<String>)>("pairs").await;
    let steering: Vec<Steer> = durable::signals("steer").named("steering").await;
    let focus = steering.iter().filter_map(|steer| match steer {
        Steer::Focus(on) => Some(on.len() as u64),
        Steer::Stop => None,
    });
    let _: () = unit;
    one + two + cents + pairs.len() as u64 + focus.sum::<u64>()
}

#[durable::workflow]
async fn steered(mut history: Vec<String>) -> durable::Result<Vec<String>> {
    loop {
        for steer in durable::signals::<Steer>("steer").await {
            match steer {
                Steer::Stop => return Ok(history),
                Steer::Focus(on) => history.push(on),
            }
        }
        let reply = chat(&history).await?;
        if reply.is_empty() {
            break;
        }
        history.push(reply);
    }
    Ok(history)
}

#[durable::workflow]
async fn first_of_many(names: Vec<String>) -> durable::Result<u64> {
    let (a, b) = durable::join((durable::signal::<u64>("a"), durable::signal::<u64>("b"))).await;
    let first = durable::race((durable::signal::<u64>("c"), async {
        durable::sleep(Duration::from_secs(60)).await;
        0
    }))
    .await;
    let any = durable::race(names.iter().cloned().map(durable::signal::<u64>).collect::<Vec<_>>()).await;
    let all = durable::join_all(names.into_iter().map(|name| durable::signal::<u64>(name).named("each"))).await;
    let in_time = durable::timeout(Duration::from_secs(1), durable::signal::<u64>("d")).await?;
    let mut set = durable::Set::new();
    set.add(durable::signal::<u64>("e"));
    set.add(durable::signal::<u64>("f"));
    let mut sum = a + b + first + any + in_time + all.iter().sum::<u64>();
    while let Some(n) = set.next().await {
        sum += n;
    }
    Ok(sum)
}

#[durable::part]
async fn latest<T: Serialize + DeserializeOwned + Send + 'static>(name: &str, or: T) -> T {
    durable::signals::<T>(name.to_owned()).await.pop().unwrap_or(or)
}

// ---- people ----

#[durable::workflow]
async fn approved(order: Order) -> durable::Result<u64> {
    let question = Question::new(format!("refund {} cents?", order.cents))
        .about(&order)
        .by(["ann", "lead"])
        .by(vec![String::from("owner")])
        .within(Duration::from_secs(86_400));
    let most = match durable::ask::<u64>(question).await {
        Answer::Granted(most) => most,
        Answer::Refused(reason) => return Err(Failure::new(reason).with_kind("refused")),
        Answer::Expired => 0,
    };
    let plain: Answer<()> = durable::ask("go on?").named("go on").await;
    let sure = durable::ask::<bool>(format!("{} again?", order.id)).await.granted().unwrap_or(plain.is_granted());
    let (a, b) = durable::join((durable::ask::<u8>("a?"), durable::ask::<String>("b?"))).await;
    let each = ["x", "y"].map(|title| durable::ask::<()>(Question::new(title).about(title)));
    let yes = durable::join_all(each).await.iter().filter(|answer| answer.is_granted()).count();
    Ok(most + u64::from(sure) + u64::from(a.is_granted()) + u64::from(b.is_granted()) + yes as u64)
}

#[durable::part]
async fn approve<T>(title: &str, about: &(impl Serialize + Sync)) -> Option<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    durable::ask(Question::new(title).about(about)).await.granted()
}

// ---- other runs ----

#[durable::workflow]
async fn parent(topics: Vec<String>) -> durable::Result<Vec<String>> {
    let mut children = vec![];
    for topic in topics {
        children.push(durable::spawn(researcher(topic, 1)).await);
    }
    let ids: Vec<RunId> = children.iter().map(|child| child.id().clone()).collect();
    for id in &ids {
        durable::send(id, "hurry", &true).await;
    }
    durable::publish("children", &ids.iter().map(RunId::as_str).collect::<Vec<_>>()).await;
    durable::try_join_all(children).await
}

#[durable::workflow]
async fn kinds_of_children(id: String) -> durable::Result<u64> {
    let mut counted: Child<u64> = durable::spawn(counter(1)).id(&id).named("counted").await;
    let forgotten = durable::spawn(counter(2)).detached().await;
    drop(forgotten);
    let strict = durable::spawn(strict(3)).await.await.unwrap_or(0);
    let own = match durable::spawn(own(4)).await.await {
        Ok(n) => n,
        Err(OwnFault::Fault(Fault::ChildIdTaken { run })) => run.len() as u64,
        Err(OwnFault::Fault(_)) => 0,
    };
    let again = loop {
        match durable::timeout(Duration::from_secs(1), &mut counted).await {
            Ok(n) => break n,
            Err(_) => durable::send(counted.id(), "hurry", &()).await,
        }
    };
    let both = durable::race((
        async { durable::spawn(counter(5)).await.await },
        async { durable::signal::<u64>("enough").await },
    ))
    .await;
    Ok(strict + own + again + both)
}

#[durable::workflow]
async fn steers_its_child(topic: String) -> durable::Result<String> {
    enum Next {
        Found(durable::Result<String>),
        Steer(String),
    }
    let mut child = durable::spawn(researcher(topic, 2)).await;
    loop {
        let look = async { Next::Found((&mut child).await) };
        let steer = async { Next::Steer(durable::signal("steer").await) };
        match durable::race((look, steer)).await {
            Next::Found(found) => return found,
            Next::Steer(words) => durable::send(child.id(), "steer", &words).await,
        }
    }
}

#[durable::part]
async fn all_of<R>(children: &mut [Child<R>]) -> Vec<R>
where
    R: Serialize + DeserializeOwned + Send + 'static,
{
    durable::join_all(children.iter_mut()).await
}

#[durable::workflow]
async fn children_as_they_end(n: u64) -> u64 {
    let mut set = durable::Set::new();
    for i in 0..n {
        set.add(durable::spawn(counter(i)).await);
    }
    let mut sum = 0;
    while let Some(n) = set.next().await {
        sum += n;
    }
    let mut more = durable::join_all([1, 2, 3].map(|n| durable::spawn(counter(n)))).await;
    let values = all_of(&mut more).await;
    sum + values.into_iter().sum::<u64>()
}

#[durable::workflow]
async fn says(to: String) {
    durable::send(&to, "text", "a str").await;
    durable::send(to.clone(), "list", &[1, 2, 3][..]).await;
    durable::send("a run", format!("name of {to}"), &BTreeMap::from([(1, "x")])).named("told").await;
    durable::publish("progress", &0.5).named("half").await;
    durable::join_all((0..3).map(|n| durable::send("other", "n", &n))).await;
}

// ---- the end ----

#[durable::workflow]
async fn compensated(order: Order) -> durable::Result<u64> {
    durable::undo(release(&order.id, order.cents)).await;
    let reserved = reserve(&order.id).await?;
    durable::undo(shred(order.id).named("shredded")).named("shred it").await;
    Ok(reserved)
}

#[durable::workflow]
async fn for_years(state: u64) -> durable::Result<u64> {
    let state = state + durable::signal::<u64>("add").await;
    if state > 1_000 {
        return Ok(state);
    }
    if state == 7 {
        return durable::restart_as(for_years(0)).await;
    }
    match state {
        0 => durable::restart_as(for_years(1)).await,
        n => durable::restart_as(for_years(n)).await,
    }
}

#[durable::workflow]
async fn never_returns(round: u64) {
    durable::sleep(Duration::from_secs(1)).await;
    durable::restart_as(never_returns(round + 1)).await
}

#[durable::workflow]
async fn cancellable(order: Order) -> durable::Result<u64> {
    let mut done = 0;
    let cents = durable::shield(async {
        durable::undo(release(&order.id, 1)).await;
        reserve(&order.id).await
    })
    .await?;
    let one = durable::shield(reserve(&order.id)).named("reserve").await?;
    let two = durable::shield(durable::join((reserve("a"), durable::signal::<u64>("b")))).await.1;
    let work = async {
        loop {
            durable::sleep(Duration::from_secs(1)).await;
            done += 1;
        }
    };
    durable::race((work, durable::cancelled())).await;
    let stopped = durable::race((
        async { durable::ask::<()>("still?").await.is_granted() },
        async {
            durable::cancelled().await;
            true
        },
    ))
    .await;
    if stopped {
        durable::shield(durable::spawn(counter(done))).await.await;
    }
    Ok(cents + one + two + done)
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.id)
    }
}

#[durable::workflow]
async fn generic() -> u64 {
    let n = latest("n", 1_u64).await;
    approve::<u64>("more?", &n).await.unwrap_or_default()
}

fn main() {
    let order = || Order { id: String::new(), cents: 1 };
    let _ = (waits(), steered(vec![]), first_of_many(vec![]), approved(order()), parent(vec![]), generic());
    let _ = (kinds_of_children(String::new()), steers_its_child(String::new()), children_as_they_end(3));
    let _ = (says(String::new()), compensated(order()), for_years(0), never_returns(0), cancellable(order()));
}
