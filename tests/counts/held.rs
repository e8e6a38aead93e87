//! A store that answers when it is told to: how much a run writes then depends on no clock.

use std::sync::{Arc, Mutex, PoisonError};

use durable::{
    StoreError,
    store::{
        Done, Store, Write, Written,
        sled::{Counts, SledStore},
    },
};
use tokio::sync::watch;

use crate::pass_on::pass_on;

type Answer = Box<dyn FnOnce() + Send>;

/// A store in a directory. Of entries it says nothing while it is held, but for those that end a run. Clones are one.
#[derive(Clone)]
pub(super) struct Held {
    store: Arc<SledStore>,
    /// `None`: not held.
    answers: Arc<Mutex<Option<Vec<Answer>>>>,
    /// Runs that have sent their ends.
    ended: watch::Sender<usize>,
    /// Batches of entries.
    batches: watch::Sender<usize>,
}

impl Held {
    pub(super) fn new(store: SledStore, held: bool) -> Held {
        let answers = Arc::new(Mutex::new(held.then(Vec::new)));
        Held { store: Arc::new(store), answers, ended: watch::Sender::new(0), batches: watch::Sender::new(0) }
    }

    pub(super) fn counts(&self) -> Counts {
        self.store.counts()
    }

    pub(super) fn batches(&self) -> usize {
        *self.batches.borrow()
    }

    /// Waits until so many runs have sent their ends, then answers all that was written.
    pub(super) async fn release_when_ended(&self, runs: usize) {
        self.ended.subscribe().wait_for(|ended| *ended >= runs).await.unwrap();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner).take();
        answers.into_iter().flatten().for_each(|answer| answer());
    }
}

impl Store for Held {
    pass_on!(store);

    fn submit(&self, write: Write, done: Done) {
        let Write::Append(batch) = &write else { return self.store.submit(write, done) };
        self.batches.send_modify(|batches| *batches += 1);
        let ends = batch.head.as_ref().is_some_and(|head| !head.live);
        let (answers, ended) = (self.answers.clone(), self.ended.clone());
        let answer = move |result: Result<Written, StoreError>| {
            {
                let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(answers) = &mut *answers {
                    answers.push(Box::new(move || done(result)));
                } else {
                    drop(answers);
                    done(result);
                }
            }
            if ends {
                ended.send_modify(|ended| *ended += 1);
            }
        };
        self.store.submit(write, Box::new(answer));
    }
}
