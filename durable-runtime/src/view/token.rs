//! How an open question is named outside of its run.

use std::fmt::Write as _;

use crate::id::{Generation, RunId};

/// What a token says: the question's run, log and path. As text `RUN:LOG:PATH`, each token of one form only, and made of
/// what a shell, a chat or a link leaves alone: `[n]` of a path is written `@n`, and whatever else could be taken for more than a
/// character is escaped as in a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) run: RunId,
    pub(crate) generation: Generation,
    pub(crate) path: String,
}

impl Token {
    pub(crate) fn text(&self) -> String {
        write(self.run.as_str(), self.generation, &self.path)
    }

    /// Reads what [`Token::text`] wrote, and nothing else.
    pub(crate) fn read(text: &str) -> Option<Token> {
        let (run, rest) = text.split_once(':')?;
        let (generation, path) = rest.split_once(':')?;
        let run = RunId::new(unescape(run, false)?).ok()?;
        let token = Token { run, generation: Generation(generation.parse().ok()?), path: unescape(path, true)? };
        (token.text() == text).then_some(token)
    }
}

fn write(run: &str, generation: Generation, path: &str) -> String {
    let mut text = String::new();
    escape(&mut text, run, false);
    let _ = write!(text, ":{generation}:");
    escape(&mut text, path, true);
    text
}

/// `path`: in a path brackets stand only behind a name, around its number.
fn escape(out: &mut String, text: &str, path: bool) {
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            // A text that begins so could be taken for an option.
            b'-' if i == 0 && !path => out.push_str("%2D"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b'+' | b',' => {
                out.push(char::from(byte))
            }
            b'@' if !path => out.push('@'),
            b':' if path => out.push(':'),
            b'[' if path => out.push('@'),
            b']' if path => {}
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

fn unescape(text: &str, path: bool) -> Option<String> {
    let (mut bytes, mut out, mut numbering) = (text.bytes(), Vec::new(), false);
    while let Some(byte) = bytes.next() {
        if numbering && !byte.is_ascii_digit() {
            out.push(b']');
            numbering = false;
        }
        match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            b'@' if path => {
                out.push(b'[');
                numbering = true;
            }
            byte => out.push(byte),
        }
    }
    if numbering {
        out.push(b']');
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(run: &str, generation: u32, path: &str) -> Token {
        Token { run: RunId::new(run).unwrap(), generation: Generation(generation), path: path.into() }
    }

    #[track_caller]
    fn check(run: &str, generation: u32, path: &str, text: &str) {
        let token = token(run, generation, path);
        assert_eq!(token.text(), text);
        assert_eq!(Token::read(text), Some(token));
    }

    #[test]
    fn a_token_of_an_ordinary_run_is_readable() {
        check("order-17", 0, "ask[0]", "order-17:0:ask@0");
        check("refunds/ORD-3300", 12, "turn[3]/join[0]/1/ask[0]", "refunds/ORD-3300:12:turn@3/join@0/1/ask@0");
        check("a@b.example", 0, "refund:now[10]", "a@b.example:0:refund:now@10");
    }

    #[test]
    fn whatever_a_shell_could_take_for_more_is_escaped() {
        check("-rf", 0, "ask[0]", "%2Drf:0:ask@0");
        check("$(rm -rf ~)", 0, "a b[0]", "%24%28rm%20-rf%20%7E%29:0:a%20b@0");
        check("a:b%", 0, "50%2F50[0]", "a%3Ab%25:0:50%252F50@0");
        check(
            "Auftrag 7 \u{fc}ber \u{1f600}",
            0,
            "\u{2026}[1]",
            "Auftrag%207%20%C3%BCber%20%F0%9F%98%80:0:%E2%80%A6@1",
        );
        check(
            "\n'\"`\\;|&<>*?[]{}!#=^",
            0,
            "a@b[0]",
            "%0A%27%22%60%5C%3B%7C%26%3C%3E%2A%3F%5B%5D%7B%7D%21%23%3D%5E:0:a%40b@0",
        );
    }

    #[test]
    fn another_text_for_the_same_thing_is_no_token() {
        for text in [
            "",
            "a",
            "a:0",
            ":0:ask@0",
            "a:x:ask@0",
            "a:00:ask@0",
            "a:+1:ask@0",
            "a:0:%61sk@0",
            "a:0:ask[0]",
            "a%2d:0:ask@0",
            "a%:0:ask@0",
            "a%4:0:ask@0",
            "%FF:0:ask@0",
            "a:4294967296:ask@0",
            " a:0:ask@0",
            "a:0:ask@0 ",
            "-a:0:ask@0",
        ] {
            assert_eq!(Token::read(text), None, "{text:?}");
        }
    }
}
