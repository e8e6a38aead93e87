//! The one thread that writes: it takes all that is queued, writes one group, waits for the disk once, and answers all.

use std::{
    collections::VecDeque,
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use crate::store::{
    Act, Batch, Done, Dump, StoreError, Write, Written,
    check::check_dump,
    sled::{
        group::{self, Claims, Group},
        high_water::HighWater,
        identity::{HIGH_WATER, Lock, SLED, io_error},
        keys::Meta,
        medium::{Changes, Medium, panic_text},
        removal::Piece,
    },
};

/// Most writes in one group.
const GROUP_WRITES: usize = 1024;
/// A group takes no further write once it holds this many bytes.
const GROUP_BYTES: usize = 4 * 1024 * 1024;
/// A dump with more bytes than these is written in pieces of about as many.
const STAGED_BYTES: usize = 1024 * 1024;

/// What the store's handle and its writer share.
pub(super) struct Shared {
    /// The database, until it is closed. Readers hold the lock while they read, the writer while it applies a group, so
    /// that a scan never sees half of one.
    pub(super) medium: RwLock<Option<Medium>>,
    queue: Mutex<Queue>,
    /// Woken when there is something to write or no more will come.
    work: Condvar,
    /// Woken when the writer has ended.
    end: Condvar,
    counts: [AtomicU64; 4],
}

/// What a store has written since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Writes that were submitted and have been judged.
    pub writes: u64,
    /// Groups of them that were made durable: the disk was waited for so often.
    pub commits: u64,
    /// Records of entries that those groups held.
    pub records: u64,
    /// Bytes of the entries in them.
    pub entry_bytes: u64,
}

/// Writes on their way to the writer.
///
/// The queue has no limit, so that [`crate::store::Store::submit`] never blocks a thread that polls futures. It is
/// bounded by what waits: whoever submits a batch waits for its `done` before it submits much more, and the bytes are
/// shared, not copied.
#[derive(Default)]
struct Queue {
    writes: VecDeque<(Write, Done)>,
    /// No more writes are taken.
    closed: bool,
    /// The writer has ended, thus.
    ended: Option<Result<(), StoreError>>,
}

impl Shared {
    pub(super) fn new(medium: Medium) -> Shared {
        let (queue, work, end) = (Mutex::default(), Condvar::new(), Condvar::new());
        Shared { medium: RwLock::new(Some(medium)), queue, work, end, counts: Default::default() }
    }

    /// Queues a write.
    pub(super) fn submit(&self, write: Write, done: Done) {
        let mut queue = self.queue();
        if queue.closed {
            drop(queue);
            return done(Err(StoreError::Closed));
        }
        queue.writes.push_back((write, done));
        drop(queue);
        self.work.notify_one();
    }

    /// Takes no more writes.
    pub(super) fn stop(&self) {
        self.queue().closed = true;
        self.work.notify_one();
    }

    /// Waits until the writer has ended.
    pub(super) fn wait(&self) -> Result<(), StoreError> {
        let mut queue = self.queue();
        loop {
            match &queue.ended {
                Some(ended) => return ended.clone(),
                None => queue = self.end.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The next group, `None` when no more will come. If there is none yet, it is waited for, or is empty.
    fn next_group(&self, wait: bool) -> Option<Vec<(Write, Done)>> {
        let mut queue = self.queue();
        while queue.writes.is_empty() {
            if queue.closed {
                return None;
            }
            if !wait {
                break;
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut group, mut bytes) = (Vec::new(), 0);
        while group.len() < GROUP_WRITES && bytes < GROUP_BYTES {
            let Some((write, done)) = queue.writes.pop_front() else { break };
            bytes += bytes_of(&write);
            group.push((write, done));
        }
        Some(group)
    }

    /// The lock guards no invariant that a panic could break: each holder does one thing to the queue.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was written so far.
    pub(super) fn counts(&self) -> Counts {
        let [writes, commits, records, entry_bytes] = self.counts.each_ref().map(|n| n.load(Ordering::Relaxed));
        Counts { writes, commits, records, entry_bytes }
    }

    fn count(&self, more: Counts) {
        let Counts { writes, commits, records, entry_bytes } = more;
        for (count, more) in self.counts.iter().zip([writes, commits, records, entry_bytes]) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// The database as of the last group applied.
    pub(super) fn view(&self) -> RwLockReadGuard<'_, Option<Medium>> {
        self.medium.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much room there is where the store is, in bytes; `None`: unknown.
pub(super) type FreeSpace = Box<dyn Fn() -> Option<u64> + Send>;

/// The room on the disk, and how much of it must stay free.
pub(super) struct Room {
    pub(super) free_space: FreeSpace,
    pub(super) reserve_bytes: u64,
}

impl Room {
    /// Why so many bytes must not be written, if they must not.
    ///
    /// sled does not recover from a full disk until it is opened again, and does not open on one, so the disk must not
    /// become full. A batch may need several times its size: pages are rewritten, and old segments are freed later.
    pub(super) fn lacks(&self, bytes: usize) -> Option<Arc<str>> {
        let needed = self.reserve_bytes.saturating_add(4 * bytes as u64);
        let free = (self.free_space)()?;
        (free < needed).then(|| format!("{free} bytes are free on the disk, the write needs {needed}").into())
    }
}

/// The state of the writing thread.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) medium: Medium,
    pub(super) store: PathBuf,
    pub(super) meta: Meta,
    pub(super) claims: Claims,
    pub(super) high_water: HighWater,
    /// sled's file, if each group has to be synced through it. It is our own descriptor and was opened before the first
    /// write, so that it learns of every failure to write back.
    pub(super) barrier: Option<File>,
    pub(super) room: Room,
    pub(super) write_bytes_max: usize,
    pub(super) lock: Lock,
    /// Something may be left of runs that were removed.
    pub(super) removing: bool,
    /// Why nothing can be written any more.
    pub(super) poisoned: Option<Arc<str>>,
}

impl Writer {
    /// Writes until the store is closed, then closes the database and frees the lock.
    pub(super) fn run(mut self) {
        while let Some(group) = self.shared.next_group(!self.removing) {
            if !group.is_empty() {
                self.answer(group);
            }
            if self.removing {
                self.go_on_removing();
            }
        }
        let shared = Arc::clone(&self.shared);
        let closed = self.close();
        shared.queue().ended = Some(closed);
        shared.end.notify_all();
    }

    /// Writes a group and tells everybody concerned.
    fn answer(&mut self, group: Vec<(Write, Done)>) {
        let (writes, dones): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let results = match &self.poisoned {
            Some(_) => Vec::new(),
            None => catch_unwind(AssertUnwindSafe(|| self.write(writes))).unwrap_or_else(|panic| {
                self.poison(format!("the writer panicked: {}", panic_text(&*panic)));
                Vec::new()
            }),
        };
        let mut results = results.into_iter();
        for done in dones {
            let poisoned = || StoreError::Poisoned { reason: self.poisoned.clone().unwrap_or_default() };
            let result = results.next().unwrap_or_else(|| Err(poisoned()));
            // Somebody else's panic must not take the writer with it.
            if catch_unwind(AssertUnwindSafe(move || done(result))).is_err() {
                tracing::error!("a callback of a write panicked");
            }
        }
    }

    /// Writes a group. The results are those of its writes, in order; none at all if the store was poisoned.
    ///
    /// A crash before the sync leaves all of the group or nothing, once the store has been opened again; one after it,
    /// all. The count in `high-water` may miss the last groups, never name one that is not durable.
    fn write(&mut self, writes: Vec<Write>) -> Vec<Result<Written, StoreError>> {
        self.try_write(writes).unwrap_or_else(|error| {
            self.poison(error.to_string());
            Vec::new()
        })
    }

    fn try_write(&mut self, writes: Vec<Write>) -> Result<Vec<Result<Written, StoreError>>, StoreError> {
        let full = self.room.lacks(writes.iter().map(bytes_of).sum());
        let mut staged = Vec::with_capacity(writes.len());
        for write in &writes {
            staged.push(match write {
                Write::Restore { dump, .. } if full.is_none() && bytes_of(write) > STAGED_BYTES => self.stage(dump)?,
                _ => None,
            });
        }
        self.removing |= writes.iter().any(|write| matches!(write, Write::Remove { .. } | Write::Restore { .. }));
        let mut group = Group::new(&self.medium, self.meta, &mut self.claims, full);
        let mut results = Vec::with_capacity(writes.len());
        for (write, staged) in writes.into_iter().zip(staged) {
            let bytes = match &write {
                // Of whatever size: it is not written in one piece.
                Write::Restore { .. } => 0,
                _ => bytes_of(&write),
            };
            results.push(match bytes > self.write_bytes_max {
                true => Err(too_large(bytes, self.write_bytes_max)),
                false => group.add(write, staged),
            });
        }
        let written = group.counts;
        let changes = group.into_changes()?;
        self.commit(changes)?;
        self.shared.count(Counts { writes: results.len() as u64, ..written });
        Ok(results)
    }

    /// Writes what a large dump holds under a number that is no run's yet, in pieces, so that no batch becomes huge. `None`
    /// if the dump is none.
    ///
    /// Until the run is made by the write at hand, what is there is to be removed, whether a crash comes or a refusal.
    pub(super) fn stage(&mut self, dump: &Dump) -> Result<Option<u64>, StoreError> {
        if check_dump(dump).is_err() {
            return Ok(None);
        }
        let mut group = Group::new(&self.medium, self.meta, &mut self.claims, None);
        let number = group.reserve_number();
        let mut bytes = 0;
        for (key, value) in group::restored(number, dump) {
            if bytes > STAGED_BYTES {
                let changes = group.into_changes()?;
                self.commit(changes)?;
                group = Group::new(&self.medium, self.meta, &mut self.claims, None);
                bytes = 0;
            }
            bytes += key.len() + value.len();
            group.bring(key, value);
        }
        let changes = group.into_changes()?;
        self.commit(changes)?;
        Ok(Some(number))
    }

    /// Removes a piece of what is left of removed runs.
    ///
    /// A crash leaves the piece whole or gone, and a note that there is more.
    fn go_on_removing(&mut self) {
        if self.poisoned.is_some() {
            self.removing = false;
            return;
        }
        let removed = catch_unwind(AssertUnwindSafe(|| {
            let Some(piece) = Piece::next(&self.medium, self.meta)? else { return Ok(false) };
            // On a full disk it waits for the next removal, or the next opening.
            let room = self.room.lacks(0).is_none();
            if room {
                self.commit(Some((piece.changes, piece.meta)))?;
            }
            Ok(room)
        }));
        let removed = removed.unwrap_or_else(|panic| {
            Err(StoreError::Poisoned { reason: format!("the writer panicked: {}", panic_text(&*panic)).into() })
        });
        self.removing = removed.unwrap_or_else(|error: StoreError| {
            self.poison(error.to_string());
            false
        });
    }

    fn commit(&mut self, changes: Option<(Changes, Meta)>) -> Result<(), StoreError> {
        let Some((changes, meta)) = changes else { return Ok(()) };
        {
            let _nobody_reads = self.shared.medium.write().unwrap_or_else(PoisonError::into_inner);
            self.medium.commit(changes, &meta)?;
        }
        self.medium.flush()?;
        if let Some(file) = &self.barrier {
            file.sync_data().map_err(|e| io_error("sync the database of", &self.store, &e))?;
        }
        self.meta = meta;
        self.shared.count(Counts { commits: 1, ..Counts::default() });
        if let Err(error) = self.high_water.note(meta.commits) {
            // The count is a lower bound, so an old one is still true.
            tracing::warn!(%error, "cannot write {}", self.store.join(HIGH_WATER).display());
        }
        Ok(())
    }

    fn poison(&mut self, reason: String) {
        tracing::error!(reason, store = %self.store.display(), "the store is poisoned until it is opened again");
        self.poisoned = Some(reason.into());
    }

    /// Closes the database, then frees the lock.
    ///
    /// A crash within is like one before: all that was answered is durable.
    fn close(self) -> Result<(), StoreError> {
        // Readers that are under way end first; later ones find nothing.
        drop(self.shared.medium.write().unwrap_or_else(PoisonError::into_inner).take());
        let synced = self.high_water.sync();
        let closed = self.medium.close(&self.store.join(SLED));
        drop(self.lock);
        closed?;
        synced.map_err(|e| io_error("sync", &self.store.join(HIGH_WATER), &e))
    }
}

fn too_large(bytes: usize, most: usize) -> StoreError {
    StoreError::Rejected { reason: format!("the write has {bytes} bytes, the store takes {most}").into() }
}

/// The bytes a write brings, but for most of its names and numbers.
fn bytes_of(write: &Write) -> usize {
    match write {
        Write::Create { frames, head, .. } => frames.len() + head.bytes.len(),
        Write::Append(Batch { frames, acts, head, .. }) => {
            let acts = acts.iter().map(|act| match act {
                Act::Put { row, .. } => row.bytes.len(),
                Act::Take { .. } => 0,
                Act::Create { frames, head, taken, .. } => frames.len() + head.bytes.len() + taken.bytes.len(),
                Act::Next { frames, .. } => frames.len(),
                Act::Publish { name, value } => name.len() + value.len(),
            });
            frames.len() + acts.sum::<usize>() + head.as_ref().map_or(0, |head| head.bytes.len())
        }
        Write::Put { row, .. } => row.bytes.len(),
        Write::Claim { aside: value, .. } | Write::Aside { value, .. } => value.as_ref().map_or(0, Bytes::len),
        Write::Restore { dump, .. } => bytes_of_dump(dump),
        Write::Release { .. } | Write::Remove { .. } | Write::Barrier => 0,
    }
}

fn bytes_of_dump(Dump { record, logs, rows, published, taken, .. }: &Dump) -> usize {
    let logs = logs.iter().flat_map(|(_, records)| records).map(|record| record.frames.len());
    let rows = rows.iter().map(|(_, row)| row.bytes.len());
    let published = published.iter().map(|(name, published)| name.len() + published.value.len());
    let record = record.head.bytes.len() + record.aside.as_ref().map_or(0, Bytes::len);
    record + logs.sum::<usize>() + rows.sum::<usize>() + published.sum::<usize>() + 16 * taken.len()
}
