//! Random kills over eight concurrent runs of the workflow that uses everything.

use std::{collections::BTreeMap, thread, time::Duration};

use durable::{
    Runtime,
    store::sled::{SledOptions, SledStore},
};

use crate::{
    child::{Place, Said, Talking, Task, What},
    common::{
        check::{self, Logs},
        everything::everything_of,
        rng::{Rng, first_seed},
    },
    stops::{Broken, Stop},
};

/// Stores that are killed beside each other, and how often each.
const PLACES: u64 = 3;
const KILLS: u32 = 100;
/// Enough for eight at a time until the last kill.
const RUNS: u32 = 10_000;

/// What children said that somebody outside knows since.
#[derive(Default)]
struct Heard {
    started: Vec<String>,
    outputs: BTreeMap<String, Result<String, String>>,
    wrong: Vec<String>,
    noise: String,
}

impl Heard {
    fn hear(&mut self, said: Said) {
        match said {
            Said::Started(run) => self.started.push(run),
            Said::Output(run, output) => {
                let before = self.outputs.insert(run.clone(), output.clone());
                if before.is_some_and(|before| before != output) {
                    self.wrong.push(format!("{run} gave another output: {output:?}"));
                }
            }
            _ => {}
        }
    }
}

/// Kills a child that keeps eight runs going: half of the time at an event of its store, half of the time some milliseconds after
/// it has begun.
fn kill(place: &mut Place, heard: &mut Heard, rng: &mut Rng, broken: Broken) {
    let at_event = rng.once_in(2);
    let stop = if at_event { Stop::Event(rng.below(400)) } else { Stop::Never };
    let mut child = Talking::start(&Task { stop, broken, ..place.task(What::Load { runs: RUNS }) });
    if at_event {
        loop {
            match child.next() {
                Some(Said::Stopped) => break,
                Some(said) => heard.hear(said),
                None => panic!("a child ended by itself: {}", child.noise),
            }
        }
    } else {
        // It has begun when it says its first word.
        match child.next() {
            Some(said) => heard.hear(said),
            None => panic!("a child ended by itself: {}", child.noise),
        }
        thread::sleep(Duration::from_millis(rng.below(60)));
    }
    child.kill();
    place.kills += 1;
    while let Some(said) = child.next() {
        heard.hear(said);
    }
    heard.noise.push_str(&child.noise);
}

/// Kills, lets all end, and says what is wrong.
fn kills(seed: u64, kills: u32, broken: Broken) -> (usize, Vec<String>) {
    let (mut place, mut heard, mut rng) = (Place::new(), Heard::default(), Rng::new(seed));
    for _ in 0..kills {
        kill(&mut place, &mut heard, &mut rng, broken);
    }
    // No other run is begun, and those under way end.
    let mut child = Talking::start(&place.task(What::Load { runs: 0 }));
    loop {
        match child.next() {
            Some(Said::Done) => break,
            Some(said) => heard.hear(said),
            None => panic!("the last child ended by itself: {}", child.noise),
        }
    }
    child.kill();
    let (logs, mut wrong) = (logs(&place), std::mem::take(&mut heard.wrong));
    for (run, log) in &logs {
        wrong.extend(check::log(run, log, true));
        let output = log.last().and_then(|entry| entry["value"]["Ok"].as_str());
        if output != Some(&everything_of(run)) {
            wrong.push(format!("{run} ended with {:?}", log.last()));
        }
    }
    for run in &heard.started {
        if !logs.contains_key(run) {
            wrong.push(format!("{run} was started, and is not there"));
        }
    }
    for (run, output) in &heard.outputs {
        if output.as_ref() != Ok(&everything_of(run)) {
            wrong.push(format!("{run} gave {output:?}"));
        }
    }
    let lines = place.ledger();
    wrong.extend(check::ledger(&lines, &logs, 0));
    wrong.extend(place.replays(logs.keys()));
    let noise = heard.noise.lines().filter(|line| line.contains("panicked")).map(str::to_owned);
    wrong.extend(noise);
    println!("{} kills, {} runs, {} bodies", place.kills, logs.len(), lines.len());
    (logs.len(), wrong)
}

/// All logs in the store, which no child has.
fn logs(place: &Place) -> Logs {
    let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    threads.block_on(async {
        let store = SledStore::open(place.store_path(), SledOptions::new()).unwrap();
        let mut logs = Logs::new();
        let runtime = Runtime::builder().resource(place.world()).open_store(store).await.unwrap();
        for info in runtime.runs(durable::Filter::all()).await.unwrap() {
            let log = runtime.run(info.id.as_str()).await.unwrap().log().await.unwrap();
            logs.insert(info.id.to_string(), log.iter().map(durable::LogEntry::to_json).collect());
        }
        runtime.shutdown(Duration::ZERO).await.unwrap();
        logs
    })
}

#[test]
fn three_hundred_random_kills_break_no_contract() {
    let first = first_seed();
    thread::scope(|scope| {
        let places: Vec<_> =
            (first..first + PLACES).map(|seed| (seed, scope.spawn(move || kills(seed, KILLS, Broken::No)))).collect();
        for (seed, place) in places {
            let (runs, wrong) = place.join().unwrap();
            assert!(runs >= 16, "{runs} runs only");
            assert!(wrong.is_empty(), "CRASH_SEED={seed}: {} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
        }
    });
}

#[test]
fn random_kills_notice_a_store_that_drops_what_it_acknowledged() {
    let (_, wrong) = kills(1, 4, Broken::DropsAppends { after: 100 });
    println!("{} findings, the first: {:?}", wrong.len(), wrong.first());
    assert!(!wrong.is_empty());
}
