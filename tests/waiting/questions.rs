//! Questions to people: what is asked, and how each ends. O-AG-1, O-AG-2.

use std::{future::IntoFuture, time::Duration};

use durable::{Answer, Answered, Code, Question, Reply, Status};
use serde_json::json;

use crate::bench::{BOTH, Backend, Bench, act, in_time, look, refused, secs, until};

const FIVE_MINUTES: Duration = secs(300);

fn told(answer: Answer<u64>) -> String {
    match answer {
        Answer::Granted(cents) => format!("granted {cents}"),
        Answer::Refused(why) => format!("refused: {why}"),
        Answer::Expired => "expired".into(),
    }
}

#[durable::workflow]
async fn refund(cents: u64) -> durable::Result<String> {
    let question = Question::new("refund?")
        .about(&json!({ "order": "ORD-3300", "cents": cents }))
        .by(["ann", "lead"])
        .within(FIVE_MINUTES);
    Ok(told(durable::ask(question).await))
}

/// Drafts, asks, publishes.
#[durable::workflow]
async fn drafts() -> durable::Result<String> {
    let plan = look("the plan").await?;
    act("send the draft").await?;
    if durable::ask::<()>("publish?").await.is_granted() {
        act("publish").await?;
    }
    Ok(format!("plan {plan}"))
}

/// Calls three tools, each of which somebody must allow within five minutes.
#[durable::workflow]
async fn tools() -> durable::Result<Vec<String>> {
    let mut done = Vec::new();
    for tool in ["search", "mail", "pay"] {
        match durable::ask::<()>(Question::new(tool).within(FIVE_MINUTES)).await {
            Answer::Granted(()) => done.push(act(tool).await?),
            Answer::Refused(why) => done.push(format!("no {tool}: {why}")),
            Answer::Expired => done.push(format!("nobody allowed {tool}")),
        }
    }
    Ok(done)
}

#[durable::workflow]
async fn both() -> durable::Result<(String, String)> {
    let (left, right) = durable::join((durable::ask("left?"), durable::ask("right?"))).await;
    Ok((told(left), told(right)))
}

/// Asks until something else comes first.
#[durable::workflow]
async fn impatient() -> durable::Result<String> {
    let said = durable::race((async { told(durable::ask("shall I?").await) }, async {
        durable::signal::<String>("never mind").await
    }))
    .await;
    // Goes on, so that the question is closed and its run is not over.
    durable::signal::<()>("end").await;
    Ok(said)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_shows_all_that_one_must_know_to_answer_it() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("order-17", refund(12_000)).await.unwrap();
        let open = bench.questions("order-17", 1).await.remove(0);
        assert_eq!((&*open.token, &*open.path, &*open.title), ("order-17:0:ask@0", "ask[0]", "refund?"));
        assert_eq!(open.about, json!({ "order": "ORD-3300", "cents": 12_000 }));
        assert_eq!(open.by, ["ann", "lead"]);
        assert_eq!((open.asked_at, open.expires_at), (bench.now(), Some(bench.now() + FIVE_MINUTES)));
        let status = bench.status("order-17").await;
        assert_eq!(status, Status::AwaitingAnswer { tokens: vec![open.token.clone()] });
        assert!(status.next_action().unwrap().contains(&open.token));
        // The same in the next process, and when the run is in no memory.
        let bench = bench.restarted().await;
        assert_eq!(bench.token("order-17").await, open.token);
        bench.until("order-17", "awaiting answer").await;
        bench.clock.advance(secs(2));
        bench.until_away("order-17").await;
        let again = bench.questions("order-17", 1).await.remove(0);
        assert_eq!(
            (again.token, again.about, again.by, again.asked_at, again.expires_at),
            (open.token, open.about, open.by, open.asked_at, open.expires_at)
        );
        assert_eq!(bench.status("order-17").await.as_str(), "awaiting answer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_a_value_or_a_reason_or_does_not_come() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        let mut tokens = Vec::new();
        for id in ["typed", "json", "refused", "expired"] {
            bench.runtime.start(id, refund(12_000)).await.unwrap();
            tokens.push(bench.token(id).await);
        }
        let answer = async |token: &str, reply: Reply| bench.runtime.answer(token, reply).by("lead").await;
        assert_eq!(answer(&tokens[0], Reply::granted(&10_000_u64)).await.unwrap(), Answered::Taken);
        assert_eq!(answer(&tokens[1], Reply::granted(&json!(9_000))).await.unwrap(), Answered::Taken);
        assert_eq!(answer(&tokens[2], Reply::refused("too much")).await.unwrap(), Answered::Taken);
        bench.clock.advance(FIVE_MINUTES);
        for (id, told) in [
            ("typed", "granted 10000"),
            ("json", "granted 9000"),
            ("refused", "refused: too much"),
            ("expired", "expired"),
        ] {
            assert_eq!(bench.end(id).await, json!({ "Ok": told }), "{id}");
            let answered = bench.entries(id, "question.answered").await;
            let by = answered[0].get("by").and_then(|by| by.as_str());
            assert_eq!((answered.len(), by), (1, (id != "expired").then_some("lead")));
        }
        // All are told apart afterwards.
        for token in &tokens[..3] {
            assert_eq!(
                refused(answer(token, Reply::refused("")).await, Code::QuestionAnswered).answered_by(),
                Some("lead")
            );
        }
        refused(answer(&tokens[3], Reply::granted(&1)).await, Code::QuestionExpired);
        assert!(bench.runtime.questions().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_ran_before_a_question_runs_again_after_its_answer() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("run", drafts()).await.unwrap();
        let token = bench.token("run").await;
        // Three days later, in the third process.
        let bench = bench.restarted_built(secs(86_400), |builder| builder).await;
        bench.token("run").await;
        let bench = bench.restarted_built(secs(2 * 86_400), |builder| builder).await;
        bench.runtime.answer(&token, Reply::granted(&())).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "plan 8" }));
        assert_eq!(bench.outside.done(), ["look at the plan", "send the draft", "publish"]);
    }
}

/// O-AG-2.
#[tokio::test(flavor = "multi_thread")]
async fn late_double_and_stale_approvals_are_told_so_and_change_nothing() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", tools()).await.unwrap();
        // The first call is approved after six minutes.
        let first = bench.token("run").await;
        bench.clock.advance(secs(360));
        until("the next question", async || bench.token("run").await != first).await;
        refused(bench.runtime.answer(&first, Reply::granted(&())).await, Code::QuestionExpired);
        // The second one twice, the copy while the third waits.
        let second = bench.token("run").await;
        bench.runtime.answer(&second, Reply::granted(&())).by("ann").await.unwrap();
        until("the next question", async || bench.token("run").await != second).await;
        let copy = refused(bench.runtime.answer(&second, Reply::granted(&())).by("ann").await, Code::QuestionAnswered);
        assert_eq!(copy.answered_by(), Some("ann"));
        let third = bench.token("run").await;
        assert_eq!((&*first, &*second, &*third), ("run:0:ask@0", "run:0:ask@1", "run:0:ask@2"));
        assert_eq!(bench.outside.done(), ["mail"]);
        // Two people at once.
        let (ann, bob) =
            tokio::join!(async { bench.runtime.answer(&third, Reply::granted(&())).by("ann").await }, async {
                bench.runtime.answer(&third, Reply::refused("no")).by("bob").await
            },);
        let (winner, loser) = match (ann, bob) {
            (Ok(Answered::Taken), Err(late)) => ("ann", late),
            (Err(late), Ok(Answered::Taken)) => ("bob", late),
            both => panic!("{both:?}"),
        };
        assert_eq!((loser.code(), loser.answered_by()), (Code::QuestionAnswered, Some(winner)));
        let end = bench.end("run").await;
        let third = if winner == "ann" { "did pay" } else { "no pay: no" };
        assert_eq!(end, json!({ "Ok": ["nobody allowed search", "did mail", third] }));
        assert_eq!(bench.entries("run", "question.answered").await.len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_at_the_moment_of_the_deadline_wins_or_loses_once() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        for n in 0..40 {
            let id = format!("run {n}");
            bench.runtime.start(&id, refund(1)).await.unwrap();
            let token = bench.token(&id).await;
            let (answer, ()) =
                tokio::join!(async { bench.runtime.answer(&token, Reply::granted(&5)).by("ann").await }, async {
                    bench.clock.advance(FIVE_MINUTES)
                },);
            let told = match answer {
                Ok(answered) => {
                    assert_eq!(answered, Answered::Taken);
                    "granted 5"
                }
                Err(error) => {
                    assert_eq!(error.code(), Code::QuestionExpired);
                    "expired"
                }
            };
            assert_eq!(bench.end(&id).await, json!({ "Ok": told }));
            assert_eq!(bench.entries(&id, "question.answered").await.len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_questions_do_not_swap_their_answers() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("run", both()).await.unwrap();
        let open = bench.questions("run", 2).await;
        let titles: Vec<_> = open.iter().map(|question| &*question.title).collect();
        assert_eq!(titles, ["left?", "right?"]);
        // The right one first, and a restart between.
        bench.runtime.answer(&open[1].token, Reply::granted(&2)).await.unwrap();
        let bench = bench.restarted().await;
        assert_eq!(bench.questions("run", 1).await[0].title, "left?");
        bench.runtime.answer(&open[0].token, Reply::granted(&1)).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": ["granted 1", "granted 2"] }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_its_code_dropped_is_closed() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", impatient()).await.unwrap();
        let token = bench.token("run").await;
        bench.runtime.signal("run", "never mind", "later").await.unwrap();
        bench.until("run", "awaiting signal").await;
        refused(bench.runtime.answer(&token, Reply::granted(&1)).await, Code::QuestionClosed);
        bench.runtime.signal("run", "end", &()).await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "later" }));
        refused(bench.runtime.answer(&token, Reply::granted(&1)).await, Code::QuestionClosed);
        // One that is cancelled waits for no answer either.
        bench.runtime.start("cancelled", refund(1)).await.unwrap();
        let token = bench.token("cancelled").await;
        in_time("the cancel", bench.runtime.cancel("cancelled", "enough").into_future()).await.unwrap();
        refused(bench.runtime.answer(&token, Reply::granted(&1)).by("ann").await, Code::QuestionClosed);
        assert!(bench.runtime.questions().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_token_of_the_store_names_no_question() {
    let bench = Bench::on(Backend::Memory).await;
    bench.runtime.start("run", refund(1)).await.unwrap();
    bench.token("run").await;
    for token in
        ["", "run", "run:0:ask[0]", "run:0:ask@1", "run:1:ask@0", "other:0:ask@0", "run:0:ask@0 ", "Run:0:ask@0"]
    {
        let error = refused(bench.runtime.answer(token, Reply::granted(&1)).by("ann").await, Code::QuestionNotFound);
        assert!(error.to_string().contains(&format!("{token:?}")), "{error}");
    }
    // Odd ids have tokens that survive a shell and a chat.
    for id in ["a b", "-rf", "$(x)", "ein: Auftrag/\u{fc}", "a\nb"] {
        bench.runtime.start(id, refund(1)).await.unwrap();
        let token = bench.token(id).await;
        assert!(token.chars().all(|c| c.is_ascii_alphanumeric() || "-_./@:+,%".contains(c)), "{token}");
        assert!(!token.starts_with('-'));
        bench.runtime.answer(&token, Reply::refused("no")).by("ann").await.unwrap();
        assert_eq!(bench.end(id).await, json!({ "Ok": "refused: no" }));
    }
}
