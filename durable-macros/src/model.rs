//! What an item means, once its rules hold. Every node keeps the tokens it came from, so that an expansion can point at them.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, ExprPath, Ident, LitStr, PatIdent, ReturnType, Token, Type, ext::IdentExt};

/// What a repeat of the effect would do.
pub(crate) enum Contract {
    ReadOnly,
    Idempotent,
    /// With the pieces of the user's own key; `None` for the key the engine makes.
    Keyed(Option<Key>),
    AtMostOnce(InDoubt),
}

/// `key = "{order_id}:refund:{cents}"`
pub(crate) struct Key {
    pub(crate) literal: LitStr,
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    /// The name of a recorded parameter.
    Value(String),
}

/// What happens to an `at_most_once` step whose outcome nobody knows.
pub(crate) enum InDoubt {
    Hold,
    Error,
    Reconcile { path: ExprPath, settle_ms: u64 },
}

pub(crate) struct Retry {
    pub(crate) attempts: u32,
    pub(crate) first_ms: u64,
    pub(crate) max_ms: u64,
    pub(crate) factor: f64,
    /// `if = path`: which errors are worth another attempt.
    pub(crate) only_if: Option<ExprPath>,
}

/// The options of an effect.
pub(crate) struct EffectOptions {
    pub(crate) contract: Contract,
    pub(crate) name: Option<LitStr>,
    pub(crate) kind: Option<LitStr>,
    pub(crate) retry: Option<Retry>,
    pub(crate) timeout_ms: Option<u64>,
}

/// Whence a parameter gets its value.
pub(crate) enum Role {
    /// From the caller; part of the record.
    Recorded { model_text: bool },
    /// `cx: &EffectContext`, from the engine.
    Context,
    /// `#[resource] x: &X`, from the builder.
    Resource,
}

/// A parameter of an effect or workflow.
pub(crate) struct Param {
    /// The attributes that are not ours.
    pub(crate) attrs: Vec<Attribute>,
    /// The name, with `mut` if it was written.
    pub(crate) pattern: PatIdent,
    pub(crate) colon: Token![:],
    pub(crate) ty: Type,
    pub(crate) role: Role,
}

impl Param {
    pub(crate) fn ident(&self) -> &Ident {
        &self.pattern.ident
    }

    /// The name that is recorded: `type` for `r#type`.
    pub(crate) fn name(&self) -> String {
        self.ident().unraw().to_string()
    }

    /// `T` of `&T`.
    pub(crate) fn lent(&self) -> Option<&Type> {
        match &self.ty {
            Type::Reference(reference) => Some(crate::check::bare(&reference.elem)),
            _ => None,
        }
    }

    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.role, Role::Recorded { .. })
    }
}

/// The return type as a type: `()` where none is written.
pub(crate) fn output(output: &ReturnType) -> TokenStream {
    match output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, ty) => quote!(#ty),
    }
}
