//! O-SG-4: a signal after completion, or racing it.

use std::sync::Arc;

use durable::{Code, Status};

use crate::bench::{BOTH, Bench, refused};

#[durable::workflow]
async fn takes_one(fails: bool) -> durable::Result<u32> {
    let n = durable::signal::<u32>("a").await;
    if fails { Err(durable::Failure::new("not that one")) } else { Ok(n) }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_sends_to_a_run_that_ends_is_told_whether_it_was_accepted() {
    for backend in BOTH {
        for round in 0..10 {
            let bench = Bench::on(backend).await;
            let run = Arc::new(bench.runtime.start("run", takes_one(false)).await.unwrap());
            run.signal("a", &0).await.unwrap();
            let mut senders = tokio::task::JoinSet::new();
            for sender in 0..5 {
                let run = run.clone();
                senders.spawn(async move {
                    let mut accepted = 0;
                    for n in 1..=10 {
                        match run.signal("a", &(100 * sender + n)).await {
                            Ok(()) => accepted += 1,
                            Err(e) if e.code() == Code::RunEnded => {
                                assert!(e.is_run_ended() && e.to_string().contains("completed"), "{e}");
                            }
                            Err(e) => panic!("{e}"),
                        }
                    }
                    accepted
                });
            }
            let accepted: usize = senders.join_all().await.into_iter().sum();
            assert_eq!(run.returned().await.unwrap().unwrap(), 0, "the first one");
            let unread = run.messages().await.unwrap();
            assert_eq!(unread.len(), accepted, "round {round}: what was accepted and not taken is listed");
            assert!(unread.iter().all(|message| message.name == "a"));
            let names = bench.names("run").await;
            assert_eq!(names.last(), Some(&"run.completed"));
            assert!(refused(run.signal("a", &9).await).is_run_ended());
            assert_eq!(bench.names("run").await, names);
            // It is listed by the next process too.
            let bench = bench.restarted().await;
            let run = bench.runtime.run("run").await.unwrap();
            assert_eq!(run.messages().await.unwrap().len(), accepted);
            assert_eq!(bench.names("run").await, names);
            if round == 0 {
                bench.replays("run").await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_failed_and_cancelled_runs_answer_otherwise_than_unknown_ones() {
    for backend in BOTH {
        let bench = Bench::on(backend).await;
        for id in ["completed", "failed", "cancelled"] {
            let run = bench.runtime.start(id, takes_one(id == "failed")).await.unwrap();
            match id {
                "cancelled" => drop(run.cancel("not needed").await.unwrap()),
                _ => run.signal("a", &1).await.unwrap(),
            }
            bench.until_status(id, "over", Status::is_terminal).await;
        }
        let unknown = refused(bench.runtime.signal("unknown", "a", &1).await);
        assert!(unknown.is_not_found());
        let mut texts = vec![unknown.to_string()];
        for id in ["completed", "failed", "cancelled"] {
            let frames = bench.names(id).await;
            let error = refused(bench.runtime.signal(id, "a", &1).await);
            assert_eq!(error.code(), Code::RunEnded);
            assert!(error.to_string().contains(id), "{error}");
            texts.push(error.to_string().replace(&format!("run {id}"), "the run"));
            assert_eq!(bench.names(id).await, frames);
            assert!(bench.runtime.run(id).await.unwrap().messages().await.unwrap().is_empty());
            bench.replays(id).await;
        }
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 4, "each says what it is: {texts:?}");
    }
}
