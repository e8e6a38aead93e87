//! The control socket, as somebody meets it who has not read the manual: O-SC-1 as far as a socket goes.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::Path,
    time::Duration,
};

use durable::Runtime;
use serde_json::{Value as Json, json};

use crate::{
    bench::{Bench, DEADLINE, command, run, until, until_state},
    work::{listens, refunds},
};

fn socket(store: &Path) -> std::path::PathBuf {
    store.join("control.sock")
}

fn connect(bench: &Bench) -> UnixStream {
    let stream = UnixStream::connect(socket(&bench.store())).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// The answer to a line; `None` if the connection was closed without one.
fn asked(bench: &Bench, line: &[u8]) -> Option<Json> {
    let mut stream = connect(bench);
    // Whoever refuses it need not have read all of it.
    let _ = stream.write_all(line);
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).ok()?;
    serde_json::from_str(&answer).ok()
}

async fn nothing(_: &Runtime) {}

#[test]
fn only_its_owner_may_use_it_and_it_is_there_as_long_as_its_process() {
    let mut bench = Bench::held(true, nothing);
    let path = socket(&bench.store());
    let about = fs::symlink_metadata(&path).unwrap();
    assert!(about.file_type().is_socket());
    assert_eq!(about.permissions().mode() & 0o7777, 0o600);
    assert_eq!(about.uid(), fs::metadata("/proc/self").unwrap().uid());
    assert_eq!(of_control(&bench.store()), ["control.sock"], "nothing else is left of its making");
    bench.let_go();
    assert_eq!(of_control(&bench.store()), [""; 0]);
}

/// What there is in a store's directory for the socket's sake.
fn of_control(store: &Path) -> Vec<String> {
    let names = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("control")).collect()
}

#[test]
fn what_dead_processes_have_left_is_no_hindrance() {
    let mut bench = Bench::held(true, nothing);
    bench.kill();
    assert_eq!(of_control(&bench.store()), ["control.sock"], "a process that was killed cleans up nothing");
    bench.durable(["runs"]).ok();
    // Killed while it made its socket.
    let nursery = bench.store().join(".control-12345");
    fs::create_dir(&nursery).unwrap();
    drop(UnixListener::bind(nursery.join("control.sock")).unwrap());
    bench.hold();
    bench.durable(["runs"]).ok();
    assert_eq!(of_control(&bench.store()), ["control.sock"]);
    // A socket's place taken by something else is taken back: the directory is the store's.
    bench.let_go();
    fs::write(socket(&bench.store()), "not a socket").unwrap();
    bench.hold();
    assert_eq!(bench.durable(["--json", "runs"]).ok().out, "");
}

#[test]
fn a_runtime_that_can_offer_none_goes_on_without() {
    let bench = Bench::new(nothing);
    // A directory where the socket would be cannot be replaced.
    fs::create_dir_all(socket(&bench.store()).join("full")).unwrap();
    bench.here(async |runtime| {
        let run = runtime.start("done", refunds("ORD-1".into(), 1)).await.unwrap();
        assert_eq!(run.output().await.unwrap(), 1);
    });
}

#[test]
fn a_runtime_that_is_dropped_takes_its_socket_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for _ in 0..10 {
        tokio.block_on(async {
            let runtime = Runtime::builder().open(&store).await.unwrap();
            assert!(socket(&store).exists());
            // Somebody is connected, and one waits for an answer that does not come.
            let mut follow = UnixStream::connect(socket(&store)).unwrap();
            let run = runtime.start("listening", listens()).await.unwrap();
            follow
                .write_all(&call(
                    json!({ "log": { "run": "listening", "generation": null, "from": 0, "follow": true } }),
                ))
                .unwrap();
            let mut lines = BufReader::new(follow).lines();
            lines.next().unwrap().unwrap();
            drop((run, runtime));
            tokio::task::spawn_blocking(move || lines.count()).await.unwrap();
            crate::bench::until_async("it is free", async || Runtime::builder().observe(&store).await.is_ok()).await;
        });
        until("the socket is gone", || !socket(&store).exists());
    }
}

fn call(request: Json) -> Vec<u8> {
    (json!({ "protocol": 1, "request": request }).to_string() + "\n").into_bytes()
}

#[test]
fn a_path_that_is_too_long_for_a_socket_works_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(120)).join("e".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    let store = deep.join("store");
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let runtime = Runtime::builder().open(&store).await.unwrap();
        runtime.start("listening", listens()).await.unwrap();
        until_state(&runtime, "listening", "awaiting signal").await;
        let place = store.clone();
        let said = tokio::task::spawn_blocking(move || run(command(&place).args(["--json", "show", "listening"])));
        assert_eq!(said.await.unwrap().ok().json()["state"], "awaiting signal");
        runtime.shutdown(Duration::ZERO).await.unwrap();
    });
}

#[test]
fn nonsense_is_answered_with_a_refusal_and_harms_nobody() {
    let bench = Bench::held(true, nothing);
    let whole = call(json!("holds"));
    assert!(asked(&bench, &whole).unwrap().get("done").is_some());
    for nonsense in [
        &b"\n"[..],
        b"hello\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"{\"protocol\":1}\n",
        b"{\"protocol\":1,\"request\":\"dance\"}\n",
        b"{\"protocol\":1,\"request\":{\"show\":{}}}\n",
        b"\xFF\xFE\x00\n",
        b"[[[[[[[[[[[[[[[[[[[[[[\n",
    ] {
        let answer = asked(&bench, nonsense).unwrap();
        assert_eq!(answer["refused"]["sort"], "invalid", "{answer}");
    }
    let deep = [b"[".repeat(100_000), b"\n".to_vec()].concat();
    assert_eq!(asked(&bench, &deep).unwrap()["refused"]["sort"], "invalid");
    let other = (json!({ "protocol": 99, "request": "holds" }).to_string() + "\n").into_bytes();
    assert!(asked(&bench, &other).unwrap()["refused"]["message"].as_str().unwrap().contains("version"));
    // A line that has no end is not read to it.
    let endless = vec![b'x'; 64 << 20];
    let answer = asked(&bench, &endless);
    assert!(answer.is_none_or(|answer| answer["refused"]["sort"] == "invalid"));
    // Cut off in the middle, and hung up.
    drop(connect(&bench));
    connect(&bench).write_all(&whole[..10]).unwrap();
    assert!(asked(&bench, &whole).unwrap().get("done").is_some());
}

#[test]
fn clients_that_neither_write_nor_read_are_in_nobodys_way() {
    let bench = Bench::held(true, async |runtime| {
        runtime.start("long", refunds("x".repeat(900_000), 1)).await.unwrap();
        crate::bench::until_terminal(runtime, "long").await;
        runtime.start("listening", listens()).await.unwrap();
    });
    // Some say nothing; some ask for more than a socket's buffer holds, and do not read it.
    let silent: Vec<UnixStream> = (0..20).map(|_| connect(&bench)).collect();
    let deaf: Vec<UnixStream> = (0..20)
        .map(|_| {
            let mut stream = connect(&bench);
            stream.write_all(&call(json!({ "export": { "run": "long", "readable": true } }))).unwrap();
            stream
        })
        .collect();
    bench.durable(["signal", "listening", "steer", "1"]).ok();
    assert_eq!(bench.end_of("listening")["state"], "completed");
    drop((silent, deaf));
}

#[test]
fn more_connections_than_it_takes_are_refused_and_not_left_waiting() {
    let bench = Bench::held(true, nothing);
    let mut open: Vec<UnixStream> = (0..80).map(|_| connect(&bench)).collect();
    open.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let mut refused = 0;
    until("those beyond the limit are refused", || {
        for stream in &mut open {
            let mut answer = [0; 512];
            if let Ok(read @ 1..) = stream.read(&mut answer) {
                assert!(String::from_utf8_lossy(&answer[..read]).contains("64 connections are open"));
                refused += 1;
            }
        }
        refused == 80 - 64
    });
    bench.durable(["runs"]).exits(4);
    drop(open);
    until("it takes connections again", || bench.durable(["runs"]).code == Some(0));
}
