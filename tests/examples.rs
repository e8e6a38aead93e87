//! Every example, run as a person runs it: its exit code, what it prints, and that it leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/example.rs"]
mod example;

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
};

use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use example::{Example, processes_of, says_in_order, until};
use serde_json::{Value, json};

const REFUND: [&str; 17] = [
    "agent     killed: signal: 9",
    "what is on disk",
    r#"{"seq":0,"#,
    r#"{"seq":3,"at":"2026-01-05T09:00:00.000Z","entry":"effect.called","path":"process_refund[0]","attempt":1,"key":"ORD-3300:refund:18000"}"#,
    "naive rerun",
    "ORD-3300 = $360.00, a double refund",
    "what the resume does",
    "search_policy: the answer is here, its body does not run",
    "process_refund: its body runs, attempt 2, key ORD-3300:refund:18000",
    "knows the key, answers as the first time: rf-1",
    "refunded $180.00 by clause 2 (rf-1)",
    "seq 0 to 3 as before, and now seq 4 to 6",
    r#"{"seq":4,"at":"2026-01-05T09:00:00.000Z","entry":"effect.called","path":"process_refund[0]","attempt":2,"key":"ORD-3300:refund:18000"}"#,
    r#"{"seq":5,"#,
    r#"{"seq":6,"at":"2026-01-05T09:00:00.000Z","entry":"run.completed","#,
    "ORD-3300 = $180.00, paid once",
    "all of this was checked, and held",
];

#[test]
fn the_refund_is_paid_once_and_told_in_the_same_bytes_each_time() {
    let out = Example::new("refund").args(&["--frozen"]).runs_well();
    says_in_order(&out, &REFUND);
    assert!(out.lines().count() <= 40, "it fits on a screen:\n{out}");
    assert_eq!(out, Example::new("refund").args(&["--frozen"]).runs_well());
}

#[test]
fn the_refund_has_the_machines_time_unless_it_is_frozen() {
    let out = Example::new("refund").runs_well();
    assert!(!out.contains("2026-01-05T09:00:00.000Z"), "{out}");
    says_in_order(&out, &["ORD-3300 = $360.00, a double refund", "ORD-3300 = $180.00, paid once"]);
}

/// The control: a world in which the promise does not hold must not pass.
#[test]
fn the_refund_example_fails_where_the_provider_forgets_its_keys() {
    Example::new("refund").args(&["--frozen", "--forgetful-provider"]).fails("ORD-3300 = $360.00");
}

#[test]
fn the_refund_example_names_an_option_that_it_does_not_know() {
    Example::new("refund").args(&["--fast"]).fails("unknown option --fast");
}

#[test]
fn the_refund_example_wants_all_of_a_models_settings() {
    let mut example = Example::new("refund");
    example.command.env("DURABLE_LLM_URL", "http://127.0.0.1:9");
    example.fails("DURABLE_LLM_KEY");
}

/// An OpenAI-compatible endpoint.
#[derive(Clone)]
struct Endpoint {
    says: Option<&'static str>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Endpoint {
    /// One that says the same to everybody, or nothing to anybody.
    async fn serve(says: Option<&'static str>) -> (Endpoint, String) {
        let endpoint = Endpoint { says, asked: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/", listener.local_addr().unwrap());
        let app = Router::new().route("/v1/chat/completions", post(Endpoint::complete)).with_state(endpoint.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (endpoint, url)
    }

    async fn complete(State(endpoint): State<Endpoint>, headers: HeaderMap, Json(body): Json<Value>) -> Json<Value> {
        let key = headers["authorization"].to_str().unwrap().to_owned();
        endpoint.asked.lock().unwrap().push((key, body));
        match endpoint.says {
            Some(content) => Json(json!({ "choices": [{ "message": { "role": "assistant", "content": content } }] })),
            None => std::future::pending().await,
        }
    }

    fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test]
async fn a_model_decides_once_for_the_agent_and_again_for_the_naive_rerun() {
    let (endpoint, url) = Endpoint::serve(Some("Clause 2.\n```json\n{\"clause\": 2, \"percent\": 100}\n```")).await;
    let out = blocking(move || Example::new("refund").model_at(&url).runs_well()).await;
    says_in_order(&out, &["judge-1 decides", "ORD-3300 = $360.00", "ORD-3300 = $180.00"]);
    assert!(!out.contains("s3cret"), "{out}");
    let asked = endpoint.asked();
    assert_eq!(asked.len(), 2, "the resume asks no model");
    for (key, body) in asked {
        assert_eq!((&*key, &body["model"]), ("Bearer s3cret", &json!("judge-1")));
        assert!(body["messages"][1]["content"].as_str().unwrap().contains("cracked screen"), "{body}");
    }
}

#[tokio::test]
async fn a_model_that_decides_otherwise_is_named() {
    let (_endpoint, url) = Endpoint::serve(Some(r#"{"clause": 4, "percent": 0}"#)).await;
    blocking(move || Example::new("refund").model_at(&url).fails("nothing is owed by clause 4")).await;
}

#[tokio::test]
async fn a_story_that_is_killed_leaves_no_process_behind() {
    let (endpoint, url) = Endpoint::serve(None).await;
    let Example { temp, mut command } = Example::new("refund").args(&["--frozen"]).model_at(&url);
    let mut story = command.stdout(Stdio::null()).spawn().unwrap();
    until("the model is asked", || !endpoint.asked().is_empty()).await;
    if cfg!(target_os = "linux") {
        assert_eq!(processes_of(temp.path()).len(), 2, "a provider and an agent");
    }
    story.kill().unwrap();
    story.wait().unwrap();
    until("the processes are gone", || processes_of(temp.path()).is_empty()).await;
}

#[test]
fn an_email_is_held_and_resolved_and_sent_once() {
    let out = Example::new("email").runs_well();
    let held = |to| format!(r#"held: send_apology[0] {{"to":"{to}"}}, attempt 1"#);
    says_in_order(
        &out,
        &[
            "it goes down in the middle of 2 calls",
            "second life",
            &held("ann@example.org"),
            &held("bob@example.org"),
            "completed: ann@example.org",
            "completed: bob@example.org",
        ],
    );
    assert_eq!(out.matches("send_apology(ann@example.org): its body runs").count(), 1, "{out}");
    assert_eq!(out.matches("send_apology(bob@example.org): its body runs").count(), 2, "{out}");
}

#[test]
fn ten_tools_give_their_results_in_the_order_of_the_requests() {
    let out = Example::new("tools").runs_well();
    says_in_order(
        &out,
        &["in the order of the log", "in the order of the requests", "Reykjavik: 9 degrees", "no such city", "Paris"],
    );
}

#[test]
fn a_deadline_passes_while_nobody_runs() {
    let out = Example::new("deadline").runs_well();
    says_in_order(
        &out,
        &["first life", "ask(Thorough)", "second life", "ask(Quick)", "in short", "timer.fired", "run.completed"],
    );
}

#[test]
fn a_conversation_of_a_thousand_turns_goes_on_in_its_middle_after_a_restart() {
    let out = Example::new("turns").runs_well();
    says_in_order(&out, &["stopped in turn 501 of 1000", "2000 messages, 1001 calls in both lives"]);
}
