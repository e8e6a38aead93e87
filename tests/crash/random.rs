//! Random kills over eight concurrent runs of the workflows that use everything.

use std::{collections::BTreeMap, thread, time::Duration};

use crate::{
    child::{Place, Said, Talking, Task, What},
    common::{
        check,
        company::WORDS,
        outside::Known,
        rng::{Rng, first_seed},
    },
    stops::{Broken, Stop},
    work::{self, is_cancelled},
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
    known: Known,
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
            Said::Known(known) => self.known.add(known),
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
    let (runs, mut wrong) = (place.runs(), std::mem::take(&mut heard.wrong));
    for (run, seen) in &runs {
        wrong.extend(seen.check(run, true));
    }
    let begun: Vec<u32> = (0..RUNS).take_while(|n| runs.contains_key(&work::id(*n))).collect();
    let mut sent = Vec::new();
    let ids: Vec<String> = begun.iter().map(|n| work::id(*n)).collect();
    for (n, run) in begun.iter().zip(&ids) {
        let cancelled = runs[run].end().is_some_and(|end| end["entry"] == "run.cancelled");
        if !(cancelled && is_cancelled(*n)) {
            wrong.extend(ended_as(run, &work::output(*n), runs[run].end()));
        }
        for name in ["word", "steer"].into_iter().filter(|_| n % 3 == 2) {
            let values = WORDS.iter().filter(|(of, ..)| *of == name).map(|(.., value)| *value).collect();
            sent.push((run.as_str(), name, values, heard.known.accepted(run, name)));
        }
    }
    for run in heard.started.iter().filter(|run| !runs.contains_key(*run)) {
        wrong.push(format!("{run} was started, and is not there"));
    }
    for (run, output) in &heard.outputs {
        wrong.extend(ended_as(run, output, runs.get(run).and_then(|seen| seen.end())));
    }
    for (run, shown) in &*heard.known.all() {
        wrong.extend(check::shown(run, shown, runs.get(run).unwrap_or(&check::Seen::default()), 0));
    }
    let lines = place.ledger();
    wrong.extend(check::ledger(&lines, &runs, 0));
    wrong.extend(check::company(&runs, &lines, &sent));
    wrong.extend(place.replays(runs.keys()));
    let noise = heard.noise.lines().filter(|line| line.contains("panicked")).map(str::to_owned);
    wrong.extend(noise);
    println!(
        "{} kills, {} runs and {} others, {} bodies",
        place.kills,
        begun.len(),
        runs.len() - begun.len(),
        lines.len()
    );
    (begun.len(), wrong)
}

fn ended_as(run: &str, output: &Result<String, String>, end: Option<&serde_json::Value>) -> Option<String> {
    let same = end.is_some_and(|end| match output {
        Ok(value) => end["value"]["Ok"] == **value,
        Err(text) => end["value"]["Err"]["message"] == **text,
    });
    (!same).then(|| format!("{run} was to end with {output:?}, and ended with {end:?}"))
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
    // A process that is killed early has dropped nothing yet.
    let wrong =
        (1..=8).map(|seed| kills(seed, 4, Broken::DropsAppends { after: 40 }).1).find(|wrong| !wrong.is_empty());
    println!("the first: {:?}", wrong.as_ref().and_then(|wrong| wrong.first()));
    assert!(wrong.is_some());
}
