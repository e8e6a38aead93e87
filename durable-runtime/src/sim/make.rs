//! Makes random programs.

use std::sync::Arc;

use super::{
    Rng,
    effects::{ASKING, SORTS},
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
    /// What undoes it is registered before the act, or after.
    Saga {
        no: u64,
        sort: usize,
        undo: usize,
        before: bool,
    },
    TooLong(u64),
    Sleep(u64),
    SleepUntil(u64),
    Facts,
    Version(u64),
    Signal(u64),
    Drain(u64),
    /// How long it may take, if that is bounded.
    Ask {
        no: u64,
        within: Option<u64>,
    },
    Spawn(Spawned),
    Send(u64),
    Publish(u64),
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
    Shield(Block),
    /// A race with a cancel.
    OnCancel(Block),
    /// Under a shield: the block, or as much of it as there was before a cancel; then an effect.
    Cleanup {
        block: Block,
        no: u64,
        sort: usize,
    },
    /// Begun in one place, and awaited in others.
    Carried(Arc<Carried>),
    FailIf(u64),
    ReturnIf(u64),
    RestartIf(u64),
}

#[derive(Debug)]
pub(super) enum Begins {
    Effect(u64, usize),
    Sleep(u64),
    Inline(u64),
}

/// What is awaited so often outside of a shield, so often under it, after the block, and so often outside again. It is begun where it
/// is awaited first.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) what: Carries,
    pub(super) outside: u64,
    pub(super) block: Block,
    pub(super) inside: u64,
    pub(super) after: u64,
}

#[derive(Debug)]
pub(super) enum Carries {
    Set {
        no: u64,
        sorts: Vec<usize>,
    },
    /// Looked at so long each time.
    Child {
        spawned: Spawned,
        ms: u64,
    },
}

/// A child run.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) program: u64,
    pub(super) detached: bool,
    /// One of a few ids that others choose too.
    pub(super) id: Option<u64>,
    pub(super) then: Then,
}

/// What becomes of a child's handle.
#[derive(Debug)]
pub(super) enum Then {
    Awaited,
    Dropped,
    /// It gets a message first.
    Told(u64),
    /// It is awaited so long, and then for good, or dropped.
    Watched(u64, bool),
}

/// What a program may still do beyond its own run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// Levels of children below it.
    pub(super) kids: u32,
    /// Times that it may go on in a fresh log.
    pub(super) restarts: u32,
}

impl Left {
    pub(super) fn number(self) -> u32 {
        self.kids | self.restarts << 8
    }

    pub(super) fn of(number: u32) -> Left {
        Left { kids: number & 0xFF, restarts: number >> 8 }
    }
}

pub(super) struct Maker {
    pub(super) rng: Rng,
    pub(super) next: u64,
    pub(super) left: Left,
    /// A shield encloses what is made.
    pub(super) shielded: bool,
    /// Other branches may go on beside what is made.
    pub(super) beside: bool,
    /// Things may be carried from outside of a shield to under it, and out again.
    pub(super) carries: bool,
}

impl Maker {
    fn no(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// More often than others the one about which a function is asked.
    fn sort(&mut self) -> usize {
        let last = SORTS.len() as u64;
        if self.rng.one_in(8) { ASKING } else { self.rng.below(last) as usize }
    }

    fn blocks(&mut self, depth: u32) -> Vec<Block> {
        (0..2 + self.rng.below(3)).map(|_| self.block(depth)).collect()
    }

    pub(super) fn block(&mut self, depth: u32) -> Block {
        let n = if depth >= 2 { 2 + self.rng.below(4) } else { 1 + self.rng.below(2) };
        Arc::new((0..n).map(|_| self.op(depth)).collect())
    }

    fn shield<T>(&mut self, make: impl FnOnce(&mut Maker) -> T) -> T {
        let before = std::mem::replace(&mut self.shielded, true);
        let made = make(self);
        self.shielded = before;
        made
    }

    fn op(&mut self, depth: u32) -> Op {
        let simple = 32;
        match self.rng.below(if depth == 0 { simple } else { 66 }) {
            0..=8 => Op::Effect { no: self.no(), sort: self.sort(), question: self.rng.one_in(3) },
            9..=10 => Op::Sleep(self.rng.below(80)),
            11 => Op::SleepUntil(self.rng.below(80)),
            12 => Op::Facts,
            13 => Op::Version(self.rng.below(3)),
            14 => match self.rng.below(4) {
                0 => Op::TooLong(self.no()),
                1 => Op::ReturnIf(8),
                _ => Op::FailIf(5),
            },
            15 => Op::Set {
                no: self.no(),
                sorts: (0..1 + self.rng.below(3)).map(|_| self.sort()).collect(),
                more: self.rng.below(3),
                take: 1 + self.rng.below(5),
            },
            16..=18 => Op::Saga {
                no: self.no(),
                sort: self.sort(),
                undo: self.rng.below(8) as usize,
                before: !self.rng.one_in(3),
            },
            19..=20 => Op::Signal(self.rng.below(2)),
            21 => Op::Drain(self.rng.below(2)),
            22..=23 => Op::Ask { no: self.no(), within: self.rng.one_in(3).then(|| 20 + self.rng.below(200)) },
            24..=26 if self.left.kids > 0 => Op::Spawn(self.spawned()),
            24 => Op::Publish(self.rng.below(2)),
            25..=27 => Op::Send(self.rng.below(2)),
            28..=29 => Op::Publish(self.rng.below(2)),
            30 if self.left.restarts > 0 && !(self.shielded && self.beside) => Op::RestartIf(3),
            30..=31 => Op::FailIf(9),
            _ => {
                let beside = std::mem::replace(&mut self.beside, true);
                let op = self.combined(depth, beside);
                self.beside = beside;
                op
            }
        }
    }

    fn spawned(&mut self) -> Spawned {
        Spawned {
            program: self.rng.next(),
            detached: self.rng.one_in(4),
            id: self.rng.one_in(4).then(|| self.rng.below(3)),
            then: match self.rng.below(8) {
                0..=3 => Then::Awaited,
                4..=5 => Then::Dropped,
                6 => Then::Told(self.rng.below(2)),
                _ => Then::Watched(self.rng.below(100), self.rng.one_in(2)),
            },
        }
    }

    fn carried(&mut self, below: u32) -> Carried {
        let what = if self.left.kids > 0 && self.rng.one_in(2) {
            Carries::Child { spawned: self.spawned(), ms: self.rng.below(100) }
        } else {
            Carries::Set { no: self.no(), sorts: (0..1 + self.rng.below(3)).map(|_| self.sort()).collect() }
        };
        let (outside, inside, after) = (self.rng.below(3), 1 + self.rng.below(3), self.rng.below(3));
        let block = self.shield(|maker| maker.block(below));
        Carried { what, outside, block, inside, after }
    }

    /// What encloses blocks; `beside`: whether others went on beside it.
    fn combined(&mut self, depth: u32, beside: bool) -> Op {
        let below = depth - 1;
        match self.rng.below(if self.carries { 40 } else { 34 }) {
            0..=1 => Op::Join(self.block(below), self.block(below)),
            2 => Op::TryJoin(self.block(below), self.block(below)),
            3..=5 => Op::JoinAll(self.blocks(below), self.rng.below(4) as usize),
            6..=7 => Op::TryJoinAll(self.blocks(below), self.rng.below(4) as usize),
            8..=9 => Op::Race(self.blocks(below)),
            10 => Op::RaceOfTwo(self.block(below), self.block(below)),
            11..=13 => Op::Timeout(10 + self.rng.below(80), self.block(below)),
            14..=17 => {
                let what = match self.rng.below(4) {
                    0 => Begins::Sleep(self.rng.below(60)),
                    1 => Begins::Inline(self.rng.next()),
                    _ => Begins::Effect(self.no(), self.sort()),
                };
                Op::Begin { what, block: self.block(below), awaited: !self.rng.one_in(4) }
            }
            18..=20 => Op::OnCancel(self.block(below)),
            21..=23 => {
                let block = self.shield(|maker| maker.block(below));
                Op::Cleanup { block, no: self.no(), sort: self.sort() }
            }
            34..40 => Op::Carried(Arc::new(self.carried(below))),
            // Nothing goes on beside these that does not go on beside what they are in.
            other => {
                self.beside = beside;
                match other {
                    24 => Op::Part(self.block(below)),
                    25 => Op::Branch(self.block(below)),
                    26..=27 => Op::Inline(self.rng.next()),
                    28..=29 => Op::Loop(2 + self.rng.below(2), self.block(below)),
                    _ => Op::Shield(self.shield(|maker| maker.block(below))),
                }
            }
        }
    }
}
