//! The steps from a path to an open store.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::Path,
    sync::Arc,
};

use crate::store::{
    Durability, StoreError,
    sled::{
        LOSS, SledOptions, WRITE_BYTES_MAX, compact,
        group::Claims,
        high_water::HighWater,
        identity::{self, HIGH_WATER, Identity, LOCK, Lock, SLED, STORE, damaged, io_error, sync_path},
        keys::{self, Meta},
        medium::{Changes, Medium},
        read,
        writer::{FreeSpace, Room, Shared, Writer},
    },
};

/// sled's segment size in a directory that is written synchronously: sled's own default.
const SEGMENT_BYTES: usize = 512 * 1024;
/// sled's segment size elsewhere: values from a quarter of it on go to files that nobody syncs, so it must be large.
const SEGMENT_BYTES_BEST_EFFORT: usize = 8 * 1024 * 1024;

pub(super) struct Opened {
    pub(super) durability: Durability,
    pub(super) writer: Writer,
}

/// Opens or makes a store.
///
/// A crash anywhere within leaves the store as it was, or a new one that is not ready and is made again from nothing by
/// the next opening. The number of openings is on disk before this returns, so no epoch is ever given out twice.
pub(super) fn open(store: &Path, options: &SledOptions, free_space: FreeSpace) -> Result<Opened, StoreError> {
    refuse_foreign(store)?;
    if options.existing && !store.join(identity::STORE).exists() {
        let what = if store.exists() { "it has no store's identity file" } else { "there is no such directory" };
        return Err(StoreError::NotAStore { path: store.to_owned(), what: what.into() });
    }
    identity::create_directories(store).map_err(|e| io_error("make", store, &e))?;
    let lock = Lock::take(store)?;
    let sled = store.join(SLED);

    let identity = match Identity::read(store)? {
        Some(identity) if identity.ready => {
            if let Some(id) = options.id.filter(|id| *id != identity.id) {
                let what = format!("it is the store {}, not {id}", identity.id);
                return Err(StoreError::NotAStore { path: store.to_path_buf(), what: what.into() });
            }
            compact::finish(store)?;
            check_parts(store)?;
            identity
        }
        unready => {
            if unready.is_none() {
                identity::check_free_for_a_store(store)?;
            }
            make(store, options)?
        }
    };
    let flagged = full(store, synchronous(&sled, options), options)?;
    // Opened before sled writes anything, so that a failed write-back is reported to this descriptor too.
    let db = OpenOptions::new().create(!identity.ready).truncate(false).write(true).open(sled.join("db"));
    let db = db.map_err(|e| io_error("open", &sled.join("db"), &e))?;
    let medium = Medium::open(store, &sled, identity.segment_bytes, options.cache_bytes)?;
    // What sled has just made must have inherited the flags.
    let flagged = if flagged { full(store, identity::make_synchronous(&sled), options) } else { Ok(false) };
    let opened = flagged.and_then(|full| {
        let (meta, high_water) = settle(store, &identity, options, &medium, (!full).then_some(&db))?;
        compact::clear(store)?;
        Ok((full, meta, high_water))
    });
    let (full, meta, high_water) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let _ = medium.close(&sled);
            return Err(error);
        }
    };
    let writer = Writer {
        shared: Arc::new(Shared::new(medium.clone())),
        medium,
        store: store.to_path_buf(),
        meta,
        claims: Claims::default(),
        high_water,
        barrier: (!full).then_some(db),
        room: Room { free_space, reserve_bytes: options.reserve_bytes },
        write_bytes_max: WRITE_BYTES_MAX,
        lock,
        removing: true,
        poisoned: None,
    };
    Ok(Opened { durability: if full { Durability::Full } else { Durability::BestEffort }, writer })
}

/// Refuses what is no store before anything is put there, the lock included.
fn refuse_foreign(store: &Path) -> Result<(), StoreError> {
    let found = match fs::symlink_metadata(store) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.and_then(|_| fs::metadata(store)).map_err(|e| io_error("look at", store, &e))?,
    };
    if !found.is_dir() {
        return Err(StoreError::NotAStore { path: store.to_path_buf(), what: "it is not a directory".into() });
    }
    if store.join(STORE).exists() || store.join(LOCK).exists() {
        return Ok(());
    }
    identity::check_free_for_a_store(store)
}

/// Refuses a store that lacks a part, before sled can put an empty one in its place.
fn check_parts(store: &Path) -> Result<(), StoreError> {
    let db = store.join(SLED).join("db");
    for part in [&store.join(SLED).join("blobs"), &db] {
        if !part.exists() {
            return Err(damaged(store, format!("{} is missing", part.display())));
        }
    }
    Ok(())
}

/// Makes all of a store but the database's content, whatever an earlier attempt may have left.
fn make(store: &Path, options: &SledOptions) -> Result<Identity, StoreError> {
    // First of all: what stands beside a `STORE` that is not ready is no damage, wherever a crash leaves it.
    let mut identity = Identity::new(options.id, SEGMENT_BYTES)?;
    identity.write(store)?;
    let sled = store.join(SLED);
    match fs::remove_dir_all(&sled) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        removed => removed.map_err(|e| io_error("remove", &sled, &e))?,
    }
    identity::create_directories(&sled).map_err(|e| io_error("make", &sled, &e))?;
    if synchronous(&sled, options).is_err() {
        identity.segment_bytes = SEGMENT_BYTES_BEST_EFFORT;
        identity.write(store)?;
    }
    Ok(identity)
}

/// Whether the store is fully durable, given whether its directory is synchronous; an error if that was required.
pub(super) fn full(store: &Path, synchronous: io::Result<()>, options: &SledOptions) -> Result<bool, StoreError> {
    match synchronous {
        Ok(()) => Ok(true),
        Err(e) if options.require_full => {
            let reason = format!("the directory for the database cannot be made synchronous: {e}");
            Err(StoreError::NotDurable { path: store.to_path_buf(), reason: reason.into() })
        }
        Err(_) => Ok(false),
    }
}

/// Sees to it that a directory for a database is synchronous, unless that is not wanted.
pub(super) fn synchronous(sled: &Path, options: &SledOptions) -> io::Result<()> {
    if !options.best_effort {
        return identity::make_synchronous(sled);
    }
    match identity::is_synchronous(sled)? {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::Unsupported, "best effort was asked for")),
    }
}

/// Checks what sled has opened, and counts the opening.
///
/// A crash before the count is durable leaves the store as it was found.
fn settle(
    store: &Path,
    identity: &Identity,
    options: &SledOptions,
    medium: &Medium,
    barrier: Option<&File>,
) -> Result<(Meta, HighWater), StoreError> {
    let sled = store.join(SLED);
    // sled syncs neither these nor their names.
    for path in [sled.join("conf"), sled.join("blobs"), sled.clone()] {
        sync_path(&path).map_err(|e| io_error("sync", &path, &e))?;
    }
    let water_path = store.join(HIGH_WATER);
    let on_water = |e: &io::Error| io_error("use", &water_path, e);
    let found = read::meta(medium)?;
    match found.map_or(Ok(()), |meta| medium.roll_back(meta.commits)) {
        Err(StoreError::Damaged { what, .. }) if !options.accept_loss => {
            let loss = "whether the newest group of writes is there as a whole is not known";
            return Err(medium.damaged(format!("{LOSS}{loss}: {what}")));
        }
        Err(StoreError::Damaged { what, .. }) => tracing::warn!(%what, "a part of a group of writes may be left"),
        rolled_back => rolled_back?,
    }
    let (mut meta, mut high_water) = match found {
        None if !identity.ready => {
            let meta = Meta { id: identity.id, openings: 0, next_number: 0, commits: 0, digest: 0 };
            (meta, HighWater::create(&water_path, identity.id).map_err(|e| on_water(&e))?)
        }
        None => return Err(medium.damaged("the database is empty, and it was not")),
        Some(meta) if meta.id != identity.id => {
            return Err(
                medium.damaged(format!("the database is that of the store {}, not of {}", meta.id, identity.id))
            );
        }
        Some(meta) => {
            let (water, count) = match HighWater::open(&water_path, identity.id) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => (None, None),
                opened => opened.map(|(water, count)| (Some(water), count)).map_err(|e| on_water(&e))?,
            };
            let digest = read::digest(medium)?;
            let loss = match count {
                None => Some(format!(
                    "{} is missing or damaged: whether writes are missing is not known",
                    water_path.display()
                )),
                Some(count) if count > meta.commits => {
                    Some(format!("it holds {} groups of writes, {count} were acknowledged", meta.commits))
                }
                Some(_) if digest != meta.digest => Some(String::from("parts of its index are missing or out of date")),
                Some(_) => None,
            };
            match loss {
                Some(loss) if !options.accept_loss => return Err(medium.damaged(format!("{LOSS}{loss}"))),
                Some(loss) => {
                    tracing::warn!(loss, store = %store.display(), "the store is opened although it has lost writes");
                    let water = HighWater::create(&water_path, identity.id).map_err(|e| on_water(&e))?;
                    // The index may name more runs than the store's own record knows of.
                    let last = keys::last_number(|before| {
                        let last = medium.end_of(..=before.to_vec(), true)?;
                        Ok::<_, StoreError>(last.map(|(key, _)| key.to_vec()))
                    })?;
                    let next_number = meta.next_number.max(last.map_or(0, |last| last + 1));
                    (Meta { digest, next_number, ..meta }, water)
                }
                None => (meta, water.ok_or_else(|| medium.damaged("no high-water"))?),
            }
        }
    };
    meta.openings += 1;
    meta.commits += 1;
    medium.commit(Changes::default(), &meta)?;
    medium.flush()?;
    if let Some(db) = barrier {
        db.sync_data().map_err(|e| io_error("sync the database of", store, &e))?;
    }
    high_water.note(meta.commits).and_then(|()| high_water.sync()).map_err(|e| on_water(&e))?;
    sync_path(store).map_err(|e| io_error("sync", store, &e))?;
    if !identity.ready {
        Identity { ready: true, ..identity.clone() }.write(store)?;
    }
    Ok((meta, high_water))
}
