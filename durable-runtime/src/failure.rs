//! The ready-made error of workflows and effects, and what the engine itself finds.

use std::{borrow::Cow, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::value::Value;

/// What bodies of workflows and effects return if they have no error type of their own.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The ready-made error: plain data that is recorded and comes back the same on every replay.
///
/// `?` turns every [`std::error::Error`] and every [`anyhow::Error`] into it. What is kept is text: the message and its
/// chain of causes, never a backtrace, a thread's name or an address. A [`Fault`] stays one.
///
/// It is not itself a `std::error::Error`: then `?` could not tell it from what it converts.
///
/// ```
/// # use durable::{Failure, Result};
/// fn cents(text: &str) -> Result<u32> {
///     Ok(text.parse()?)
/// }
/// assert_eq!(cents("ten").unwrap_err().message(), "invalid digit found in string");
///
/// let failure = Failure::new("card declined").with_kind("declined").with_value(&["4000", "0002"]);
/// assert_eq!(failure.to_string(), "card declined");
/// assert_eq!(failure.kind(), Some("declined"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    message: String,
    /// From the nearest cause to the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Never null: that would come back as `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Box<serde_json::Value>>,
    /// In a box, as the value is: a `Result` that carries a failure stays small (clippy's `result_large_err`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fault: Option<Box<Fault>>,
}

impl Failure {
    /// A failure with a message and nothing else.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), causes: Vec::new(), kind: None, value: None, fault: None }
    }

    /// Keeps the text of an error that `?` does not take, such as a `Box<dyn Error>`.
    ///
    /// ```
    /// # use durable::Failure;
    /// let boxed: Box<dyn std::error::Error> = "no route".into();
    /// assert_eq!(Failure::from_error(&*boxed).message(), "no route");
    /// ```
    pub fn from_error(error: &(dyn std::error::Error + 'static)) -> Failure {
        Failure::from_chain(std::iter::successors(Some(error), |error| error.source()))
    }

    fn from_chain<'a>(chain: impl Iterator<Item = &'a (dyn std::error::Error + 'static)>) -> Failure {
        let mut failure = Failure::new("");
        for (n, error) in chain.enumerate() {
            match n {
                0 => failure.message = error.to_string(),
                _ => failure.causes.push(error.to_string()),
            }
            if failure.fault.is_none() {
                failure.fault = error.downcast_ref().cloned().map(Box::new);
            }
            if error.is::<Elapsed>() {
                failure.kind = Some("elapsed".to_owned());
            }
        }
        failure
    }

    /// Sets the kind: a word for code to match on, free to choose.
    pub fn with_kind(mut self, kind: impl Into<String>) -> Failure {
        self.kind = Some(kind.into());
        self
    }

    /// Adds data as JSON, for the code that handles the failure and for people who read it. Where JSON cannot say a value
    /// it is put in words, as in [`Value::to_json`]; what encodes as null is as good as no value.
    pub fn with_value<T: Serialize + ?Sized>(mut self, value: &T) -> Failure {
        let json = match Value::encode(value) {
            Ok(value) => value.to_json(),
            Err(error) => serde_json::json!({ "$unrecorded": error.to_string() }),
        };
        self.value = Some(json).filter(|json| !json.is_null()).map(Box::new);
        self
    }

    /// What happened, in words.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Why, from the nearest cause to the root.
    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    /// The kind that was set, else that of the fault; `elapsed` of an [`Elapsed`].
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref().or(self.fault().map(Fault::kind))
    }

    /// The data that was added.
    pub fn value(&self) -> Option<&serde_json::Value> {
        self.value.as_deref()
    }

    /// What the engine found, if it was the engine that failed the step.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_deref()
    }
}

impl fmt::Display for Failure {
    /// The message and its causes, with colons between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.causes.iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        let error = error.into();
        let mut failure = Failure::from_chain(error.chain());
        // A fault given as context is no link of the chain of its own type.
        if failure.fault.is_none() {
            failure.fault = error.downcast_ref().cloned().map(Box::new);
        }
        failure
    }
}

/// What the engine found, where the body of an effect, or a child run, itself returned nothing.
///
/// It becomes the error of the effect, or of the child's workflow, by `E: From<Fault>`, as with [`Failure`]; where the error type takes
/// none, the run that awaits it is parked. It is an outcome like any other: recorded, and the same on every replay.
///
/// ```
/// # #[durable::workflow]
/// # async fn researcher(topic: String) -> durable::Result<String> { Ok(topic) }
/// #[durable::workflow]
/// async fn editor(topic: String) -> durable::Result<String> {
///     let found = durable::spawn(researcher(topic)).await.await;
///     match found {
///         Err(failure) if matches!(failure.fault(), Some(durable::Fault::ChildCancelled { .. })) => Ok("nothing".into()),
///         found => found,
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// An attempt did not end within the effect's timeout. Whether it happened is unknown: it may still be running.
    TimedOut {
        /// The effect's name.
        effect: String,
        /// The attempt, from 1.
        attempt: u32,
        /// The timeout in milliseconds.
        timeout_ms: u64,
    },
    /// The last attempt ended without an answer (it timed out, panicked, did not know, or died with its process), and there is
    /// no other.
    AttemptsUsedUp {
        /// The effect's name.
        effect: String,
        /// Bodies begun.
        attempts: u32,
        /// How the last attempt ended, in words.
        last: String,
        /// Whether the last attempt ended by the death of the process. Whether it happened is unknown in either case.
        crashed: bool,
    },
    /// The body panicked.
    Panicked {
        /// The effect's name.
        effect: String,
        /// The attempt, from 1.
        attempt: u32,
        /// The panic's message.
        message: String,
    },
    /// An argument or the result cannot be recorded. Of an argument: the body never ran. Of the result: it ran.
    NotRecordable {
        /// The effect's name.
        effect: String,
        /// Which field, and why not.
        reason: String,
        /// Encoded size in bytes, if that is the reason.
        size: Option<u64>,
        /// The limit in bytes, if the size is the reason.
        limit: Option<u64>,
    },
    /// Whether the body did what it does is unknown.
    InDoubt {
        /// The effect's name.
        effect: String,
        /// The attempt, from 1.
        attempt: u32,
        /// Why it is unknown.
        reason: String,
    },
    /// The step was in doubt, and a person said that it failed.
    ResolvedAsFailed {
        /// The effect's name.
        effect: String,
        /// The attempt, from 1.
        attempt: u32,
        /// What the person said.
        reason: String,
    },
    /// A child run was cancelled. Code that is cancelled with it is not told.
    ChildCancelled {
        /// The child.
        run: String,
        /// Why.
        reason: String,
    },
    /// The id given to a child names a run that is not this step's child.
    ChildIdTaken {
        /// The id.
        run: String,
    },
}

impl Fault {
    /// The variant in one word, as [`Failure::kind`] says it: `timed_out`, `attempts_used_up`, `panicked`,
    /// `not_recordable`, `in_doubt`, `resolved_as_failed`, `child_cancelled`, `child_id_taken`.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::TimedOut { .. } => "timed_out",
            Fault::AttemptsUsedUp { .. } => "attempts_used_up",
            Fault::Panicked { .. } => "panicked",
            Fault::NotRecordable { .. } => "not_recordable",
            Fault::InDoubt { .. } => "in_doubt",
            Fault::ResolvedAsFailed { .. } => "resolved_as_failed",
            Fault::ChildCancelled { .. } => "child_cancelled",
            Fault::ChildIdTaken { .. } => "child_id_taken",
        }
    }

    /// Whether the effect may have happened all the same. Code that would do the same by another way must not, then.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Fault::TimedOut { .. } | Fault::AttemptsUsedUp { .. } | Fault::Panicked { .. } | Fault::InDoubt { .. } => {
                true
            }
            // Of a result the body has run; of an argument it has not, and the reason says which.
            Fault::NotRecordable { .. } => true,
            // It may have done some of what it does before it was cancelled.
            Fault::ChildCancelled { .. } => true,
            Fault::ResolvedAsFailed { .. } | Fault::ChildIdTaken { .. } => false,
        }
    }

    /// The name of the effect it is about, if it is about one.
    pub fn effect(&self) -> Option<&str> {
        match self {
            Fault::TimedOut { effect, .. }
            | Fault::AttemptsUsedUp { effect, .. }
            | Fault::Panicked { effect, .. }
            | Fault::NotRecordable { effect, .. }
            | Fault::InDoubt { effect, .. }
            | Fault::ResolvedAsFailed { effect, .. } => Some(effect),
            Fault::ChildCancelled { .. } | Fault::ChildIdTaken { .. } => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::TimedOut { effect, attempt, timeout_ms } => {
                let timeout = Duration::from_millis(*timeout_ms);
                write!(
                    f,
                    "attempt {attempt} of `{effect}` did not end within {timeout:?}; whether it happened is unknown"
                )
            }
            Fault::AttemptsUsedUp { effect, attempts, last, crashed } => {
                let how = if *crashed { "was cut off by a crash" } else { "ended without an answer" };
                let times = if *attempts == 1 { "attempt is" } else { "attempts are" };
                write!(
                    f,
                    "{attempts} {times} used up for `{effect}`; the last {how}: {last}; whether it happened is unknown"
                )
            }
            Fault::Panicked { effect, attempt, message } => {
                write!(f, "attempt {attempt} of `{effect}` panicked: {message}")
            }
            Fault::NotRecordable { effect, reason, size: Some(size), limit: Some(limit) } => {
                write!(f, "`{effect}` is not recordable: {reason}: {size} bytes, the limit is {limit}")
            }
            Fault::NotRecordable { effect, reason, .. } => write!(f, "`{effect}` is not recordable: {reason}"),
            Fault::InDoubt { effect, attempt, reason } => {
                write!(f, "whether attempt {attempt} of `{effect}` happened is unknown: {reason}")
            }
            Fault::ResolvedAsFailed { effect, attempt, reason } => {
                write!(f, "attempt {attempt} of `{effect}` was resolved as failed: {reason}")
            }
            Fault::ChildCancelled { run, reason } => write!(f, "child run {run} was cancelled: {reason}"),
            Fault::ChildIdTaken { run } => {
                write!(f, "the id {run} names a run that is not this step's child")
            }
        }
    }
}

impl std::error::Error for Fault {}

/// What a reconcile function found out about a step in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciled<T> {
    /// It happened, and this is what the effect would have returned as its `Ok`.
    Happened(T),
    /// It did not happen and no request of the earlier attempt can make it happen any more: the body may run.
    CannotHappen,
    /// Not known now: ask again later.
    Unknown,
}

/// A text for a log or a message, cut in the middle at character borders if it is long: what a panic, a serializer or a
/// person says has any length, and no entry may become too long to be written because of it.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    const MOST: usize = 2_000;
    if text.len() <= MOST {
        return Cow::Borrowed(text);
    }
    let head = (0..=MOST / 2).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    let tail = (text.len() - MOST / 2..text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
    Cow::Owned(format!("{} .. {} bytes .. {}", &text[..head], tail - head, &text[tail..]))
}

/// The time given to `durable::timeout` was over before the step was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elapsed {
    limit_ms: u64,
}

impl Elapsed {
    /// Of a step that was given `limit_ms` milliseconds.
    pub const fn new(limit_ms: u64) -> Elapsed {
        Elapsed { limit_ms }
    }

    /// The time that was given, in milliseconds.
    pub const fn limit_ms(self) -> u64 {
        self.limit_ms
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not ready within {:?}", Duration::from_millis(self.limit_ms))
    }
}

impl std::error::Error for Elapsed {}

#[cfg(test)]
mod tests {
    use std::{error::Error, io, thread::Builder};

    use anyhow::Context;

    use super::*;

    fn fault() -> Fault {
        Fault::TimedOut { effect: "charge".to_owned(), attempt: 2, timeout_ms: 1_500 }
    }

    /// An error of a chain, told by its message.
    #[derive(Debug)]
    struct Link(&'static str, Option<Box<dyn Error + Send + Sync>>);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|error| error as _)
        }
    }

    fn three() -> Link {
        Link("charge failed", Some(Box::new(Link("no route", Some(Box::new(io::Error::other("cable cut")))))))
    }

    /// What `?` makes of it: the message and causes, and that this survives its record.
    fn check<E>(error: E, texts: &[&str]) -> Failure
    where
        Failure: From<E>,
    {
        let failure = (|| -> Result<()> { Err(error)? })().unwrap_err();
        assert_eq!(failure.message(), texts[0]);
        assert_eq!(failure.causes(), &texts[1..]);
        assert_eq!(failure.to_string(), texts.join(": "));
        let back: Failure = Value::encode_checked(&failure).unwrap().decode().unwrap();
        assert_eq!((back.to_string(), format!("{back:?}")), (failure.to_string(), format!("{failure:?}")));
        assert_eq!(back, failure);
        failure
    }

    #[test]
    fn every_error_is_taken_by_a_question_mark_with_its_chain() {
        check("x".parse::<u8>().unwrap_err(), &["invalid digit found in string"]);
        check(three(), &["charge failed", "no route", "cable cut"]);
        let chain = ["while paying", "charge failed", "no route", "cable cut"];
        check(anyhow::Error::new(three()).context("while paying"), &chain);
        check(anyhow::anyhow!("plain"), &["plain"]);
        check(Failure::new("already one").with_kind("kind"), &["already one"]);
        let boxed: Box<dyn Error + Send + Sync> = "text".into();
        check(Failure::from_error(&*boxed), &["text"]);
        check(Failure::from_error(&three()), &["charge failed", "no route", "cable cut"]);
        let not_text: std::result::Result<(), String> = Err("text".to_owned());
        check(not_text.map_err(Failure::new).unwrap_err(), &["text"]);
    }

    #[test]
    fn a_fault_stays_a_fault() {
        let text = "attempt 2 of `charge` did not end within 1.5s; whether it happened is unknown";
        let failures = [
            check(fault(), &[text]),
            check(anyhow::Error::new(fault()).context("while paying"), &["while paying", text]),
            check(Link("while paying", Some(Box::new(fault()))), &["while paying", text]),
            check(anyhow::anyhow!("inner").context(fault()), &[text, "inner"]),
            check(Failure::from(fault()), &[text]),
        ];
        for failure in failures {
            assert_eq!((failure.fault(), failure.kind()), (Some(&fault()), Some("timed_out")));
            assert_eq!(failure.with_kind("mine").kind(), Some("mine"));
        }
        assert_eq!(check(Elapsed::new(30_000), &["not ready within 30s"]).kind(), Some("elapsed"));
        assert_eq!(check(anyhow::anyhow!("other"), &["other"]).fault(), None);
    }

    #[test]
    fn every_fault_comes_back_and_says_what_it_is() {
        let (effect, reason) = (|| "pay".to_owned(), || "why".to_owned());
        let faults = [
            fault(),
            Fault::AttemptsUsedUp { effect: effect(), attempts: 1, last: reason(), crashed: true },
            Fault::Panicked { effect: effect(), attempt: 1, message: reason() },
            Fault::NotRecordable { effect: effect(), reason: reason(), size: None, limit: None },
            Fault::NotRecordable { effect: effect(), reason: reason(), size: Some(70_000), limit: Some(65_536) },
            Fault::InDoubt { effect: effect(), attempt: 1, reason: reason() },
            Fault::ResolvedAsFailed { effect: effect(), attempt: 1, reason: reason() },
            Fault::ChildCancelled { run: "run-1".to_owned(), reason: reason() },
            Fault::ChildIdTaken { run: "run-1".to_owned() },
        ];
        for fault in faults {
            let back: Fault = Value::encode_checked(&fault).unwrap().decode().unwrap();
            assert_eq!(back, fault);
            let text = fault.to_string();
            let subject = fault.effect().map_or("run-1".to_owned(), |effect| format!("`{effect}`"));
            assert!(text.contains(&subject) && !text.ends_with('.'), "{text}");
            assert_eq!(check(fault.clone(), &[&text]).kind(), Some(fault.kind()));
        }
    }

    #[test]
    fn a_long_text_is_cut_in_the_middle() {
        let check = |text: &str, cut: bool| {
            let short = shortened(text);
            assert_eq!(short != text, cut);
            assert!(short.len() <= text.len().min(2_100));
            let (head, tail) = (short.chars().next(), short.chars().last());
            assert_eq!((head, tail), (text.chars().next(), text.chars().last()));
        };
        check("", false);
        check(&"x".repeat(2_000), false);
        check(&"x".repeat(2_500), true);
        check(&format!("a{}b", "\u{1f980}".repeat(10_000)), true);
        check(&"ß".repeat(1_000_000), true);
    }

    #[test]
    fn a_value_is_data_or_words_but_never_null() {
        let value = |failure: Failure| failure.value().cloned();
        let new = || Failure::new("no");
        assert_eq!(value(new().with_value(&[Some(1), None])), Some(serde_json::json!([1, null])));
        assert_eq!(value(new().with_value(&f64::NAN)), Some(serde_json::json!("NaN")));
        assert_eq!(value(new().with_value(&())), None);
        let refused = value(new().with_value(&Some(())));
        assert!(refused.is_some_and(|json| json["$unrecorded"].is_string()));
        let failure = new().with_kind("kind").with_value(&serde_json::json!({ "a": null }));
        assert_eq!(Value::encode_checked(&failure).unwrap().decode::<Failure>().unwrap(), failure);
    }

    /// The environment of a process cannot be changed safely, so the test runs itself again: with backtraces, and in a
    /// thread of another name.
    #[test]
    fn a_record_is_the_same_with_backtraces_and_without() {
        const CHILD: &str = "DURABLE_TEST_FAILURE_CHILD";
        let record = || {
            let failures: [Failure; 3] = [
                three().into(),
                anyhow::Error::new(three()).context("while paying").into(),
                std::fs::read("\0").context("reading").unwrap_err().into(),
            ];
            format!("{:?} {}", failures, Value::encode(&failures).unwrap().digest())
        };
        let here = Builder::new().name("other".to_owned()).spawn(record).unwrap().join().unwrap();
        assert_eq!(here, record());
        if std::env::var_os(CHILD).is_some() {
            println!("<<{here}>>");
            return;
        }
        let module = module_path!().split_once("::").map_or("", |(_, module)| module);
        let name = format!("{module}::a_record_is_the_same_with_backtraces_and_without");
        for backtrace in ["0", "1", "full"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &name, "--nocapture", "--test-threads=1"])
                .env(CHILD, "1")
                .env("RUST_BACKTRACE", backtrace)
                .output()
                .unwrap();
            let output = String::from_utf8(child.stdout).unwrap();
            let there = output.split_once("<<").and_then(|(_, rest)| rest.split_once(">>")).map(|(record, _)| record);
            assert_eq!(there, Some(&*here), "RUST_BACKTRACE={backtrace}: {output}");
        }
    }
}
