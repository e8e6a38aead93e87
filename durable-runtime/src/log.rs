//! One run's log under a claim: its only writer.
//!
//! Entries are gathered, sent to the store as batches in order, and kept until the store says that they are durable.
//! A batch whose fate is unclear is read back before anything is sent again; what is sent again are the same bytes at the
//! same place.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};

use crate::{
    clock::Millis,
    effect::BodyEnd,
    entry::{Entry, EntryError, Kind, Outcome, each_entry, frames_from},
    failure::Fault,
    id::{Attempt, Epoch, Generation, RunId, Seq, StepNo},
    store::{Act, Batch, Head, Store, StoreError, Written},
    value::Value,
};

/// What nobody waits for is gathered up to about as many bytes while the store is busy with what was sent before.
const GATHER_BYTES: usize = 64 * 1024;

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
    /// The log was found to have our entries up to this place; they are ours if this batch, which says nothing, is not refused.
    found: Option<(BatchNo, Seq)>,
    /// Runs that batches which are durable now have put something into, or have made.
    nudges: Vec<RunId>,
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
    /// Refused for want of a claim: somebody else has it, or the end of the run is written and has given it back.
    fenced: bool,
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
            found: None,
            nudges: Vec::new(),
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

    /// Whether the store has answered for every batch that was sent.
    pub(crate) fn is_answered(&self) -> bool {
        self.in_flight == 0
    }

    /// Why, and since when, the store does not take entries.
    pub(crate) fn trouble(&self) -> Option<(&Arc<str>, Millis)> {
        self.trouble.as_ref().map(|t| (&t.reason, t.since))
    }

    /// Whether what was gathered is all that is not durable, and is entries only.
    pub(crate) fn is_about_to_send(&self) -> bool {
        let pending = &self.pending;
        pending.count > 0 && pending.acts.is_empty() && pending.head.is_none() && self.sent.is_empty()
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
    ///
    /// `awaited`: somebody waits until it is durable. What nobody waits for is gathered on until the store has answered for
    /// what was sent before: it could not be durable earlier than that but by the luck of one group of writes, and a batch
    /// costs more than what is in it.
    ///
    /// Acts without entries have no place in the log. So nothing is on its way beside them: they must not be done before the
    /// entries are durable that they were decided on, nor again after the claim was given back.
    pub(crate) fn flush(&mut self, awaited: bool) -> Option<(BatchNo, Batch)> {
        // What has acts only is on its way alone.
        let alone = self.pending.count == 0 || self.sent.front().is_some_and(|(_, batch)| batch.count == 0);
        if alone && !self.sent.is_empty() {
            return None;
        }
        let pending = &mut self.pending;
        if pending.count == 0 && pending.acts.is_empty() && pending.head.is_none() {
            return None;
        }
        let awaited = awaited || !pending.acts.is_empty() || pending.head.is_some();
        if !awaited && self.in_flight > 0 && pending.frames.len() < GATHER_BYTES {
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
        let no = self.take_no();
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
        let found = self.found.take_if(|(check, _)| *check == no);
        match result {
            Ok(_) if let Some((_, durable)) = found => Ok(self.looked(durable)),
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
            Err(StoreError::Fenced) if !self.sent.iter().any(|(_, batch)| batch.ends()) => Err(Lost::Fenced),
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

    /// A batch is written, and so are the entries before it: theirs are the places before its own.
    fn confirm(&mut self, no: BatchNo) {
        let Some((_, batch)) = self.sent.iter().find(|(sent, _)| *sent == no) else { return };
        if batch.count > 0 {
            self.durable = self.durable.max(batch.at.plus(batch.count.into()));
        }
        let durable = self.durable;
        self.retire(|sent, batch| sent == no || batch.count > 0 && batch.at < durable);
    }

    /// Forgets the batches that are written, the oldest ones, and notes whom they concern.
    fn retire(&mut self, is_written: impl Fn(BatchNo, &Batch) -> bool) {
        while let Some((_, batch)) = self.sent.pop_front_if(|(no, batch)| is_written(*no, batch)) {
            self.nudges.extend(batch.concerns());
        }
    }

    /// The runs that batches whose fate is unknown may have put something into, or made.
    pub(crate) fn concerned(&self) -> Vec<RunId> {
        self.sent.iter().flat_map(|(_, batch)| batch.concerns()).collect()
    }

    /// The runs that are to be woken.
    pub(crate) fn take_nudges(&mut self) -> Vec<RunId> {
        std::mem::take(&mut self.nudges)
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
        let fenced = matches!(error, StoreError::Fenced);
        // The log tells at once which of the two it was.
        let due = if fenced { now } else { now.saturating_add(wait) };
        self.trouble = Some(Trouble { reason, since, due, tries, looking: false, looked: false, fenced });
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
        let (mut over, mut durable) = (false, self.durable);
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
            durable = batch.at.plus(batch.count.into());
            over |= batch.ends();
        }
        if !over && self.trouble.as_ref().is_some_and(|trouble| trouble.fenced) {
            return Err(Lost::Fenced);
        }
        // A later claim may have had the same to say. The end of a run is its end, whoever wrote it; and has given the claim back.
        if durable > self.durable && !over {
            let check = Batch {
                run: self.run.clone(),
                epoch: self.epoch,
                generation: self.generation,
                at: durable,
                count: 0,
                frames: Bytes::new(),
                acts: Vec::new(),
                head: None,
            };
            self.found = Some((self.next, durable));
            self.in_flight = 1;
            return Ok(vec![(self.take_no(), check)]);
        }
        Ok(self.looked(durable))
    }

    /// The log holds our entries up to that place: what to send again. Acts alone are not seen in it, and may be repeated.
    fn looked(&mut self, durable: Seq) -> Vec<(BatchNo, Batch)> {
        self.durable = durable;
        self.retire(|_, batch| batch.count > 0 && batch.at < durable);
        if self.sent.is_empty() {
            self.trouble = None;
            return Vec::new();
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.looked = true;
        }
        self.in_flight = self.sent.len();
        self.sent.iter().cloned().collect()
    }

    fn take_no(&mut self) -> BatchNo {
        let no = self.next;
        self.next.0 += 1;
        no
    }
}

impl Batch {
    /// The runs that it puts something into, or makes.
    fn concerns(&self) -> impl Iterator<Item = RunId> + '_ {
        self.acts.iter().flat_map(|act| match act {
            Act::Put { to, .. } => vec![to.clone()],
            // Its id may be taken: that is a row in the own mailbox.
            Act::Create { run: child, .. } => vec![child.clone(), self.run.clone()],
            Act::Take { .. } | Act::Next { .. } | Act::Publish { .. } => Vec::new(),
        })
    }

    /// Whether it ends the run, and gives the claim back.
    fn ends(&self) -> bool {
        self.head.as_ref().is_some_and(|head| !head.live)
    }
}

impl Log {
    /// Outcomes of bodies that stand in batches which were never written, but their calls in ones that were: facts, though this
    /// log has no place for them any more. Of the batch that the store will never take they are of no use as they are.
    /// `next_step` is the number after the last step that was gathered, `undoes` says which of them undo something.
    pub(crate) fn unwritten_outcomes(
        &self,
        next_step: StepNo,
        rejected: Option<(Seq, &str)>,
        undoes: impl Fn(StepNo) -> bool,
    ) -> Vec<(StepNo, Attempt, BodyEnd)> {
        let (mut ends, mut resolved, mut asked) = (Vec::new(), BTreeSet::new(), 0);
        let pending = Seq(self.len.0 - u64::from(self.pending.count));
        let sent = self.sent.iter().map(|(_, batch)| (batch.at, batch.frames.clone()));
        for (at, frames) in sent.chain([(pending, Bytes::copy_from_slice(&self.pending.frames))]) {
            let rejected = rejected.filter(|(seq, _)| *seq == at).map(|(_, reason)| reason);
            // These bytes were made by this process.
            let _ = each_entry(at, frames, |_, _, entry| -> Result<(), (Seq, EntryError)> {
                let (step, attempt, outcome, again) = match &entry.kind {
                    Kind::EffectResult { step, attempt, outcome, .. } => (*step, *attempt, outcome, false),
                    Kind::EffectFailed { step, attempt, error, .. } => (*step, *attempt, error, true),
                    kind => {
                        asked += u32::from(kind.makes_step());
                        if let Kind::EffectResolved { step, .. } = kind {
                            resolved.insert(*step);
                        }
                        return Ok(());
                    }
                };
                let end = match (rejected, outcome) {
                    // Somebody's word, who will be asked again; unless it is the word that the store does not take.
                    _ if resolved.contains(&step) && (rejected.is_none() || undoes(step)) => return Ok(()),
                    // It has failed: what cannot be recorded of it must not pass for what has been undone.
                    (Some(reason), Outcome::Err(_)) if undoes(step) => BodyEnd::InDoubt { reason: reason.to_owned() },
                    (Some(reason), Outcome::Ok(_) | Outcome::Err(_)) => {
                        BodyEnd::NotRecordable { reason: reason.to_owned() }
                    }
                    (None, Outcome::Ok(value)) => BodyEnd::Ok { value: Value::from_bytes(value.to_vec().into()) },
                    (None, Outcome::Err(value)) => {
                        let value = Value::from_bytes(value.to_vec().into());
                        BodyEnd::Err { value, retry: again, message: String::new() }
                    }
                    (_, Outcome::Fault(fault)) => match &fault.0 {
                        Fault::NotRecordable { reason, .. } if !undoes(step) => {
                            BodyEnd::NotRecordable { reason: reason.clone() }
                        }
                        // Of these nobody knows more than that.
                        _ => return Ok(()),
                    },
                };
                ends.push((step, attempt, end));
                Ok(())
            });
        }
        ends.retain(|(step, ..)| step.0 < next_step.0 - asked);
        ends
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
            let frames = frames_from(record.first, record.frames, at).map_err(|(seq, e)| StoreError::Damaged {
                place: store.about().place.clone(),
                run: Some(run.clone()),
                seq: Some(seq),
                what: e.to_string().into(),
            })?;
            all.extend_from_slice(&frames);
            at = record.first.plus(record.count.into());
        }
    }
}

#[cfg(test)]
mod tests;
