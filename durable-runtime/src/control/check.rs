//! Whether all that a store holds of one run is what it must be: pure.
//!
//! What an import must hold before anything is written, and what `doctor` looks for, are one list.

use crate::{
    clock::Millis,
    entry::{End, Entry, EntryError, Kind, each_entry},
    fold::{IllegalEntry, RunState},
    head::{HeadInfo, HowEnded, Started},
    id::{Generation, Seq},
    mailbox::Message,
    store::{Dump, Record},
};

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) generation: Option<Generation>,
    pub(super) seq: Option<Seq>,
    pub(super) sort: Sort,
    pub(super) what: String,
}

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Bytes are missing, or are not those that were written.
    Damaged,
    /// An entry that a later version of this library wrote.
    Later,
    /// The bytes are whole, and no run of this library can have written them in this order.
    Illegal,
    /// What is derived from the log says something else.
    Index,
    /// The mailbox contradicts itself.
    Mailbox,
}

impl Sort {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Sort::Damaged => "damaged",
            Sort::Later => "later version",
            Sort::Illegal => "illegal",
            Sort::Index => "index",
            Sort::Mailbox => "mailbox",
        }
    }

    /// What to do about it.
    pub(super) fn next(self) -> &'static str {
        match self {
            Sort::Damaged => {
                "put the store back from a backup; until then the run stands still and the others go on. What can be read of \
                 it: durable log"
            }
            Sort::Later => "open the store with the version of the library that wrote it",
            Sort::Illegal => {
                "keep a copy of the store's directory and report it as a fault of the library; the run stands still, the others \
                 go on"
            }
            Sort::Index => {
                "the log is whole and counts: export the run; if it has ended, purge it and import it again, which derives the index anew"
            }
            Sort::Mailbox => "keep a copy of the store's directory and report it as a fault of the library",
        }
    }
}

/// What one log says.
struct Folded {
    state: RunState,
    /// Of `run.started`.
    started: Option<Started>,
    restarted: bool,
    ended: Option<(Millis, HowEnded)>,
    owner: u128,
}

enum Broken {
    Bytes(Seq, EntryError),
    Order(IllegalEntry),
}

impl From<(Seq, EntryError)> for Broken {
    fn from((seq, error): (Seq, EntryError)) -> Broken {
        Broken::Bytes(seq, error)
    }
}

/// All that is wrong. Of each log the first thing: what follows it is guesswork.
pub(super) fn examine(dump: &Dump) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (mut first_at, mut owner) = (None, None);
    let mut newest: Option<(Generation, Folded)> = None;
    for (place, (generation, records)) in dump.logs.iter().enumerate() {
        let wrong = |seq, sort, what: String| Problem { generation: Some(*generation), seq, sort, what };
        if generation.0 as usize != place {
            problems.push(wrong(None, Sort::Damaged, format!("the run's log {place} is missing")));
            return problems;
        }
        if let Some((before, folded)) = &newest
            && !folded.restarted
        {
            let what = format!("log {before} does not end with run.restarted, and there is a later one");
            problems.push(wrong(None, Sort::Illegal, what));
        }
        match fold(records) {
            Ok(folded) => {
                first_at = first_at.or(folded.started.as_ref().map(|started| started.at));
                owner = owner.or(Some(folded.owner));
                newest = Some((*generation, folded));
            }
            Err((seq, sort, what)) => {
                problems.push(wrong(Some(seq), sort, what));
                return problems;
            }
        }
    }
    let Some((generation, folded)) = newest else {
        let what = "the run has no log".to_owned();
        problems.push(Problem { generation: None, seq: None, sort: Sort::Damaged, what });
        return problems;
    };
    if folded.started.as_ref().map(|started| started.at) != first_at {
        let what = format!("log {generation} says another beginning of the run than the first log");
        problems.push(Problem { generation: Some(generation), seq: Some(Seq(0)), sort: Sort::Illegal, what });
    }
    problems.extend(index(dump, generation, &folded, owner.unwrap_or_default()));
    problems.extend(mailbox(dump, generation, &folded));
    problems
}

fn fold(records: &[Record]) -> Result<Folded, (Seq, Sort, String)> {
    let mut folded = Folded { state: RunState::default(), started: None, restarted: false, ended: None, owner: 0 };
    let mut next = Seq(0);
    for record in records {
        if record.first != next {
            return Err((
                next,
                Sort::Damaged,
                format!("seq {next} is missing: the next record begins at {}", record.first),
            ));
        }
        let read = each_entry(record.first, record.frames.clone(), |seq, _, entry| {
            folded.take(entry).map_err(Broken::Order)?;
            next = seq.plus(1);
            Ok(())
        });
        match read {
            Ok(()) => {}
            Err(Broken::Bytes(seq, EntryError::Version(version))) => {
                return Err((seq, Sort::Later, EntryError::Version(version).to_string()));
            }
            Err(Broken::Bytes(seq, error)) => return Err((seq, Sort::Damaged, error.to_string())),
            Err(Broken::Order(illegal)) => return Err((illegal.seq, Sort::Illegal, illegal.to_string())),
        }
        if next != record.first.plus(record.count.into()) {
            let what =
                format!("a record at {} holds {} entries, not {}", record.first, next.0 - record.first.0, record.count);
            return Err((record.first, Sort::Damaged, what));
        }
    }
    match next {
        Seq(0) => Err((Seq(0), Sort::Damaged, "the log is empty".into())),
        _ => Ok(folded),
    }
}

impl Folded {
    fn take(&mut self, entry: &Entry<'_>) -> Result<(), IllegalEntry> {
        self.state.apply(entry)?;
        match &entry.kind {
            Kind::RunStarted(started) => {
                self.owner = started.parent.as_ref().map_or(0, |parent| parent.id());
                self.started = Some(Started {
                    workflow: (&*started.workflow).into(),
                    module: (&*started.module).into(),
                    at: started.born,
                    parent: started.parent.as_ref().map(|parent| (&*parent.run).into()),
                });
            }
            Kind::RunEnded(end) => {
                let how = match end {
                    End::Completed { .. } => HowEnded::Completed,
                    End::Failed { message, .. } => HowEnded::Failed(message.to_string()),
                    End::Cancelled { reason, .. } => HowEnded::Cancelled(reason.to_string()),
                    End::Restarted { .. } => {
                        self.restarted = true;
                        return Ok(());
                    }
                };
                self.ended = Some((entry.at, how));
            }
            _ => {}
        }
        Ok(())
    }
}

/// What the store derives from the log.
fn index(dump: &Dump, generation: Generation, folded: &Folded, owner: u128) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |what: String| {
        problems.push(Problem { generation: None, seq: None, sort: Sort::Index, what });
    };
    let head = &dump.record.head;
    if folded.restarted {
        wrong(format!("log {generation} ends with run.restarted, and the next one is missing"));
    }
    if head.generation != generation {
        wrong(format!("the index names log {} as the newest, and {generation} is", head.generation));
    }
    let ended = folded.ended.is_some();
    if head.live == ended {
        let word = |live: bool| if live { "going on" } else { "ended" };
        wrong(format!("the index lists the run as {}, and its log says that it is {}", word(head.live), word(!ended)));
    }
    match (HeadInfo::read(head), &folded.started) {
        (None, _) => wrong("the index's record of the run does not decode".into()),
        (Some(info), Some(started)) => {
            if HeadInfo::new(started, folded.ended.clone()).head(generation).bytes != head.bytes {
                wrong(format!("the index says {info:?}, and the log something else"));
            }
        }
        (Some(_), None) => {}
    }
    if dump.owner != owner {
        wrong("the store takes it for the child of another run than its log says".into());
    }
    if ended && dump.record.wait.is_some() {
        wrong("the run has ended, and the store has it waiting for something".into());
    }
    for (name, published) in &dump.published {
        let there = published.generation < generation
            || (published.generation == generation && published.len <= folded.state.len);
        if !there {
            wrong(format!("the published value {name:?} stands in no entry of the log"));
        }
    }
    problems
}

fn mailbox(dump: &Dump, generation: Generation, folded: &Folded) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |what: String| {
        problems.push(Problem { generation: None, seq: None, sort: Sort::Mailbox, what });
    };
    let version = dump.record.version;
    let mut last = 0;
    for (number, row) in &dump.rows {
        if *number <= last || *number > version {
            wrong(format!("row {number} stands after row {last}, and {version} rows were ever put"));
        }
        last = *number;
        match Message::read(row) {
            None => wrong(format!("row {number} is none that this version knows")),
            Some(Message::Outcome { generation: g, step, .. } | Message::Resolve { generation: g, step, .. })
                if g > generation || (g == generation && step >= folded.state.next_step) =>
            {
                wrong(format!("row {number} is about step {step} of log {g}, which was never asked"));
            }
            Some(_) => {}
        }
        if dump.taken.contains(&row.id) {
            wrong(format!("row {number} was taken, and is there"));
        }
    }
    if dump.record.wait.is_some_and(|wait| wait.seen > version) {
        wrong(format!("the run has seen more rows than the {version} that were ever put"));
    }
    problems
}
