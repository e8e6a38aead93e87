//! The options in an attribute's parentheses, and every rule about them.

use quote::ToTokens;
use syn::{Expr, ExprLit, ExprPath, Ident, Lit, LitStr, ext::IdentExt};

use crate::{
    check::show,
    errors::Errors,
    key,
    model::{Contract, EffectOptions, InDoubt, Retry},
    parse::Written,
};

/// What may be leased from an effect: long enough for a slow model, short enough that a hung provider is noticed.
const OUTWARD_TIMEOUT_MS: u64 = 5 * 60_000;

const CONTRACTS: &str = "an effect says what a repeat of it would do, for the process may die in the middle of it\n  \
    read_only           nobody outside could tell: a search, a stateless model call\n  \
    idempotent          no harm, even late or after later steps: set a field to a value\n  \
    key = \"{arg}:..\"    the provider knows the key and answers as the first time\n  \
    at_most_once        harm: never run again unless a person or `reconcile(..)` says so\n  \
    for example: `#[durable::effect(read_only)]`";

const OPTIONS: &str = "contracts: `read_only`, `idempotent`, `key`, `key = \"..\"`, `at_most_once`\n  \
    options: `name = \"..\"`, `kind = \"..\"`, `timeout = \"30s\"`, `retry(..)`, `reconcile(..)`, `in_doubt = error`";

/// The options of `#[durable::effect]`. What is missing or wrong is said, and stands for the most careful choice.
pub(crate) fn effect(written: Option<Vec<Written>>, errors: &mut Errors) -> EffectOptions {
    let mut reader = Reader { errors, seen: Vec::new() };
    let mut contract: Option<(Ident, Contract)> = None;
    let mut in_doubt: Option<(Ident, InDoubt)> = None;
    let mut retry: Option<(Ident, Option<Retry>)> = None;
    let mut timeout: Option<Option<u64>> = None;
    let (mut name, mut kind) = (None, None);
    // A contract that is misspelt or did not parse is no missing contract.
    let mut may_lack = written.is_some();
    for option in written.unwrap_or_default() {
        let Some(word) = reader.word(&option) else {
            reader.unknown(&option, "an effect", OPTIONS);
            may_lack = false;
            continue;
        };
        match (word.to_string().as_str(), option) {
            ("read_only" | "idempotent" | "key" | "at_most_once", option) => {
                let made = reader.contract(&word, option);
                match &contract {
                    Some((first, _)) if *first == word => {}
                    Some((first, _)) => reader.errors.at(
                        word.span(),
                        format!("`{first}` and `{word}` are two contracts\n  an effect has one: keep the weaker promise that is true"),
                    ),
                    None => contract = Some((word, made)),
                }
            }
            ("reconcile", option) => {
                let made = reader.reconcile(&word, option);
                reader.doubt(&mut in_doubt, word, made);
            }
            ("in_doubt", option) => {
                let made = reader.in_doubt(&word, option);
                reader.doubt(&mut in_doubt, word, made);
            }
            ("retry", option) => {
                let made = reader.retry(&word, option);
                retry.get_or_insert((word, made));
            }
            ("timeout", option) => {
                let made = reader.duration(&word, option);
                timeout.get_or_insert(made);
            }
            ("name", option) => name = reader.string(&word, option).or(name),
            ("kind", option) => kind = reader.string(&word, option).or(kind),
            (_, option) => {
                reader.unknown(&option, "an effect", OPTIONS);
                may_lack = false;
            }
        }
    }
    if contract.is_none() && may_lack {
        reader.errors.at(proc_macro2::Span::call_site(), CONTRACTS);
    }
    let errors = reader.errors;
    let is_known = contract.is_some();
    let mut contract = contract.map_or(Contract::AtMostOnce(InDoubt::Hold), |(_, contract)| contract);
    match (&mut contract, in_doubt) {
        (Contract::AtMostOnce(chosen), Some((_, made))) => *chosen = made,
        (_, Some((word, _))) if is_known => errors.at(
            word.span(),
            format!("`{word}` goes with `at_most_once` only: under this contract a step in doubt simply runs again"),
        ),
        _ => {}
    }
    if let (Contract::AtMostOnce(_), Some((word, _)), true) = (&contract, &retry, is_known) {
        errors.at(
            word.span(),
            "`at_most_once` is never tried again: an error may have come after the act\n  \
             leave `retry` out, or give the provider a `key`",
        );
    }
    let timeout_ms = match (timeout, &contract) {
        (Some(given), _) => given,
        (None, Contract::ReadOnly) => None,
        (None, _) => Some(OUTWARD_TIMEOUT_MS),
    };
    EffectOptions { contract, name, kind, retry: retry.and_then(|(_, retry)| retry), timeout_ms }
}

/// The options of `#[durable::workflow]`: its explicit name.
pub(crate) fn workflow(written: Option<Vec<Written>>, errors: &mut Errors) -> Option<LitStr> {
    let mut reader = Reader { errors, seen: Vec::new() };
    let mut name = None;
    for option in written.unwrap_or_default() {
        match reader.word(&option) {
            Some(word) if word == "name" => name = reader.string(&word, option).or(name),
            _ => reader.unknown(&option, "a workflow", "its one option: `name = \"..\"`"),
        }
    }
    name
}

/// The options of `#[durable::part]`: none.
pub(crate) fn part(written: Option<Vec<Written>>, errors: &mut Errors) {
    for option in written.unwrap_or_default() {
        errors.on(option, "a part has no options: it is never stored, its steps are");
    }
}

struct Reader<'a> {
    errors: &'a mut Errors,
    seen: Vec<Ident>,
}

impl Reader<'_> {
    /// The option's keyword, said to be repeated if it is; `None` for a path.
    fn word(&mut self, option: &Written) -> Option<Ident> {
        let (Written::Word(word) | Written::Assigned(word, _) | Written::List(word, _)) = option else { return None };
        if self.seen.contains(word) {
            self.errors.at(word.span(), format!("`{word}` is given twice"));
        }
        self.seen.push(word.clone());
        Some(word.clone())
    }

    fn unknown(&mut self, option: &Written, whose: &str, known: &str) {
        let shown = match option {
            Written::Path(path) => show(&path.to_token_stream()),
            Written::Word(word) | Written::Assigned(word, _) | Written::List(word, _) => word.to_string(),
        };
        let at = match option {
            Written::Path(path) => path.to_token_stream(),
            Written::Word(word) | Written::Assigned(word, _) | Written::List(word, _) => word.to_token_stream(),
        };
        self.errors.on(at, format!("{whose} has no option `{shown}`\n  {known}"));
    }

    fn contract(&mut self, word: &Ident, option: Written) -> Contract {
        match (word.to_string().as_str(), option) {
            ("read_only", Written::Word(_)) => Contract::ReadOnly,
            ("idempotent", Written::Word(_)) => Contract::Idempotent,
            ("at_most_once", Written::Word(_)) => Contract::AtMostOnce(InDoubt::Hold),
            ("key", Written::Word(_)) => Contract::Keyed(None),
            ("key", option) => {
                let template = self.string_of(word, option, "key = \"{order_id}:refund\"");
                Contract::Keyed(template.and_then(|template| key::parse(template, self.errors)))
            }
            (kind, option) => {
                let more = if kind == "at_most_once" {
                    "; what happens in doubt stands beside it: `at_most_once, reconcile(..)`"
                } else {
                    ""
                };
                self.errors.on(value(&option), format!("`{kind}` takes no value{more}"));
                match kind {
                    "read_only" => Contract::ReadOnly,
                    "idempotent" => Contract::Idempotent,
                    _ => Contract::AtMostOnce(InDoubt::Hold),
                }
            }
        }
    }

    /// Keeps the first of `reconcile(..)` and `in_doubt = error`.
    fn doubt(&mut self, kept: &mut Option<(Ident, InDoubt)>, word: Ident, made: InDoubt) {
        match kept {
            Some((first, _)) if *first == word => {}
            Some((first, _)) => self
                .errors
                .at(word.span(), format!("`{first}` already says what happens in doubt; keep one of the two")),
            None => *kept = Some((word, made)),
        }
    }

    fn in_doubt(&mut self, word: &Ident, option: Written) -> InDoubt {
        if let Written::Assigned(_, Expr::Path(path)) = &option
            && path.path.is_ident("error")
        {
            return InDoubt::Error;
        }
        self.errors.on(
            value(&option),
            format!("write `{word} = error`; to wait for a person is the default, to look it up is `reconcile(..)`"),
        );
        InDoubt::Hold
    }

    fn reconcile(&mut self, word: &Ident, option: Written) -> InDoubt {
        const FORM: &str = "reconcile(find_charge, settle = \"2m\")";
        let Written::List(_, list) = option else {
            self.errors.on(value(&option), format!("write `{FORM}`"));
            return InDoubt::Hold;
        };
        let mut path = None;
        let mut settle = None;
        let mut fine = true;
        for item in list {
            match item {
                Written::Assigned(key, _) if key == "settle" && settle.is_some() => {
                    self.errors.at(key.span(), "`settle` is given twice");
                }
                Written::Assigned(ref key, _) if key == "settle" => {
                    let key = key.clone();
                    settle = Some(self.duration(&key, item));
                }
                Written::Word(name) if path.is_none() => path = Some(name.into()),
                Written::Path(name) if path.is_none() => path = Some(name.path),
                other => {
                    self.errors.on(other, format!("`reconcile` takes one function and `settle`: `{FORM}`"));
                    fine = false;
                }
            }
        }
        if path.is_none() && fine {
            self.errors
                .at(word.span(), format!("`reconcile` needs the function that finds out what happened: `{FORM}`"));
        }
        if settle.is_none() && fine && path.is_some() {
            self.errors.at(
                word.span(),
                format!(
                    "`reconcile` needs `settle`: a request of the dead process may still be under way\n  \
                     give the longest time it can travel, as in `{FORM}`"
                ),
            );
        }
        match (path, settle.flatten()) {
            (Some(path), Some(settle_ms)) => {
                InDoubt::Reconcile { path: ExprPath { attrs: Vec::new(), qself: None, path }, settle_ms }
            }
            _ => InDoubt::Hold,
        }
    }

    fn retry(&mut self, word: &Ident, option: Written) -> Option<Retry> {
        const FORM: &str = "retry(attempts = 5)";
        let Written::List(_, list) = option else {
            self.errors.on(value(&option), format!("write `{FORM}`"));
            return None;
        };
        let mut retry = Retry { attempts: 0, first_ms: 1_000, max_ms: 60_000, factor: 2.0, only_if: None };
        let mut seen: Vec<Ident> = Vec::new();
        for item in list {
            let Written::Assigned(key, given) = &item else {
                self.errors.on(item, RETRY_KEYS);
                return None;
            };
            if seen.contains(key) {
                self.errors.at(key.span(), format!("`{key}` is given twice"));
                continue;
            }
            seen.push(key.clone());
            let key = key.clone();
            match (key.to_string().as_str(), given) {
                ("attempts", Expr::Lit(ExprLit { lit: Lit::Int(n), .. })) if n.base10_parse().is_ok_and(|n: u32| n > 0) => {
                    retry.attempts = n.base10_parse().unwrap_or(1);
                }
                ("attempts", other) => self.errors.on(
                    other,
                    "`attempts` is a number of at least 1: how many bodies may ever begin, the first and those that a crash ended included",
                ),
                ("first", _) => retry.first_ms = self.duration(&key, item).unwrap_or(0),
                ("max", _) => retry.max_ms = self.duration(&key, item).unwrap_or(u64::MAX),
                ("factor", Expr::Lit(ExprLit { lit, .. })) if number(lit).is_some_and(|n| n >= 1.0) => {
                    retry.factor = number(lit).unwrap_or(1.0);
                }
                ("factor", other) => {
                    self.errors.on(other, "`factor` is a number of at least 1: each wait is that many times the one before");
                }
                ("if", Expr::Path(path)) => retry.only_if = Some(path.clone()),
                ("if", other) => {
                    self.errors.on(other, "`if` names a function `fn(&E) -> bool` of the error: `if = PaymentError::is_transient`");
                }
                _ => self.errors.at(key.span(), RETRY_KEYS),
            }
        }
        if retry.first_ms > retry.max_ms {
            let first = seen.iter().find(|key| *key == "first").unwrap_or(word);
            self.errors.at(first.span(), "the first wait is longer than the longest (`max`, one minute unless given)");
        }
        if !seen.iter().any(|key| key == "attempts") {
            self.errors.at(word.span(), format!("`retry` needs `attempts`, how many bodies may ever begin: `{FORM}`"));
        }
        (retry.attempts > 0).then_some(retry)
    }

    /// `timeout = "30s"`, in milliseconds.
    fn duration(&mut self, word: &Ident, option: Written) -> Option<u64> {
        let literal = self.string_of(word, option, &format!("{word} = \"30s\""))?;
        match milliseconds(&literal.value()) {
            Some(0) => self.errors.at(literal.span(), format!("`{word}` must be longer than nothing")),
            Some(ms) => return Some(ms),
            None => self.errors.at(
                literal.span(),
                "a duration is a whole number and its unit: \"500ms\", \"30s\", \"2m\", \"1h\", \"1d\"",
            ),
        }
        None
    }

    fn string(&mut self, word: &Ident, option: Written) -> Option<LitStr> {
        let literal = self.string_of(word, option, &format!("{word} = \"..\""))?;
        if literal.value().trim().is_empty() {
            self.errors.at(literal.span(), format!("`{word}` must not be empty"));
            return None;
        }
        Some(literal)
    }

    /// The string literal after `=`; `form` is what should have been written.
    fn string_of(&mut self, word: &Ident, option: Written, form: &str) -> Option<LitStr> {
        match option {
            Written::Assigned(_, Expr::Lit(ExprLit { lit: Lit::Str(literal), .. })) => Some(literal),
            // As a macro's `$key:literal` stands there.
            Written::Assigned(at, Expr::Group(group)) => self.string_of(word, Written::Assigned(at, *group.expr), form),
            other => {
                self.errors.on(value(&other), format!("`{}` is a string: `{form}`", word.unraw()));
                None
            }
        }
    }
}

const RETRY_KEYS: &str = "`retry` has `attempts = 5`, `first = \"1s\"`, `max = \"1m\"`, `factor = 2`, `if = path`";

/// The tokens to point at when an option's value is wrong.
fn value(option: &Written) -> proc_macro2::TokenStream {
    match option {
        Written::Assigned(_, value) => value.to_token_stream(),
        other => other.to_token_stream(),
    }
}

fn number(lit: &Lit) -> Option<f64> {
    let number: f64 = match lit {
        Lit::Int(n) => n.base10_parse().ok()?,
        Lit::Float(n) => n.base10_parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

fn milliseconds(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at(split);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_ms)
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn a_duration_is_a_whole_number_and_its_unit() {
        let check = |text, expected| assert_eq!(milliseconds(text), expected, "{text}");
        check("500ms", Some(500));
        check("30s", Some(30_000));
        check("2m", Some(120_000));
        check("1h", Some(3_600_000));
        check("1d", Some(86_400_000));
        check("1.5s", None);
        check("30", None);
        check("s", None);
        check("", None);
        check("30 s", None);
        check("99999999999999999999s", None);
        check("999999999999999999d", None);
    }
}
