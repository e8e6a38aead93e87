//! A store in memory that is copied before each of its writes: what the next process would find if this one died there.

use std::sync::{Arc, Mutex};

use durable::{
    Clock, TestClock,
    store::{Done, Store, Write, memory::MemoryStore},
};

use crate::{
    bench::Bench,
    pass_on::pass_on,
    tape::Image,
    world::{Line, World},
};

/// Clones are one film.
#[derive(Clone)]
pub(crate) struct Film {
    store: Image,
    world: World,
    clock: TestClock,
    shots: Arc<Mutex<Option<Vec<Shot>>>>,
    on_put: Arc<Mutex<Option<OnPut>>>,
}

type OnPut = Box<dyn FnOnce() + Send>;

/// A moment of a process.
pub(crate) struct Shot {
    image: Image,
    ledger: Vec<Line>,
    wall: u64,
}

impl Film {
    /// No shot is taken before [`Film::roll`].
    pub(crate) fn new(world: &World, clock: &TestClock) -> Film {
        let store = Image::from(Arc::new(MemoryStore::new()));
        Film { store, world: world.clone(), clock: clock.clone(), shots: Arc::default(), on_put: Arc::default() }
    }

    /// From now on each write is a shot.
    pub(crate) fn roll(&self) {
        *self.shots.lock().unwrap() = Some(Vec::new());
    }

    /// The shots, and the one after all writes.
    pub(crate) fn cut(&self) -> Vec<Shot> {
        let mut shots = self.shots.lock().unwrap().take().unwrap_or_default();
        shots.push(self.shot());
        shots
    }

    /// Does this once, when the next row is put and before anybody hears of it.
    pub(crate) fn on_put(&self, act: impl FnOnce() + Send + 'static) {
        *self.on_put.lock().unwrap() = Some(Box::new(act));
    }

    fn shot(&self) -> Shot {
        // In this order: what a body does follows from what is in the store.
        let ledger = self.world.ledger();
        Shot { ledger, image: self.store.reopened(), wall: self.clock.wall() }
    }
}

impl Store for Film {
    pass_on!(store);

    fn submit(&self, write: Write, done: Done) {
        if let Some(shots) = &mut *self.shots.lock().unwrap() {
            shots.push(self.shot());
        }
        let act = match write {
            Write::Put { .. } => self.on_put.lock().unwrap().take(),
            _ => None,
        };
        if let Some(act) = act {
            act();
        }
        self.store.submit(write, done);
    }
}

impl Shot {
    /// The next process, in a world that is made ready before anything runs in it.
    pub(crate) async fn opened(&self, ready: impl FnOnce(&World)) -> Bench {
        let world = World::after(self.ledger.clone());
        ready(&world);
        let clock = TestClock::at(std::time::Duration::from_millis(self.wall));
        Bench::of(self.image.reopened(), world, &clock).await
    }
}
