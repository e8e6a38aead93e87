//! What a shield encloses, by a log alone: what was asked in one, and what is awaited in one, wherever it was asked.

use super::is_in;
use crate::{
    entry::{Entry, Kind, Path},
    sim::carry::{CARRIED, ENTERED, LEFT, THING},
};

/// When what was carried under a shield was awaited there first, and when that shield was over.
pub(super) struct Shields {
    entered: Vec<(String, u64)>,
    left: Vec<(String, u64)>,
}

/// A place where something is carried.
struct Place<'a> {
    /// The scope of all that belongs to it.
    scope: &'a str,
    /// Within that, the scope of the path.
    rest: &'a str,
}

fn place<'a>(path: &'a Path<'_>) -> Option<Place<'a>> {
    let mut at = 0;
    let mut found = None;
    for segment in path.scope.split('/') {
        let end = at + segment.len();
        if segment.strip_prefix(CARRIED).is_some_and(|n| n.starts_with('[')) {
            let (scope, rest) = path.scope.split_at(end);
            found = Some(Place { scope, rest: rest.trim_start_matches('/') });
        }
        at = end + 1;
    }
    found
}

fn begins(rest: &str, name: &str) -> bool {
    rest.strip_prefix(name).is_some_and(|n| n.starts_with('['))
}

/// A scope without its first segment, if that has the name.
fn below<'a>(rest: &'a str, name: &str) -> &'a str {
    match begins(rest, name) {
        true => rest.split_once('/').map_or("", |(_, rest)| rest),
        false => rest,
    }
}

/// Whether a path is that of something carried, or of what is in it; and if so, the place, and whether it was begun under the shield.
fn thing<'a>(path: &'a Path<'_>) -> Option<(&'a str, bool)> {
    let Place { scope, rest } = place(path)?;
    let inside = begins(rest, "shield");
    let rest = if inside { below(below(rest, "shield"), "async") } else { rest };
    (begins(rest, THING) || rest.is_empty() && path.name == THING).then_some((scope, inside))
}

impl Shields {
    pub(super) fn of(entries: &[Entry<'_>]) -> Shields {
        let mut shields = Shields { entered: Vec::new(), left: Vec::new() };
        let (entered, left) = (format!("s{ENTERED}"), format!("s{LEFT}"));
        for (seq, entry) in entries.iter().enumerate() {
            let Kind::ValuePublished { path, name, .. } = &entry.kind else { continue };
            let Some(place) = place(path) else { continue };
            let at = (place.scope.to_owned(), seq as u64);
            if **name == *entered {
                shields.entered.push(at);
            } else if **name == *left {
                shields.left.push(at);
            }
        }
        shields
    }

    /// How often something was carried under a shield.
    pub(super) fn carried(&self) -> usize {
        self.entered.len()
    }

    /// Whether a shield encloses what has that path, just before the entry at `seq`.
    pub(super) fn enclose(&self, path: &Path<'_>, seq: u64) -> bool {
        let Some((scope, begun_inside)) = thing(path) else { return is_in(path, "shield") };
        let around = Path { scope: scope.into(), name: "".into(), n: 0 };
        if is_in(&around, "shield") {
            return true;
        }
        let before = |marks: &[(String, u64)]| marks.iter().any(|(s, at)| s == scope && *at < seq);
        (begun_inside || before(&self.entered)) && !before(&self.left)
    }

    /// From which entry on no shield encloses what has that path, after the one at `from`.
    pub(super) fn end(&self, path: &Path<'_>, from: u64) -> Option<u64> {
        if !self.enclose(path, from) {
            return Some(from);
        }
        let (scope, _) = thing(path)?;
        let around = Path { scope: scope.into(), name: "".into(), n: 0 };
        let left = self.left.iter().find(|(s, at)| s == scope && *at >= from).map(|(_, at)| *at);
        left.filter(|_| !is_in(&around, "shield"))
    }
}
