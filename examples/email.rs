//! An e-mail cannot be unsent, and a mail server knows no keys: `at_most_once`.
//!
//! The process goes down while it writes to two customers. One mail is out by then, the other is not, and nothing in the
//! process can tell which. Look at the second life: it sends nothing. Both steps are *held*, and listed with what a person
//! needs to find out. The person looks into the outbox and says what is true; in the end each mail has gone out once.
use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use durable::{Hold, Resolution, Runtime};
use tokio::sync::{Mutex, mpsc};

const CUSTOMERS: [&str; 2] = ["ann@example.org", "bob@example.org"];

#[derive(Clone, Default)]
struct MailServer {
    outbox: Arc<Mutex<Vec<String>>>,
    /// If it is broken: it takes Ann's mail and not Bob's, tells of each call here, and returns from none.
    broken: Option<mpsc::UnboundedSender<()>>,
}

#[durable::effect(at_most_once)]
async fn send_apology(#[resource] server: &MailServer, to: &str) -> durable::Result<String> {
    println!("  send_apology({to}): its body runs");
    if server.broken.is_none() || to == CUSTOMERS[0] {
        server.outbox.lock().await.push(to.to_owned());
    }
    if let Some(broken) = &server.broken {
        broken.send(())?;
        std::future::pending::<()>().await;
    }
    Ok(format!("<1@{to}>"))
}

#[durable::workflow]
async fn apologise(customer: String) -> durable::Result<String> {
    let message_id = send_apology(&customer).await?;
    Ok(format!("{customer} has {message_id}"))
}

/// What the person on call does: find out, then say it.
async fn find_out(server: &MailServer, hold: &Hold) -> Resolution {
    match server.outbox.lock().await.iter().find(|sent| hold.args["to"] == sent.as_str()) {
        Some(to) => Resolution::succeeded(format!("<1@{to}>")).by("kim"),
        None => Resolution::run_again().by("kim"),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (dir, server) = (tempfile::tempdir()?, MailServer::default());
    println!("first life, with a broken server");
    let (broken, mut calls) = mpsc::unbounded_channel();
    let runtime = Runtime::builder().resource(MailServer { broken: Some(broken), ..server.clone() });
    let runtime = runtime.open(dir.path()).await?;
    for customer in CUSTOMERS {
        runtime.start(customer, apologise(customer.to_owned())).await?;
        calls.recv().await;
    }
    println!("  it goes down in the middle of {} calls", runtime.shutdown(Duration::ZERO).await?.abandoned.len());

    println!("second life");
    let runtime = Runtime::builder().resource(server.clone()).open(dir.path()).await?;
    let mut holds = Vec::new();
    while holds.len() < CUSTOMERS.len() {
        tokio::time::sleep(Duration::from_millis(5)).await; // the runs are replayed in the background
        holds = runtime.holds().await?;
    }
    ensure!(*server.outbox.lock().await == CUSTOMERS[..1], "it has sent something by itself");
    for hold in holds {
        println!("  held: {} {}, attempt {}: {}", hold.path, hold.args, hold.attempt, hold.reason);
        runtime.resolve(&hold.run, hold.step, hold.attempt, find_out(&server, &hold).await).await?;
    }
    for customer in CUSTOMERS {
        let run = runtime.start(customer, apologise(customer.to_owned())).await?; // the same id is the same run
        println!("  completed: {}", run.output().await?);
    }
    ensure!(*server.outbox.lock().await == CUSTOMERS, "each mail should have gone out once");
    runtime.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}
