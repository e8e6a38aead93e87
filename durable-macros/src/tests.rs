//! Expansions as a reader would write them, and how long they may be.

use std::{fs, path::Path};

use proc_macro2::TokenStream;
use quote::quote;

use crate::expand;

type Attribute = fn(TokenStream, TokenStream) -> TokenStream;

#[track_caller]
fn expand(attribute: Attribute, options: &str, item: &str) -> String {
    show(attribute(options.parse().unwrap(), item.parse().unwrap()))
}

#[track_caller]
fn show(tokens: TokenStream) -> String {
    let file = syn::parse2(tokens.clone()).unwrap_or_else(|error| panic!("{error}\n{tokens}"));
    prettyplease::unparse(&file)
}

/// Compares with `snapshots/{name}.rs`, or writes it where `SNAPSHOTS=overwrite`.
#[track_caller]
fn check(name: &str, expanded: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(name).with_extension("rs");
    if std::env::var_os("SNAPSHOTS").is_some_and(|value| value == "overwrite") {
        fs::write(&path, expanded).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap_or_default(),
        expanded,
        "see {name}; SNAPSHOTS=overwrite writes it anew"
    );
}

#[test]
fn an_effect_is_its_body_and_what_it_says_of_itself() {
    let item = "
        /// Refunds.
        #[tracing::instrument]
        pub async fn process_refund(cx: &EffectContext, #[resource] gateway: &Gateway, order_id: &str, cents: u64) -> Result<Receipt, PaymentError> {
            gateway.refund(order_id, cents, cx.idempotency_key()).await
        }";
    let options = "key = \"{order_id}:refund:{cents}\", retry(attempts = 5, if = PaymentError::is_transient)";
    check("keyed_effect", &expand(expand::effect, options, item));
}

#[test]
fn a_doubtful_sync_effect_brings_its_reconcile_function() {
    let item = "fn charge(mut cents: u64) -> Result<u64, Error> { cents += 1; Ok(cents) }";
    check("reconciled_effect", &expand(expand::effect, "at_most_once, reconcile(find, settle = \"2m\")", item));
}

#[test]
fn a_workflow_is_its_body_with_numbered_steps() {
    let item = "
        async fn refund_agent(order: Order) -> durable::Result<String> {
            let policy = search_policy(\"refund window\").await?;
            let looks = join((async { look(&order).await }, agent.turn(\"x\").named(\"turn\"))).await;
            println!(\"{}\", x = tools::ping(vec![one().await?; 3]).await);
            Ok(policy)
        }";
    check("workflow", &expand(expand::workflow, "name = \"refund\"", item));
}

#[test]
fn a_part_is_a_boxed_future_of_named_lifetimes() {
    let item = "
        pub(crate) async fn turn<T: Tool>(&mut self, history: &mut Vec<T>, q: Cow<'_, str>) -> Result<&T, Error> {
            history.push(look(&q).await?);
            Ok(&self.tool)
        }";
    check("part", &expand(expand::part, "", item));
    let declared = expand::part(TokenStream::new(), "async fn call(&self, input: &str) -> String;".parse().unwrap());
    check("declared_part", &show(quote!(trait Tool { #declared })));
}

#[test]
fn an_item_with_a_mistake_is_still_there() {
    let item = "pub async fn look(&self, #[resource] gateway: &Gateway, q: Option<&str>) -> String { String::new() }";
    check("mistakes", &expand(expand::effect, "readonly", item));
}

#[test]
fn a_workflow_of_ten_steps_adds_at_most_forty_lines() {
    let steps: String = (0..10).map(|n| format!("let s{n} = step_{n}(s).await?;\n")).collect();
    let item = format!("async fn ten(s: String) -> durable::Result<String> {{\n{steps} Ok(s9)\n}}");
    let written = prettyplease::unparse(&syn::parse_str(&item).unwrap()).lines().count();
    let expanded = expand(expand::workflow, "", &item);
    let added = expanded.lines().count() - written;
    assert!(added <= 40, "{added} lines more than the {written} that were written:\n{expanded}");
}
