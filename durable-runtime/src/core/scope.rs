//! Scopes: how steps get their paths, and which way a completion takes to its step.

use std::{borrow::Cow, collections::VecDeque, mem};

use xxhash_rust::xxh3::Xxh3;

use super::{Core, ScopeNo, shelter::Shelter, try_with};
use crate::entry::{Path, push_number, push_place};

pub(super) struct Scope {
    pub(super) parent: Option<ScopeNo>,
    pub(super) segment: Segment,
    /// The scope as text, once it was needed; of a branch what it is a branch of has it.
    pub(super) text: Option<Box<str>>,
    pub(super) route: Route,
    pub(super) counts: Counts,
    /// What keeps a cancel away from it.
    pub(super) shelter: Shelter,
    /// Whether that is its own, and not its parent's.
    pub(super) shelters: bool,
}

/// How often a scope has asked for each name. Most branches ask for one step.
#[derive(Default)]
pub(super) struct Counts {
    first: Option<(Cow<'static, str>, u32)>,
    others: Vec<(Cow<'static, str>, u32)>,
}

impl Counts {
    /// How often it has asked for the name before.
    #[expect(clippy::ptr_arg, reason = "a borrowed name is kept without a copy")]
    fn count(&mut self, name: &Cow<'static, str>) -> u32 {
        if let Some((_, n)) = self.first.iter_mut().chain(&mut self.others).find(|(known, _)| known == name) {
            *n += 1;
            return *n;
        }
        match &mut self.first {
            None => self.first = Some((name.clone(), 0)),
            Some(_) => self.others.push((name.clone(), 0)),
        }
        0
    }
}

pub(super) enum Segment {
    /// The workflow's own body.
    Root,
    /// The `n`th of its name.
    Named(Cow<'static, str>, u32),
    /// A branch of a combinator.
    Branch(u32),
    /// No level of its own: what is asked in it is asked in its parent.
    Transparent,
}

#[derive(Clone, Copy)]
pub(super) enum Route {
    Up,
    Join(u32, u32),
    Task(u32),
}

/// A scope, until it is dropped: by then all that was asked in it is over or closed.
pub(crate) struct OpenScope(pub(crate) ScopeNo);

impl Drop for OpenScope {
    fn drop(&mut self) {
        try_with(|core| {
            let scope = &core.scopes[self.0 as usize];
            core.shield_over |= scope.shelters && scope.shelter.close();
            core.free_scopes.push(self.0);
        });
    }
}

/// A combinator's scope and routing table, until it is dropped.
pub struct OpenJoin {
    scope: OpenScope,
    join: u32,
}

impl Drop for OpenJoin {
    fn drop(&mut self) {
        try_with(|core| {
            core.joins[self.join as usize].clear();
            core.free_joins.push(self.join);
        });
    }
}

impl Core {
    /// The scope that numbers what is asked here.
    fn numbering(&self) -> ScopeNo {
        let mut s = self.here;
        loop {
            let scope = &self.scopes[s as usize];
            match (&scope.segment, scope.parent) {
                (Segment::Transparent, Some(parent)) => s = parent,
                _ => return s,
            }
        }
    }

    /// How often this scope has asked for the name before.
    #[expect(clippy::ptr_arg, reason = "a borrowed name is kept without a copy")]
    pub(super) fn count(&mut self, name: &Cow<'static, str>) -> u32 {
        let scope = self.numbering();
        self.scopes[scope as usize].counts.count(name)
    }

    pub(super) fn path(&mut self, name: Cow<'static, str>) -> Path<'static> {
        let n = self.count(&name);
        let mut scope = String::new();
        self.push_text(self.here, &mut scope);
        Path { scope: Cow::Owned(scope), name, n }
    }

    /// Appends a scope as text: `join_all[0]/3/turn[1]`.
    pub(super) fn push_text(&mut self, scope: ScopeNo, to: &mut String) {
        let begin = to.len();
        let Scope { parent, text, .. } = &self.scopes[scope as usize];
        if let Some(text) = text {
            return to.push_str(text);
        }
        if let Some(parent) = *parent {
            self.push_text(parent, to);
        }
        let scope = &mut self.scopes[scope as usize];
        match &scope.segment {
            Segment::Root => {}
            // What is around it may be over before it is.
            Segment::Transparent => scope.text = Some(to[begin..].into()),
            Segment::Named(name, n) => {
                below(begin, to);
                push_place(to, name, *n);
                scope.text = Some(to[begin..].into());
            }
            Segment::Branch(i) => {
                below(begin, to);
                push_number(to, *i);
            }
        }
    }

    /// 128 bits that this run gives for this name here, the same on every replay.
    pub(crate) fn bits(&mut self, name: &'static str) -> u128 {
        let path = self.path(Cow::Borrowed(name)).to_string();
        let mut hash = Xxh3::new();
        hash.update(b"R");
        hash.update(&self.seed.to_le_bytes());
        hash.update(path.as_bytes());
        hash.digest128()
    }

    pub(super) fn open(&mut self, segment: Segment, route: Route, parent: ScopeNo) -> ScopeNo {
        let shelter = self.scopes[parent as usize].shelter.clone();
        let scope = Scope {
            parent: Some(parent),
            segment,
            text: None,
            route,
            counts: Counts::default(),
            shelter,
            shelters: false,
        };
        match self.free_scopes.pop() {
            Some(free) => {
                self.scopes[free as usize] = scope;
                free
            }
            None => {
                self.scopes.push(scope);
                (self.scopes.len() - 1) as ScopeNo
            }
        }
    }

    /// Opens the next scope of that name here.
    pub(crate) fn open_scope(&mut self, name: Cow<'static, str>) -> OpenScope {
        let n = self.count(&name);
        OpenScope(self.open(Segment::Named(name, n), Route::Up, self.here))
    }

    /// Opens the next scope of that name here, under a shield.
    pub(crate) fn open_shield(&mut self, name: Cow<'static, str>) -> OpenScope {
        let scope = self.open_scope(name);
        self.has_shelter(scope.0, Shelter::shield);
        scope
    }

    /// Gives a scope a shelter of its own, made of the one around it.
    pub(super) fn has_shelter(&mut self, scope: ScopeNo, of: impl FnOnce(&Shelter) -> Shelter) {
        let scope = &mut self.scopes[scope as usize];
        scope.shelter = of(&scope.shelter);
        scope.shelters = true;
    }

    /// What keeps a cancel away from what is polled now.
    pub(super) fn shelter(&self) -> &Shelter {
        &self.scopes[self.here as usize].shelter
    }

    /// Opens a combinator's own scope and its routing table. `moves`: it may be awaited in another place later.
    pub(crate) fn open_join(&mut self, name: Cow<'static, str>, moves: bool) -> OpenJoin {
        let scope = self.open_scope(name);
        if moves {
            self.has_shelter(scope.0, Shelter::moving);
        }
        // Now: a set that has moved has no other way to know where it began.
        self.push_text(scope.0, &mut String::new());
        let join = match self.free_joins.pop() {
            Some(free) => free,
            None => {
                self.joins.push(VecDeque::new());
                (self.joins.len() - 1) as u32
            }
        };
        OpenJoin { scope, join }
    }

    /// Opens the scope of a combinator's child.
    pub(crate) fn open_branch(&mut self, join: &OpenJoin, child: u32) -> OpenScope {
        OpenScope(self.open(Segment::Branch(child), Route::Join(join.join, child), join.scope.0))
    }

    /// Makes room for so many branches, and steps of theirs, at once and not bit by bit.
    pub(crate) fn make_room(&mut self, branches: usize) {
        self.scopes.reserve(branches.saturating_sub(self.free_scopes.len()));
        self.slots.reserve(branches);
        self.state.steps.reserve(branches);
    }

    /// Makes a combinator that is awaited in another place than before report there; its path stays what it was.
    pub(crate) fn reach(&mut self, join: &OpenJoin) {
        let scope = &self.scopes[join.scope.0 as usize];
        if scope.parent == Some(self.here) && !scope.shelters {
            return;
        }
        let here = self.shelter().clone();
        let scope = &mut self.scopes[join.scope.0 as usize];
        scope.parent = Some(self.here);
        if scope.shelters {
            scope.shelter.move_to(&here);
        }
    }

    /// The next child of a combinator that has something to do.
    pub(crate) fn next_child(&mut self, join: &OpenJoin) -> Option<u32> {
        self.joins[join.join as usize].pop_front()
    }

    /// Makes `scope` the one that is polled, and answers the one before.
    pub(crate) fn enter(&mut self, scope: ScopeNo) -> ScopeNo {
        mem::replace(&mut self.here, scope)
    }

    /// Marks the one way down to `scope`.
    pub(super) fn mark(&mut self, scope: ScopeNo) {
        let mut s = scope;
        loop {
            let Scope { route, parent, .. } = &self.scopes[s as usize];
            match *route {
                Route::Join(join, child) => self.joins[join as usize].push_back(child),
                Route::Task(task) => {
                    self.ready_tasks.push_back(task);
                    return;
                }
                Route::Up => {}
            }
            match *parent {
                Some(parent) => s = parent,
                None => {
                    self.root_ready = true;
                    return;
                }
            }
        }
    }
}

/// A text that begins at `begin` goes on one level below.
fn below(begin: usize, text: &mut String) {
    if text.len() > begin {
        text.push('/');
    }
}
