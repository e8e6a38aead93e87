#[allow(unused)]
pub fn look(&self, q: Option<&str>) -> ::durable::EffectCall<String> {
    let _ = |_: &Gateway| {};
    ::core::unimplemented!()
}
::core::compile_error! {
    "an effect has no option `readonly`; it has a contract (`read_only`, `idempotent`, `key = \"..\"`, `at_most_once`), `reconcile(path, settle = \"..\")`, `in_doubt = error`, `name = \"..\"`, `retry(..)`, `timeout = \"..\"`, `kind = \"..\"`"
}
::core::compile_error! {
    "an effect has no `self`: a stored call must find everything again after a restart\n  take what it needs as `#[resource] gateway: &Gateway`, or the values themselves"
}
::core::compile_error! {
    "a recorded argument owns what is inside it: write `String`"
}
