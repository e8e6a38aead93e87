//! Names the lifetimes that a part's signature leaves out, so that its boxed future can say what it borrows.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{
    FnArg, GenericParam, Lifetime, LifetimeParam, ParenthesizedGenericArguments, Receiver, ReceiverKind, ReturnType,
    Signature, TraitBound, Type, TypeFnPtr, TypeImplTrait, TypeParamBound, TypeReference, parse_quote,
    visit::{self, Visit},
    visit_mut::{self, VisitMut},
};

/// The part's signature without `async`, every lifetime named, all of them outliving `'durable`.
/// Its output is the type inside the future, with the same names.
pub(crate) fn name_all(sig: &Signature) -> Signature {
    let mut sig = sig.clone();
    sig.asyncness = None;
    let mut names = Names::default();
    let mut of_self = None;
    for input in &mut sig.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                names.receiver(receiver);
                of_self = lifetime_of(receiver);
            }
            FnArg::Typed(input) => names.visit_type_mut(&mut input.ty),
        }
    }
    let lent_to_output = of_self.or_else(|| match &names.seen[..] {
        [only] => Some(only.clone()),
        _ => None,
    });
    if let (Some(lifetime), ReturnType::Type(_, ty)) = (lent_to_output, &mut sig.output) {
        Fill(lifetime).visit_type_mut(ty);
    }
    let mut bounds = Vec::<TokenStream>::new();
    // Where the user wrote the parameter's bounds: bounds in two places draw a lint in their crate.
    for param in &mut sig.generics.params {
        match param {
            GenericParam::Lifetime(param) if !param.bounds.is_empty() => param.bounds.push(parse_quote!('durable)),
            GenericParam::Lifetime(param) => {
                let lifetime = &param.lifetime;
                bounds.push(quote!(#lifetime: 'durable));
            }
            GenericParam::Type(param) if !param.bounds.is_empty() => param.bounds.push(parse_quote!('durable)),
            GenericParam::Type(param) => {
                let ident = &param.ident;
                bounds.push(quote!(#ident: 'durable));
            }
            GenericParam::Const(_) => {}
        }
    }
    if mentions_self(&sig) {
        bounds.push(quote!(Self: 'durable));
    }
    let new = names.new.iter();
    bounds.extend(new.clone().map(|lifetime| quote!(#lifetime: 'durable)));
    let lifetimes = std::iter::once(Lifetime::new("'durable", Span::mixed_site())).chain(new.cloned());
    let params = std::mem::take(&mut sig.generics.params);
    sig.generics.params =
        lifetimes.map(|lifetime| GenericParam::Lifetime(LifetimeParam::new(lifetime))).chain(params).collect();
    let clause = sig.generics.make_where_clause();
    clause.predicates.extend(bounds.into_iter().map(|bound| -> syn::WherePredicate { parse_quote!(#bound) }));
    sig
}

/// `Self` by value or inside an argument is captured whole; behind `&self` its own lifetime says enough.
fn mentions_self(sig: &Signature) -> bool {
    struct Found(bool);
    impl<'ast> Visit<'ast> for Found {
        fn visit_receiver(&mut self, receiver: &'ast Receiver) {
            self.0 |= lifetime_of(receiver).is_none();
        }
        fn visit_path(&mut self, path: &'ast syn::Path) {
            self.0 |= path.segments.first().is_some_and(|first| first.ident == "Self");
            visit::visit_path(self, path);
        }
    }
    let mut found = Found(false);
    found.visit_signature(sig);
    found.0
}

/// The lifetime of `&self`, also where it is written as a type.
fn lifetime_of(receiver: &Receiver) -> Option<Lifetime> {
    match &receiver.kind {
        ReceiverKind::Reference(_, lifetime, _) => lifetime.clone(),
        ReceiverKind::Typed(_, ty) => match &**ty {
            Type::Reference(reference) => reference.lifetime.clone(),
            _ => None,
        },
        _ => None,
    }
}

/// Gives each lifetime that was left out a name of its own.
#[derive(Default)]
struct Names {
    new: Vec<Lifetime>,
    /// All lifetimes of the parameters, written or new: if there is one, the output borrows from it.
    seen: Vec<Lifetime>,
}

impl Names {
    fn fresh(&mut self, span: Span) -> Lifetime {
        let lifetime = Lifetime::new(&format!("'durable{}", self.new.len()), span);
        self.new.push(lifetime.clone());
        self.seen.push(lifetime.clone());
        lifetime
    }

    fn receiver(&mut self, receiver: &mut Receiver) {
        match &mut receiver.kind {
            ReceiverKind::Reference(and, lifetime @ None, _) => *lifetime = Some(self.fresh(and.span)),
            ReceiverKind::Reference(_, Some(lifetime), _) => self.visit_lifetime_mut(lifetime),
            ReceiverKind::Typed(_, ty) => self.visit_type_mut(ty),
            _ => {}
        }
    }
}

impl VisitMut for Names {
    fn visit_type_reference_mut(&mut self, ty: &mut TypeReference) {
        if ty.lifetime.is_none() {
            ty.lifetime = Some(self.fresh(ty.and_token.span));
        } else if let Some(lifetime) = &mut ty.lifetime {
            self.visit_lifetime_mut(lifetime);
        }
        self.visit_type_mut(&mut ty.elem);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = self.fresh(lifetime.span());
        } else if lifetime.ident != "static" && !self.seen.contains(lifetime) {
            self.seen.push(lifetime.clone());
        }
    }

    /// The type behind `impl Trait` has no name; its bound can be written only here.
    fn visit_type_impl_trait_mut(&mut self, ty: &mut TypeImplTrait) {
        visit_mut::visit_type_impl_trait_mut(self, ty);
        ty.bounds.push(TypeParamBound::Lifetime(Lifetime::new("'durable", Span::mixed_site())));
    }

    // The lifetimes inside `fn(&T)` and `Fn(&T)` are those types' own.
    fn visit_type_fn_ptr_mut(&mut self, _: &mut TypeFnPtr) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {}

    fn visit_trait_bound_mut(&mut self, bound: &mut TraitBound) {
        if bound.lifetimes.is_none() {
            visit_mut::visit_trait_bound_mut(self, bound);
        }
    }
}

/// Writes the one lifetime that an output left out.
struct Fill(Lifetime);

impl VisitMut for Fill {
    fn visit_type_reference_mut(&mut self, ty: &mut TypeReference) {
        ty.lifetime.get_or_insert_with(|| self.0.clone());
        visit_mut::visit_type_reference_mut(self, ty);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = self.0.clone();
        }
    }

    fn visit_type_fn_ptr_mut(&mut self, _: &mut TypeFnPtr) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {}
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    fn check(written: &str, expected: &str) {
        let sig: Signature = syn::parse_str(written).unwrap();
        let expected: Signature = syn::parse_str(expected).unwrap();
        assert_eq!(name_all(&sig).to_token_stream().to_string(), expected.to_token_stream().to_string());
    }

    #[test]
    fn what_was_left_out_gets_a_name_that_outlives_the_future() {
        check(
            "async fn ask<T: Ask>(history: &mut Vec<String>, q: &T) -> u64",
            "fn ask<'durable, 'durable0, 'durable1, T: Ask + 'durable>(history: &'durable0 mut Vec<String>, q: &'durable1 T) -> u64 \
             where 'durable0: 'durable, 'durable1: 'durable",
        );
        check("async fn ask<T>(q: T) where T: Ask", "fn ask<'durable, T>(q: T) where T: Ask, T: 'durable");
        check(
            "async fn look(text: Cow<'_, str>, f: fn(&str) -> &str)",
            "fn look<'durable, 'durable0>(text: Cow<'durable0, str>, f: fn(&str) -> &str) where 'durable0: 'durable",
        );
    }

    #[test]
    fn an_output_borrows_as_it_would_in_a_plain_function() {
        check(
            "async fn name(&self, q: &str) -> &str",
            "fn name<'durable, 'durable0, 'durable1>(&'durable0 self, q: &'durable1 str) -> &'durable0 str \
             where 'durable0: 'durable, 'durable1: 'durable",
        );
        check(
            "async fn pick<'a>(all: &'a [String]) -> Option<&String>",
            "fn pick<'durable, 'a>(all: &'a [String]) -> Option<&'a String> where 'a: 'durable",
        );
    }

    #[test]
    fn an_owner_and_an_unnamed_type_are_captured_whole() {
        check("async fn end(self)", "fn end<'durable>(self) where Self: 'durable");
        check("async fn say(text: impl Say)", "fn say<'durable>(text: impl Say + 'durable)");
    }
}
