//! What the crash tests share: the world that effects act on, its ledger, the workflow that uses everything, and the
//! checkers.

#![allow(dead_code, reason = "each test binary takes what it needs")]

pub(crate) mod check;
pub(crate) mod company;
pub(crate) mod effects;
pub(crate) mod everything;
pub(crate) mod frames;
pub(crate) mod ledger;
pub(crate) mod outside;
pub(crate) mod pass_on;
pub(crate) mod replay;
pub(crate) mod rng;
pub(crate) mod tape;
