//! The floors of the engine: a module uses only modules of its own floor and of those below.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources fails")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// From the ground up.
const FLOORS: &[&[&str]] = &[
    &["clock", "id", "by_step", "value", "failure"],
    &["contract", "shape", "effect", "entry", "store"],
    &["fold", "recover", "script", "error"],
    &["core", "log", "head", "mailbox", "park"],
    &["drive", "bodies", "steps", "view"],
    &["worker", "runtime"],
    &["builder", "control", "rt", "lib"],
];

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// The modules that a source text names behind `crate::`, with the text's lines.
fn used(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("crate::") {
        if source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let line = source[..at].matches('\n').count() + 1;
        let rest = &source[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            found.extend(first_names(group).map(|name| (line, name)));
        } else {
            found.push((line, rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()));
        }
    }
    found
}

/// The first segments of the paths in `{a::b, c::{d, e}, f}`, without the opening brace.
fn first_names(group: &str) -> impl Iterator<Item = String> {
    let (mut depth, mut names, mut name) = (0, Vec::new(), String::new());
    let mut head = true;
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(std::mem::take(&mut name));
                head = true;
            }
            ':' if depth == 0 => head = false,
            c if depth == 0 && head && (c.is_alphanumeric() || c == '_') => name.push(c),
            _ => {}
        }
    }
    names.push(name);
    names.into_iter().filter(|name| !name.is_empty())
}

/// Every use that goes up.
fn upward(module: &str, source: &str) -> Vec<String> {
    let Some(own) = floor(module) else { return vec![format!("{module} is on no floor")] };
    // What stands in a test module is not part of the house.
    let source = source.split("\n#[cfg(test)]\nmod ").next().unwrap_or(source);
    used(source)
        .into_iter()
        .filter_map(|(line, used)| match floor(&used) {
            Some(floor) if floor > own => Some(format!("{module}:{line} uses {used}, which is above it")),
            _ => None,
        })
        .collect()
}

fn sources(dir: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            found.insert(path, source);
        }
    }
}

#[test]
fn no_module_uses_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("durable-runtime/src");
    let mut all = BTreeMap::new();
    sources(&root, &mut all);
    assert!(all.len() > 20, "the sources were not found");
    let mut bad = Vec::new();
    for (path, source) in &all {
        let below = path.strip_prefix(&root).unwrap();
        let module = below.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if module != "sim" {
            bad.extend(upward(module, source));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_use_that_goes_up_is_found() {
    assert_eq!(upward("fold", "use crate::{\n    entry::{Entry, Kind},\n    worker::Shared,\n};\n").len(), 1);
    assert_eq!(upward("fold", "fn f() { crate::runtime::go() }").len(), 1);
    assert_eq!(upward("nowhere", "").len(), 1);
    assert!(upward("fold", "use crate::{contract::Contract, id::{Seq, StepNo}};").is_empty());
}
