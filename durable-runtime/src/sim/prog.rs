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
    controls::Control,
    effects::{Bad, Out, SEEN, SORTS, call, shape, sort},
    mix,
};
use crate::{
    clock::millis,
    contract::{PartMeta, Site, WorkflowMeta, sites},
    rt::body,
    steps::{
        begin::begin,
        branch::{branch, part},
        call::{WorkflowArgs, WorkflowCall},
        combine::{join, join_all, race, timeout, try_join, try_join_all},
        fact::{now, random, uuid, version},
        set::Set,
        step,
        timer::{sleep, sleep_until},
    },
    value::Param,
};

pub(super) type Block = Arc<Vec<Op>>;

/// One operation of a workflow.
#[derive(Debug)]
pub(super) enum Op {
    /// With `?`, or with its error as a value.
    Effect {
        no: u64,
        sort: usize,
        question: bool,
    },
    TooLong(u64),
    Sleep(u64),
    SleepUntil(u64),
    Facts,
    Version(u64),
    Join(Block, Block),
    TryJoin(Block, Block),
    JoinAll(Vec<Block>, usize),
    TryJoinAll(Vec<Block>, usize),
    Race(Vec<Block>),
    RaceOfTwo(Block, Block),
    Timeout(u64, Block),
    /// Begun before the block, awaited after it, or dropped.
    Begin {
        what: Begins,
        block: Block,
        awaited: bool,
    },
    /// Takes some results of a growing set, and drops the rest.
    Set {
        no: u64,
        sorts: Vec<usize>,
        more: u64,
        take: u64,
    },
    Part(Block),
    Branch(Block),
    Inline(u64),
    Loop(u64, Block),
    FailIf(u64),
    ReturnIf(u64),
}

#[derive(Debug)]
pub(super) enum Begins {
    Effect(u64, usize),
    Sleep(u64),
    Inline(u64),
}

struct Maker {
    rng: Rng,
    next: u64,
}

impl Maker {
    fn no(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn sort(&mut self) -> usize {
        self.rng.below(SORTS.len() as u64) as usize
    }

    fn blocks(&mut self, depth: u32) -> Vec<Block> {
        (0..2 + self.rng.below(3)).map(|_| self.block(depth)).collect()
    }

    fn block(&mut self, depth: u32) -> Block {
        let n = 1 + self.rng.below(if depth >= 2 { 4 } else { 2 });
        Arc::new((0..n).map(|_| self.op(depth)).collect())
    }

    fn op(&mut self, depth: u32) -> Op {
        let simple = 16;
        match self.rng.below(if depth == 0 { simple } else { 40 }) {
            0..=8 => Op::Effect { no: self.no(), sort: self.sort(), question: self.rng.one_in(3) },
            9..=10 => Op::Sleep(self.rng.below(80)),
            11 => Op::SleepUntil(self.rng.below(80)),
            12 => Op::Facts,
            13 => Op::Version(self.rng.below(3)),
            14 => match self.rng.below(4) {
                0 => Op::TooLong(self.no()),
                1 => Op::ReturnIf(8),
                _ => Op::FailIf(6),
            },
            15 => Op::Set {
                no: self.no(),
                sorts: (0..1 + self.rng.below(3)).map(|_| self.sort()).collect(),
                more: self.rng.below(3),
                take: 1 + self.rng.below(5),
            },
            16..=17 => Op::Join(self.block(depth - 1), self.block(depth - 1)),
            18 => Op::TryJoin(self.block(depth - 1), self.block(depth - 1)),
            19..=21 => Op::JoinAll(self.blocks(depth - 1), self.rng.below(4) as usize),
            22..=23 => Op::TryJoinAll(self.blocks(depth - 1), self.rng.below(4) as usize),
            24..=25 => Op::Race(self.blocks(depth - 1)),
            26 => Op::RaceOfTwo(self.block(depth - 1), self.block(depth - 1)),
            27..=29 => Op::Timeout(10 + self.rng.below(80), self.block(depth - 1)),
            30..=33 => {
                let what = match self.rng.below(4) {
                    0 => Begins::Sleep(self.rng.below(60)),
                    1 => Begins::Inline(self.rng.next()),
                    _ => Begins::Effect(self.no(), self.sort()),
                };
                Op::Begin { what, block: self.block(depth - 1), awaited: !self.rng.one_in(4) }
            }
            34 => Op::Part(self.block(depth - 1)),
            35 => Op::Branch(self.block(depth - 1)),
            36..=37 => Op::Inline(self.rng.next()),
            _ => Op::Loop(2 + self.rng.below(2), self.block(depth - 1)),
        }
    }
}

/// What all branches of one run share.
struct Env {
    seen: AtomicU64,
}

thread_local! {
    /// The code panics at the next thing it sees.
    pub(super) static PANICS: Cell<bool> = const { Cell::new(false) };
    /// Null control: the code sees this too, and nothing records it.
    pub(super) static IMPURE: Cell<u64> = const { Cell::new(0) };
    /// What is broken in this world.
    pub(super) static CONTROL: Cell<Control> = const { Cell::new(Control::None) };
}

impl Env {
    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    fn note(&self, value: u64) -> u64 {
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
enum Exit {
    Fails(u64),
    Returns(u64),
}

type Val = Result<u64, Exit>;
type Boxed = Pin<Box<dyn Future<Output = Val> + Send>>;

static SITES: [Site; 24] = sites("sim", "workflow", "sim/prog.rs", [("step", 1); 24]);
static PART: PartMeta = PartMeta { name: "part", module: "sim", file: "sim/prog.rs", line: 1, sites: &[] };

const PROGRAM: Param<u64> = Param::new("program");
const DEPTH: Param<u32> = Param::new("depth");

/// The workflow: its arguments are the program.
pub(super) static WORKFLOW: WorkflowMeta = WorkflowMeta {
    name: "sim",
    explicit_name: true,
    function: "sim",
    module: "sim",
    file: "sim/prog.rs",
    line: 1,
    params: &["program", "depth", "seen"],
    sites: &SITES,
    run: |args| {
        let (program, depth, seen) = (args.get(&PROGRAM)?, args.get(&DEPTH)?, args.get(&SEEN)?);
        body(shape, workflow(program, depth, seen))
    },
};

/// The call that starts a program, or awaits it as a part of another that has seen `seen`.
pub(super) fn start(program: u64, depth: u32, seen: u64) -> WorkflowCall<Out> {
    WorkflowArgs::new(&WORKFLOW).arg(&PROGRAM, &program).arg(&DEPTH, &depth).arg(&SEEN, &seen).call()
}

async fn workflow(program: u64, depth: u32, seen: u64) -> Out {
    let mut maker = Maker { rng: Rng(mix(program, 7)), next: mix(program, 9) >> 8 };
    let block = maker.block(depth);
    let env = Arc::new(Env { seen: AtomicU64::new(mix(program, seen)) });
    match go(block, env.clone()).await {
        Ok(value) => Ok(mix(env.seen(), value)),
        Err(Exit::Returns(value)) => Ok(value),
        Err(Exit::Fails(error)) => Err(Bad::Said(error)),
    }
}

fn go(block: Block, env: Arc<Env>) -> Boxed {
    Box::pin(async move {
        let mut all = 3;
        for op in block.iter() {
            all = mix(all, one(op, &env).await?);
        }
        Ok(all)
    })
}

fn told(out: &Out) -> u64 {
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

fn branches(blocks: &[Block], env: &Arc<Env>) -> Vec<crate::steps::branch::Branch<Boxed>> {
    blocks.iter().map(|block| branch(go(block.clone(), env.clone()))).collect()
}

async fn one(op: &Op, env: &Arc<Env>) -> Val {
    let two = |a: &Block, b: &Block| (branch(go(a.clone(), env.clone())), branch(go(b.clone(), env.clone())));
    let effect = |no: u64, kind: usize| call(sort(kind, CONTROL.get()), no, env.seen(), false);
    let value = match op {
        Op::Effect { no, sort, question } => {
            let out = step(effect(*no, *sort), &SITES[0]).await;
            let told = env.note(told(&out));
            match out {
                Err(_) if *question => return Err(Exit::Fails(told)),
                _ => told,
            }
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
        Op::Begin { what, block, awaited } => match what {
            Begins::Effect(no, sort) => {
                let begun = step(begin(effect(*no, *sort)), &SITES[15]).await;
                let val = go(block.clone(), env.clone()).await?;
                let out = if *awaited { told(&step(begun, &SITES[16]).await) } else { 1 };
                mix(val, out)
            }
            Begins::Sleep(ms) => {
                let begun = step(begin(sleep(Duration::from_millis(*ms))), &SITES[15]).await;
                let val = go(block.clone(), env.clone()).await;
                if *awaited {
                    step(begun, &SITES[16]).await;
                }
                val?
            }
            Begins::Inline(program) => {
                let begun = step(begin(start(*program, 1, env.seen())), &SITES[15]).await;
                let val = go(block.clone(), env.clone()).await;
                let out = if *awaited { told(&step(begun, &SITES[16]).await) } else { 1 };
                mix(val?, out)
            }
        },
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
        Op::Inline(program) => told(&step(start(*program, 1, env.seen()), &SITES[20]).await),
        Op::Loop(n, block) => {
            let mut all = 8;
            for i in 0..*n {
                env.note(i);
                all = mix(all, go(block.clone(), env.clone()).await?);
            }
            all
        }
        Op::FailIf(n) if env.seen().is_multiple_of(*n) => return Err(Exit::Fails(env.seen())),
        Op::ReturnIf(n) if env.seen().is_multiple_of(*n) => return Err(Exit::Returns(env.seen())),
        Op::FailIf(_) | Op::ReturnIf(_) => 0,
    };
    env.note(value);
    Ok(value)
}
