//! Tokens to what was written, before any judgement.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, Expr, ExprPath, Ident, Signature, Token, Visibility, ext::IdentExt, parenthesized, parse::Parse,
    parse::ParseStream, parse::Parser, punctuated::Punctuated, token,
};

use crate::errors::Errors;

/// A function whose body is still tokens: effects never look into theirs, and editors complete in a body only as long
/// as its tokens come back untouched.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    /// The body in its braces; `None` for a method that a trait only declares.
    pub(crate) body: Option<Group>,
}

impl Parse for Function {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let sig = input.parse()?;
        let body = if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
            None
        } else {
            Some(braces(input)?)
        };
        Ok(Function { attrs, vis, sig, body })
    }
}

fn braces(input: ParseStream) -> syn::Result<Group> {
    input.step(|cursor| match cursor.token_tree() {
        Some((TokenTree::Group(group), rest)) => match brace(group) {
            Some(group) => Ok((group, rest)),
            None => Err(cursor.error("expected the function's body")),
        },
        _ => Err(cursor.error("expected the function's body")),
    })
}

/// The body in its braces; what `macro_rules` matched as a block has an invisible pair around it.
fn brace(group: Group) -> Option<Group> {
    match group.delimiter() {
        Delimiter::Brace => Some(group),
        Delimiter::None => match group.stream().into_iter().next() {
            Some(TokenTree::Group(inner)) => brace(inner),
            _ => None,
        },
        _ => None,
    }
}

impl Function {
    /// Parses the item an attribute stands on; an item of another sort is told apart by its keyword.
    pub(crate) fn of(item: TokenStream, attribute: &str) -> syn::Result<Function> {
        syn::parse2(item.clone()).map_err(|error| match syn::parse2::<syn::Item>(item) {
            Ok(other) if !matches!(other, syn::Item::Fn(_) | syn::Item::Verbatim(_)) => syn::Error::new_spanned(
                without_attributes(other),
                format!("`#[durable::{attribute}]` stands on an `async fn`, and this is none"),
            ),
            _ => error,
        })
    }
}

/// The first token of an item that says what it is.
fn without_attributes(item: syn::Item) -> TokenTree {
    let is_name = |tree: &TokenTree| matches!(tree, TokenTree::Ident(ident) if ident != "pub");
    let mut trees = item.into_token_stream().into_iter();
    trees.find(is_name).unwrap_or_else(|| TokenTree::Ident(Ident::new("item", Span::call_site())))
}

/// One option of an attribute, or of a list inside one.
pub(crate) enum Written {
    /// `read_only`
    Word(Ident),
    /// `timeout = "30s"`
    Assigned(Ident, Expr),
    /// `retry(attempts = 5)`
    List(Ident, Vec<Written>),
    /// `payments::find`: only a list takes one.
    Path(ExprPath),
}

impl Parse for Written {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        if input.peek2(Token![::]) || input.peek(Token![::]) {
            return input.parse().map(Written::Path);
        }
        if !input.peek(Ident::peek_any) {
            return Err(input.error("expected an option: `name` or `name = value`"));
        }
        let name = input.call(Ident::parse_any)?;
        if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            return Ok(Written::Assigned(name, input.parse()?));
        }
        if input.peek(token::Paren) {
            let inner;
            parenthesized!(inner in input);
            let list = inner.call(Punctuated::<Written, Token![,]>::parse_terminated)?;
            return Ok(Written::List(name, list.into_iter().collect()));
        }
        Ok(Written::Word(name))
    }
}

impl ToTokens for Written {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Written::Word(name) | Written::List(name, _) => name.to_tokens(tokens),
            Written::Assigned(name, value) => {
                name.to_tokens(tokens);
                <Token![=]>::default().to_tokens(tokens);
                value.to_tokens(tokens);
            }
            Written::Path(path) => path.to_tokens(tokens),
        }
    }
}

/// The options of an attribute; `None` if they cannot be read, which is then said.
pub(crate) fn options(attribute: TokenStream, errors: &mut Errors) -> Option<Vec<Written>> {
    match Punctuated::<Written, Token![,]>::parse_terminated.parse2(attribute) {
        Ok(options) => Some(options.into_iter().collect()),
        Err(error) => {
            errors.add(error);
            None
        }
    }
}
