//! What makes a directory a store: the lock, the file `STORE`, and the flags that make sled's writes synchronous.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write as _},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use xxhash_rust::xxh3::xxh3_64;

use crate::{id::StoreId, store::StoreError};

/// The layout that this version writes. It reads those before too: in 1 the entry of a run said nothing of its mailbox.
const FORMAT: u32 = 1;

pub(super) const STORE: &str = "STORE";
pub(super) const LOCK: &str = "LOCK";
pub(super) const HIGH_WATER: &str = "high-water";
pub(super) const SLED: &str = "sled";
/// The database that a compaction makes.
pub(super) const SLED_NEW: &str = "sled.new";
/// The database that a compaction has replaced.
pub(super) const SLED_OLD: &str = "sled.old";
/// How the names begin of what others put into the store's directory; the store neither reads nor touches it.
const FOREIGN: [&str; 3] = ["control.sock", ".control-", "lost+found"];

/// How long a second opener waits before it says that the store is in use, in milliseconds. Long enough for a holder to
/// finish dying, to write its process id after it took the lock, or to let go again if it is the command, which only looks.
const LOCK_WAIT_MS: u32 = 1_500;

pub(super) fn io_error(doing: &str, path: &Path, error: &io::Error) -> StoreError {
    if error.kind() == io::ErrorKind::StorageFull {
        return StoreError::Refused { reason: format!("cannot {doing} {}: {error}", path.display()).into() };
    }
    StoreError::Io { doing: format!("{doing} {}", path.display()).into(), error: error.to_string().into() }
}

/// The store's own lock, held while it is open.
///
/// It is the kernel's lock on the file that counts, not the file: the lock goes with its holder, however that dies.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock and leaves this process's id in the file.
    ///
    /// A crash right after leaves an unlocked file with a process id that nobody reads any more.
    pub(super) fn take(store: &Path) -> Result<Lock, StoreError> {
        let path = store.join(LOCK);
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut file = open.map_err(|e| io_error("open", &path, &e))?;
        for waited_ms in 0.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if waited_ms < LOCK_WAIT_MS => thread::sleep(Duration::from_millis(1)),
                Err(TryLockError::WouldBlock) => {
                    let mut pid = String::new();
                    let read = file.read_to_string(&mut pid);
                    let pid = read.ok().and_then(|_| pid.trim().parse().ok());
                    return Err(StoreError::InUse { path: store.to_path_buf(), pid });
                }
                Err(TryLockError::Error(e)) => return Err(io_error("lock", &path, &e)),
            }
        }
        let pid = format!("{}\n", std::process::id());
        let written = file.set_len(0).and_then(|()| file.write_all_at(pid.as_bytes(), 0));
        written.map_err(|e| io_error("write", &path, &e))?;
        Ok(Lock { file })
    }
}

impl Drop for Lock {
    /// Unlocks in so many words: closing would not do while a process just forked still has a copy of the descriptor.
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// Makes a directory and those above it, each with its name on disk.
///
/// A crash leaves some of them, empty.
pub(super) fn create_directories(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = match path.parent() {
        Some(above) if above != Path::new("") => above.to_path_buf(),
        _ => PathBuf::from("."),
    };
    create_directories(&above)?;
    match fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    sync_path(&above)
}

/// Has a file or directory on disk.
pub(super) fn sync_path(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// What the file `STORE` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: StoreId,
    /// sled's segment size, fixed for the store's life.
    pub(super) segment_bytes: usize,
    /// False until everything else is in place: a store that is not ready was never handed to anybody, and holds
    /// nothing.
    pub(super) ready: bool,
}

impl Identity {
    /// A new store's identity, not on disk yet; with a random id unless one is given.
    pub(super) fn new(id: Option<StoreId>, segment_bytes: usize) -> Result<Identity, StoreError> {
        let random = || {
            let mut id = [0; 16];
            getrandom::fill(&mut id)
                .map_err(|e| StoreError::Io { doing: "make a random store id".into(), error: e.to_string().into() })?;
            Ok(StoreId(u128::from_le_bytes(id)))
        };
        let id = id.map_or_else(random, Ok)?;
        Ok(Identity { id, segment_bytes, ready: false })
    }

    /// Reads the file. `None`: there is none.
    pub(super) fn read(store: &Path) -> Result<Option<Identity>, StoreError> {
        let path = store.join(STORE);
        let bytes = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|e| io_error("read", &path, &e))?,
        };
        let text = String::from_utf8_lossy(&bytes);
        let field = |name: &str| {
            let mut words = text.lines().filter_map(|line| line.split_once(' '));
            words.find_map(|(word, value)| (word == name).then_some(value))
        };
        // The format comes first: what a later version writes below it is its own affair.
        match field("format").and_then(|format| format.parse::<u32>().ok()) {
            Some(FORMAT) => {}
            Some(format) if format > FORMAT => {
                let what = format!("{STORE} has format {format}; this version knows up to {FORMAT}");
                return Err(StoreError::NotAStore { path: store.to_path_buf(), what: what.into() });
            }
            _ => return Err(damaged(store, format!("{STORE} names no format"))),
        }
        let identity = (|| {
            let id = StoreId(u128::from_str_radix(field("id")?, 16).ok()?);
            let segment_bytes = field("segment-bytes")?.parse().ok()?;
            Some(Identity { id, segment_bytes, ready: field("state")? == "ready" })
        })();
        identity
            .filter(|identity| identity.text().as_bytes() == bytes)
            .map(Some)
            .ok_or_else(|| damaged(store, format!("{STORE} is not what was written")))
    }

    /// Writes the file in place of the one before and has it on disk.
    ///
    /// A crash leaves the old one or the new one, whole.
    pub(super) fn write(&self, store: &Path) -> Result<(), StoreError> {
        let fresh = store.join(format!("{STORE}.new"));
        let write = || {
            let mut file = File::create(&fresh)?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, store.join(STORE))?;
            sync_path(store)
        };
        write().map_err(|e: io::Error| io_error("write", &fresh, &e))
    }

    fn text(&self) -> String {
        let state = if self.ready { "ready" } else { "new" };
        let body = format!(
            "durable store\nformat {FORMAT}\nid {}\nsegment-bytes {}\nstate {state}\n",
            self.id, self.segment_bytes
        );
        format!("{body}checksum {:016x}\n", xxh3_64(body.as_bytes()))
    }
}

pub(super) fn damaged(store: &Path, what: String) -> StoreError {
    StoreError::Damaged { place: store.display().to_string(), run: None, seq: None, what: what.into() }
}

/// Whether a directory without `STORE` may become a store: it must hold nothing but what a crash while one was made
/// left.
pub(super) fn check_free_for_a_store(store: &Path) -> Result<(), StoreError> {
    let entries = fs::read_dir(store).map_err(|e| io_error("list", store, &e))?;
    for entry in entries {
        let name = entry.map_err(|e| io_error("list", store, &e))?.file_name();
        if [SLED, SLED_NEW, SLED_OLD, HIGH_WATER].iter().any(|part| name == *part) {
            return Err(damaged(store, format!("{STORE} is missing")));
        }
        let foreign = FOREIGN.iter().any(|foreign| name.to_string_lossy().starts_with(foreign));
        if name != LOCK && name != *format!("{STORE}.new") && !foreign {
            let what = format!("it has no {STORE} and is not empty: there is {}", name.display());
            return Err(StoreError::NotAStore { path: store.to_path_buf(), what: what.into() });
        }
    }
    Ok(())
}

/// Sees to it that sled's directory and all in it is written synchronously, what is made there later included.
///
/// sled's own flush never waits for the disk (it calls `sync_file_range`), so the inode flag `FS_SYNC_FL` (`chattr +S`)
/// has to: under it each `pwrite` returns when data and metadata are on disk, and new files inherit it. In a directory
/// that has lost the flags, by being copied, all is synced after they are set.
///
/// # Errors
///
/// What the file system said, if it does not give the flags. Nothing is lost then, only not as durable.
pub(super) fn make_synchronous(sled: &Path) -> io::Result<()> {
    if is_synchronous(sled)? {
        return Ok(());
    }
    flags::set(sled)?;
    for entry in fs::read_dir(sled)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            make_synchronous(&entry.path())?;
        } else if kind.is_file() {
            flags::set(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether a directory and the files at its top have the flags.
pub(super) fn is_synchronous(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // Nobody writes data to anything else, and it may be nothing that can be opened.
        if (kind.is_dir() || kind.is_file()) && !flags::has(&entry.path())? {
            return Ok(false);
        }
    }
    flags::has(directory)
}

#[cfg(target_os = "linux")]
mod flags {
    use std::{fs::File, io, path::Path};

    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

    pub(super) fn has(path: &Path) -> io::Result<bool> {
        Ok(ioctl_getflags(File::open(path)?)?.contains(wanted(path)))
    }

    /// Sets the flags, reads them back, and syncs what was written before they were there.
    pub(super) fn set(path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        ioctl_setflags(&file, ioctl_getflags(&file)? | wanted(path))?;
        if !ioctl_getflags(&file)?.contains(wanted(path)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the flag for synchronous writes did not stay"));
        }
        file.sync_all()
    }

    fn wanted(path: &Path) -> IFlags {
        if path.is_dir() { IFlags::SYNC | IFlags::DIRSYNC } else { IFlags::SYNC }
    }
}

#[cfg(not(target_os = "linux"))]
mod flags {
    use std::{io, path::Path};

    pub(super) fn has(_: &Path) -> io::Result<bool> {
        Ok(false)
    }

    pub(super) fn set(_: &Path) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no flag for synchronous writes"))
    }
}
