//! What a row of the table says.

use std::{collections::BTreeMap, future::Future, pin::Pin, time::Duration};

use durable::{Builder, Error, LogEntry, Reply, Runtime, Status, TestClock};
use serde_json::Value as Json;

use crate::common::ledger::Line;

pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Starts the row's run under the given id.
pub(crate) type Start = fn(Runtime, String) -> Boxed<Result<(), Error>>;

/// Makes a [`Start`] of a call.
macro_rules! go {
    ($call:expr) => {
        |runtime, id| Box::pin(async move { runtime.start(id, $call).await.map(drop) })
    };
}
pub(crate) use go;

/// One case.
pub(crate) struct Row {
    pub(crate) id: &'static str,
    /// The case in words.
    pub(crate) says: &'static str,
    /// Why it cannot be said in our terms.
    pub(crate) na: Option<&'static str>,
    pub(crate) start: Option<Start>,
    pub(crate) build: fn(Builder) -> Builder,
    /// What happens to the run, one after the other. Else time passes whenever the run waits for nothing else.
    pub(crate) acts: Vec<(When, Do)>,
    pub(crate) end: End,
    /// The entries between the first and the last one, a line each; see `lines`.
    pub(crate) log: String,
    pub(crate) also: fn(&Played) -> Result<(), String>,
}

/// When an act is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// Once the log has an entry that this line describes.
    Log(&'static str),
    /// As soon as this attempt at this step has entered its body: only for [`Do::Die`].
    Body(&'static str, u32),
}

/// What happens to the run from outside.
#[derive(Clone, Copy)]
pub(crate) enum Do {
    /// The process is killed, and the next one goes on with what is in the store.
    Die,
    /// The process ends, and the next one goes on: killed on the store in memory, shut down on the other.
    Resume,
    /// Bodies that wait for this gate go on.
    Open(&'static str),
    /// Anything else.
    Hand(fn(Hand) -> Boxed<Result<(), String>>),
}

/// What is at hand for [`Do::Hand`].
pub(crate) struct Hand {
    pub(crate) runtime: Runtime,
    pub(crate) id: String,
    pub(crate) clock: TestClock,
    pub(crate) bodies: Vec<Line>,
}

impl Hand {
    /// Sends what answers the token that the run has published under that name.
    pub(crate) fn answer(self, name: &'static str, value: Json) -> Boxed<Result<(), String>> {
        Box::pin(async move {
            let token = self.token(name).await?;
            self.signal(token, value).await
        })
    }

    /// Sends that token's beat, so many seconds from now.
    pub(crate) fn beat(self, name: &'static str, secs: u64) -> Boxed<Result<(), String>> {
        self.clock.advance(Duration::from_secs(secs));
        Box::pin(async move {
            let token = self.token(name).await?;
            self.signal(format!("{token}-beat"), Json::Null).await
        })
    }

    /// Answers the run's question.
    pub(crate) fn reply(self, reply: Reply) -> Boxed<Result<(), String>> {
        Box::pin(async move {
            let questions = self.runtime.questions().await.map_err(words)?;
            let question = questions.iter().find(|question| question.run.as_str() == self.id).ok_or("no question")?;
            self.runtime.answer(&question.token, reply).await.map(drop).map_err(words)
        })
    }

    /// The token published under that name; without a name, the one that was handed out last.
    async fn token(&self, name: &str) -> Result<String, String> {
        if name.is_empty() {
            let line = self.bodies.iter().rfind(|line| line.run == self.id && line.effect == "hand_out");
            return Ok(line.ok_or("nothing was handed out")?.input.clone());
        }
        let run = self.runtime.run(&self.id).await.map_err(words)?;
        run.published::<String>(name).await.map_err(words)?.ok_or_else(|| format!("no token under {name}"))
    }

    /// Sends a message; one that the run waits for is taken when this returns, so that no time passes before.
    async fn signal(&self, token: String, value: Json) -> Result<(), String> {
        let run = self.runtime.run(&self.id).await.map_err(words)?;
        let len = run.log().await.map_err(words)?.len();
        let status = loop {
            match run.status().await.map_err(words)? {
                Status::Opening | Status::Interrupted => tokio::time::sleep(Duration::from_millis(1)).await,
                status => break status,
            }
        };
        run.signal(&token, &value).await.map_err(words)?;
        if matches!(status, Status::AwaitingSignal { names } if names.contains(&token)) {
            while run.log().await.map_err(words)?.len() == len {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }
}

fn words(error: Error) -> String {
    format!("{error:?}")
}

/// How the run is to end: what the workflow returned, as JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Completed(&'static str),
    Failed(&'static str),
}

/// A run that has ended.
pub(crate) struct Played {
    pub(crate) id: String,
    pub(crate) log: Vec<LogEntry>,
    /// The bodies begun, of all runs.
    pub(crate) bodies: Vec<Line>,
    /// The logs of the other runs in the store.
    pub(crate) others: BTreeMap<String, Vec<LogEntry>>,
    pub(crate) status: &'static str,
    pub(crate) returned: Json,
    /// How many processes it took.
    pub(crate) lives: usize,
}

/// A case that plays.
pub(crate) fn row(id: &'static str, says: &'static str, start: Start) -> Row {
    Row { start: Some(start), ..blank(id, says) }
}

/// A case that cannot be said in our terms.
pub(crate) fn na(id: &'static str, says: &'static str, why: &'static str) -> Row {
    Row { na: Some(why), ..blank(id, says) }
}

fn blank(id: &'static str, says: &'static str) -> Row {
    Row {
        id,
        says,
        na: None,
        start: None,
        build: |builder| builder,
        acts: Vec::new(),
        end: End::Completed("null"),
        log: String::new(),
        also: |_| Ok(()),
    }
}

impl Row {
    pub(crate) fn build(self, build: fn(Builder) -> Builder) -> Row {
        Row { build, ..self }
    }

    /// The first process is killed in that attempt's body.
    pub(crate) fn dies_in(mut self, path: &'static str, attempt: u32) -> Row {
        assert!(self.acts.is_empty(), "{}: only the first process is one that can be killed there", self.id);
        self.acts.push((When::Body(path, attempt), Do::Die));
        self
    }

    /// The process ends once the log has that entry.
    pub(crate) fn resumed_at(mut self, line: &'static str) -> Row {
        self.acts.push((When::Log(line), Do::Resume));
        self
    }

    pub(crate) fn opens(mut self, gate: &'static str, line: &'static str) -> Row {
        self.acts.push((When::Log(line), Do::Open(gate)));
        self
    }

    pub(crate) fn hand(mut self, line: &'static str, hand: fn(Hand) -> Boxed<Result<(), String>>) -> Row {
        self.acts.push((When::Log(line), Do::Hand(hand)));
        self
    }

    /// What comes next in the log.
    pub(crate) fn log(mut self, log: impl AsRef<str>) -> Row {
        self.log.push_str(log.as_ref());
        self.log.push('\n');
        self
    }

    /// What only this case demands of the run.
    pub(crate) fn also(self, also: fn(&Played) -> Result<(), String>) -> Row {
        Row { also, ..self }
    }

    pub(crate) fn completed(self, json: &'static str) -> Row {
        Row { end: End::Completed(json), ..self }
    }

    pub(crate) fn failed(self, json: &'static str) -> Row {
        Row { end: End::Failed(json), ..self }
    }
}
