//! A subscriber that keeps what is said, with the spans around it.

#![allow(dead_code, reason = "each test binary takes what it needs")]

use std::{
    fmt::Write,
    sync::{Arc, LazyLock, Mutex},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_core::span::Current;

/// Keeps, in the order seen, the spans that were made and the events, each with the spans around it.
#[derive(Default)]
struct Kept {
    lines: Vec<String>,
    spans: Vec<String>,
}

/// What the spans kept are, by number.
static MADE: Mutex<Vec<&'static Metadata<'static>>> = Mutex::new(Vec::new());

static KEPT: LazyLock<Arc<Mutex<Kept>>> = LazyLock::new(Arc::default);

thread_local! {
    static ENTERED: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

struct Keeps {
    /// The test's own crate, beside the library.
    target: &'static str,
}

/// From now on what the library and `target` say is kept, in the whole process.
pub(crate) fn keep(target: &'static str) {
    let _ = tracing::subscriber::set_global_default(Keeps { target });
}

/// The lines kept about that run since `from`.
pub(crate) fn lines_of(run: &str, from: usize) -> Vec<String> {
    let kept = KEPT.lock().unwrap();
    kept.lines[from..].iter().filter(|line| line.contains(&format!("id={run}"))).cloned().collect()
}

/// How many lines are kept.
pub(crate) fn kept() -> usize {
    KEPT.lock().unwrap().lines.len()
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => write!(self.0, " {value:?}").unwrap(),
            name => write!(self.0, " {name}={value:?}").unwrap(),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, " {}={value}", field.name()).unwrap();
    }
}

impl Subscriber for Keeps {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        target.starts_with("durable") || target.starts_with(self.target)
    }

    /// A span is told with those around it, so with the run it belongs to.
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(String::new());
        if let Some(around) = ENTERED.with_borrow(|entered| entered.last().copied()) {
            write!(fields.0, "{} > ", KEPT.lock().unwrap().spans[around as usize - 1]).unwrap();
        }
        fields.0.push_str(span.metadata().name());
        span.record(&mut fields);
        let mut kept = KEPT.lock().unwrap();
        kept.spans.push(fields.0.clone());
        kept.lines.push(format!("span {}", fields.0));
        MADE.lock().unwrap().push(span.metadata());
        Id::from_u64(kept.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let mut kept = KEPT.lock().unwrap();
        let around = ENTERED.with_borrow(|entered| entered.last().copied());
        let around = around.map_or_else(String::new, |id| kept.spans[id as usize - 1].clone());
        kept.lines.push(format!("[{around}]{}", fields.0));
    }

    fn current_span(&self) -> Current {
        let Some(id) = ENTERED.with_borrow(|entered| entered.last().copied()) else { return Current::none() };
        Current::new(Id::from_u64(id), MADE.lock().unwrap()[id as usize - 1])
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| {
            if let Some(at) = entered.iter().rposition(|id| *id == span.into_u64()) {
                entered.remove(at);
            }
        });
    }
}
