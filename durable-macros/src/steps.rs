//! Finds and numbers the awaits of a body, and makes a step of each. All else in the body stays as the user wrote it.

use proc_macro2::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{
    Attribute, Block, Expr, ExprAwait, ExprCall, ExprClosure, Item, Macro, MacroDelimiter, Pat, Path, Stmt, Token,
    ext::IdentExt,
    parse::{ParseStream, Parser},
    parse_quote_spanned,
    punctuated::Punctuated,
    token,
    visit::{self, Visit},
    visit_mut::{self, VisitMut},
};

use crate::{
    check::{Kind, ends},
    errors::Errors,
    forbidden,
};

/// One `.await` of a body. Its number is its place in the table.
pub(crate) struct Await {
    /// What is awaited, shortened to the callee's path.
    pub(crate) callee: String,
    /// Where the awaited expression begins.
    pub(crate) span: Span,
}

/// A body whose awaits are steps.
pub(crate) struct Body {
    pub(crate) tokens: TokenStream,
    pub(crate) awaits: Vec<Await>,
    /// What is refused inside the tokens, each at its place; to be said in another way by who leaves the tokens out.
    pub(crate) refused: Vec<syn::Error>,
}

/// Rewrites the body of a workflow or part. A body in a syntax that `syn` does not know comes back as it was.
pub(crate) fn rewrite(body: &Group, kind: Kind, errors: &mut Errors) -> Body {
    let inside = |input: ParseStream| Ok((input.call(Attribute::parse_inner)?, input.call(Block::parse_within)?));
    let (attrs, stmts) = match inside.parse2(body.stream()) {
        Ok(inside) => inside,
        Err(error) => {
            errors.add(error);
            return Body { tokens: body.to_token_stream(), awaits: Vec::new(), refused: Vec::new() };
        }
    };
    let mut block = Block { brace_token: token::Brace { span: body.delim_span() }, stmts };
    let mut steps = Steps { kind, errors, awaits: Vec::new(), refused: Vec::new() };
    steps.visit_block_mut(&mut block);
    let Steps { awaits, refused, .. } = steps;
    let mut tokens = TokenStream::new();
    block.brace_token.surround(&mut tokens, |tokens| {
        attrs.iter().for_each(|attr| attr.to_tokens(tokens));
        tokens.extend(block.stmts.iter().map(Stmt::to_token_stream));
    });
    Body { tokens, awaits, refused }
}

struct Steps<'a> {
    kind: Kind,
    errors: &'a mut Errors,
    awaits: Vec<Await>,
    refused: Vec<syn::Error>,
}

impl Steps<'_> {
    /// An await has its number after those inside it, as they are awaited before it.
    fn step(&mut self, written: &mut ExprAwait) -> TokenStream {
        if let Some(error) = forbidden_call(&written.base) {
            // It is no step either; to say that too would be a second error.
            return self.refuse(error, &MacroDelimiter::Paren(token::Paren::default())).into_token_stream();
        }
        let callee = callee(&written.base);
        let (first, last) = ends(&without_parens(&written.base).to_token_stream());
        visit_mut::visit_expr_await_mut(self, written);
        let ExprAwait { attrs, base, dot_token, await_token } = written;
        let number = Literal::usize_unsuffixed(self.awaits.len());
        self.awaits.push(Await { callee, span: first });
        let base = without_parens(base);
        let site = quote_spanned!(Span::mixed_site().located_at(first)=> &__SITES[#number]);
        // The call has the span of what is awaited, to the letter: that it is no step is found for the argument and for
        // the call, and only if the two stand in one place does the compiler say it once.
        let mut arguments = Group::new(Delimiter::Parenthesis, quote!(#base, #site));
        arguments.set_span(last);
        let step = quote_spanned!(first=> ::durable::__rt::step);
        quote!(#(#attrs)* #step #arguments #dot_token #await_token)
    }

    /// The error as a macro that takes the place of what is wrong: an expression in error has every type, so that nothing
    /// more is said of it. Where the macro stood as a statement, its delimiter decides whether it needs a semicolon.
    fn refuse(&mut self, error: syn::Error, delimiter: &MacroDelimiter) -> Macro {
        let (first, last) = ends(&error.to_compile_error());
        let text = error.to_string();
        self.refused.push(error);
        Macro {
            path: parse_quote_spanned!(first=> ::core::compile_error),
            bang_token: Token![!](first),
            delimiter: match delimiter {
                MacroDelimiter::Paren(_) => MacroDelimiter::Paren(token::Paren(last)),
                MacroDelimiter::Brace(_) => MacroDelimiter::Brace(token::Brace(last)),
                MacroDelimiter::Bracket(_) => MacroDelimiter::Bracket(token::Bracket(last)),
            },
            tokens: quote_spanned!(first=> #text),
        }
    }

    /// Looks into the macros whose arguments are known to be expressions; an await in any other cannot be numbered.
    fn inside_macro(&mut self, mac: &mut Macro) {
        if has_async(&mac.tokens) {
            match arguments(mac) {
                Some(Arguments { mut exprs, rest }) => {
                    if let Some(at) = find_await(&rest) {
                        *mac = self.refuse(cannot_see(at, mac), &mac.delimiter);
                        return;
                    }
                    exprs.iter_mut().for_each(|expr| self.visit_expr_mut(expr));
                    forbidden::tokens(&rest, self.errors);
                    mac.tokens = quote!(#exprs #rest);
                    return;
                }
                None => {
                    if let Some(at) = find_await(&mac.tokens) {
                        *mac = self.refuse(cannot_see(at, mac), &mac.delimiter);
                        return;
                    }
                }
            }
        }
        forbidden::tokens(&mac.tokens, self.errors);
    }
}

impl VisitMut for Steps<'_> {
    /// An item inside a body is a function of its own.
    fn visit_item_mut(&mut self, _: &mut Item) {}

    /// A pattern has no calls; a path in it is a constant or a variant.
    fn visit_pat_mut(&mut self, _: &mut Pat) {}

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        // A branch, which is what an `async` block here becomes, fits no such call: that would be a second error.
        if let Some(error) = forbidden_call(expr).filter(|_| has_async(&expr.to_token_stream())) {
            *expr =
                Expr::Verbatim(self.refuse(error, &MacroDelimiter::Paren(token::Paren::default())).into_token_stream());
            return;
        }
        match expr {
            Expr::Await(written) => *expr = Expr::Verbatim(self.step(written)),
            Expr::Async(written) => {
                visit_mut::visit_expr_async_mut(self, written);
                // The user's own span: what is said of the branch is said at the block.
                let at = written.async_token.span;
                let mut block = Group::new(Delimiter::Parenthesis, written.to_token_stream());
                block.set_span(written.block.brace_token.span.close());
                *expr = Expr::Verbatim(quote_spanned!(at=> ::durable::__rt::branch #block));
            }
            Expr::Verbatim(tokens) => {
                if let Some(at) = find_await(tokens) {
                    self.errors.at(at, "this syntax is not known here, so the `.await` cannot be numbered\n  await it first: `let value = ..await;`");
                }
            }
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }

    fn visit_expr_call_mut(&mut self, call: &mut ExprCall) {
        let untracked = matches!(&*call.func, Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == forbidden::UNTRACKED));
        if let Expr::Path(path) = &*call.func {
            unordered(&path.path, self.errors);
        }
        self.visit_expr_mut(&mut call.func);
        for argument in &mut call.args {
            if !(untracked && matches!(argument, Expr::Closure(_))) {
                self.visit_expr_mut(argument);
            }
        }
    }

    fn visit_path_mut(&mut self, path: &mut Path) {
        if let Some(error) = forbidden::path_error(path) {
            self.errors.add(error);
        }
        visit_mut::visit_path_mut(self, path);
    }

    fn visit_expr_closure_mut(&mut self, closure: &mut ExprClosure) {
        if let Some(word) = closure.asyncness.take() {
            let noun = self.kind.noun();
            let text = format!(
                "an async closure gives a future, and {noun} awaits steps\n  write `|..| async move {{ .. }}`: it gives a branch"
            );
            // No more is said of a body that is not looked into.
            let error = self.refuse(syn::Error::new(word.span, text), &MacroDelimiter::Paren(token::Paren::default()));
            *closure.body = Expr::Verbatim(error.into_token_stream());
            return;
        }
        visit_mut::visit_expr_closure_mut(self, closure);
    }

    fn visit_macro_mut(&mut self, mac: &mut Macro) {
        match forbidden::macro_error(&mac.path) {
            Some(error) => *mac = self.refuse(error, &mac.delimiter),
            None => self.inside_macro(mac),
        }
    }
}

/// What has come is read anew on every replay, and some types give it in another order each time.
fn unordered(called: &Path, errors: &mut Errors) {
    struct Unordered<'a>(&'a mut Errors);
    impl<'ast> Visit<'ast> for Unordered<'_> {
        fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
            if segment.ident == "HashSet" {
                let text = "a `HashSet` comes out in another order on every replay: write `BTreeSet`";
                self.0.on(&segment.ident, text);
            }
            visit::visit_path_segment(self, segment);
        }
    }
    let Some(last) = called.segments.last() else { return };
    let is_ours = match called.segments.iter().rev().nth(1) {
        Some(home) => home.ident == "durable",
        None => true,
    };
    if is_ours && ["ask", "signal", "signals"].iter().any(|name| last.ident == name) {
        Unordered(errors).visit_path_arguments(&last.arguments);
    }
}

fn cannot_see(at: Span, mac: &Macro) -> syn::Error {
    let name = mac.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    let text = format!(
        "an `.await` inside `{name}!` cannot be numbered, for nobody knows what the macro makes of it\n  \
         await it first: `let value = ..await;`"
    );
    syn::Error::new(at, text)
}

/// What is to be said if what is awaited is itself a call that is forbidden.
fn forbidden_call(base: &Expr) -> Option<syn::Error> {
    match base {
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => forbidden::path_error(&path.path),
            _ => None,
        },
        _ => None,
    }
}

/// Parentheses that an argument does not need: the compiler would take them for the user's own and say so.
fn without_parens(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(paren) if paren.attrs.is_empty() => without_parens(&paren.expr),
        expr => expr,
    }
}

/// A known macro's arguments: expressions, then what is none (the pattern of `matches!`).
struct Arguments {
    exprs: Punctuated<Expr, Separator>,
    rest: TokenStream,
}

/// `vec![x; n]` is separated by a semicolon.
enum Separator {
    Comma(Token![,]),
    Semicolon(Token![;]),
}

impl ToTokens for Separator {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Separator::Comma(token) => token.to_tokens(tokens),
            Separator::Semicolon(token) => token.to_tokens(tokens),
        }
    }
}

const KNOWN: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "dbg",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "eprint",
    "eprintln",
    "format",
    "matches",
    "panic",
    "print",
    "println",
    "todo",
    "unimplemented",
    "unreachable",
    "vec",
    "write",
    "writeln",
];

/// The arguments of a macro that evaluates each of them once, or as often as Rust's own documentation says.
fn arguments(mac: &Macro) -> Option<Arguments> {
    let segments: Vec<_> = mac.path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
    let name = match segments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name] | ["std" | "core" | "alloc", name] => name,
        _ => return None,
    };
    if !KNOWN.contains(&name) {
        return None;
    }
    let parse = |input: ParseStream| {
        let mut exprs = Punctuated::new();
        while !input.is_empty() {
            exprs.push_value(input.parse()?);
            if name == "matches" {
                break;
            }
            if name == "vec" && input.peek(Token![;]) {
                exprs.push_punct(Separator::Semicolon(input.parse()?));
            } else if !input.is_empty() {
                exprs.push_punct(Separator::Comma(input.parse()?));
            }
        }
        Ok(Arguments { exprs, rest: input.parse()? })
    };
    parse.parse2(mac.tokens.clone()).ok()
}

fn has_async(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|tree| match tree {
        TokenTree::Ident(ident) => ident == "async" || ident == "await",
        TokenTree::Group(group) => has_async(&group.stream()),
        _ => false,
    })
}

/// The first `.await` in tokens.
fn find_await(tokens: &TokenStream) -> Option<Span> {
    let mut after_dot = false;
    for tree in tokens.clone() {
        match &tree {
            TokenTree::Ident(ident) if after_dot && ident == "await" => return Some(ident.span()),
            TokenTree::Group(group) => {
                if let Some(found) = find_await(&group.stream()) {
                    return Some(found);
                }
            }
            _ => {}
        }
        after_dot = matches!(&tree, TokenTree::Punct(punct) if punct.as_char() == '.');
    }
    None
}

/// What a reader calls the awaited expression: the path of the function, without arguments.
fn callee(expr: &Expr) -> String {
    match expr {
        Expr::Call(call) => callee(&call.func),
        Expr::Path(path) => {
            let names: Vec<_> = path.path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
            names.join("::")
        }
        // `.named(..)` and its like say more about a step, they are not what is awaited.
        Expr::MethodCall(call) if call.method == "named" || call.method == "at_most" => callee(&call.receiver),
        Expr::MethodCall(call) => {
            let receiver = callee(&call.receiver);
            let is_child = receiver == "spawn" || receiver.ends_with("::spawn");
            match is_child && (call.method == "id" || call.method == "detached") {
                true => receiver,
                false => format!("{receiver}.{}", call.method.unraw()),
            }
        }
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => format!("{}.{}", callee(&field.base), name.unraw()),
            syn::Member::Unnamed(index) => format!("{}.{}", callee(&field.base), index.index),
        },
        Expr::Index(index) => format!("{}[..]", callee(&index.expr)),
        Expr::Paren(inner) => callee(&inner.expr),
        Expr::Group(inner) => callee(&inner.expr),
        Expr::Try(inner) => callee(&inner.expr),
        Expr::Reference(inner) => callee(&inner.expr),
        Expr::Macro(mac) => mac.mac.path.segments.last().map_or_else(String::new, |last| format!("{}!", last.ident)),
        Expr::Await(inner) => callee(&inner.base),
        Expr::Async(_) => "async".into(),
        _ => "..".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, callees: &[&str]) {
        let mut errors = Errors::default();
        let body: TokenTree = syn::parse_str(&format!("{{ {body} }}")).unwrap();
        let TokenTree::Group(body) = body else { unreachable!("a block is a group") };
        let rewritten = rewrite(&body, Kind::Workflow, &mut errors);
        let found: Vec<_> = rewritten.awaits.into_iter().map(|found| found.callee).collect();
        assert_eq!(found, callees);
        assert_eq!(errors.into_tokens().to_string(), "");
    }

    #[test]
    fn awaits_are_numbered_as_they_are_awaited() {
        check("a(b().await).await; c().await", &["b", "a", "c"]);
        check("a().await.b(c().await).await", &["a", "c", "a.b"]);
        check("vec![a().await; 2]; format!(\"{x}\", x = b().await); matches!(c().await, 1)", &["a", "b", "c"]);
    }

    #[test]
    fn a_step_is_called_by_the_path_of_what_is_awaited() {
        check("tools::look::<u8>(1).await", &["tools::look"]);
        check("self.agents[0].turn(\"x\").await", &["self.agents[..].turn"]);
        check("look(1).named(\"second\").await", &["look"]);
        check("join_all(calls).at_most(3).await", &["join_all"]);
        check("durable::spawn(agent(1)).id(\"a\").detached().named(\"b\").await", &["durable::spawn"]);
        check("orders.id(1).await", &["orders.id"]);
        check("call.await", &["call"]);
        check("async { r#type(1).await }.await", &["type", "async"]);
        check("(if a { b } else { c }).await", &[".."]);
        check("pair.0.await", &["pair.0"]);
    }

    #[test]
    fn what_is_another_function_is_left_alone() {
        check("async fn inner() { a().await } b().await", &["b"]);
        check("untracked(|| SystemTime::now()); b().await", &["b"]);
    }
}
