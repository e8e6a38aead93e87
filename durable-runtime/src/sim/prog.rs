//! Random workflows, interpreted by real steps. Every argument depends on all that any branch has seen so far, so that a
//! lost, doubled or reordered completion shows as other arguments.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use xxhash_rust::xxh3::xxh3_64;

use super::{
    Rng,
    carry::{CARRIED, carry},
    controls::Control,
    effects::{Bad, Out, SEEN, call, shape, sort, undoing},
    make::{Begins, Block, Left, Maker, Op, Spawned, Then},
    mix,
    null::{Hasty, never_closing},
};
use crate::{
    clock::millis,
    contract::{PartMeta, Site, WorkflowMeta, sites},
    core::with,
    rt::body,
    steps::{
        ask::{Answer, Question, ask},
        begin::begin,
        branch::{Branch, branch, part},
        call::{WorkflowArgs, WorkflowCall},
        cancel::{cancelled, shield},
        combine::{join, join_all, race, timeout, try_join, try_join_all},
        fact::{now, random, uuid, version},
        restart::restart_as,
        send::{publish, send},
        set::Set,
        signal::{signal, signals},
        spawn::{Spawning, spawn},
        step,
        timer::{sleep, sleep_until},
        undo::undo,
    },
    value::Param,
};

/// Runs that clients may start.
pub(super) const PEERS: u64 = 6;
/// Those that messages are sent to.
const ADDRESSEES: u64 = 3;

/// What all branches of one workflow share.
pub(super) struct Env {
    seen: AtomicU64,
    /// How many messages and values the code believes to have sent and published, and how many messages it was given; counted
    /// for the outermost workflow.
    said: AtomicU64,
    heard: AtomicU64,
    left: Left,
}

thread_local! {
    /// The code panics at the next thing it sees.
    pub(super) static PANICS: Cell<bool> = const { Cell::new(false) };
    /// Null control: the code sees this too, and nothing records it.
    pub(super) static IMPURE: Cell<u64> = const { Cell::new(0) };
    /// What is broken in this world.
    pub(super) static CONTROL: Cell<Control> = const { Cell::new(Control::None) };
    /// The programs of this world carry things into shields and out of them.
    pub(super) static CARRIES: Cell<bool> = const { Cell::new(false) };
}

impl Env {
    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, value: u64) -> u64 {
        if PANICS.take() {
            std::panic::resume_unwind(Box::new("the code panicked"));
        }
        let seen = mix(self.seen(), value ^ IMPURE.get());
        self.seen.store(seen, Ordering::Relaxed);
        seen
    }
}

/// Why a block is over early.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exit {
    Fails(u64),
    Returns(u64),
}

pub(super) type Val = Result<u64, Exit>;
type Boxed = Pin<Box<dyn Future<Output = Val> + Send>>;

pub(super) static SITES: [Site; 40] = sites("sim", "workflow", "sim/prog.rs", [("step", 1); 40]);
static PART: PartMeta = PartMeta { name: "part", module: "sim", file: "sim/prog.rs", line: 1, sites: &[] };

const PROGRAM: Param<u64> = Param::new("program");
const DEPTH: Param<u32> = Param::new("depth");
const LEFT: Param<u32> = Param::new("left");

/// The workflow: its arguments are the program.
pub(super) static WORKFLOW: WorkflowMeta = WorkflowMeta {
    name: "sim",
    explicit_name: true,
    function: "sim",
    module: "sim",
    file: "sim/prog.rs",
    line: 1,
    params: &["program", "depth", "seen", "left"],
    sites: &SITES,
    returns: || shape(crate::shape::probe::Probe::new()).returns(),
    run: |args| {
        let (program, depth, seen) = (args.get(&PROGRAM)?, args.get(&DEPTH)?, args.get(&SEEN)?);
        body(shape, workflow(program, depth, seen, Left::of(args.get(&LEFT)?)))
    },
};

/// Other code under the same name: it asks for something else first.
pub(super) static DIVERGED: WorkflowMeta = WorkflowMeta {
    run: |args| {
        let (program, depth, seen) = (args.get(&PROGRAM)?, args.get(&DEPTH)?, args.get(&SEEN)?);
        let left = Left::of(args.get(&LEFT)?);
        body(shape, async move {
            let _ = step(call(sort(0, Control::None), 0, 0, false).named("something else"), &SITES[0]).await;
            workflow(program, depth, seen, left).await
        })
    },
    ..WORKFLOW
};

/// The call that starts a program, or awaits it as a part of another that has seen `seen`.
pub(super) fn start(program: u64, depth: u32, seen: u64, left: Left) -> WorkflowCall<Out> {
    let args = WorkflowArgs::new(&WORKFLOW).arg(&PROGRAM, &program).arg(&DEPTH, &depth).arg(&SEEN, &seen);
    args.arg(&LEFT, &left.number()).call()
}

/// How many bits of what the code returns say how often it believes to have said something, and as many how often it has heard
/// something.
pub(super) const SAID_BITS: u32 = 16;

async fn workflow(program: u64, depth: u32, seen: u64, left: Left) -> Out {
    let (rng, first, carries) = (Rng(mix(program, 7)), mix(program, 9) >> 8, CARRIES.get());
    let mut maker = Maker { rng, next: first, left, shielded: false, beside: false, carries };
    let block = maker.block(depth);
    let env = Arc::new(Env {
        seen: AtomicU64::new(mix(program, seen)),
        said: AtomicU64::new(0),
        heard: AtomicU64::new(0),
        left,
    });
    let said = |value: u64| {
        let (said, heard) = (env.said.load(Ordering::Relaxed), env.heard.load(Ordering::Relaxed));
        (value << SAID_BITS | heard) << SAID_BITS | said
    };
    match go(block, env.clone()).await {
        Ok(value) if left.restarts > 0 && value.is_multiple_of(2) => {
            step(restart_as(next(&env, program)), &SITES[30]).await
        }
        Ok(value) => Ok(said(mix(env.seen(), value))),
        Err(Exit::Returns(value)) => Ok(said(value)),
        Err(Exit::Fails(error)) => Err(Bad::Said(error)),
    }
}

/// What a run goes on with.
fn next(env: &Env, program: u64) -> WorkflowCall<Out> {
    let left = Left { restarts: env.left.restarts - 1, ..env.left };
    start(mix(program, 21), 2, env.seen(), left)
}

pub(super) fn go(block: Block, env: Arc<Env>) -> Boxed {
    Box::pin(async move {
        let mut all = 3;
        for op in block.iter() {
            never_closing();
            all = mix(all, one(op, &env).await?);
        }
        Ok(all)
    })
}

pub(super) fn told(out: &Out) -> u64 {
    match out {
        Ok(value) => mix(*value, 1),
        Err(bad) => mix(xxh3_64(format!("{bad:?}").as_bytes()), 2),
    }
}

/// A value, or the error as one.
fn flat(val: Val) -> u64 {
    match val {
        Ok(value) => value,
        Err(Exit::Fails(error) | Exit::Returns(error)) => error ^ 5,
    }
}

fn branches(blocks: &[Block], env: &Arc<Env>) -> Vec<Branch<Boxed>> {
    blocks.iter().map(|block| branch(go(block.clone(), env.clone()))).collect()
}

/// Hears of a cancel.
fn hears(env: &Arc<Env>) -> Branch<Boxed> {
    let env = env.clone();
    branch(Box::pin(async move {
        step(cancelled(), &SITES[31]).await;
        Ok(env.note(44))
    }))
}

/// Null control: what a cancel has stopped goes on as if it had been done.
fn runs_on() -> bool {
    CONTROL.get() == Control::ClosingRunsOn && with(|core| core.is_closing())
}

pub(super) async fn says(env: &Env, name: u64, to: Option<String>) {
    let name = format!("s{name}");
    match to {
        _ if runs_on() => {}
        Some(to) => step(send(to, name, &env.seen()), &SITES[24]).await,
        None => step(publish(name, &env.seen()), &SITES[25]).await,
    }
    env.said.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn spawning(spawned: &Spawned, env: &Env) -> Spawning<Out> {
    let Spawned { program, detached, id, .. } = spawned;
    let left = Left { kids: env.left.kids - 1, restarts: (program % 2) as u32 };
    let mut spawning = spawn(start(*program, 1 + (program % 3 / 2) as u32, env.seen(), left));
    if *detached {
        spawning = spawning.detached();
    }
    if let Some(id) = id {
        spawning = spawning.id(if *id == 2 { "run/2".to_owned() } else { format!("shared/{id}") });
    }
    spawning
}

async fn child(spawned: &Spawned, env: &Arc<Env>) -> u64 {
    let mut child = step(spawning(spawned, env), &SITES[26]).await;
    env.note(xxh3_64(child.id().as_str().split('/').next_back().unwrap_or_default().as_bytes()));
    match &spawned.then {
        Then::Awaited => told(&step(child, &SITES[27]).await),
        Then::Dropped => {
            drop(child);
            1
        }
        Then::Told(name) => {
            says(env, *name, Some(child.id().as_str().to_owned())).await;
            told(&step(child, &SITES[27]).await)
        }
        Then::Watched(ms, dropped) => {
            let seen = step(timeout(Duration::from_millis(*ms), &mut child), &SITES[28]).await;
            match seen {
                Ok(out) => told(&out),
                Err(_) if *dropped => 2,
                Err(_) => {
                    env.note(*ms);
                    told(&step(child, &SITES[27]).await)
                }
            }
        }
    }
}

async fn one(op: &Op, env: &Arc<Env>) -> Val {
    let two = |a: &Block, b: &Block| (branch(go(a.clone(), env.clone())), branch(go(b.clone(), env.clone())));
    let effect = |no: u64, kind: usize| call(sort(kind, CONTROL.get()), no, env.seen(), false);
    let value = match op {
        Op::Effect { no, sort, question } => {
            let out = Hasty(Box::pin(step(effect(*no, *sort), &SITES[0]))).await;
            let told = env.note(told(&out));
            match out {
                Err(_) if *question => return Err(Exit::Fails(told)),
                _ => told,
            }
        }
        Op::Saga { no, sort, undo: what, before } => {
            let seen = env.seen();
            if *before {
                step(undo(undoing(*what, *no, seen)), &SITES[32]).await;
            }
            let out = step(effect(*no, *sort), &SITES[33]).await;
            let told = env.note(told(&out));
            if !before && out.is_ok() {
                step(undo(undoing(*what, *no, seen)), &SITES[32]).await;
            }
            told
        }
        Op::TooLong(no) => {
            let out = step(call(sort(4, Control::None), *no, env.seen(), true), &SITES[1]).await;
            told(&out)
        }
        Op::Sleep(ms) => {
            step(sleep(Duration::from_millis(*ms)), &SITES[2]).await;
            *ms
        }
        Op::SleepUntil(ms) => {
            let deadline = step(now(), &SITES[3]).await + Duration::from_millis(*ms);
            step(sleep_until(deadline), &SITES[4]).await;
            *ms
        }
        Op::Facts => {
            let now = step(now(), &SITES[3]).await;
            let bits: u64 = step(random(), &SITES[5]).await;
            let uuid = step(uuid(), &SITES[6]).await;
            mix(mix(millis(now), bits), uuid.as_u128() as u64)
        }
        Op::Version(name) => u64::from(step(version(format!("change-{name}"), 2), &SITES[7]).await),
        Op::Signal(name) => {
            let message = step(signal::<u64>(format!("s{name}")), &SITES[21]).await;
            env.heard.fetch_add(1, Ordering::Relaxed);
            message
        }
        Op::Drain(name) => {
            let all: Vec<u64> = step(signals(format!("s{name}")), &SITES[22]).await;
            env.heard.fetch_add(all.len() as u64, Ordering::Relaxed);
            all.into_iter().fold(7, mix)
        }
        Op::Ask { no, within } => {
            let mut question = Question::new(format!("question {no}")).about(&env.seen());
            if let Some(ms) = within {
                question = question.within(Duration::from_millis(*ms));
            }
            match step(ask::<u64>(question), &SITES[23]).await {
                Answer::Granted(value) => value,
                Answer::Refused(why) => xxh3_64(why.as_bytes()),
                Answer::Expired => 9,
            }
        }
        Op::Spawn(spawned) => child(spawned, env).await,
        Op::Send(name) => {
            let seen = env.seen();
            says(env, *name, Some(format!("run/{}", mix(seen, 3) % ADDRESSEES))).await;
            seen
        }
        Op::Publish(name) => {
            says(env, *name, None).await;
            *name
        }
        Op::Join(a, b) => {
            let (a, b) = step(join(two(a, b)), &SITES[8]).await;
            mix(flat(a), flat(b))
        }
        Op::TryJoin(a, b) => {
            let (a, b) = step(try_join(two(a, b)), &SITES[9]).await?;
            mix(a, b)
        }
        Op::JoinAll(blocks, at_most) => {
            let all = join_all(branches(blocks, env));
            let all = if *at_most == 0 { all } else { all.at_most(*at_most) };
            step(all, &SITES[10]).await.into_iter().fold(4, |all, val| mix(all, flat(val)))
        }
        Op::TryJoinAll(blocks, at_most) => {
            let all = try_join_all(branches(blocks, env));
            let all = if *at_most == 0 { all } else { all.at_most(*at_most) };
            step(all, &SITES[11]).await?.into_iter().fold(5, mix)
        }
        Op::Race(blocks) => step(race(branches(blocks, env)), &SITES[12]).await?,
        Op::RaceOfTwo(a, b) => step(race(two(a, b)), &SITES[13]).await?,
        Op::Timeout(ms, block) => {
            let inner = branch(go(block.clone(), env.clone()));
            match step(timeout(Duration::from_millis(*ms), inner), &SITES[14]).await {
                Ok(val) => val?,
                Err(elapsed) => xxh3_64(elapsed.to_string().as_bytes()),
            }
        }
        Op::Begin { what, block, awaited } => {
            // Null control: a wait that goes on while nobody looks.
            let unseen = match CONTROL.get() {
                Control::BeginSignal => Some(step(begin(signal::<u64>("s0")), &SITES[15]).await),
                _ => None,
            };
            let val = begun(what, block, *awaited, env, effect).await?;
            drop(unseen);
            val
        }
        Op::Set { no, sorts, more, take } => {
            let mut set = Set::new();
            for (i, kind) in sorts.iter().enumerate() {
                set.add(effect(mix(*no, i as u64), *kind));
            }
            let (mut taken, mut all) = (0, 6);
            while taken < *take {
                let Some(out) = step(set.next(), &SITES[17]).await else { break };
                all = env.note(mix(all, told(&out)));
                taken += 1;
                if taken <= *more {
                    set.add(effect(mix(*no, 100 + taken), sorts[0] + taken as usize));
                }
            }
            all
        }
        Op::Part(block) => step(part(&PART, go(block.clone(), env.clone())), &SITES[18]).await?,
        Op::Branch(block) => step(branch(go(block.clone(), env.clone())), &SITES[19]).await?,
        Op::Inline(program) => told(&step(inline(*program, env), &SITES[20]).await),
        Op::Loop(n, block) => {
            let mut all = 8;
            for i in 0..*n {
                env.note(i);
                all = mix(all, go(block.clone(), env.clone()).await?);
            }
            all
        }
        Op::Shield(block) => {
            let inner = branch(go(block.clone(), env.clone()));
            match CONTROL.get() {
                // Null control: it is called so, and is none.
                Control::ShieldIgnored => step(inner.named("shield"), &SITES[29]).await?,
                _ => step(shield(inner), &SITES[29]).await?,
            }
        }
        Op::Carried(carried) => step(branch(carry(carried.clone(), env.clone())).named(CARRIED), &SITES[19]).await?,
        Op::OnCancel(block) => {
            let inner = branch(go(block.clone(), env.clone()));
            step(race((hears(env), inner)), &SITES[34]).await?
        }
        Op::Cleanup { block, no, sort } => {
            let (block, within, no, sort) = (block.clone(), env.clone(), *no, *sort);
            let work: Boxed = Box::pin(async move {
                let val = step(race((hears(&within), branch(go(block, within.clone())))), &SITES[34]).await;
                let seen = within.note(flat(val));
                Ok(told(&step(call(super::effects::sort(sort, CONTROL.get()), no, seen, false), &SITES[35]).await))
            });
            step(shield(branch(work)), &SITES[36]).await?
        }
        Op::FailIf(n) if env.seen().is_multiple_of(*n) => return Err(Exit::Fails(env.seen())),
        Op::ReturnIf(n) if env.seen().is_multiple_of(*n) => return Err(Exit::Returns(env.seen())),
        Op::RestartIf(n) if env.seen().is_multiple_of(*n) => {
            told(&step(restart_as(next(env, env.seen())), &SITES[30]).await)
        }
        Op::FailIf(_) | Op::ReturnIf(_) | Op::RestartIf(_) => 0,
    };
    env.note(value);
    Ok(value)
}

/// A workflow within a workflow.
fn inline(program: u64, env: &Env) -> WorkflowCall<Out> {
    start(program, 1, env.seen(), Left { kids: env.left.kids, restarts: 0 })
}

async fn begun(
    what: &Begins,
    block: &Block,
    awaited: bool,
    env: &Arc<Env>,
    effect: impl Fn(u64, usize) -> crate::steps::call::EffectCall<Out>,
) -> Val {
    Ok(match what {
        Begins::Effect(no, sort) => {
            let begun = step(begin(effect(*no, *sort)), &SITES[15]).await;
            let val = go(block.clone(), env.clone()).await?;
            let out = if awaited { told(&step(begun, &SITES[16]).await) } else { 1 };
            mix(val, out)
        }
        Begins::Sleep(ms) => {
            let begun = step(begin(sleep(Duration::from_millis(*ms))), &SITES[15]).await;
            let val = go(block.clone(), env.clone()).await;
            if awaited {
                step(begun, &SITES[16]).await;
            }
            val?
        }
        Begins::Inline(program) => {
            let begun = step(begin(inline(*program, env)), &SITES[15]).await;
            let val = go(block.clone(), env.clone()).await;
            let out = if awaited { told(&step(begun, &SITES[16]).await) } else { 1 };
            mix(val?, out)
        }
    })
}
