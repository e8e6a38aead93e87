//! What people say of runs that do not go on now: it is kept, nobody can compare it with the code's types, and what is of no use does not
//! stand in the way of what is.

use durable::{Answer, Answered, Code, Hold, Question, Reply, Resolution, Resolved, Runtime, StatusKind};
use serde_json::json;

use crate::bench::{Backend, Bench, Outside, act, doubtful, once, refused, secs, until};

/// Hands a doubt to the code.
#[durable::effect(at_most_once, in_doubt = error)]
async fn once_or_error(#[resource] outside: &Outside, what: &str) -> durable::Result<u64> {
    outside.pass(what).await;
    Ok(7)
}

/// In doubt after a second.
#[durable::effect(at_most_once, timeout = "1s")]
async fn brief(#[resource] outside: &Outside, what: &str) -> durable::Result<u64> {
    outside.pass(what).await;
    Ok(7)
}

#[durable::workflow]
async fn wires(how: String) -> durable::Result<String> {
    Ok(match how.as_str() {
        "once" => format!("wired {}", once("wire").await?),
        "brief" => format!("wired {}", brief("wire").await?),
        "error" => match once_or_error("wire").await {
            Ok(cents) => format!("wired {cents}"),
            Err(failure) => format!("not known: {}", failure.fault().is_some()),
        },
        "shielded" => {
            durable::shield(async {
                match once_or_error("wire").await {
                    Ok(cents) => format!("wired {cents}"),
                    Err(_) => format!("not known, and then {}", act("look").await.is_ok()),
                }
            })
            .await
        }
        "and more" => {
            let cents = doubtful("wire").await?;
            act("more").await?;
            format!("wired {cents}")
        }
        _ => format!("wired {}", doubtful("wire").await?),
    })
}

#[durable::workflow]
async fn asks() -> durable::Result<String> {
    Ok(match durable::ask::<u64>(Question::new("how much?").within(secs(3_600))).await {
        Answer::Granted(cents) => format!("granted {cents}"),
        Answer::Refused(why) => format!("refused: {why}"),
        Answer::Expired => "nobody answered".into(),
    })
}

/// A run whose process is gone while the body of its only step is under way.
async fn killed(how: &str) -> Bench {
    let bench = Bench::on(Backend::Sled).await;
    bench.runtime.start("run", wires(how.into())).await.unwrap();
    bench.outside.until_done("begin wire").await;
    bench
}

async fn held() -> Bench {
    held_as("doubtful").await
}

async fn held_as(how: &str) -> Bench {
    let bench = Bench::on(Backend::Sled).await;
    bench.runtime.start("run", wires(how.into())).await.unwrap();
    bench.until("run", "held").await;
    bench
}

async fn hold(runtime: &Runtime) -> Hold {
    let mut holds = runtime.holds().await.unwrap();
    assert_eq!(holds.len(), 1, "{holds:?}");
    holds.remove(0)
}

async fn keep(runtime: &Runtime, hold: &Hold, resolution: Resolution) {
    let resolved = runtime.resolve(&hold.run, hold.step, hold.attempt, resolution).await.unwrap();
    assert_eq!(resolved, Resolved::Kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_process_is_gone_is_in_doubt_before_another_one_opens_the_store() {
    let bench = killed("once").await;
    let bench = bench
        .observed(async |observer| {
            assert_eq!(observer.run("run").await.unwrap().status().await.unwrap().kind(), StatusKind::Held);
            let hold = hold(observer).await;
            assert_eq!((&*hold.path, hold.attempt.0, &hold.args), ("once[0]", 1, &json!({ "what": "wire" })));
            assert!(hold.reason.contains("gone"), "{}", hold.reason);
            keep(observer, &hold, Resolution::succeeded(9).by("ann")).await;
        })
        .await;
    assert_eq!(bench.end("run").await, json!({ "Ok": "wired 9" }));
    assert_eq!(bench.outside.count("begin wire"), 1);
    let resolved = bench.entries("run", "effect.resolved").await;
    assert_eq!((resolved.len(), resolved[0].get("by")), (1, Some(&json!("ann"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_counts_before_the_code_is_given_the_doubt_as_an_error() {
    for (said, end) in [(json!(9), "wired 9"), (json!("nine"), "not known: true")] {
        let bench = killed("error").await;
        let bench = bench
            .observed(async |observer| keep(observer, &hold(observer).await, Resolution::succeeded(&said)).await)
            .await;
        assert_eq!(bench.end("run").await, json!({ "Ok": end }));
        assert_eq!(bench.outside.count("begin wire"), 1);
        let aside = usize::from(said.is_string());
        assert_eq!(bench.entries("run", "resolution.set_aside").await.len(), aside);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_outcome_came_after_its_run_was_left_is_not_in_doubt() {
    let bench = killed("once").await;
    let let_go = async {
        until("the runtime to close", async || bench.runtime.start("other", asks()).await.is_err()).await;
        bench.outside.open();
    };
    let (down, ()) = tokio::join!(bench.runtime.shutdown(secs(3_600)), let_go);
    down.unwrap();
    let bench = bench
        .observed(async |observer| {
            assert!(observer.holds().await.unwrap().is_empty());
            let step = durable::StepNo(0);
            let word = observer.resolve("run", step, durable::Attempt(1), Resolution::succeeded(9)).await;
            let error = refused(word, Code::NotInDoubt).to_string();
            assert!(error.contains("open the store"), "what is to be done: {error}");
        })
        .await;
    assert_eq!(bench.end("run").await, json!({ "Ok": "wired 7" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_does_not_fit_is_set_aside_and_the_step_is_held_still() {
    for bench in [held().await, killed("once").await] {
        let bench = bench
            .observed(async |observer| {
                keep(observer, &hold(observer).await, Resolution::succeeded("nine").by("ann")).await;
            })
            .await;
        until("it to be set aside", async || bench.entries("run", "resolution.set_aside").await.len() == 1).await;
        let entry = bench.entries("run", "resolution.set_aside").await.remove(0);
        let said = ["attempt", "how", "value", "by"].map(|field| entry.get(field).unwrap().clone());
        assert_eq!(said, [json!(1), json!("succeeded"), json!("nine"), json!("ann")]);
        let hold = hold(&bench.runtime).await;
        assert_eq!((hold.set_aside, hold.set_aside_why.as_deref()), (1, entry.get("reason").unwrap().as_str()));
        assert!(hold.set_aside_why.unwrap().contains("u64"));
        let resolved = bench.runtime.resolve("run", hold.step, hold.attempt, Resolution::succeeded(9)).await;
        assert_eq!(resolved.unwrap(), Resolved::Taken);
        assert_eq!(bench.end("run").await, json!({ "Ok": "wired 9" }));
        assert_eq!(bench.entries("run", "effect.resolved").await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_word_before_the_run_goes_on_is_the_one_that_counts() {
    let words: [&[Resolution]; 3] = [
        &[Resolution::succeeded("nine"), Resolution::succeeded(9)],
        &[Resolution::run_again(), Resolution::failed("no trace of it"), Resolution::succeeded(9)],
        &[Resolution::succeeded(9), Resolution::run_again(), Resolution::succeeded(9)],
    ];
    for given in words {
        let bench = held().await;
        let bench = bench
            .observed(async |observer| {
                let hold = hold(observer).await;
                for word in given {
                    keep(observer, &hold, word.clone()).await;
                }
            })
            .await;
        assert_eq!(bench.end("run").await, json!({ "Ok": "wired 9" }));
        let aside = bench.entries("run", "resolution.set_aside").await;
        assert_eq!(aside.len(), given.len() - 1);
        assert!(aside.iter().all(|entry| entry.get("reason").unwrap().as_str().unwrap().contains("another word")));
        assert_eq!(bench.outside.count("attempt 2"), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_the_run_goes_on_with_is_corrected_by_nobody() {
    let bench = killed("brief").await;
    bench.clock.advance(secs(1));
    bench.until("run", "held").await;
    let known = hold(&bench.runtime).await;
    // Its body still runs, so that the run has not done it when its process stops.
    let again = Resolution::run_again().by("ann");
    assert_eq!(bench.runtime.resolve("run", known.step, known.attempt, again).await.unwrap(), Resolved::Taken);
    let bench = bench
        .observed(async |observer| {
            let hold = hold(observer).await;
            let word = observer.resolve("run", hold.step, hold.attempt, Resolution::succeeded(9)).await;
            assert!(refused(word, Code::NotInDoubt).to_string().contains("given before"));
        })
        .await;
    bench.outside.open();
    assert_eq!(bench.end("run").await, json!({ "Ok": "wired 7" }));
    assert_eq!(bench.outside.count("begin wire"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_fit_stands_in_nobodys_way() {
    let bench = Bench::on(Backend::Sled).await;
    bench.runtime.start("run", asks()).await.unwrap();
    let token = bench.token("run").await;
    let bench = bench
        .observed(async |observer| {
            let answer = async |value, by| observer.answer(&token, Reply::granted(&value)).by(by).await.unwrap();
            for (value, by) in [(json!("five"), "ann"), (json!("five"), "ann"), (json!([]), "bob"), (json!(5), "ann")] {
                assert_eq!(answer(value, by).await, Answered::Kept);
            }
            // The first that fits counts.
            assert_eq!(answer(json!(6), "eve").await, Answered::Kept);
        })
        .await;
    assert_eq!(bench.end("run").await, json!({ "Ok": "granted 5" }));
    let aside = bench.entries("run", "signal.set_aside").await;
    let said: Vec<_> = aside.iter().map(|entry| entry.get("value").unwrap().clone()).collect();
    assert_eq!(said, [json!("five"), json!([])], "the same answer twice is one");
    let answered = bench.entries("run", "question.answered").await;
    assert_eq!((answered.len(), answered[0].get("by")), (1, Some(&json!("ann"))));
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_answers_that_do_not_fit_the_question_is_open_and_says_so() {
    let bench = Bench::on(Backend::Sled).await;
    bench.runtime.start("run", asks()).await.unwrap();
    let token = bench.token("run").await;
    // Twice, so that the same is refused no second time.
    let mut bench = bench;
    for times in 1..=2 {
        bench = bench
            .observed(async |observer| {
                let answer = observer.answer(&token, Reply::granted("five")).by("ann").await;
                assert_eq!(answer.unwrap(), Answered::Kept);
            })
            .await;
        until("it to be set aside", async || bench.entries("run", "signal.set_aside").await.len() == times).await;
        let question = bench.questions("run", 1).await.remove(0);
        assert_eq!((&question.token, question.set_aside as usize), (&token, times));
        assert!(question.set_aside_why.unwrap().contains("u64"));
    }
    assert_eq!(bench.runtime.answer(&token, Reply::granted(&5)).await.unwrap(), Answered::Taken);
    assert_eq!(bench.end("run").await, json!({ "Ok": "granted 5" }));
}

/// Leaves a word, if there is one, and then a cancel, while no process has the run.
async fn cancelled_meanwhile(bench: Bench, word: Option<Resolution>) -> Bench {
    bench
        .observed(async |observer| {
            if let Some(word) = word {
                keep(observer, &hold(observer).await, word).await;
            }
            let cancel = observer.cancel("run", "not wanted").by("ann").await;
            refused(cancel, Code::NotCancelledYet);
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_was_left_comes_before_all_that_the_run_could_do() {
    // What was said of the step before is recorded all the same, and the code hears of it; it asks for nothing new.
    let bench = held_as("and more").await;
    let bench = cancelled_meanwhile(bench, Some(Resolution::succeeded(9))).await;
    bench.until("run", "cancelled").await;
    assert_eq!(bench.outside.count("more"), 0);
    let names = bench.names("run").await;
    let [asked, resolved] =
        ["run.cancel_requested", "effect.resolved"].map(|name| names.iter().position(|n| *n == name));
    assert!(asked.is_some() && asked < resolved, "{names:?}");

    // Code that only returns then has completed, and its log says that it was to be cancelled.
    let bench = cancelled_meanwhile(held_as("doubtful").await, Some(Resolution::succeeded(9))).await;
    assert_eq!(bench.end("run").await, json!({ "Ok": "wired 9" }));
    let asked = bench.entries("run", "run.cancel_requested").await;
    assert_eq!((asked.len(), asked[0].get("by")), (1, Some(&json!("ann"))));

    // The code does not hear of a doubt as an error any more, unless a shield encloses it.
    let bench = cancelled_meanwhile(killed("error").await, None).await;
    bench.until("run", "cancelled").await;
    let bench = cancelled_meanwhile(killed("shielded").await, None).await;
    bench.until("run", "completed").await;
    assert_eq!(bench.end("run").await, json!({ "Ok": "not known, and then true" }));
    assert_eq!(bench.entries("run", "run.cancel_requested").await.len(), 1);
    bench.sound().await;
}
