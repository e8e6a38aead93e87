#[allow(unused)]
pub fn look(&self, q: Option<&str>) -> ::durable::EffectCall<String> {
    let _ = |_: &Gateway| {};
    ::core::unimplemented!()
}
::core::compile_error! {
    "an effect has no option `readonly`\n  contracts: `read_only`, `idempotent`, `key`, `key = \"..\"`, `at_most_once`\n  options: `name = \"..\"`, `kind = \"..\"`, `timeout = \"30s\"`, `retry(..)`, `reconcile(..)`, `in_doubt = error`"
}
::core::compile_error! {
    "an effect has no `self`: a stored call must find everything again after a restart\n  take what it needs as `#[resource] gateway: &Gateway`, or the values themselves"
}
::core::compile_error! {
    "a recorded argument owns what is inside it: write `String`"
}
