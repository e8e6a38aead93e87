//! The store of the crash tests loses what it should and keeps what it should.

use std::sync::{Arc, Mutex};

use durable_runtime::store::{Store, StoreError, Write, Written};

use crate::{
    crash::{CrashStore, Fault},
    subject::*,
};

type Heard = Arc<Mutex<Vec<(u64, Result<Written, StoreError>)>>>;

/// A store with a run that is durable, and five rows put that are not.
fn with_five_pending(plan: impl FnMut(u64, &Write) -> Option<Fault> + Send + 'static) -> (CrashStore, Heard) {
    let store = CrashStore::new();
    store.sync_after(1);
    born(&store, "r");
    store.sync_after(usize::MAX);
    store.plan(plan);
    let heard = Heard::default();
    for nth in 0..5 {
        let hear = Arc::clone(&heard);
        let put = put(&run("r"), row(u128::from(nth), ""));
        store.submit(put, Box::new(move |result| hear.lock().unwrap().push((nth, result))));
    }
    (store, heard)
}

fn ids(store: &CrashStore) -> Vec<u128> {
    rows(store, &run("r")).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn what_is_applied_can_be_read_and_is_durable_when_it_is_synced() {
    let (store, heard) = with_five_pending(|_, _| None);
    assert_eq!((ids(&store), store.pending(), heard.lock().unwrap().len()), (vec![0, 1, 2, 3, 4], 5, 0));
    assert_eq!((store.writes(), store.syncs()), (7, 2));
    assert_eq!(store.sync(), 5);
    let expected: Vec<_> = (0..5).map(|nth| (nth, Ok(Written::Done))).collect();
    assert_eq!(*heard.lock().unwrap(), expected);
    assert_eq!(ids(&store.crash(0)), [0, 1, 2, 3, 4]);
}

#[test]
fn a_crash_keeps_as_much_as_it_is_told_and_calls_nobody() {
    for kept in 0..7 {
        let (store, heard) = with_five_pending(|_, _| None);
        claim_unheard(&store);
        let next = store.crash(kept);
        assert_eq!(ids(&next), (0..5.min(kept as u128)).collect::<Vec<_>>());
        assert_eq!(store.sync(), 0);
        assert_eq!(*heard.lock().unwrap(), []);
        assert!(store.is_dead() && !next.is_dead());
        next.sync_after(1);
        // Later than all epochs before, also than one that was lost.
        let later = claim(&next, &run("r"));
        assert!(later.0 > 1 << 32, "{later}");
    }
}

/// Claims without a sync, so that nobody hears of it.
fn claim_unheard(store: &CrashStore) {
    store.submit(claiming(&run("r")), Box::new(|_| panic!("nobody hears of it")));
}

#[test]
fn faults_are_what_they_say() {
    let faults = [Fault::Refused, Fault::Rejected, Fault::UnknownLost, Fault::UnknownApplied];
    let (store, heard) = with_five_pending(move |nth, _| faults.get(usize::try_from(nth).unwrap() - 2).copied());
    assert_eq!(ids(&store), [3, 4]);
    store.sync();
    let heard = heard.lock().unwrap();
    assert!(matches!(
        heard[..],
        [
            (0, Err(StoreError::Refused { .. })),
            (1, Err(StoreError::Rejected { .. })),
            (2, Err(StoreError::Unknown { .. })),
            (3, Err(StoreError::Unknown { .. })),
            (4, Ok(Written::Done)),
        ]
    ));
    assert_eq!(ids(&store.crash(0)), [3, 4]);
}

#[test]
fn a_planned_crash_ends_everything() {
    let (store, heard) = with_five_pending(|nth, _| (nth == 4).then_some(Fault::Crash));
    assert_eq!((ids(&store), store.pending(), store.is_dead()), (vec![0, 1], 2, true));
    assert_eq!(store.sync(), 0);
    assert_eq!(ids(&store.crash(1)), [0]);
    assert_eq!(*heard.lock().unwrap(), []);
}
