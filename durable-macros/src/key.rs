//! `key = "{order_id}:refund:{cents}"`: the template of a business key.

use syn::LitStr;

use crate::{
    errors::Errors,
    model::{Key, Param, Piece, Role},
};

/// Reads a template; what is wrong with it is said at the literal, and then there is no key.
pub(crate) fn parse(literal: LitStr, errors: &mut Errors) -> Option<Key> {
    match pieces(&literal.value()) {
        Ok(pieces) => Some(Key { literal, pieces }),
        Err(text) => {
            errors.at(literal.span(), text);
            None
        }
    }
}

fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '{' | '}' if rest.peek() == Some(&c) => {
                rest.next();
                text.push(c);
            }
            '{' => {
                let name = placeholder(&mut rest)?;
                if text.is_empty()
                    && let Some(Piece::Value(before)) = pieces.last()
                {
                    return Err(format!(
                        "two arguments side by side: different pairs would give one key\n  \
                         put text between them: `{{{before}}}:{{{name}}}`"
                    ));
                }
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(Piece::Value(name));
            }
            '}' => return Err("a `}` without its `{`; the character itself is written `}}`".into()),
            c => text.push(c),
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    if !pieces.iter().any(|piece| matches!(piece, Piece::Value(_))) {
        return Err(
            "this key names no argument: all calls would have one key, and all but the first would do nothing\n  \
                    name an argument, as in `key = \"refund:{order_id}\"`, or write bare `key` for one key per step"
                .into(),
        );
    }
    Ok(pieces)
}

/// The name up to the closing brace.
fn placeholder(rest: &mut impl Iterator<Item = char>) -> Result<String, String> {
    let mut name = String::new();
    loop {
        match rest.next() {
            Some('}') => break,
            Some(c) => name.push(c),
            None => return Err("a `{` without its `}`; the character itself is written `{{`".into()),
        }
    }
    if name.is_empty() {
        return Err("a placeholder names an argument: `{order_id}`".into());
    }
    if syn::parse_str::<syn::Ident>(&name).is_err() && syn::parse_str::<syn::Ident>(&format!("r#{name}")).is_err() {
        return Err(format!(
            "`{{{name}}}` is more than the name of an argument\n  \
             make the value an argument of its own: it is shown as `Display` writes it"
        ));
    }
    Ok(name)
}

/// A key is made of recorded arguments that come out the same when the step is asked again.
pub(crate) fn check(key: &Key, params: &[Param], errors: &mut Errors) {
    for piece in &key.pieces {
        let Piece::Value(name) = piece else { continue };
        let text = match params.iter().find(|param| param.name() == *name).map(|param| &param.role) {
            Some(Role::Recorded { model_text: false }) => continue,
            Some(Role::Recorded { model_text: true }) => format!(
                "`{name}` is `#[model_text]`: a model words it anew each time, so it would pay under a new key each time\n  \
                 use an argument that names the business act, such as an order's id"
            ),
            Some(Role::Resource | Role::Context) => {
                format!("`{name}` is no recorded argument: it may be another one when the key is needed again")
            }
            None => {
                let known: Vec<_> = params
                    .iter()
                    .filter(|param| param.is_recorded())
                    .map(|param| format!("`{}`", param.name()))
                    .collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                format!("this effect has no argument `{name}`; its arguments: {known}")
            }
        };
        errors.at(key.literal.span(), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, expected: &[&str]) {
        let shown: Vec<_> = match pieces(template) {
            Ok(pieces) => pieces
                .into_iter()
                .map(|piece| match piece {
                    Piece::Text(text) => text,
                    Piece::Value(name) => format!("<{name}>"),
                })
                .collect(),
            Err(text) => vec![format!("error: {}", text.lines().next().unwrap_or_default())],
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_template_is_text_and_arguments_in_turn() {
        check("{order_id}:refund:{cents}", &["<order_id>", ":refund:", "<cents>"]);
        check("v1/{type}", &["v1/", "<type>"]);
    }

    #[test]
    fn doubled_braces_are_text() {
        check("{{{id}}}", &["{", "<id>", "}"]);
    }

    #[test]
    fn a_template_that_two_acts_could_share_is_refused() {
        check("{a}{b}", &["error: two arguments side by side: different pairs would give one key"]);
        check(
            "refund",
            &[
                "error: this key names no argument: all calls would have one key, and all but the first would do nothing",
            ],
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        check("{order.id}", &["error: `{order.id}` is more than the name of an argument"]);
        check("{cents:05}", &["error: `{cents:05}` is more than the name of an argument"]);
        check("{}", &["error: a placeholder names an argument: `{order_id}`"]);
        check("{a", &["error: a `{` without its `}`; the character itself is written `{{`"]);
        check("a}", &["error: a `}` without its `{`; the character itself is written `}}`"]);
    }
}
