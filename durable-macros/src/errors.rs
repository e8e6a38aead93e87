//! Collects every mistake of one item, so that all are said at once.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The mistakes found so far. Each is one `compile_error!` at the tokens that must change.
#[derive(Default)]
pub(crate) struct Errors {
    found: Option<syn::Error>,
    count: usize,
}

impl Errors {
    /// Notes a mistake at one token.
    pub(crate) fn at(&mut self, span: Span, text: impl Into<String>) {
        self.add(syn::Error::new(span, text.into()));
    }

    /// Notes a mistake at all of `tokens`, first to last.
    pub(crate) fn on(&mut self, tokens: impl ToTokens, text: impl Into<String>) {
        self.add(syn::Error::new_spanned(tokens, text.into()));
    }

    /// Takes over what a parser found.
    pub(crate) fn add(&mut self, error: syn::Error) {
        self.count += 1;
        match &mut self.found {
            Some(found) => found.combine(error),
            None => self.found = Some(error),
        }
    }

    /// How many mistakes were noted; a stage that raises it has found some.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The `compile_error!`s.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.found.map(|found| found.to_compile_error()).unwrap_or_default()
    }
}
