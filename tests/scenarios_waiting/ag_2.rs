//! O-AG-2: late, double and stale approvals.

use std::time::Duration;

use durable::{Answer, Answered, Code, EffectContext, OpenQuestion, Question, Reply, TestClock};
use serde_json::{Value as Json, json};

use crate::{
    bench::{BEGINNING, BOTH, Bench, millis, refused, secs, until},
    film::Film,
    world::World,
};

const LIMIT: Duration = secs(300);

#[durable::effect(at_most_once)]
async fn tool(cx: &EffectContext, #[resource] world: &World, n: u32) -> u32 {
    world.note(cx, n);
    n
}

/// Three tool calls, each after a person's yes within five minutes; no answer is a no.
#[durable::workflow]
async fn agent() -> Vec<String> {
    let mut all = Vec::new();
    for n in 1..=3u32 {
        let question = Question::new(format!("call tool {n}?")).about(&n).by(["ann", "bob"]).within(LIMIT);
        all.push(match durable::ask::<u32>(question).await {
            Answer::Granted(word) => format!("{n}: {} granted {word}", tool(n).await),
            Answer::Refused(reason) => format!("{n}: refused {reason}"),
            Answer::Expired => format!("{n}: expired"),
        });
    }
    all
}

/// The open question of the call with this number.
async fn question(bench: &Bench, n: u32) -> OpenQuestion {
    let mut found = None;
    until(&format!("question {n}"), async || {
        let questions = bench.runtime.questions().await.unwrap();
        found = questions.into_iter().find(|question| question.about == n);
        found.is_some()
    })
    .await;
    found.unwrap()
}

fn tools(bench: &Bench) -> Vec<String> {
    bench.world.lines("tool").into_iter().map(|line| line.input).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn late_double_and_stale_answers_are_told_so_and_answer_nothing_else() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", agent()).await.unwrap();
        // The answer to call 1 comes after six minutes.
        let first = question(&bench, 1).await;
        assert_eq!(first.title, "call tool 1?");
        bench.advance(LIMIT + secs(60)).await;
        let second = question(&bench, 2).await;
        let late = refused(bench.runtime.answer(&first.token, Reply::granted(&1)).by("ann").await);
        assert_eq!(late.code(), Code::QuestionExpired, "{late}");
        assert!(tools(&bench).is_empty(), "tool 1 is not called");
        // The answer to call 2 is sent twice; the second one comes while call 3 waits.
        let taken = bench.runtime.answer(&second.token, Reply::granted(&2)).by("ann").await.unwrap();
        assert_eq!(taken, Answered::Taken);
        let third = question(&bench, 3).await;
        let stale = refused(bench.runtime.answer(&second.token, Reply::granted(&2)).by("bob").await);
        assert_eq!(stale.code(), Code::QuestionAnswered, "{stale}");
        assert_eq!(stale.answered_by(), Some("ann"));
        bench.looked().await;
        let open = bench.runtime.questions().await.unwrap();
        assert_eq!(open.iter().map(|question| &question.token).collect::<Vec<_>>(), [&third.token], "it still waits");
        assert_eq!(tools(&bench), ["2"]);
        // A stranger may not, whatever the answer.
        let stranger = refused(bench.runtime.answer(&third.token, Reply::granted(&3)).by("eve").await);
        assert_eq!(stranger.code(), Code::MayNotAnswer, "{stranger}");
        bench.stands("run").await;
        bench.runtime.answer(&third.token, Reply::refused("not this one")).by("bob").await.unwrap();
        assert_eq!(bench.end("run").await, json!(["1: expired", "2: 2 granted 2", "3: refused not this one"]));
        assert_eq!(tools(&bench), ["2"]);
        let over = refused(bench.runtime.answer(&third.token, Reply::granted(&3)).by("ann").await);
        assert_eq!(over.code(), Code::QuestionAnswered, "{over}");
        bench.replays("run").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_people_who_answer_at_once_one_is_taken_and_the_other_is_told() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let mut firsts = [0, 0];
        for round in 0..20 {
            let id = format!("run {round}");
            bench.runtime.start(&id, agent()).await.unwrap();
            for n in 1..=3 {
                let mut open = None;
                until("the question", async || {
                    let questions = bench.runtime.questions().await.unwrap();
                    open = questions.into_iter().find(|q| q.run.as_str() == id && q.about == n);
                    open.is_some()
                })
                .await;
                let token = open.unwrap().token;
                let ask = |by: &'static str, reply: Reply| {
                    let (runtime, token) = (bench.runtime.clone(), token.clone());
                    tokio::spawn(async move { runtime.answer(token, reply).by(by).await })
                };
                let (ann, bob) = (ask("ann", Reply::granted(&1)), ask("bob", Reply::refused("no")));
                let (ann, bob) = (ann.await.unwrap(), bob.await.unwrap());
                let (loser, winner) = match (ann, bob) {
                    (Ok(_), Err(e)) => (e, "ann"),
                    (Err(e), Ok(_)) => (e, "bob"),
                    other => panic!("{id}, question {n}: {other:?}"),
                };
                firsts[usize::from(winner == "bob")] += 1;
                assert_eq!((loser.code(), loser.answered_by()), (Code::QuestionAnswered, Some(winner)), "{loser}");
                until("the answer", async || bench.count(&id, "question.answered").await == n as usize).await;
                let log = bench.log(&id).await;
                let answered: Vec<_> = log.iter().filter(|entry| entry.name == "question.answered").collect();
                assert_eq!(answered.last().unwrap().get("by"), Some(&json!(winner)));
            }
            bench.end(&id).await;
            assert_eq!(bench.count(&id, "question.answered").await, 3);
        }
        println!("{backend:?}: {firsts:?}");
        bench.replays("run 0").await;
        bench.replays("run 19").await;
    }
}

/// The answer is given in the very millisecond in which the time is over; the process dies at each of its writes.
#[tokio::test(flavor = "multi_thread")]
async fn of_an_answer_and_a_deadline_one_wins_wherever_a_crash_comes_between() {
    let (mut granted, mut expired) = (0, 0);
    for round in 0..6 {
        let (world, clock) = (World::new(), TestClock::at(BEGINNING));
        let film = Film::new(&world, &clock);
        let bench = Bench::through(film.clone(), world, &clock, |builder| builder.evict_after(secs(3_600))).await;
        bench.runtime.start("run", agent()).await.unwrap();
        let first = question(&bench, 1).await;
        bench.clock.advance(LIMIT - millis(1));
        bench.looked().await;
        film.roll();
        // In turn, the hand of the clock moves first; or it moves in the very moment in which the answer is put.
        if round % 2 == 0 {
            bench.clock.advance(millis(1));
        } else {
            let clock = bench.clock.clone();
            film.on_put(move || clock.advance(millis(1)));
        }
        let _ = bench.runtime.answer(&first.token, Reply::granted(&1)).by("ann").await;
        question(&bench, 2).await;
        for (n, shot) in film.cut().iter().enumerate() {
            let next = shot.opened(|_| {}).await;
            next.clock.advance(millis(1));
            let told = next.runtime.answer(&first.token, Reply::granted(&1)).by("ann").await;
            question(&next, 2).await;
            let log = next.log("run").await;
            let of_first: Vec<&Json> = log
                .iter()
                .filter(|entry| entry.name == "question.answered" && entry.step == log[1].step)
                .map(|entry| entry.get("answer").unwrap())
                .collect();
            assert_eq!(of_first.len(), 1, "round {round}, a crash before write {n}: one of them wins");
            let was = of_first[0] == "granted";
            let right = match (&told, was) {
                (Ok(_), true) => true,
                // By its own first try.
                (Err(e), true) => e.code() == Code::QuestionAnswered && e.answered_by() == Some("ann"),
                (Err(e), false) => matches!(e.code(), Code::QuestionExpired),
                (Ok(_), false) => false,
            };
            assert!(right, "round {round}, a crash before write {n}: {of_first:?}, and told {told:?}");
            assert_eq!(tools(&next), if was { vec!["1"] } else { vec![] }, "round {round}, write {n}");
            granted += u32::from(was);
            expired += u32::from(!was);
            next.stands("run").await;
        }
    }
    println!("{granted} granted, {expired} expired");
    assert!(granted > 0 && expired > 0, "{granted} {expired}");
}
