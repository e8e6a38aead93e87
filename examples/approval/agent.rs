//! The agent: it pays what is small, and asks a person about the rest.

use std::{fs, path::Path, pin::Pin, time::Duration};

use anyhow::ensure;
use durable::{Answer, AnyRun, Clock, EffectContext, Millis, Question, Runtime, Status, SystemClock};
use serde::{Deserialize, Serialize};

use crate::bank::Bank;

/// Starts the agent with a clock that is ahead.
pub(crate) const LATER: &str = "--later";
/// What the agent may pay without asking.
const ALONE_CENTS: u64 = 10_000;

/// A customer wants money back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) order: String,
    pub(crate) cents: u64,
    pub(crate) complaint: String,
    /// How long the customer waits for an answer.
    pub(crate) patience: Duration,
}

impl Request {
    fn new(order: &str, cents: u64, complaint: &str, patience: Duration) -> Request {
        Request { order: order.to_owned(), cents, complaint: complaint.to_owned(), patience }
    }

    /// The id of its run: whoever starts it again gets the run that is there.
    pub(crate) fn run(&self) -> String {
        format!("refund/{}", self.order)
    }

    /// Those that are on the desk.
    pub(crate) fn all() -> [Request; 4] {
        const HOUR: Duration = Duration::from_secs(60 * 60);
        const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
        [
            Request::new("ORD-1041", 4_000, "the lamp does not match the wallpaper", WEEK),
            Request::new("ORD-3300", 18_000, "arrived with a cracked screen", WEEK),
            Request::new("ORD-5150", 90_000, "the piano is too loud", WEEK),
            Request::new("ORD-2077", 25_000, "the suitcase lost a wheel on the way to the gate", HOUR),
        ]
    }
}

/// What a model thinks of a complaint. A scripted one, so that the example needs no key.
#[durable::effect(read_only)]
fn look_into(order: &str, complaint: &str) -> durable::Result<String> {
    println!("look_into({order}): its body runs");
    Ok(format!("a fair complaint: {complaint}"))
}

/// Pays. The key is made of what the payment is for: an order is refunded once.
#[durable::effect(key = "refund:{order}", retry(attempts = 5))]
fn pay(cx: &EffectContext, #[resource] bank: &Bank, order: &str, cents: u64) -> durable::Result<()> {
    println!("pay({order}, {}): its body runs", dollars(cents));
    Ok(bank.pay(cx.idempotency_key(), order, cents)?)
}

/// What a person must know to decide: all of it is recorded with the question.
#[derive(Serialize)]
struct Asked<'a> {
    order: &'a str,
    cents: u64,
    opinion: &'a str,
}

/// Asking is a step like any other. While it waits the run needs no process; killed and started again, it waits on.
#[durable::workflow]
pub(crate) async fn refund(request: Request) -> durable::Result<String> {
    let Request { order, cents, complaint, patience } = request;
    let opinion = look_into(&order, &complaint).await?;
    let cents = if cents <= ALONE_CENTS {
        cents
    } else {
        let question = Question::new(format!("refund {} of {order}?", dollars(cents)))
            .about(&Asked { order: &order, cents, opinion: &opinion })
            .by(["ann", "lead"])
            .within(patience);
        match durable::ask::<u64>(question).await {
            Answer::Granted(granted) => granted.min(cents),
            Answer::Refused(reason) => return Ok(format!("refused: {reason}")),
            Answer::Expired => return Ok("nobody answered in time".to_owned()),
        }
    };
    pay(&order, cents).await?;
    Ok(format!("refunded {}", dollars(cents)))
}

pub(crate) fn dollars(cents: u64) -> String {
    format!("${}.{:02}", cents / 100, cents % 100)
}

/// The agent's program: the same whether a run begins, waits, or goes on with an answer that came while nothing ran.
#[tokio::main]
pub(crate) async fn run(desk: &Path, later: Duration) -> anyhow::Result<()> {
    fs::create_dir_all(desk)?;
    let clock = Ahead { machine: SystemClock::new(), by: later.as_millis() as Millis };
    let runtime = Runtime::builder().clock(clock).resource(Bank::at(desk)).open(desk.join("store")).await?;
    let mut runs = Vec::new();
    for request in Request::all() {
        let run = runtime.start(request.run(), refund(request)).await?;
        come_to_rest(&run).await?;
        runs.push(run);
    }
    let mut waiting = tokio::task::JoinSet::new();
    for run in runs {
        if run.status().await?.is_terminal() {
            println!("{}: {}", run.id(), run.output().await?);
        } else {
            println!("{}: waits for a person", run.id());
            waiting.spawn(async move { Ok::<_, durable::Error>(format!("{}: {}", run.id(), run.output().await?)) });
        }
    }
    while let Some(ended) = waiting.join_next().await {
        println!("{}", ended??);
    }
    let report = runtime.shutdown(Duration::from_secs(10)).await?;
    ensure!(report.abandoned.is_empty(), "bodies were still running: {:?}", report.abandoned);
    Ok(())
}

/// The machine's clock, set forward, so that nobody has to wait for Monday.
#[derive(Debug)]
struct Ahead {
    machine: SystemClock,
    by: Millis,
}

impl Clock for Ahead {
    fn wall(&self) -> Millis {
        self.machine.wall() + self.by
    }

    fn monotonic(&self) -> Millis {
        self.machine.monotonic()
    }

    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.machine.sleep(wait)
    }
}

/// Waits until a run has ended or only waits, so that one after the other can be told of.
async fn come_to_rest(run: &AnyRun) -> anyhow::Result<()> {
    loop {
        match run.status().await? {
            Status::AwaitingAnswer { .. } => return Ok(()),
            status if status.is_terminal() => return Ok(()),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
