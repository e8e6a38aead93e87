//! Texts of others on a person's terminal.

use std::{
    borrow::Cow,
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use serde_json::Value as Json;

/// Whether a character could move the cursor, change the direction of the text, or not be seen at all.
fn is_tricky(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}'
            | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

/// A text in one line, with all that could deceive a reader written as `\u{..}`. Where that is so a backslash is doubled, so that
/// [`unescape`] gives the text back.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_tricky) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\\' => clean.push_str("\\\\"),
            '\n' => clean.push_str("\\n"),
            '\t' => clean.push_str("\\t"),
            '\r' => clean.push_str("\\r"),
            c if is_tricky(c) => {
                let _ = write!(clean, "\\u{{{:x}}}", u32::from(c));
            }
            c => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// As [`clean`], but the text keeps its lines.
pub(crate) fn clean_lines(text: &str) -> String {
    let lines: Vec<Cow<'_, str>> = text.lines().map(clean).collect();
    lines.join("\n")
}

/// The text that [`clean`] has written, whatever it had to escape.
///
/// # Errors
///
/// An escape that there is not.
pub(crate) fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let (c, length) = match escape.chars().next() {
            Some('\\') => ('\\', 1),
            Some('n') => ('\n', 1),
            Some('t') => ('\t', 1),
            Some('r') => ('\r', 1),
            Some('u') => {
                let number = escape[1..].strip_prefix('{').and_then(|rest| Some(&rest[..rest.find('}')?]));
                let c = number.and_then(|number| char::from_u32(u32::from_str_radix(number, 16).ok()?));
                match (c, number) {
                    (Some(c), Some(number)) => (c, number.len() + 3),
                    _ => return Err(format!("\\{} is no escape: write \\u{{..}} with a number", clean(escape))),
                }
            }
            _ => return Err("a backslash is written \\\\".to_owned()),
        };
        plain.push(c);
        rest = &escape[length..];
    }
    plain.push_str(rest);
    Ok(plain)
}

/// A value in one line.
pub(crate) fn json(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => clean(text).into_owned(),
        other => clean(&other.to_string()).into_owned(),
    }
}

/// The first so many characters.
pub(crate) fn short(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.chars().take(most.saturating_sub(1)).chain(['…']).collect()),
    }
}

/// A word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A run's id as the last word or words of a command line that a person can paste.
pub(crate) fn run_word(run: &str) -> String {
    let tricky = run.chars().any(is_tricky);
    let word = quoted(&clean(run));
    let escaped = if tricky { "--escaped " } else { "" };
    let dashes = if run.starts_with('-') { "-- " } else { "" };
    format!("{escaped}{dashes}{word}")
}

/// The two largest units of a duration.
pub(crate) fn lasting(ms: u64) -> String {
    const UNITS: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let first = UNITS.iter().position(|(_, unit)| ms >= *unit).unwrap_or(UNITS.len() - 1);
    let (name, unit) = UNITS[first];
    let mut text = format!("{}{name}", ms / unit);
    if let Some((below, part)) = UNITS.get(first + 1).map(|(name, part)| (name, ms % unit / part))
        && part > 0
        && ms < 10 * unit
    {
        let _ = write!(text, " {part}{below}");
    }
    text
}

/// How long ago a time of an answer was, in seconds and more.
pub(crate) fn ago(now: SystemTime, time: &str) -> String {
    let then = humantime::parse_rfc3339(time).ok();
    match then.map(|then| now.duration_since(then).unwrap_or(Duration::ZERO).as_secs()) {
        Some(0) => "0s".to_owned(),
        Some(secs) => lasting(secs.saturating_mul(1_000)),
        None => clean(time).into_owned(),
    }
}

/// How many of something.
pub(crate) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_deceive_is_escaped_and_comes_back() {
        let check = |text: &str, shown: &str| {
            assert_eq!(clean(text), shown);
            if text != shown {
                assert_eq!(unescape(shown).as_deref(), Ok(text));
            }
        };
        check("order 17/\u{1F600}", "order 17/\u{1F600}");
        check("c:\\dir", "c:\\dir");
        check("a\nb\\n", "a\\nb\\\\n");
        check("\u{1b}[2J\u{7}", "\\u{1b}[2J\\u{7}");
        check("\u{202E}evil\u{2066}", "\\u{202e}evil\\u{2066}");
        check("\u{9b}31m\0\u{200b}", "\\u{9b}31m\\u{0}\\u{200b}");
    }

    #[test]
    fn what_is_no_escape_is_refused() {
        for text in ["\\", "\\x", "\\u", "\\u{", "\\u{}", "\\u{110000}", "\\u{d800}", "\\u{zz}"] {
            assert!(unescape(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_id_can_be_pasted_into_a_shell() {
        assert_eq!(run_word("run-7f3a"), "run-7f3a");
        assert_eq!(run_word("it's"), "'it'\\''s'");
        assert_eq!(run_word("-x"), "-- -x");
        assert_eq!(run_word("a\nb"), "--escaped 'a\\nb'");
        assert_eq!(run_word(" "), "' '");
    }

    #[test]
    fn a_duration_has_its_two_largest_units() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_500, "1s 500ms"),
            (61_000, "1m 1s"),
            (36_000_000, "10h"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(lasting(ms), text);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(short("ééé", 3), "ééé");
        assert_eq!(short("éééé", 3), "éé…");
    }
}
