//! The agents: an editor, and the researchers that it sends out.

use std::{fs, path::Path, time::Duration};

use anyhow::ensure;
use durable::{AnyRun, EffectContext, Failure, Runtime};
use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;

/// The editor's run.
pub(crate) const REPORT: &str = "report";
pub(crate) const TOPICS: [&str; 5] = ["owls", "bees", "bats", "eels", "ants"];
/// What anybody may send to the editor.
pub(crate) const STEER: &str = "steer";
/// What a researcher waits for.
pub(crate) const SOURCE: &str = "source";
/// What the editor publishes.
pub(crate) const PROGRESS: &str = "progress";
/// How many researchers the editor can do without.
const MISSING_MAX: usize = 1;

/// How far the editor is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) notes: usize,
    pub(crate) missing: usize,
    pub(crate) draft: String,
}

/// Takes something from the library: a desk, a place in the print shop.
#[durable::effect(key = "take:{thing}")]
fn take(cx: &EffectContext, #[resource] ledger: &Ledger, thing: &str) -> durable::Result<()> {
    println!("take({thing}): its body runs");
    Ok(ledger.enter(cx.idempotency_key(), thing, 1)?)
}

/// Gives it back. What was never taken is no matter here: the library looks at its own books.
#[durable::effect(key = "give back:{thing}", retry(attempts = 5))]
fn give_back(cx: &EffectContext, #[resource] ledger: &Ledger, thing: &str) -> durable::Result<()> {
    println!("give_back({thing}): its body runs");
    let taken = ledger.lines()?.iter().any(|line| line.thing == thing);
    if taken {
        ledger.enter(cx.idempotency_key(), thing, -1)?;
    }
    Ok(())
}

/// A model writes. A scripted one, so that the example needs no key.
#[durable::effect(read_only)]
fn write(task: &str, history: &[String]) -> durable::Result<String> {
    println!("write({task}): its body runs, with {}", history.join("; "));
    Ok(format!("{task} after {}", history.len()))
}

/// A researcher: it takes a desk, waits for a source, for days if need be, and writes a note.
#[durable::workflow]
async fn researcher(topic: String) -> durable::Result<String> {
    let desk = format!("desk for {topic}");
    // Said before the act: whatever comes between the two, the desk is given back if this run fails or is cancelled.
    durable::undo(give_back(&desk)).await;
    take(&desk).await?;
    let Some(source) = durable::signal::<Option<String>>(SOURCE).await else {
        return Err(Failure::new(format!("there is nothing on {topic}")));
    };
    let note = write(&format!("note on {topic}"), &[source]).await?;
    let file = format!("file for {topic}");
    durable::undo(give_back(&file)).await;
    take(&file).await?;
    give_back(&desk).await?;
    Ok(note) // and from here on nothing of it is undone by itself: a run that completes drops its list
}

/// The editor: sends them out, writes a new draft for each note that comes in, and hears in between what people want changed.
#[durable::workflow]
pub(crate) async fn editor(topics: Vec<String>) -> durable::Result<String> {
    durable::undo(give_back("place in the print shop")).await;
    take("place in the print shop").await?;
    let mut team = durable::Set::new();
    for topic in topics {
        let child = durable::spawn(researcher(topic.clone())).id(format!("research/{topic}")).await;
        team.add(async move { (topic, child.await) });
    }
    let (mut history, mut progress) = (Vec::new(), Progress { notes: 0, missing: 0, draft: String::new() });
    while let Some((topic, found)) = team.next().await {
        history.extend(durable::signals::<String>(STEER).await);
        match found {
            Ok(note) => {
                // The researcher's run is over, and what it filed is the editor's from here on.
                durable::undo(give_back(&format!("file for {topic}"))).await;
                history.push(note);
                progress.notes += 1;
                progress.draft = write(&format!("draft {}", progress.notes), &history).await?;
            }
            Err(_lost) => progress.missing += 1,
        }
        durable::publish(PROGRESS, &progress).await;
    }
    if progress.missing > MISSING_MAX {
        return Err(Failure::new(format!("{} of the notes are missing", progress.missing)));
    }
    Ok(format!("printed: {}", progress.draft))
}

/// The agents' program: the same whether they begin or go on.
#[tokio::main]
pub(crate) async fn run(library: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(library)?;
    let runtime = Runtime::builder().resource(Ledger::at(library)).open(library.join("store")).await?;
    let run = runtime.start(REPORT, editor(TOPICS.map(str::to_owned).to_vec())).await?;
    let mut seen = None;
    loop {
        // In this order, so that what was published last is not missed.
        let ended = run.status().await?.is_terminal();
        tell_progress(&run, &mut seen).await?;
        if ended {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    match run.output().await {
        Ok(report) => println!("{REPORT}: {report}"),
        Err(error) => println!("{REPORT}: {error}"),
    }
    let report = runtime.shutdown(Duration::from_secs(10)).await?;
    ensure!(report.abandoned.is_empty(), "bodies were still running: {:?}", report.abandoned);
    Ok(())
}

/// What a page that shows the editor's progress would do.
async fn tell_progress(run: &AnyRun, seen: &mut Option<Progress>) -> anyhow::Result<()> {
    let now = run.published::<Progress>(PROGRESS).await?;
    if let Some(Progress { notes, missing, draft }) = now.as_ref().filter(|_| now != *seen) {
        println!("progress: {notes} notes, {missing} missing, {draft:?}");
    }
    *seen = now;
    Ok(())
}
