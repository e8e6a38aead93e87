mod check;
mod errors;
mod expand;
mod forbidden;
mod key;
mod lifetimes;
mod meta;
mod model;
mod options;
mod parse;
mod steps;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
#[proc_macro_attribute]
pub fn effect(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::effect(attribute.into(), item.into()).into()
}
#[proc_macro_attribute]
pub fn workflow(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::workflow(attribute.into(), item.into()).into()
}
#[proc_macro_attribute]
pub fn part(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::part(attribute.into(), item.into()).into()
}
