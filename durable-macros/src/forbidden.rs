//! What a workflow must not call: whatever comes out otherwise when the code runs again, or does something to the world
//! behind the log's back. Each has a counterpart, which the error names.

use proc_macro2::{Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Path, ext::IdentExt};

use crate::errors::Errors;

/// Functions of one module or type, with their counterpart.
struct Rule {
    /// Where they live, in full. A call is known by any tail of the full path that has at least two names.
    home: &'static str,
    names: &'static [&'static str],
    because: &'static str,
    instead: &'static str,
}

const fn rule(
    home: &'static str,
    names: &'static [&'static str],
    because: &'static str,
    instead: &'static str,
) -> Rule {
    Rule { home, names, because, instead }
}

const CLOCK: &str = "reads another time on replay";
const NOW: &str = "`durable::now().await`";
const DICE: &str = "draws another value on replay";
const RANDOM: &str = "`durable::random().await`, or seed a generator with it";
const UUIDS: &str = "makes another id on replay";
const UUID: &str = "`durable::uuid().await`";
const BLOCK: &str = "blocks the thread and is forgotten by a restart";
const SLEEP: &str = "`durable::sleep(..).await`";
const TASK: &str = "starts work that the log does not know and a crash loses";
const BEGIN: &str = "`durable::begin(call).await`, `durable::join((a, b)).await`, or `durable::spawn(workflow(..)).await` for a run of its own";
const QUEUE: &str = "is empty after a restart, and no log knows what came through it";
const SIGNAL: &str = "`durable::signal::<T>(name).await` for what comes from outside or from another run, and what `durable::join` gives \
                      for what comes from a branch";
const END: &str = "is about this process, and the run outlives it";
const CANCELLED: &str = "`durable::cancelled().await`, which hears of the run's own cancel";
const ENVIRONMENT: &str = "may read another value after a restart";
const ARGUMENT: &str = "an argument of the workflow, or an effect";
const WORLD: &str = "reaches the world outside and runs again on replay";
const EFFECT: &str = "an effect";
const WAIT: &str = "blocks the thread that drives the run";
const AWAIT: &str = "`.await` on a step";
const POLL: &str = "polls futures, and a step is none: the log says what comes first";
const TOGETHER: &str =
    "`durable::join((a, b)).await`, `durable::join_all(calls).await` or `durable::race((a, b)).await`";
const FUTURES: &[&str] =
    &["join", "join3", "join_all", "select", "select_all", "select_ok", "try_join", "try_join_all"];

const ENV: &[&str] = &[
    "args",
    "args_os",
    "current_dir",
    "current_exe",
    "home_dir",
    "remove_var",
    "set_current_dir",
    "set_var",
    "temp_dir",
    "var",
    "var_os",
    "vars",
    "vars_os",
];
const FS: &[&str] = &[
    "canonicalize",
    "copy",
    "create_dir",
    "create_dir_all",
    "exists",
    "hard_link",
    "metadata",
    "read",
    "read_dir",
    "read_link",
    "read_to_string",
    "remove_dir",
    "remove_dir_all",
    "remove_file",
    "rename",
    "set_permissions",
    "symlink_metadata",
    "try_exists",
    "write",
];
const FILE: &[&str] = &["create", "create_new", "open", "options"];
const CONNECT: &[&str] = &["bind", "connect", "connect_timeout"];
const ZONED: &[&str] = &["now", "now_local", "now_utc"];

const RULES: &[Rule] = &[
    rule("std::time::SystemTime", &["now"], CLOCK, NOW),
    rule("std::time::Instant", &["now"], CLOCK, NOW),
    rule("tokio::time::Instant", &["now"], CLOCK, NOW),
    rule("chrono::Utc", &["now"], CLOCK, NOW),
    rule("chrono::Local", &["now"], CLOCK, NOW),
    rule("time::OffsetDateTime", ZONED, CLOCK, NOW),
    rule("jiff::Zoned", &["now"], CLOCK, NOW),
    rule("jiff::Timestamp", &["now"], CLOCK, NOW),
    rule(
        "rand",
        &["random", "random_bool", "random_iter", "random_range", "random_ratio", "rng", "thread_rng"],
        DICE,
        RANDOM,
    ),
    rule("rand::rngs::StdRng", &["from_entropy", "from_os_rng"], DICE, RANDOM),
    rule("rand::rngs::SmallRng", &["from_entropy", "from_os_rng"], DICE, RANDOM),
    rule("fastrand", &["bool", "choice", "f32", "f64", "i32", "i64", "shuffle", "u32", "u64", "usize"], DICE, RANDOM),
    rule("getrandom", &["fill", "getrandom", "u32", "u64"], DICE, RANDOM),
    rule("uuid::Uuid", &["new_v4", "now_v1", "now_v6", "now_v7"], UUIDS, UUID),
    rule("std::thread", &["park", "park_timeout", "sleep", "sleep_ms", "sleep_until"], BLOCK, SLEEP),
    rule("std::thread", &["scope", "spawn"], TASK, BEGIN),
    rule("std::thread::Builder", &["new"], TASK, BEGIN),
    rule("tokio", &["spawn"], TASK, BEGIN),
    rule("tokio::task", &["block_in_place", "spawn", "spawn_blocking", "spawn_local"], TASK, BEGIN),
    rule("tokio::task::JoinSet", &["new"], TASK, BEGIN),
    rule("tokio::runtime::Handle", &["current", "try_current"], TASK, BEGIN),
    rule("async_std::task", &["spawn", "spawn_blocking", "spawn_local"], TASK, BEGIN),
    rule("smol", &["spawn", "unblock"], TASK, BEGIN),
    rule("tokio::time", &["timeout", "timeout_at"], POLL, "`durable::timeout(d, step).await`"),
    rule("futures::future", FUTURES, POLL, TOGETHER),
    rule("futures_util::future", FUTURES, POLL, TOGETHER),
    rule("rayon", &["join", "scope", "spawn"], TASK, BEGIN),
    rule("futures::executor", &["block_on"], WAIT, AWAIT),
    rule("pollster", &["block_on"], WAIT, AWAIT),
    rule("std::sync::mpsc", &["channel", "sync_channel"], QUEUE, SIGNAL),
    rule("tokio::sync::mpsc", &["channel", "unbounded_channel"], QUEUE, SIGNAL),
    rule("tokio::sync::oneshot", &["channel"], QUEUE, SIGNAL),
    rule("tokio::sync::broadcast", &["channel"], QUEUE, SIGNAL),
    rule("tokio::sync::watch", &["channel"], QUEUE, SIGNAL),
    rule("futures::channel::mpsc", &["channel", "unbounded"], QUEUE, SIGNAL),
    rule("futures::channel::oneshot", &["channel"], QUEUE, SIGNAL),
    rule("async_channel", &["bounded", "unbounded"], QUEUE, SIGNAL),
    rule("crossbeam_channel", &["after", "bounded", "tick", "unbounded"], QUEUE, SIGNAL),
    rule("flume", &["bounded", "unbounded"], QUEUE, SIGNAL),
    rule("tokio::signal", &["ctrl_c"], END, CANCELLED),
    rule("tokio::signal::unix", &["signal"], END, CANCELLED),
    rule("tokio_util::sync::CancellationToken", &["new"], END, CANCELLED),
    rule("std::env", ENV, ENVIRONMENT, ARGUMENT),
    rule("std::fs", FS, WORLD, EFFECT),
    rule("tokio::fs", FS, WORLD, EFFECT),
    rule("std::fs::File", FILE, WORLD, EFFECT),
    rule("tokio::fs::File", FILE, WORLD, EFFECT),
    rule("std::fs::OpenOptions", &["new"], WORLD, EFFECT),
    rule("tokio::fs::OpenOptions", &["new"], WORLD, EFFECT),
    rule("std::io", &["stdin"], WORLD, "`durable::ask(..).await` or `durable::signal(..).await`, or an effect"),
    rule("std::net::TcpStream", CONNECT, WORLD, EFFECT),
    rule("std::net::TcpListener", CONNECT, WORLD, EFFECT),
    rule("std::net::UdpSocket", CONNECT, WORLD, EFFECT),
    rule("tokio::net::TcpStream", CONNECT, WORLD, EFFECT),
    rule("tokio::net::TcpListener", CONNECT, WORLD, EFFECT),
    rule("tokio::net::UdpSocket", CONNECT, WORLD, EFFECT),
    rule("tokio::net", &["lookup_host"], WORLD, EFFECT),
    rule("std::process", &["abort", "exit"], "ends every run of this process", "`return`, with an error if it is one"),
    rule("std::process", &["id"], "is another number after a restart", EFFECT),
    rule("std::process::Command", &["new"], WORLD, EFFECT),
    rule("tokio::process::Command", &["new"], WORLD, EFFECT),
];

/// `Command::new` and the like are too common as tails of other people's paths: these homes need a name in front.
const COMMON: &[&str] = &["Command", "File", "Builder", "OpenOptions", "Handle"];

/// The macros that poll futures of their own, of whatever crate.
const MACROS: &[(&str, &str)] = &[
    ("join", "`durable::join((a, b)).await`"),
    ("try_join", "`durable::try_join((a, b)).await`"),
    ("select", "`durable::race((a, b)).await`, or `durable::timeout(d, step).await`"),
    ("select_biased", "`durable::race((a, b)).await`"),
    ("pin", "the step itself: it needs no pinning; to start it now, `durable::begin(call).await`"),
    ("pin_mut", "the step itself: it needs no pinning; to start it now, `durable::begin(call).await`"),
];

/// What is to be said if `path` is a forbidden function.
pub(crate) fn path_error(path: &Path) -> Option<syn::Error> {
    let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
    find(&names).map(|rule| error(path, &names.join("::"), rule))
}

/// What is to be said if `path!` is a forbidden macro.
pub(crate) fn macro_error(path: &Path) -> Option<syn::Error> {
    let last = path.segments.last()?;
    let (name, instead) = MACROS.iter().find(|(name, _)| last.ident == name)?;
    let text = format!("`{name}!` {POLL}\n  use {instead}");
    Some(syn::Error::new_spanned(path, text))
}

/// Looks for forbidden paths in tokens that are no expression to us.
pub(crate) fn tokens(stream: &TokenStream, errors: &mut Errors) {
    let mut trees = stream.clone().into_iter().peekable();
    let mut names: Vec<proc_macro2::Ident> = Vec::new();
    let mut joined = false;
    loop {
        let tree = trees.next();
        match &tree {
            Some(TokenTree::Ident(ident)) if joined || names.is_empty() => {
                names.push(ident.clone());
                joined = false;
                continue;
            }
            Some(TokenTree::Punct(colon)) if colon.as_char() == ':' => {
                joined |= colon.spacing() == Spacing::Alone;
                continue;
            }
            _ => {}
        }
        let texts: Vec<_> = names.iter().map(|ident| ident.unraw().to_string()).collect();
        if let Some(rule) = find(&texts) {
            let mut at = TokenStream::new();
            names.iter().for_each(|name| name.to_tokens(&mut at));
            errors.add(error(at, &texts.join("::"), rule));
        }
        names.clear();
        joined = false;
        match tree {
            None => return,
            Some(TokenTree::Ident(ident)) => names.push(ident),
            Some(TokenTree::Group(group)) if texts.last().is_none_or(|last| last != UNTRACKED) => {
                tokens(&group.stream(), errors);
            }
            Some(_) => {}
        }
    }
}

/// The function whose closure may do anything.
pub(crate) const UNTRACKED: &str = "untracked";

fn error(at: impl ToTokens, shown: &str, rule: &Rule) -> syn::Error {
    let Rule { because, instead, .. } = rule;
    let text =
        format!("`{shown}` {because}\n  use {instead}; what decides nothing may stand in `durable::untracked(|| ..)`");
    syn::Error::new_spanned(at, text)
}

/// The rule that forbids a path. A path into the user's own crate is the user's own function.
fn find(names: &[String]) -> Option<&'static Rule> {
    let [home @ .., name] = names else { return None };
    if home.is_empty() {
        return None;
    }
    if home.len() == 1 && COMMON.contains(&home[0].as_str()) {
        return None;
    }
    RULES.iter().find(|rule| {
        let mut full = rule.home.rsplit("::");
        rule.names.contains(&name.as_str()) && home.iter().rev().all(|name| full.next() == Some(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(path: &str) -> bool {
        find(&path.split("::").map(String::from).collect::<Vec<_>>()).is_some()
    }

    #[test]
    fn a_forbidden_call_is_known_by_any_tail_of_its_path() {
        for path in [
            "std::time::SystemTime::now",
            "time::SystemTime::now",
            "SystemTime::now",
            "tokio::spawn",
            "tokio::task::spawn",
            "task::spawn",
            "thread::sleep",
            "rand::random",
            "Uuid::new_v4",
            "env::var",
            "std::fs::read",
            "fs::File::open",
            "process::Command::new",
            "tokio::sync::mpsc::channel",
            "mpsc::unbounded_channel",
            "oneshot::channel",
            "signal::ctrl_c",
            "unix::signal",
            "CancellationToken::new",
        ] {
            assert!(is_refused(path), "{path}");
        }
    }

    #[test]
    fn a_lookalike_is_not_refused() {
        for path in [
            "spawn",
            "sleep",
            "durable::spawn",
            "durable::sleep",
            "durable::signal",
            "signal",
            "cancelled",
            "channel",
            "mine::Channel::new",
            "crate::thread::sleep",
            "self::env::var",
            "mine::Instant::now",
            "Instant::from",
            "env::join_all",
            "Command::new",
            "File::open",
            "rand::rngs::StdRng::seed_from_u64",
            "Uuid::new_v5",
            "std::net::IpAddr::from",
        ] {
            assert!(!is_refused(path), "{path}");
        }
    }
}
