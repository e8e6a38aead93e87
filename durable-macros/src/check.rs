//! The rules of a signature, and the words in which they are said.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::{
    Attribute, FnArg, Ident, Lifetime, Pat, PatIdent, ReturnType, Safety, Signature, Type, TypeImplTrait,
    TypeReference, parse_quote,
    visit::{self, Visit},
    visit_mut::{self, VisitMut},
};

use crate::{
    errors::Errors,
    model::{Param, Role},
};

/// What an attribute stands on.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Effect,
    Workflow,
    Part,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Effect => "effect",
            Kind::Workflow => "workflow",
            Kind::Part => "part",
        }
    }

    /// With its article, for a sentence.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Kind::Effect => "an effect",
            Kind::Workflow => "a workflow",
            Kind::Part => "a part",
        }
    }
}

/// The rules that all three share: one attribute of ours, the words before `fn`, and who must be `async`.
pub(crate) fn qualifiers(attrs: &mut Vec<Attribute>, sig: &Signature, kind: Kind, errors: &mut Errors) {
    let noun = kind.noun();
    attrs.retain(|attr| {
        let names: Vec<_> = attr.path().segments.iter().map(|segment| segment.ident.to_string()).collect();
        let is_ours = matches!(
            names.iter().map(String::as_str).collect::<Vec<_>>()[..],
            ["durable", "effect" | "workflow" | "part"]
        );
        if is_ours {
            errors.on(attr, format!("this function is {noun} already: it is one of effect, workflow and part"));
        }
        !is_ours
    });
    if sig.asyncness.is_none() && kind != Kind::Effect {
        errors.at(sig.fn_token.span, format!("{noun} is an `async fn`: it waits for its steps"));
    } else if let Some(word) = &sig.constness {
        errors.on(word, format!("{noun} cannot be `const`"));
    }
    if let Safety::Unsafe(word) = &sig.safety {
        errors.at(word.span, format!("{noun} cannot be `unsafe`: the engine calls it too"));
    }
    if let Some(abi) = &sig.abi {
        errors.on(abi, format!("{noun} cannot be `extern`: it lives in this binary"));
    }
}

/// Whether a part returns a type that an expansion can name; said where it does not.
pub(crate) fn part_output(sig: &Signature, errors: &mut Errors) -> bool {
    struct ImplTraits<'a>(&'a mut Errors);
    impl<'ast> Visit<'ast> for ImplTraits<'_> {
        fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
            self.0.on(ty, "a part's future is boxed: write the type it returns");
        }
    }
    let before = errors.count();
    ImplTraits(errors).visit_return_type(&sig.output);
    errors.count() == before
}

/// The parameters of an effect or workflow. Those that break a rule are left out, and the rule is said.
pub(crate) fn params(sig: &Signature, kind: Kind, errors: &mut Errors) -> Vec<Param> {
    if !sig.generics.params.is_empty() {
        let all_lifetimes = sig.generics.lifetimes().count() == sig.generics.params.len();
        let remedy = match (all_lifetimes, kind) {
            (true, _) => "leave the lifetimes out: a borrowed parameter is lent for the call",
            (false, Kind::Effect) => "write the types, or a generic `#[durable::part]` around effects of one type each",
            (false, _) => "write the types, or make it a `#[durable::part]`, which may be generic",
        };
        errors.on(
            &sig.generics.params,
            format!("{} has no generics: a stored call must find its code by name alone\n  {remedy}", kind.noun()),
        );
    }
    if let Some(clause) = &sig.generics.where_clause {
        errors.on(clause, format!("{} has no `where` clause: its types are concrete", kind.noun()));
    }
    if let Some(variadic) = &sig.variadic {
        errors.on(variadic, format!("{} has a fixed number of parameters", kind.noun()));
    }
    if let ReturnType::Type(_, ty) = &sig.output {
        Types { what: "result", kind, errors }.check(ty);
    }
    let mut params = Vec::new();
    for input in &sig.inputs {
        match input {
            FnArg::Receiver(receiver) => errors.on(receiver, self_text(kind)),
            FnArg::Typed(input) => params.extend(param(input, kind, errors)),
        }
    }
    let mut contexts = params.iter().filter(|param| matches!(param.role, Role::Context));
    if let (Some(_), Some(second)) = (contexts.next(), contexts.next()) {
        errors.on(&second.ty, "one `&EffectContext` is enough");
    }
    params
}

fn self_text(kind: Kind) -> String {
    let remedy = match kind {
        Kind::Effect => "take what it needs as `#[resource] gateway: &Gateway`, or the values themselves",
        _ => "take the values as arguments, or make it a `#[durable::part]`, which may have `self`",
    };
    format!("{} has no `self`: a stored call must find everything again after a restart\n  {remedy}", kind.noun())
}

fn param(input: &syn::PatType, kind: Kind, errors: &mut Errors) -> Option<Param> {
    let before = errors.count();
    let pattern = binding(&input.pat, kind, errors);
    let mut attrs = Vec::new();
    let (mut resource, mut model_text) = (None, None);
    for attr in &input.attrs {
        let slot = match attr.path().get_ident().map(Ident::to_string).as_deref() {
            Some("resource") => &mut resource,
            Some("model_text") => &mut model_text,
            Some("cfg" | "cfg_attr") => {
                let text = "a parameter cannot depend on `cfg`: a call stored by one build is run by another";
                errors.on(attr, text);
                continue;
            }
            _ => {
                attrs.push(attr.clone());
                continue;
            }
        };
        marker(attr, slot, kind, errors);
    }
    if let (Some(_), Some(second)) = (&resource, &model_text) {
        errors.on(second, "a resource is no argument, so no model writes it");
    }
    let ty = bare(&input.ty);
    let role = if is_context(ty) {
        if let Some(attr) = resource.as_ref().or(model_text.as_ref()) {
            errors.on(attr, "the engine itself supplies the `EffectContext`");
        }
        context(ty, kind, errors);
        Role::Context
    } else if resource.is_some() {
        resource_type(ty, errors);
        Role::Resource
    } else {
        recorded_type(ty, kind, errors);
        Role::Recorded { model_text: model_text.is_some() }
    };
    let pattern = pattern?;
    let kept = errors.count() == before;
    kept.then(|| Param { attrs, pattern, colon: input.colon_token, ty: ty.clone(), role })
}

/// A type without the pair around it that `macro_rules` or a careful author put there.
pub(crate) fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        ty => ty,
    }
}

/// A parameter is recorded under its name, so it has one.
fn binding(pat: &Pat, kind: Kind, errors: &mut Errors) -> Option<PatIdent> {
    if let Pat::Ident(ident) = pat
        && ident.by_ref.is_none()
        && ident.subpat.is_none()
    {
        return Some(ident.clone());
    }
    let text = match pat {
        Pat::Wild(_) => "give it a name: arguments are recorded by name (`_name` if it is not used)".into(),
        _ => format!(
            "a parameter of {} has a plain name, under which it is recorded\n  \
                 take it apart in the body: `let .. = name;`",
            kind.noun()
        ),
    };
    errors.on(pat, text);
    None
}

/// `#[resource]` or `#[model_text]`: bare, once, and on an effect.
fn marker(attr: &Attribute, slot: &mut Option<Attribute>, kind: Kind, errors: &mut Errors) {
    let name = attr.path().to_token_stream();
    if kind == Kind::Workflow {
        let text = match name.to_string().as_str() {
            "resource" => {
                "a workflow has no resources: it is replayed, and what it does to the world it does through effects"
            }
            _ => "`#[model_text]` goes on an effect's parameter, where it keeps a model's words out of the key",
        };
        errors.on(attr, text);
    } else if attr.meta.require_path_only().is_err() {
        errors.on(&attr.meta, format!("`#[{name}]` takes no value"));
    } else if slot.is_some() {
        errors.on(attr, format!("`#[{name}]` is given twice"));
    }
    *slot = Some(attr.clone());
}

pub(crate) fn is_context(ty: &Type) -> bool {
    let ty = match bare(ty) {
        Type::Reference(reference) => bare(&reference.elem),
        ty => ty,
    };
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "EffectContext"))
}

fn context(ty: &Type, kind: Kind, errors: &mut Errors) {
    if kind == Kind::Workflow {
        errors.on(ty, "a workflow has no `EffectContext`: it belongs to the body of an effect");
    } else if !matches!(ty, Type::Reference(TypeReference { mutability: None, .. })) {
        errors.on(ty, "the context is lent: write `&EffectContext`");
    }
}

fn resource_type(ty: &Type, errors: &mut Errors) {
    let Type::Reference(TypeReference { mutability, elem, .. }) = ty else {
        return errors.on(ty, format!("a resource is lent by the runtime: write `&{}`", show(&ty.to_token_stream())));
    };
    let shown = show(&bare(elem).to_token_stream());
    if mutability.is_some() {
        errors.on(ty, format!("a resource is shared by all that runs at the time: write `&{shown}`"));
    } else if let Type::TraitObject(object) = bare(elem) {
        let text = format!(
            "a resource has a type with a size\n  write `&Box<{shown}>` or `&Arc<{shown}>`, and give the builder that"
        );
        errors.on(object, text);
    }
}

/// A recorded parameter: `T` or `&T`, and nothing borrowed inside.
fn recorded_type(ty: &Type, kind: Kind, errors: &mut Errors) {
    let lent = match ty {
        Type::Reference(reference) if reference.mutability.is_some() => {
            let text = format!(
                "what {} changes in place is lost on replay: only its result is recorded\n  \
                 take `{}` and return what it became",
                kind.noun(),
                show(&owned(ty).to_token_stream())
            );
            return errors.on(ty, text);
        }
        Type::Reference(reference) => {
            if let Some(lifetime) = reference.lifetime.as_ref().filter(|lifetime| !is_named(lifetime)) {
                errors.on(lifetime, "leave the lifetime out: a borrowed parameter is lent for the call");
            }
            bare(&reference.elem)
        }
        ty => ty,
    };
    if let (Type::TraitObject(object), Type::Reference(_)) = (lent, ty) {
        let text = "a trait object cannot be recorded\n  \
                    if the runtime is to supply it, mark it `#[resource]` and box it; else take the value it stands for";
        return errors.on(object, text);
    }
    Types { what: "parameter", kind, errors }.check(lent);
}

/// What no recorded type may have inside.
struct Types<'a> {
    what: &'static str,
    kind: Kind,
    errors: &'a mut Errors,
}

impl Types<'_> {
    fn check(mut self, ty: &Type) {
        self.visit_type(ty);
    }
}

impl<'ast> Visit<'ast> for Types<'_> {
    fn visit_type_reference(&mut self, ty: &'ast TypeReference) {
        let owned = show(&owned(&Type::Reference(ty.clone())).to_token_stream());
        let text = match self.what {
            "result" => format!("a result is recorded and must own its data: write `{owned}`"),
            _ => format!("a recorded argument owns what is inside it: write `{owned}`"),
        };
        self.errors.on(ty, text);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        if lifetime.ident == "_" {
            let text = format!("a {} is recorded and must own its data: write the owned form of this type", self.what);
            self.errors.on(lifetime, text);
        }
    }

    fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
        let like = impl_trait_remedy(ty);
        self.errors.on(ty, format!("`impl Trait` cannot be recorded, for it names no type\n  write the type{like}"));
    }

    fn visit_type_path(&mut self, ty: &'ast syn::TypePath) {
        match (self.what, without_anyhow(ty)) {
            ("result", Some(remedy)) => self.errors.on(
                ty,
                format!("an error is recorded, and one of `anyhow` cannot be\n  write `{remedy}`: `?` takes anyhow's errors into it"),
            ),
            _ => visit::visit_type_path(self, ty),
        }
    }

    fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
        if segment.ident == "HashSet" && self.what == "parameter" {
            let text =
                "a `HashSet` has another order in every process, so its record could not be compared: write `BTreeSet`";
            self.errors.on(&segment.ident, text);
        }
        if segment.ident == "Self" {
            let text = format!("{} stands by itself, also inside an `impl`: write the type's name", self.kind.noun());
            self.errors.on(&segment.ident, text);
        }
        visit::visit_path_segment(self, segment);
    }
}

/// What to write in place of a result whose error is one of `anyhow`, as far as its tokens tell.
fn without_anyhow(ty: &syn::TypePath) -> Option<String> {
    let last = ty.path.segments.last()?;
    let types = match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => arguments.args.iter().collect(),
        _ => Vec::new(),
    };
    let names_it = |path: &syn::Path| {
        path.segments.len() > 1
            && path.segments.iter().any(|segment| segment.ident == "anyhow" || segment.ident == "eyre")
    };
    let of_it =
        |ty: &syn::GenericArgument| matches!(ty, syn::GenericArgument::Type(Type::Path(ty)) if names_it(&ty.path));
    let is_one = match types[..] {
        [_] if last.ident == "Result" => names_it(&ty.path),
        [_, error] if last.ident == "Result" => of_it(error),
        _ => return names_it(&ty.path).then(|| "durable::Failure".to_owned()),
    };
    is_one.then(|| format!("durable::Result<{}>", show(&types[0].to_token_stream())))
}

/// Named lifetimes are generics, and of those it is said that there are none.
fn is_named(lifetime: &Lifetime) -> bool {
    lifetime.ident != "static" && lifetime.ident != "_"
}

fn impl_trait_remedy(ty: &TypeImplTrait) -> &'static str {
    let text = ty.to_token_stream().to_string();
    let knows = |word: &str| text.split(|c: char| !c.is_alphanumeric()).any(|found| found == word);
    match () {
        () if knows("Into") && knows("String") || knows("AsRef") && knows("str") || knows("Display") => {
            ", such as `&str`"
        }
        () if knows("Iterator") || knows("IntoIterator") => ", such as `Vec<_>` or `&[_]`",
        () if knows("Path") => ", such as `&Path`",
        () => "",
    }
}

/// The owned form of a borrowed type: `Option<String>` for `Option<&str>`.
fn owned(ty: &Type) -> Type {
    struct Owned;
    impl VisitMut for Owned {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::Reference(reference) = ty {
                let elem = (*reference.elem).clone();
                *ty = match &elem {
                    Type::Slice(slice) => {
                        let elem = &slice.elem;
                        parse_quote!(Vec<#elem>)
                    }
                    Type::TraitObject(object) => parse_quote!(Box<#object>),
                    Type::Path(path) if path.path.is_ident("str") => parse_quote!(String),
                    Type::Path(path) if path.path.is_ident("Path") => parse_quote!(PathBuf),
                    _ => elem,
                };
            }
            visit_mut::visit_type_mut(self, ty);
        }
    }
    let mut ty = ty.clone();
    Owned.visit_type_mut(&mut ty);
    ty
}

/// Tokens as one would type them.
pub(crate) fn show(tokens: &TokenStream) -> String {
    let mut text = tokens.to_string();
    for (spaced, tight) in [
        (" :: ", "::"),
        (" < ", "<"),
        (" > ", ">"),
        (" >", ">"),
        ("< ", "<"),
        (" ,", ","),
        ("& ", "&"),
        (" ;", ";"),
        ("[ ", "["),
        (" ]", "]"),
        ("( ", "("),
        (" )", ")"),
        (":: ", "::"),
        (" ::", "::"),
    ] {
        text = text.replace(spaced, tight);
    }
    text
}

/// The key of a keyed effect reaches the provider through the context alone.
pub(crate) fn key_reaches_the_body(sig: &Signature, params: &[Param], errors: &mut Errors) {
    if params.iter().any(|param| matches!(param.role, Role::Context)) {
        return;
    }
    errors.at(
        parameters(sig),
        "a keyed effect takes `cx: &EffectContext` and gives the provider `cx.idempotency_key()`\n  \
         without it the provider cannot tell a repeat, and the contract would be a lie",
    );
}

/// The parentheses of the parameters.
fn parameters(sig: &Signature) -> Span {
    sig.paren_token.span.join()
}

/// Whether a signature gives a type that an expansion can name.
pub(crate) fn is_nameable(ty: &ReturnType) -> bool {
    struct Found(bool);
    impl<'ast> Visit<'ast> for Found {
        fn visit_type_reference(&mut self, _: &'ast TypeReference) {
            self.0 = true;
        }
        fn visit_lifetime(&mut self, _: &'ast Lifetime) {
            self.0 = true;
        }
        fn visit_type_impl_trait(&mut self, _: &'ast TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut found = Found(false);
    found.visit_return_type(ty);
    !found.0
}

/// Where a type stands, first token and last.
pub(crate) fn ends(tokens: &TokenStream) -> (Span, Span) {
    let mut trees = tokens.clone().into_iter();
    let first = trees.next().map_or_else(Span::call_site, |tree| tree.span());
    let last = trees.last().map_or(first, |tree| tree.span());
    (first, last)
}
