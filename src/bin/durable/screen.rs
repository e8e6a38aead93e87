//! Where output goes: a person's terminal, or a program.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    time::{Duration, SystemTime},
};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::{
    failed::Failed,
    table::Table,
    text::{clean, quoted},
};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BUSY: Style = AnsiColor::Cyan.on_default();
pub(crate) const WAITS: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();

/// What takes longer than this shows how far it is.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

/// How the output is to look.
#[derive(Clone)]
pub(crate) struct Screen {
    /// JSON, for a program.
    pub(crate) json: bool,
    /// Somebody looks at it.
    pub(crate) terminal: bool,
    /// Columns.
    pub(crate) width: Option<usize>,
    pub(crate) now: SystemTime,
    /// What a command line that a person is told begins with: the command, and the store if it had to be named.
    pub(crate) durable: String,
}

impl Screen {
    /// `named`: the store that this command line names.
    #[expect(clippy::disallowed_methods, reason = "the command shows ages; it decides nothing by the clock")]
    pub(crate) fn new(json: bool, named: Option<&Path>) -> Screen {
        let terminal = io::stdout().is_terminal();
        let width = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        let store = named.map(|store| format!(" --store {}", quoted(&store.display().to_string())));
        let durable = format!("durable{}", store.unwrap_or_default());
        Screen { json, terminal, width: width.filter(|_| terminal), now: SystemTime::now(), durable }
    }

    /// A line for a person. Styles in it are left out where there is no terminal.
    pub(crate) fn line(&self, line: impl AsRef<str>) -> Result<(), Failed> {
        let mut out = anstream::stdout().lock();
        out.write_all(line.as_ref().as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()?;
        Ok(())
    }

    /// A JSON document in a line.
    pub(crate) fn document(&self, document: &impl Serialize) -> Result<(), Failed> {
        let line = serde_json::to_string(document).map_err(io::Error::from)?;
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()?;
        Ok(())
    }

    /// The one thing there is to say: as a JSON document, or in words.
    pub(crate) fn said(&self, document: &impl Serialize, words: impl AsRef<str>) -> Result<(), Failed> {
        match self.json {
            true => self.document(document),
            false => self.line(words),
        }
    }

    /// A remark beside the output, for a person only.
    pub(crate) fn remark(&self, text: impl AsRef<str>) {
        if !self.json {
            // Nobody has to hear it.
            let _ = writeln!(anstream::stderr(), "{}", text.as_ref());
        }
    }

    /// What is waited for, on standard error: nobody may take a command that waits for one that has died.
    pub(crate) fn waits(&self, text: &str) {
        match self.json {
            true => drop(writeln!(io::stderr(), "{}", serde_json::json!({ "waiting": text }))),
            false => self.remark(clean(text)),
        }
    }

    /// A table on a terminal; else its rows, with tabs between.
    pub(crate) fn table(&self, table: &Table) -> Result<(), Failed> {
        let mut out = anstream::stdout().lock();
        for line in table.lines(self.terminal, self.width) {
            out.write_all(line.as_bytes())?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(())
    }
}

/// A bar on standard error, from the second second on, if somebody looks there.
pub(crate) struct Progress {
    bar: ProgressBar,
    shown: bool,
}

impl Progress {
    pub(crate) fn new(what: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what.to_owned());
        Progress { bar, shown: false }
    }

    pub(crate) fn at(&mut self, done: u64, of: Option<u64>) {
        if !self.shown && self.bar.elapsed() >= PROGRESS_AFTER && io::stderr().is_terminal() {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            let look = match of {
                Some(_) => "{msg} {wide_bar} {human_pos}/{human_len} {eta}",
                None => "{spinner} {msg} {human_pos}",
            };
            if let Ok(style) = ProgressStyle::with_template(look) {
                self.bar.set_style(style);
            }
        }
        if let Some(of) = of {
            self.bar.set_length(of);
        }
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A text in a style.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// The colour of a state.
pub(crate) fn of_state(state: &str) -> Style {
    match state {
        "completed" | "done" => GOOD,
        "failed" | "parked" | "held" | "storage trouble" | "in doubt" => BAD,
        "running" | "opening" | "under way" | "ending" => BUSY,
        "cancelled" | "dropped" => FAINT,
        _ => WAITS,
    }
}
