//! What must compile does, and every mistake is one error in words at the token that must change.
//!
//! The expected texts belong to the compiler that `rust-toolchain.toml` pins. After a change of words:
//! `TRYBUILD=overwrite cargo test --test compile`, and read what came out.

#[test]
fn what_must_compile_does_and_what_must_not_says_why() {
    let cases = trybuild::TestCases::new();
    cases.pass("trybuild/pass/*.rs");
    cases.compile_fail("trybuild/fail/**/*.rs");
}
