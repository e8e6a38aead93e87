//! One run's log under a claim: its only writer.
//!
//! Entries are gathered, sent to the store as batches in order, and kept until the store says that they are durable.
//! A batch whose fate is unclear is read back before anything is sent again; what is sent again are the same bytes at the
//! same place.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Bytes, BytesMut};

use crate::{
    clock::Millis,
    entry::{Entry, EntryError, Kind, each_entry},
    id::{Attempt, Epoch, Generation, RunId, Seq, StepNo},
    store::{Act, Batch, Head, Store, StoreError, Written},
};

/// Wait before a refused batch is sent again, in milliseconds: the first, and the longest.
const RETRY_MS: (u64, u64) = (50, 5_000);

/// Names a batch that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BatchNo(u64);

/// See the module.
pub(crate) struct Log {
    run: RunId,
    generation: Generation,
    epoch: Epoch,
    /// The place after the last entry that was gathered.
    len: Seq,
    /// The place after the last entry known to be durable.
    durable: Seq,
    pending: Pending,
    /// Not known to be durable, oldest first.
    sent: VecDeque<(BatchNo, Batch)>,
    next: BatchNo,
    in_flight: usize,
    trouble: Option<Trouble>,
}

#[derive(Default)]
struct Pending {
    frames: BytesMut,
    count: u32,
    acts: Vec<Act>,
    head: Option<Head>,
}

/// The store did not take a batch.
#[derive(Clone, Debug)]
struct Trouble {
    reason: Arc<str>,
    since: Millis,
    /// When to look again, on the monotonic clock.
    due: Millis,
    tries: u32,
    /// The log is being read back.
    looking: bool,
    /// The log was read back, and what it did not hold was sent again.
    looked: bool,
}

/// What the log's owner must do now.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing.
    Nothing,
    /// Read back from here and call [`Log::read_back`].
    Look { from: Seq },
}

/// The claim or the record is lost for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Somebody else has claimed the run.
    Fenced,
    /// The store will never take this record.
    Rejected { seq: Seq, reason: Arc<str> },
}

impl Log {
    pub(crate) fn new(run: RunId, generation: Generation, epoch: Epoch, len: Seq) -> Log {
        Log {
            run,
            generation,
            epoch,
            len,
            durable: len,
            pending: Pending::default(),
            sent: VecDeque::new(),
            next: BatchNo(0),
            in_flight: 0,
            trouble: None,
        }
    }

    /// The log's length as far as a loss of power would leave it.
    pub(crate) fn durable(&self) -> Seq {
        self.durable
    }

    /// Whether everything gathered is durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.pending.count == 0 && self.pending.acts.is_empty() && self.sent.is_empty()
    }

    /// Why, and since when, the store does not take entries.
    pub(crate) fn trouble(&self) -> Option<(&Arc<str>, Millis)> {
        self.trouble.as_ref().map(|t| (&t.reason, t.since))
    }

    /// Gathers an entry.
    pub(crate) fn append(&mut self, entry: &Entry<'_>) -> Result<(), EntryError> {
        entry.write(&mut self.pending.frames)?;
        self.pending.count += 1;
        self.len = self.len.plus(1);
        Ok(())
    }

    /// Gathers what must become true with the entries.
    pub(crate) fn act(&mut self, act: Act) {
        self.pending.acts.push(act);
    }

    /// Gathers a new head.
    pub(crate) fn head(&mut self, head: Head) {
        self.pending.head = Some(head);
    }

    /// What was gathered, as one batch to be sent now. A crash before it is durable leaves the log as it was: nothing
    /// outward has been done about it.
    pub(crate) fn flush(&mut self) -> Option<(BatchNo, Batch)> {
        let pending = &mut self.pending;
        if pending.count == 0 && pending.acts.is_empty() && pending.head.is_none() {
            return None;
        }
        let count = std::mem::take(&mut pending.count);
        let batch = Batch {
            run: self.run.clone(),
            epoch: self.epoch,
            generation: self.generation,
            at: Seq(self.len.0 - u64::from(count)),
            count,
            frames: pending.frames.split().freeze(),
            acts: std::mem::take(&mut pending.acts),
            head: pending.head.take(),
        };
        let no = self.next;
        self.next.0 += 1;
        self.sent.push_back((no, batch.clone()));
        if self.trouble.is_some() {
            // It waits its turn behind the one that is in trouble.
            return None;
        }
        self.in_flight += 1;
        Some((no, batch))
    }

    /// What became of a batch; answers what to send now.
    pub(crate) fn written(
        &mut self,
        no: BatchNo,
        result: Result<Written, StoreError>,
        wall: Millis,
        now: Millis,
    ) -> Result<Vec<(BatchNo, Batch)>, Lost> {
        self.in_flight = self.in_flight.saturating_sub(1);
        match result {
            Ok(_) => {
                self.confirm(no);
                if self.in_flight > 0 {
                    return Ok(Vec::new());
                }
                match &self.trouble {
                    None => Ok(Vec::new()),
                    // Something before it is not known to be written: the store must be looked at first.
                    Some(trouble) if !trouble.looked && !self.sent.is_empty() => Ok(Vec::new()),
                    Some(_) => {
                        // The trouble is over; what was gathered meanwhile goes now.
                        self.trouble = None;
                        self.in_flight = self.sent.len();
                        Ok(self.sent.iter().cloned().collect())
                    }
                }
            }
            Err(StoreError::Fenced) => Err(Lost::Fenced),
            Err(StoreError::Rejected { reason }) => {
                let seq = self.sent.iter().find(|(sent, _)| *sent == no).map_or(self.durable, |(_, b)| b.at);
                Err(Lost::Rejected { seq, reason })
            }
            Err(e) => {
                self.in_trouble(&e, wall, now);
                Ok(Vec::new())
            }
        }
    }

    /// A batch is written, and so are the entries before it: theirs are the places before its own. What an earlier batch
    /// without entries was to do is not known to be done.
    fn confirm(&mut self, no: BatchNo) {
        let Some((_, batch)) = self.sent.iter().find(|(sent, _)| *sent == no) else { return };
        if batch.count > 0 {
            self.durable = self.durable.max(batch.at.plus(batch.count.into()));
        }
        let durable = self.durable;
        self.sent.retain(|(sent, batch)| *sent != no && (batch.count == 0 || batch.at >= durable));
    }

    fn in_trouble(&mut self, error: &StoreError, wall: Millis, now: Millis) {
        let tries = self.trouble.as_ref().map_or(0, |t| t.tries);
        let since = self.trouble.as_ref().map_or(wall, |t| t.since);
        let wait = RETRY_MS.0.saturating_mul(1 << tries.min(10)).min(RETRY_MS.1);
        let reason = match (&self.trouble, error) {
            // A batch behind the one in trouble finds the log too short: that says nothing new.
            (Some(trouble), StoreError::Conflict) => trouble.reason.clone(),
            _ => error.to_string().into(),
        };
        let due = now.saturating_add(wait);
        self.trouble = Some(Trouble { reason, since, due, tries, looking: false, looked: false });
    }

    /// When [`Log::next`] has something to do, on the monotonic clock.
    pub(crate) fn due(&self) -> Option<Millis> {
        self.trouble.as_ref().filter(|t| self.in_flight == 0 && !t.looking).map(|t| t.due)
    }

    /// What to do about trouble.
    pub(crate) fn next(&mut self, now: Millis) -> Next {
        let in_flight = self.in_flight;
        match (&mut self.trouble, self.sent.front()) {
            (Some(trouble), Some((_, first))) if in_flight == 0 && !trouble.looking && trouble.due <= now => {
                trouble.looking = true;
                Next::Look { from: first.at }
            }
            _ => Next::Nothing,
        }
    }

    /// What stands in the store from the place asked on: settles what was written, and answers what to send again.
    pub(crate) fn read_back(
        &mut self,
        stored: Result<Bytes, StoreError>,
        wall: Millis,
        now: Millis,
    ) -> Result<Vec<(BatchNo, Batch)>, Lost> {
        if let Some(trouble) = &mut self.trouble {
            trouble.looking = false;
            trouble.tries += 1;
        }
        let mut over = false;
        let mut stored = match stored {
            Ok(stored) => stored,
            Err(e) => {
                self.in_trouble(&e, wall, now);
                return Ok(Vec::new());
            }
        };
        for (_, batch) in self.sent.iter().filter(|(_, batch)| batch.count > 0) {
            if stored.is_empty() {
                break;
            }
            if !stored.starts_with(&batch.frames) {
                // Other bytes under our place: only a later claim writes there.
                return Err(Lost::Fenced);
            }
            let _ = stored.split_to(batch.frames.len());
            self.durable = batch.at.plus(batch.count.into());
            over |= batch.head.as_ref().is_some_and(|head| !head.live);
        }
        // Acts alone are not seen in the log, and may be repeated; but the end of a run has given its claim back.
        let durable = self.durable;
        self.sent.retain(|(_, batch)| !over && (batch.count == 0 || batch.at >= durable));
        if self.sent.is_empty() {
            self.trouble = None;
            return Ok(Vec::new());
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.looked = true;
        }
        self.in_flight = self.sent.len();
        Ok(self.sent.iter().cloned().collect())
    }
}

impl Log {
    /// Steps whose outcomes stand in batches that were never written, but their calls in ones that were. `next_step` is the
    /// number after the last step that was gathered.
    pub(crate) fn unwritten_outcomes(&self, next_step: StepNo) -> Vec<(StepNo, Attempt)> {
        let (mut steps, mut asked) = (Vec::new(), 0);
        for (_, batch) in &self.sent {
            // These bytes were made by this process.
            let _ = each_entry(batch.at, batch.frames.clone(), |_, _, entry| -> Result<(), (Seq, EntryError)> {
                match &entry.kind {
                    Kind::EffectResult { step, attempt, .. } => steps.push((*step, *attempt)),
                    kind => asked += u32::from(kind.is_command() && !matches!(kind, Kind::StepClosed { .. })),
                }
                Ok(())
            });
        }
        steps.retain(|(step, _)| step.0 < next_step.0 - asked);
        steps
    }
}

/// The frames of a log from `from` on, as they are in the store.
pub(crate) fn read_frames(
    store: &dyn Store,
    run: &RunId,
    generation: Generation,
    from: Seq,
) -> Result<Bytes, StoreError> {
    let mut all = BytesMut::new();
    let mut at = from;
    loop {
        let records = store.read(run, generation, at, 1 << 20)?;
        if records.is_empty() {
            return Ok(all.freeze());
        }
        for record in records {
            let mut frames = record.frames;
            for seq in record.first.0..at.0.max(record.first.0) {
                crate::entry::next_frame(&mut frames).map_err(|e| StoreError::Damaged {
                    place: store.about().place.clone(),
                    run: Some(run.clone()),
                    seq: Some(Seq(seq)),
                    what: e.to_string().into(),
                })?;
            }
            all.extend_from_slice(&frames);
            at = record.first.plus(record.count.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::{Call, Outcome, Path, RecordedContract},
        head::HeadInfo,
    };

    fn log() -> Log {
        Log::new(RunId::new("r").unwrap(), Generation(0), Epoch(1), Seq(1))
    }

    fn fired(log: &mut Log, step: u32) {
        log.append(&Entry { at: 1, kind: Kind::TimerFired { step: StepNo(step) } }).unwrap();
    }

    fn sent(log: &mut Log) -> (BatchNo, Batch) {
        log.flush().unwrap()
    }

    fn refused() -> Result<Written, StoreError> {
        Err(StoreError::Refused { reason: "full".into() })
    }

    fn unknown() -> Result<Written, StoreError> {
        Err(StoreError::Unknown { reason: "no answer".into() })
    }

    const DONE: Result<Written, StoreError> = Ok(Written::Done);

    #[track_caller]
    fn told(log: &mut Log, no: BatchNo, result: Result<Written, StoreError>) -> Vec<BatchNo> {
        log.written(no, result, 0, 0).unwrap().into_iter().map(|(no, _)| no).collect()
    }

    #[test]
    fn what_is_acknowledged_is_durable_and_with_it_all_before_it() {
        let mut log = log();
        fired(&mut log, 0);
        let (first, _) = sent(&mut log);
        fired(&mut log, 1);
        let (second, batch) = sent(&mut log);
        assert_eq!((batch.at, batch.count), (Seq(2), 1));
        told(&mut log, second, DONE);
        assert_eq!(log.durable(), Seq(3));
        told(&mut log, first, DONE);
        assert!(log.is_settled() && log.flush().is_none());
    }

    #[test]
    fn acts_without_entries_say_nothing_of_the_entries_before_them() {
        let mut log = log();
        fired(&mut log, 0);
        let (first, entries) = sent(&mut log);
        log.act(Act::Take { row: 7 });
        let (second, _) = sent(&mut log);
        told(&mut log, first, refused());
        assert_eq!(told(&mut log, second, DONE), [], "the log must be read back first");
        assert_eq!(log.durable(), Seq(1));
        assert!(matches!(log.next(60_000), Next::Look { from: Seq(1) }));
        let again = log.read_back(Ok(Bytes::new()), 0, 0).unwrap();
        assert_eq!((again[0].0, &again[0].1.frames), (first, &entries.frames), "the same bytes at the same place");
        told(&mut log, first, DONE);
        assert_eq!(log.durable(), Seq(2));
        assert!(log.trouble().is_none() && log.is_settled());
    }

    #[test]
    fn acts_whose_fate_is_unknown_are_repeated_though_later_entries_are_written() {
        let mut log = log();
        log.act(Act::Take { row: 7 });
        let (acts, _) = sent(&mut log);
        fired(&mut log, 0);
        let (entries, batch) = sent(&mut log);
        told(&mut log, acts, unknown());
        told(&mut log, entries, DONE);
        assert_eq!(log.durable(), Seq(2));
        assert!(matches!(log.next(60_000), Next::Look { .. }));
        let again = log.read_back(Ok(batch.frames), 0, 0).unwrap();
        assert_eq!(again.into_iter().map(|(no, _)| no).collect::<Vec<_>>(), [acts]);
    }

    #[test]
    fn what_was_written_without_an_answer_is_found_and_what_was_gathered_meanwhile_follows() {
        let mut log = log();
        fired(&mut log, 0);
        let (first, batch) = sent(&mut log);
        told(&mut log, first, unknown());
        fired(&mut log, 1);
        assert!(log.flush().is_none(), "it waits behind the one in trouble");
        assert_eq!(log.due(), Some(RETRY_MS.0));
        assert!(matches!(log.next(RETRY_MS.0 - 1), Next::Nothing));
        assert!(matches!(log.next(RETRY_MS.0), Next::Look { from: Seq(1) }));
        assert!(matches!(log.next(RETRY_MS.0), Next::Nothing), "it is asked once");
        let again = log.read_back(Ok(batch.frames), 0, 0).unwrap();
        assert_eq!(log.durable(), Seq(2));
        assert_eq!((again.len(), again[0].1.at), (1, Seq(2)));
        assert_eq!(told(&mut log, again[0].0, DONE), []);
        assert!(log.is_settled() && log.trouble().is_none());
    }

    #[test]
    fn other_bytes_at_our_place_are_another_claim() {
        let mut log = log();
        fired(&mut log, 0);
        let (first, _) = sent(&mut log);
        told(&mut log, first, Err(StoreError::Conflict));
        log.next(60_000);
        let stored = log.read_back(Ok(Bytes::from_static(b"other bytes, of whatever sort and length")), 0, 0);
        assert_eq!(stored.unwrap_err(), Lost::Fenced);
    }

    #[test]
    fn after_the_end_of_a_run_nothing_is_sent_again() {
        let mut log = log();
        log.act(Act::Take { row: 7 });
        let (acts, _) = sent(&mut log);
        fired(&mut log, 0);
        log.head(
            HeadInfo { workflow: "w".into(), module: "m".into(), started_at: 0, ended_at: Some(1), failure: None }
                .head(Generation(0)),
        );
        let (end, batch) = sent(&mut log);
        told(&mut log, acts, refused());
        told(&mut log, end, unknown());
        log.next(60_000);
        // Its claim is given back with it: a repeat would be refused as another's.
        assert!(log.read_back(Ok(batch.frames), 0, 0).unwrap().is_empty());
        assert!(log.is_settled() && log.trouble().is_none());
    }

    #[test]
    fn a_store_that_refuses_is_asked_ever_more_seldom_and_tells_why_and_since_when() {
        let mut log = log();
        fired(&mut log, 0);
        let (first, _) = sent(&mut log);
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..9 {
            log.written(first, refused(), 100 + now, now).unwrap();
            let due = log.due().unwrap();
            waits.push(due - now);
            now = due;
            assert!(matches!(log.next(now), Next::Look { .. }));
            log.read_back(Ok(Bytes::new()), 100 + now, now).unwrap();
        }
        assert_eq!((waits[0], waits[1], *waits.last().unwrap()), (RETRY_MS.0, 2 * RETRY_MS.0, RETRY_MS.1));
        let (reason, since) = log.trouble().unwrap();
        assert_eq!((&**reason, since), ("the store refuses for now: full", 100));
    }

    #[test]
    fn outcomes_that_were_never_written_are_named_unless_their_step_was_not_either() {
        let mut log = log();
        let result = |log: &mut Log, step| {
            let kind = Kind::EffectResult {
                step: StepNo(step),
                attempt: Attempt(1),
                outcome: Outcome::Ok(b"v"[..].into()),
                unsure: false,
            };
            log.append(&Entry { at: 1, kind }).unwrap();
        };
        result(&mut log, 4);
        let path = Path { scope: "".into(), name: "look".into(), n: 0 };
        let call = Call {
            path,
            effect: None,
            contract: RecordedContract::ReadOnly,
            args: b""[..].into(),
            digest: 0,
            key: None,
            site: 0,
        };
        log.append(&Entry { at: 1, kind: Kind::EffectCalled(call) }).unwrap();
        result(&mut log, 5);
        let (first, _) = sent(&mut log);
        let lost = log.written(first, Err(StoreError::Rejected { reason: "no".into() }), 0, 0).unwrap_err();
        assert_eq!(lost, Lost::Rejected { seq: Seq(1), reason: "no".into() });
        assert_eq!(log.unwritten_outcomes(StepNo(6)), [(StepNo(4), Attempt(1))]);
    }
}
