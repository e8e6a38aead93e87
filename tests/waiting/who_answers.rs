//! Who may answer, with what, and what becomes of answers that the run cannot take now.

use std::sync::atomic::{AtomicBool, Ordering};

use durable::{Answer, Answered, Code, Question, Reply};
use serde_json::json;

use crate::bench::{BOTH, Backend, Bench, act, refused, secs};

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Terms {
    cents: u64,
    note: Option<String>,
}

#[durable::workflow]
async fn terms() -> durable::Result<String> {
    Ok(match durable::ask::<Terms>(Question::new("on what terms?").by(["ann", "Bob B."])).await {
        Answer::Granted(Terms { cents, note }) => format!("{cents} {}", note.unwrap_or_default()),
        other => format!("{other:?}"),
    })
}

static CHANGED: AtomicBool = AtomicBool::new(false);

/// Asks something else first once the code has changed.
#[durable::workflow]
async fn changes() -> durable::Result<bool> {
    if durable::untracked(|| CHANGED.load(Ordering::SeqCst)) {
        act("what the log does not know").await?;
    }
    Ok(durable::ask::<u64>("go on?").await.is_granted())
}

#[durable::workflow]
async fn within_an_hour() -> durable::Result<bool> {
    Ok(durable::ask::<u64>(Question::new("go on?").within(secs(3_600))).await.is_granted())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_who_are_named_may_answer() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", terms()).await.unwrap();
        let token = bench.token("run").await;
        let given = || Reply::granted(&Terms { cents: 5, note: None });
        for who in [None, Some("eve"), Some("Ann"), Some("")] {
            let request = bench.runtime.answer(&token, given());
            let answer = match who {
                Some(who) => request.by(who).await,
                None => request.await,
            };
            let error = refused(answer, Code::MayNotAnswer).to_string();
            assert!(
                error.contains("ann, Bob B.") && who.is_none_or(|who| error.contains(&format!("{who:?}"))),
                "{error}"
            );
        }
        assert_eq!(bench.token("run").await, token);
        bench.runtime.answer(&token, given()).by("Bob B.").await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "5 " }));
        let answered = bench.entries("run", "question.answered").await;
        assert_eq!(answered[0].get("by"), Some(&json!("Bob B.")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_type_is_refused_and_the_question_stays_open() {
    for backend in BOTH {
        let bench = Bench::forgetful(backend).await;
        bench.runtime.start("run", terms()).await.unwrap();
        let token = bench.token("run").await;
        for (value, field) in
            [(json!("five"), "Terms"), (json!({ "cents": "five" }), "cents"), (json!({ "note": "x" }), "cents")]
        {
            let error =
                refused(bench.runtime.answer(&token, Reply::granted(&value)).by("ann").await, Code::AnswerDoesNotFit);
            assert!(error.to_string().contains(field), "{error}");
            assert_eq!(bench.questions("run", 1).await[0].set_aside, 0, "the run has not seen it");
        }
        let nested = Reply::granted(&Some(None::<u64>));
        refused(bench.runtime.answer(&token, nested).by("ann").await, Code::ArgumentNotRecordable);
        let long = Reply::granted(&"x".repeat(2 << 20));
        refused(bench.runtime.answer(&token, long).by("ann").await, Code::TooLarge);
        bench.runtime.answer(&token, Reply::granted(&json!({ "cents": 7, "note": "fine" }))).by("ann").await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": "7 fine" }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_run_that_is_parked_is_kept_and_taken_when_it_goes_on() {
    for backend in BOTH {
        CHANGED.store(false, Ordering::SeqCst);
        let bench = Bench::on(backend).await;
        bench.runtime.start("run", changes()).await.unwrap();
        let token = bench.token("run").await;
        CHANGED.store(true, Ordering::SeqCst);
        let bench = bench.restarted().await;
        bench.until("run", "parked").await;
        assert_eq!(bench.token("run").await, token, "it is open all the same");
        assert_eq!(bench.runtime.answer(&token, Reply::granted(&3)).by("ann").await.unwrap(), Answered::Kept);
        // Nobody knows yet whether 3 is an answer.
        assert_eq!(bench.runtime.answer(&token, Reply::refused("no")).by("bob").await.unwrap(), Answered::Kept);
        let third = refused(bench.runtime.answer(&token, Reply::granted(&4)).by("eve").await, Code::QuestionAnswered);
        assert_eq!(third.answered_by(), Some("bob"), "a no is an answer whatever is asked for");
        assert_eq!(bench.status("run").await.as_str(), "parked");
        CHANGED.store(false, Ordering::SeqCst);
        bench.runtime.retry("run").await.unwrap();
        assert_eq!(bench.end("run").await, json!({ "Ok": true }));
        assert_eq!(bench.entries("run", "question.answered").await[0].get("by"), Some(&json!("ann")));
        assert_eq!(bench.outside.done(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_the_deadline_is_refused_also_where_nobody_has_noticed_it_yet() {
    let bench = Bench::on(Backend::Sled).await;
    bench.runtime.start("run", within_an_hour()).await.unwrap();
    let token = bench.token("run").await;
    let clock = bench.clock.clone();
    let bench = bench
        .observed(async |observer| {
            clock.advance(secs(3_600));
            assert_eq!(observer.questions().await.unwrap()[0].token, token);
            refused(observer.answer(&token, Reply::granted(&1)).await, Code::QuestionExpired);
        })
        .await;
    assert_eq!(bench.end("run").await, json!({ "Ok": false }));
}
