//! A workflow whose code is a list of what it does, so that one test can run many versions of it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{LazyLock, Mutex},
    time::Duration,
};

use durable::EffectContext;

use crate::support::World;

/// What the code does next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    A(u64),
    B(u64),
    C(u64),
    /// `a` under another name.
    Named(&'static str, u64),
    Sleep(u64),
    NamedSleep(&'static str),
    Join,
    JoinAll,
    TryJoin,
    Race,
    Timeout,
    Begin,
    Set,
    Block,
    Inline,
    Piece,
    Version(&'static str, u32),
    /// The new code for runs that have the version, else the old code.
    Gate(&'static str, Vec<Op>, Vec<Op>),
    /// Two branches.
    Both(Vec<Op>, Vec<Op>),
    Signal(&'static str),
    Signals(&'static str),
    Ask(&'static str),
    /// A child of one of two workflows.
    Child(&'static str, u64),
    Detached(u64),
    Send(&'static str, u64),
    Publish(&'static str, u64),
    Undo(u64),
    Shield,
}

static SCRIPTS: LazyLock<Mutex<HashMap<String, Vec<Op>>>> = LazyLock::new(Mutex::default);

/// Says what the runs that were started with this script's name do from now on.
pub(crate) fn script(name: &str, ops: impl Into<Vec<Op>>) {
    SCRIPTS.lock().unwrap().insert(name.to_owned(), ops.into());
}

fn ops_of(name: &str) -> Vec<Op> {
    SCRIPTS.lock().unwrap()[name].clone()
}

#[durable::effect(idempotent)]
async fn a(cx: &EffectContext, #[resource] world: &World, n: u64) -> u64 {
    world.note(cx, n);
    world.pass(&format!("a{n}")).await;
    n
}

#[durable::effect(idempotent)]
async fn b(cx: &EffectContext, #[resource] world: &World, n: u64) -> u64 {
    world.note(cx, n);
    n
}

#[durable::effect(idempotent)]
async fn c(cx: &EffectContext, #[resource] world: &World, n: u64) -> u64 {
    world.note(cx, n);
    n
}

#[durable::workflow]
async fn inner(n: u64) -> u64 {
    a(n).await
}

/// Another one of the same shape.
#[durable::workflow]
async fn sibling(n: u64) -> u64 {
    a(n).await
}

#[durable::part]
async fn piece(n: u64) -> u64 {
    a(n).await
}

/// Does what the script of that name says.
#[durable::workflow]
pub(crate) async fn scripted(name: String) -> Vec<u64> {
    let ops = ops_of(&name);
    play(ops).await
}

#[durable::part]
async fn play(ops: Vec<Op>) -> Vec<u64> {
    let mut ops = VecDeque::from(ops);
    let mut out = Vec::new();
    while let Some(op) = ops.pop_front() {
        match op {
            Op::A(n) => out.push(a(n).await),
            Op::B(n) => out.push(b(n).await),
            Op::C(n) => out.push(c(n).await),
            Op::Named(name, n) => out.push(a(n).named(name).await),
            Op::Sleep(seconds) => durable::sleep(Duration::from_secs(seconds)).await,
            Op::NamedSleep(name) => durable::sleep(Duration::from_secs(1)).named(name).await,
            Op::Join => out.push(durable::join((a(1), b(1))).await.0),
            Op::JoinAll => out.extend(durable::join_all([a(1), a(2)]).await),
            Op::TryJoin => {
                let both = durable::try_join((async { Ok::<_, ()>(a(1).await) }, async { Ok(b(1).await) })).await;
                out.push(both.map_or(0, |both| both.0));
            }
            Op::Race => out.push(
                durable::race((a(1), async {
                    durable::sleep(Duration::from_secs(3_600)).await;
                    0
                }))
                .await,
            ),
            Op::Timeout => out.push(durable::timeout(Duration::from_secs(3_600), a(1)).await.unwrap_or(0)),
            Op::Begin => {
                let begun = durable::begin(a(1)).await;
                out.push(b(7).await);
                out.push(begun.await);
            }
            Op::Set => {
                let mut set = durable::Set::new();
                set.add(a(1));
                set.add(a(2));
                while let Some(n) = set.next().await {
                    out.push(n);
                }
            }
            Op::Block => out.push(async { a(1).await }.await),
            Op::Inline => out.push(inner(1).await),
            Op::Piece => out.push(piece(1).await),
            Op::Version(name, version) => out.push(durable::version(name, version).await.into()),
            Op::Gate(name, new, old) => {
                let chosen = if durable::version(name, 1).await >= 1 { new } else { old };
                for op in chosen.into_iter().rev() {
                    ops.push_front(op);
                }
            }
            Op::Both(left, right) => {
                let (left, right) = durable::join((play(left), play(right))).await;
                out.extend(left);
                out.extend(right);
            }
            Op::Signal(name) => out.push(durable::signal::<u64>(name).await),
            Op::Signals(name) => out.extend(durable::signals::<u64>(name).await),
            Op::Ask(title) => out.extend(durable::ask::<u64>(title).await.granted()),
            Op::Child("sibling", n) => out.push(durable::spawn(sibling(n)).await.await),
            Op::Child(_, n) => out.push(durable::spawn(inner(n)).await.await),
            Op::Detached(n) => out.push(durable::spawn(inner(n)).detached().await.await),
            Op::Send(name, n) => durable::send("nobody", name, &n).await,
            Op::Publish(name, n) => durable::publish(name, &n).await,
            Op::Undo(n) => durable::undo(c(n)).await,
            Op::Shield => out.push(durable::shield(a(1)).await),
        }
    }
    out
}
