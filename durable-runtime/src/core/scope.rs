//! Scopes: how steps get their paths, and which way a completion takes to its step.

use std::{borrow::Cow, collections::VecDeque, mem, sync::Arc};

use xxhash_rust::xxh3::Xxh3;

use super::{Core, ScopeNo, shelter::Shelter, try_with};
use crate::entry::{Path, push_number, push_place};

pub(super) struct Scope {
    pub(super) parent: Option<ScopeNo>,
    pub(super) segment: Segment,
    /// The scope as text, once it was needed.
    pub(super) text: Option<Arc<str>>,
    pub(super) route: Route,
    pub(super) counts: Vec<(Cow<'static, str>, u32)>,
    /// What keeps a cancel away from it.
    pub(super) shelter: Shelter,
    /// Whether that is its own, and not its parent's.
    pub(super) shelters: bool,
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
    fn count(&mut self, name: &Cow<'static, str>) -> u32 {
        let scope = self.numbering();
        let counts = &mut self.scopes[scope as usize].counts;
        if let Some((_, n)) = counts.iter_mut().find(|(known, _)| known == name) {
            *n += 1;
            return *n;
        }
        counts.push((name.clone(), 0));
        0
    }

    pub(super) fn path(&mut self, name: Cow<'static, str>) -> Path<'static> {
        let n = self.count(&name);
        let scope = self.text(self.here);
        Path { scope: Cow::Owned(scope.as_ref().into()), name, n }
    }

    /// A scope as text: `join_all[0]/3/turn[1]`.
    fn text(&mut self, scope: ScopeNo) -> Arc<str> {
        if let Some(text) = &self.scopes[scope as usize].text {
            return text.clone();
        }
        let above = match self.scopes[scope as usize].parent {
            Some(parent) => self.text(parent),
            None => "".into(),
        };
        let below = || {
            let mut text = String::with_capacity(above.len() + 32);
            text.push_str(&above);
            if !above.is_empty() {
                text.push('/');
            }
            text
        };
        let text: Arc<str> = match &self.scopes[scope as usize].segment {
            Segment::Root | Segment::Transparent => above,
            Segment::Named(name, n) => {
                let mut text = below();
                push_place(&mut text, name, *n);
                text.into()
            }
            Segment::Branch(i) => {
                let mut text = below();
                push_number(&mut text, *i);
                text.into()
            }
        };
        self.scopes[scope as usize].text = Some(text.clone());
        text
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
        let scope =
            Scope { parent: Some(parent), segment, text: None, route, counts: Vec::new(), shelter, shelters: false };
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
        self.text(scope.0);
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

    /// Makes a combinator that is awaited in another place than before report there; its path stays what it was.
    pub(crate) fn reach(&mut self, join: &OpenJoin) {
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
