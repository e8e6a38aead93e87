//! Writes the function that each attribute becomes: the user's own tokens, ours after them, all in one item.
//!
//! Names of ours are spanned `mixed_site`, so that no local of the user can meet them, and every path is full.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Attribute, FnArg, LitStr, Meta, Signature, Token, ext::IdentExt, punctuated::Punctuated};

use crate::{
    check::{self, Kind},
    errors::Errors,
    key, lifetimes,
    meta::{self, effect_meta},
    model::{Contract, Key, Param, Piece, Role, output},
    options,
    parse::{self, Function},
    steps,
};

pub(crate) fn effect(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let (mut function, body) = match with_body(item, Kind::Effect, &mut errors) {
        Ok(function) => function,
        Err(item) => return beside(item, errors),
    };
    let options = options::effect(parse::options(attribute, &mut errors), &mut errors);
    check::qualifiers(&mut function.attrs, &function.sig, Kind::Effect, &mut errors);
    let sig = &function.sig;
    let before = errors.count();
    let params = check::params(sig, Kind::Effect, &mut errors);
    let is_whole = errors.count() == before;
    if let (Contract::Keyed(key), true) = (&options.contract, is_whole) {
        check::key_reaches_the_body(sig, &params, &mut errors);
        if let Some(key) = key {
            key::check(key, &params, &mut errors);
        }
    }
    if !is_whole {
        return stub(&function, Kind::Effect, errors);
    }
    let key = match &options.contract {
        Contract::Keyed(Some(key)) => key_pieces(key, &params),
        _ => TokenStream::new(),
    };
    let meta = effect_meta(sig, &options, &params);
    let call = call(&params, &quote!(::durable::__rt::EffectArgs), &key);
    whole(&function, Kind::Effect, &params, &body.to_token_stream(), &quote!(#meta #call), errors)
}

pub(crate) fn workflow(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let (mut function, body) = match with_body(item, Kind::Workflow, &mut errors) {
        Ok(function) => function,
        Err(item) => return beside(item, errors),
    };
    let name = options::workflow(parse::options(attribute, &mut errors), &mut errors);
    check::qualifiers(&mut function.attrs, &function.sig, Kind::Workflow, &mut errors);
    let sig = &function.sig;
    let before = errors.count();
    let params = check::params(sig, Kind::Workflow, &mut errors);
    let is_whole = errors.count() == before;
    let body = steps::rewrite(&body, Kind::Workflow, &mut errors);
    if !is_whole {
        body.refused.into_iter().for_each(|error| errors.add(error));
        return stub(&function, Kind::Workflow, errors);
    }
    let meta = meta::workflow_meta(sig, name.as_ref(), &params, &body.awaits);
    let call = call(&params, &quote!(::durable::__rt::WorkflowArgs), &TokenStream::new());
    whole(&function, Kind::Workflow, &params, &body.tokens, &quote!(#meta #call), errors)
}

pub(crate) fn part(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let mut function = match Function::of(item.clone(), Kind::Part.name()) {
        Ok(function) => function,
        Err(error) => {
            errors.add(error);
            return beside(item, errors);
        }
    };
    options::part(parse::options(attribute, &mut errors), &mut errors);
    check::qualifiers(&mut function.attrs, &function.sig, Kind::Part, &mut errors);
    let Function { attrs, vis, sig, body } = &function;
    let is_nameable = check::part_output(sig, &mut errors);
    let mut named = lifetimes::name_all(sig);
    let out = if is_nameable { output(&named.output) } else { quote!(()) };
    named.output = syn::parse_quote!(-> ::durable::Part<'durable, #out>);
    let Some(body) = body else {
        return beside(quote!(#(#attrs)* #vis #named;), errors);
    };
    let body = steps::rewrite(body, Kind::Part, &mut errors);
    let meta = meta::part_meta(sig, &body.awaits);
    let tokens = if is_nameable {
        body.tokens
    } else {
        body.refused.into_iter().for_each(|error| errors.add(error));
        quote!(::core::unimplemented!())
    };
    // Never run, it tells the compiler the type of `return` and `?` before it has seen the first.
    let returns = quote_spanned! {at(check::ends(&out).0)=>
        if let ::core::option::Option::Some(__out) = ::core::option::Option::None::<#out> {
            return __out;
        }
    };
    let future = quote_spanned!(at(sig.ident.span())=> ::durable::__rt::part(&__META, async move { #returns #tokens }));
    let unused = (!is_nameable).then(|| quote!(#[allow(unused)]));
    beside(quote!(#(#attrs)* #unused #vis #named { #meta #future }), errors)
}

/// An item that is not ours to write, as it was, and what is wrong with it.
fn beside(item: TokenStream, errors: Errors) -> TokenStream {
    let errors = errors.into_tokens();
    quote!(#item #errors)
}

/// Ours, shown where the user's own tokens are.
pub(crate) fn at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

/// The function and its body. Where there is none, the item comes back as it was.
fn with_body(item: TokenStream, kind: Kind, errors: &mut Errors) -> Result<(Function, Group), TokenStream> {
    match Function::of(item.clone(), kind.name()) {
        Ok(Function { attrs, vis, sig, body: Some(body) }) => {
            let function = Function { attrs, vis, sig, body: None };
            Ok((function, body))
        }
        Ok(Function { sig, .. }) => {
            errors.on(&sig.ident, format!("{} has a body: a stored call must find its code", kind.noun()));
            Err(item)
        }
        Err(error) => {
            errors.add(error);
            Err(item)
        }
    }
}

/// The item of an effect or workflow whose signature is right.
fn whole(
    function: &Function,
    kind: Kind,
    params: &[Param],
    body: &TokenStream,
    ours: &TokenStream,
    errors: Errors,
) -> TokenStream {
    let Function { attrs, vis, sig, .. } = function;
    let (outside, inside): (Vec<_>, Vec<_>) = attrs.iter().partition(|attr| stays_outside(attr));
    let Signature { fn_token, ident, output: written, .. } = sig;
    let inside = inside.into_iter().map(|attr| named(attr, ident));
    let asyncness = match kind {
        Kind::Effect => sig.asyncness,
        _ => Some(sig.asyncness.unwrap_or_else(|| Token![async](fn_token.span))),
    };
    let inputs = params.iter().map(|Param { attrs, pattern, colon, ty, .. }| quote!(#(#attrs)* #pattern #colon #ty));
    let asked = params.iter().filter(|param| param.is_recorded()).map(|param| {
        let (ident, Param { colon, ty, .. }) = (param.ident(), param);
        quote!(#ident #colon #ty)
    });
    let (call, out) = (call_type(kind), output(written));
    let item = quote! {
        #(#outside)*
        #vis #fn_token #ident(#(#asked),*) -> #call<#out> {
            #(#inside)*
            #asyncness #fn_token __body(#(#inputs),*) #written #body
            #ours
        }
    };
    beside(item, errors)
}

/// The item of an effect or workflow whose signature breaks a rule: callable as far as it goes, for the rest of the crate.
fn stub(function: &Function, kind: Kind, errors: Errors) -> TokenStream {
    let Function { attrs, vis, sig, .. } = function;
    let outside = attrs.iter().filter(|attr| stays_outside(attr));
    let Signature { fn_token, ident, generics, inputs, output: written, .. } = sig;
    let is_supplied = |input: &&FnArg| match input {
        FnArg::Typed(input) => {
            check::is_context(&input.ty) || input.attrs.iter().any(|attr| attr.path().is_ident("resource"))
        }
        FnArg::Receiver(_) => false,
    };
    let (supplied, asked): (Vec<_>, Vec<_>) = inputs.iter().partition(is_supplied);
    let asked = asked.into_iter().map(|input| match input {
        FnArg::Typed(syn::PatType { pat, colon_token, ty, .. }) => quote!(#pat #colon_token #ty),
        FnArg::Receiver(receiver) => receiver.to_token_stream(),
    });
    // The types of the rest are named too, so that nobody is told that an import is not used.
    let supplied = supplied.into_iter().filter_map(|input| match input {
        FnArg::Typed(input) => Some(&input.ty),
        FnArg::Receiver(_) => None,
    });
    let out = if check::is_nameable(written) { output(written) } else { quote!(()) };
    let call = call_type(kind);
    let clause = &generics.where_clause;
    let item = quote! {
        #(#outside)*
        #[allow(unused)]
        #vis #fn_token #ident #generics(#(#asked),*) -> #call<#out> #clause {
            #(let _ = |_: #supplied| {};)*
            ::core::unimplemented!()
        }
    };
    beside(item, errors)
}

fn call_type(kind: Kind) -> TokenStream {
    match kind {
        Kind::Workflow => quote!(::durable::WorkflowCall),
        _ => quote!(::durable::EffectCall),
    }
}

/// What is said to callers, readers and lints stays on the function that is called; all else, such as
/// `#[tracing::instrument]`, is about the body.
fn stays_outside(attr: &Attribute) -> bool {
    if attr.path().is_ident("cfg_attr")
        && let Ok(metas) = attr.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
    {
        return metas.iter().skip(1).all(|meta| is_outward(meta.path()));
    }
    is_outward(attr.path())
}

/// `#[tracing::instrument]` names its span for the function it stands on, which is ours now: tells it the user's.
fn named(attr: &Attribute, ident: &Ident) -> TokenStream {
    let is_named = |args: &TokenStream| {
        args.clone().into_iter().any(|tree| matches!(tree, TokenTree::Ident(word) if word == "name"))
    };
    let (path, name) = (attr.path(), ident.unraw().to_string());
    let is_instrument = path.segments.last().is_some_and(|last| last.ident == "instrument");
    match &attr.meta {
        Meta::Path(_) if is_instrument => quote!(#[#path(name = #name)]),
        Meta::List(list) if is_instrument && !is_named(&list.tokens) => {
            let args = &list.tokens;
            quote!(#[#path(name = #name, #args)])
        }
        _ => attr.to_token_stream(),
    }
}

fn is_outward(path: &syn::Path) -> bool {
    const OUTWARD: &[&str] = &[
        "allow",
        "cfg",
        "clippy",
        "deny",
        "deprecated",
        "diagnostic",
        "doc",
        "expect",
        "forbid",
        "must_use",
        "rustfmt",
        "warn",
    ];
    path.segments.first().is_some_and(|first| OUTWARD.iter().any(|name| first.ident == name))
}

/// The call itself: arguments encoded, nothing run.
fn call(params: &[Param], maker: &TokenStream, key: &TokenStream) -> TokenStream {
    let args = params.iter().filter(|param| param.is_recorded()).enumerate().map(|(i, param)| {
        let (name, ident) = (const_name(i), param.ident());
        let value = if param.lent().is_some() { quote!(#ident) } else { quote!(&#ident) };
        quote!(.arg(&#name, #value))
    });
    quote!(#maker::new(&__META)#(#args)*#key.call())
}

/// The constant that knows how a recorded parameter is written and read.
pub(crate) fn const_name(i: usize) -> Ident {
    format_ident!("__P{i}")
}

/// Renders the key. What follows a value in the template ends it, and is escaped inside it.
fn key_pieces(key: &Key, params: &[Param]) -> TokenStream {
    let at = at(key.literal.span());
    let mut tokens = TokenStream::new();
    for (i, piece) in key.pieces.iter().enumerate() {
        match piece {
            Piece::Text(text) => tokens.extend(quote_spanned!(at=> .key_text(#text))),
            Piece::Value(name) => {
                // A name that is no argument has been refused.
                let Some(param) = params.iter().find(|param| param.name() == *name) else { continue };
                let mut ident = param.ident().clone();
                // Still the parameter, but shown where the template names it.
                ident.set_span(ident.span().located_at(key.literal.span()));
                let value = if param.lent().is_some() { quote!(#ident) } else { quote_spanned!(at=> &#ident) };
                let end = match key.pieces.get(i + 1) {
                    Some(Piece::Text(text)) => text.chars().next().unwrap_or('\0'),
                    _ => '\0',
                };
                tokens.extend(quote_spanned!(at=> .key_value(#value, #end)));
            }
        }
    }
    tokens
}

/// The recorded name of an item.
pub(crate) fn recorded_name(sig: &Signature, explicit: Option<&LitStr>) -> String {
    explicit.map_or_else(|| sig.ident.unraw().to_string(), LitStr::value)
}

/// Whether the engine or the builder supplies a parameter, and with what.
pub(crate) fn supplied(param: &Param) -> Option<TokenStream> {
    match param.role {
        Role::Recorded { .. } => None,
        Role::Context => Some(quote_spanned!(Span::mixed_site()=> __call.context())),
        Role::Resource => {
            let ty = param.lent()?;
            Some(quote_spanned!(at(check::ends(&ty.to_token_stream()).0)=> __call.resource::<#ty>()))
        }
    }
}
