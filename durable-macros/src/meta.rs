//! Writes what an item says about itself: its recorded parameters, its return type, its steps, and how the engine runs it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{LitStr, Signature, ext::IdentExt};

use crate::{
    check,
    expand::{at, const_name, recorded_name, supplied},
    model::{Contract, EffectOptions, InDoubt, Param, Retry, Role, output},
    steps::Await,
};

pub(crate) fn effect_meta(sig: &Signature, options: &EffectOptions, params: &[Param]) -> TokenStream {
    let (consts, shape) = (param_consts(params), shape(sig));
    let origin = origin(sig, options.name.as_ref());
    let name = recorded_name(sig, options.name.as_ref());
    let contract = match options.contract {
        Contract::ReadOnly => quote!(ReadOnly),
        Contract::Idempotent => quote!(Idempotent),
        Contract::Keyed(_) => quote!(Keyed),
        Contract::AtMostOnce(_) => quote!(AtMostOnce),
    };
    let in_doubt = in_doubt(options, params);
    let kind = option(options.kind.as_ref());
    let retry = option(options.retry.as_ref().map(retry));
    let timeout_ms = option(options.timeout_ms);
    let names = recorded_names(params);
    let resources = params.iter().filter(|param| matches!(param.role, Role::Resource)).map(resource);
    let run = run(sig, options, params);
    let takes_fault = matches!(options.contract, Contract::AtMostOnce(InDoubt::Error)).then(|| {
        let out = output(&sig.output);
        let (first, last) = check::ends(&out);
        let (path, name) =
            (quote_spanned!(at(first)=> ::durable::__rt::), quote_spanned!(at(last)=> takes_fault::<#out>));
        quote!(const _: fn() = #path #name;)
    });
    quote! {
        #consts
        #shape
        #takes_fault
        static __META: ::durable::__rt::EffectMeta = ::durable::__rt::EffectMeta {
            #origin
            id: ::durable::__rt::effect_id(#name),
            contract: ::durable::__rt::Contract::#contract,
            in_doubt: ::durable::__rt::WhenInDoubt::#in_doubt,
            kind: #kind,
            retry: #retry,
            timeout_ms: #timeout_ms,
            params: &[#(#names),*],
            resources: &[#(#resources),*],
            returns: || ::durable::__rt::returns(__shape),
            run: #run,
        };
        ::durable::__rt::inventory::submit!(::durable::__rt::Registered::Effect(&__META));
    }
}

pub(crate) fn workflow_meta(sig: &Signature, name: Option<&LitStr>, params: &[Param], awaits: &[Await]) -> TokenStream {
    let (consts, shape) = (param_consts(params), shape(sig));
    let origin = origin(sig, name);
    let (sites, table) = sites(sig, awaits);
    let names = recorded_names(params);
    let get = quote_spanned!(Span::mixed_site()=> __args.get);
    let at = at(sig.ident.span());
    // A body that borrows its arguments needs a future that owns them; any other is that future.
    let (decoded, body) = if params.iter().any(|param| param.lent().is_some()) {
        let values = values(params, |i| local(i).into_token_stream());
        (decoded(params, &get), quote_spanned!(at=> async move { __body(#(#values),*).await }))
    } else {
        let values = values(params, |i| decode(i, &get));
        (TokenStream::new(), quote_spanned!(at=> __body(#(#values),*)))
    };
    let run = quote_spanned!(at=> ::durable::__rt::body(__shape, #body));
    let run = if decoded.is_empty() { run } else { quote!({ #decoded #run }) };
    quote_spanned! {Span::mixed_site()=>
        #consts
        #shape
        #sites
        static __META: ::durable::__rt::WorkflowMeta = ::durable::__rt::WorkflowMeta {
            #origin
            params: &[#(#names),*],
            sites: #table,
            returns: || ::durable::__rt::returns(__shape),
            run: |__args| #run,
        };
        ::durable::__rt::inventory::submit!(::durable::__rt::Registered::Workflow(&__META));
    }
}

pub(crate) fn part_meta(sig: &Signature, awaits: &[Await]) -> TokenStream {
    let name = sig.ident.unraw().to_string();
    let place = place(sig);
    let (sites, table) = sites(sig, awaits);
    quote! {
        #sites
        static __META: ::durable::__rt::PartMeta = ::durable::__rt::PartMeta { name: #name, #place sites: #table };
        ::durable::__rt::inventory::submit!(::durable::__rt::Registered::Part(&__META));
    }
}

fn origin(sig: &Signature, explicit: Option<&LitStr>) -> TokenStream {
    let function = sig.ident.unraw().to_string();
    let (name, explicit_name) = (recorded_name(sig, explicit), explicit.is_some());
    let place = place(sig);
    quote!(name: #name, explicit_name: #explicit_name, function: #function, #place)
}

fn place(sig: &Signature) -> TokenStream {
    let line = line(sig.ident.span());
    quote!(module: ::core::module_path!(), file: ::core::file!(), line: #line,)
}

/// The line of a token; for one that a macro made, the line of that macro's call, which is the one in this file.
///
/// In the token's own span: `line!` climbs out of every expansion, so in a span of ours it is the line of the attribute.
fn line(span: Span) -> TokenStream {
    quote_spanned!(span=> ::core::line!())
}

/// The function's table of steps, and how to name it.
fn sites(sig: &Signature, awaits: &[Await]) -> (TokenStream, TokenStream) {
    if awaits.is_empty() {
        return (TokenStream::new(), quote!(&[]));
    }
    let (function, number) = (sig.ident.unraw().to_string(), awaits.len());
    let rows = awaits.iter().map(|Await { callee, span }| {
        let line = line(*span);
        quote!((#callee, #line))
    });
    let table = quote! {
        static __SITES: [::durable::__rt::Site; #number] =
            ::durable::__rt::sites(::core::module_path!(), #function, ::core::file!(), [#(#rows),*]);
    };
    (table, quote!(&__SITES))
}

/// One constant for each recorded parameter. That its type can be recorded is asked here and nowhere else.
fn param_consts(params: &[Param]) -> TokenStream {
    let consts = params.iter().filter(|param| param.is_recorded()).enumerate().map(|(i, param)| {
        let (name, recorded) = (const_name(i), param.name());
        let (generics, maker, ty) = match (param.lent(), &param.ty) {
            (Some(ty), _) => (quote!(#ty, ::durable::__rt::Lent<#ty>), "lent", ty),
            (None, ty) => (quote!(#ty), "new", ty),
        };
        let (first, last) = check::ends(&ty.to_token_stream());
        let maker = Ident::new(maker, at(last));
        let made = quote_spanned!(at(first)=> ::durable::__rt::Param::#maker);
        quote!(const #name: ::durable::__rt::Param<#generics> = #made(#recorded);)
    });
    quote!(#(#consts)*)
}

/// The return type under a name of ours, and what it is to the engine. `use` brings nothing that could hide a type of the
/// user's, for none is named below it.
fn shape(sig: &Signature) -> TokenStream {
    let out = output(&sig.output);
    let made = quote_spanned!(at(check::ends(&out).0)=> (&&&__probe).shape((&&&__probe).text()));
    quote_spanned! {Span::mixed_site()=>
        type __R = #out;
        fn __shape(__probe: ::durable::__rt::Probe<__R>) -> ::durable::__rt::Shape<__R> {
            use ::durable::__rt::probe::*;
            #made
        }
    }
}

fn recorded_names(params: &[Param]) -> impl Iterator<Item = String> {
    params.iter().filter(|param| param.is_recorded()).map(Param::name)
}

fn local(i: usize) -> Ident {
    format_ident!("__a{i}", span = Span::mixed_site())
}

/// `let __a0 = ..?;` for each recorded parameter.
fn decoded(params: &[Param], get: &TokenStream) -> TokenStream {
    let recorded = params.iter().filter(|param| param.is_recorded()).enumerate();
    let lets = recorded.map(|(i, _)| {
        let (local, value) = (local(i), decode(i, get));
        quote!(let #local = #value;)
    });
    quote!(#(#lets)*)
}

fn decode(i: usize, get: &TokenStream) -> TokenStream {
    let name = const_name(i);
    quote!(#get(&#name)?)
}

/// What the body is called with; `recorded` is the value of the nth recorded parameter.
fn values(params: &[Param], recorded: impl Fn(usize) -> TokenStream) -> Vec<TokenStream> {
    let mut count = 0;
    let value = |param: &Param| {
        supplied(param).unwrap_or_else(|| {
            let value = recorded(count);
            count += 1;
            match param.lent() {
                Some(_) => quote!(&*#value),
                None => value,
            }
        })
    };
    params.iter().map(value).collect()
}

/// The engine's way to a body: arguments decoded, the outcome encoded.
fn run(sig: &Signature, options: &EffectOptions, params: &[Param]) -> TokenStream {
    let decoded = decoded(params, &quote_spanned!(Span::mixed_site()=> __call.arg));
    let values = values(params, |i| local(i).into_token_stream());
    let only_if = option(options.retry.as_ref().and_then(|retry| retry.only_if.as_ref()).map(|path| {
        quote_spanned! {at(check::ends(&path.to_token_stream()).0)=>
            |__out| match __out {
                ::core::result::Result::Err(__error) => #path(__error),
                _ => false,
            }
        }
    }));
    let wait = sig.asyncness.map(|_| quote!(.await));
    let body = quote_spanned! {Span::mixed_site()=>
        #decoded
        let __out = __body(#(#values),*)#wait;
        ::core::result::Result::Ok(__call.end(__shape, __out, #only_if))
    };
    let at = at(sig.ident.span());
    match sig.asyncness {
        Some(_) => quote_spanned!(at=> |__call| ::std::boxed::Box::pin(async move { #body })),
        None => quote_spanned!(at=> |__call| ::std::boxed::Box::pin(__call.blocking(|__call| { #body }))),
    }
}

fn in_doubt(options: &EffectOptions, params: &[Param]) -> TokenStream {
    let (path, settle_ms) = match &options.contract {
        Contract::AtMostOnce(InDoubt::Reconcile { path, settle_ms }) => (path, settle_ms),
        Contract::AtMostOnce(InDoubt::Error) => return quote!(Error),
        _ => return quote!(Hold),
    };
    let decoded = decoded(params, &quote_spanned!(Span::mixed_site()=> __call.arg));
    let mut values = values(params, |i| local(i).into_token_stream());
    if !params.iter().any(|param| matches!(param.role, Role::Context)) {
        values.insert(0, quote_spanned!(Span::mixed_site()=> __call.context()));
    } else {
        // The context comes first, wherever the effect itself has it.
        let (context, others): (Vec<_>, Vec<_>) =
            params.iter().zip(values).partition(|(param, _)| matches!(param.role, Role::Context));
        values = context.into_iter().chain(others).map(|(_, value)| value).collect();
    }
    let (first, _) = check::ends(&path.to_token_stream());
    let asked = quote_spanned!(at(first)=> #path(#(#values),*).await);
    let end = quote_spanned! {at(first)=>
        ::core::result::Result::Ok(__call.reconciled::<__R, _>(__shape, #asked))
    };
    quote_spanned! {Span::mixed_site()=>
        Reconcile {
            settle_ms: #settle_ms,
            run: |__call| ::std::boxed::Box::pin(async move { #decoded #end }),
        }
    }
}

fn retry(retry: &Retry) -> TokenStream {
    let Retry { attempts, first_ms, max_ms, factor, .. } = retry;
    quote!(::durable::__rt::Retry { attempts: #attempts, first_ms: #first_ms, max_ms: #max_ms, factor: #factor })
}

fn resource(param: &Param) -> TokenStream {
    let (name, ty) = (param.name(), param.lent());
    quote! {
        ::durable::__rt::ResourceMeta {
            name: #name,
            type_name: ::core::any::type_name::<#ty>,
            type_id: ::core::any::TypeId::of::<#ty>,
        }
    }
}

fn option(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}
