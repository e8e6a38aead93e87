//! Colour where there is a terminal, plain text where there is none.

use std::{
    env, fmt,
    io::{IsTerminal, stdout},
};

#[derive(Clone, Copy)]
pub(crate) struct Paint {
    colour: bool,
}

impl Paint {
    /// Colour on a terminal only, and never where `NO_COLOR` is set (<https://no-color.org>).
    pub(crate) fn new() -> Paint {
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Paint { colour: stdout().is_terminal() && !unwanted }
    }

    pub(crate) fn title(self, text: impl fmt::Display) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: impl fmt::Display) -> String {
        self.with("2", text)
    }

    pub(crate) fn good(self, text: impl fmt::Display) -> String {
        self.with("32", text)
    }

    pub(crate) fn bad(self, text: impl fmt::Display) -> String {
        self.with("31", text)
    }

    fn with(self, code: &str, text: impl fmt::Display) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}
