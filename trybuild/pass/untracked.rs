//! What looks forbidden and is not, and the way out for what is.
#![deny(warnings)]

use std::time::{Duration, Instant, SystemTime};

#[durable::effect(read_only)]
async fn look(query: &str) -> u64 {
    query.len() as u64
}

struct Pool;

impl Pool {
    fn spawn(&self, n: u64) -> u64 {
        n
    }

    fn now(&self) -> u64 {
        1
    }

    fn random(&self) -> u64 {
        4
    }
}

mod mine {
    pub(crate) mod env {
        pub(crate) fn var(name: &str) -> &str {
            name
        }
    }

    pub(crate) mod thread {
        pub(crate) fn sleep(n: u64) -> u64 {
            n
        }
    }

    pub(crate) struct Instant;

    impl Instant {
        pub(crate) fn now() -> u64 {
            3
        }
    }
}

fn spawn(n: u64) -> u64 {
    n
}

fn elapsed(since: Instant, until: SystemTime) -> Duration {
    until.elapsed().unwrap_or(since.elapsed())
}

#[durable::workflow]
async fn lookalikes() -> u64 {
    let env = "env";
    let (pool, fs, rand, join) = (Pool, 1, 2, 3);
    let process = |net: u64| net + fs;
    let mut sum = pool.spawn(1) + pool.now() + pool.random() + spawn(2) + process(rand) + join;
    sum += mine::env::var(env).len() as u64 + crate::mine::thread::sleep(1) + mine::Instant::now();
    sum += look("thread::sleep, tokio::spawn").await;
    let started = durable::untracked(|| Instant::now());
    let until = durable::untracked(|| {
        let now = SystemTime::now();
        println!("{:?} {:?}", now, std::env::args());
        now
    });
    println!("{:?}", durable::untracked(|| std::env::var("HOME")));
    durable::untracked(move || println!("{:?}", elapsed(started, until)));
    let value: Option<Instant> = None;
    let now = durable::now().await;
    sum + u64::from(value.is_none()) + u64::from(now > SystemTime::UNIX_EPOCH)
}

fn main() {
    let _ = lookalikes();
}
