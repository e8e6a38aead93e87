//! Facts that a run may ask for and that are the same on every replay: the time, randomness, a version.

use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
    time::SystemTime,
};

use super::{Step, only_in_workflows, sealed::Sealed};
use crate::{clock::system_time, contract::Site, core::with};

/// A step that is ready in the poll that asks for it, because its answer follows from the log.
#[must_use = "it gives its answer when a workflow awaits it"]
pub struct Fact<T> {
    ask: Ask<T>,
}

enum Ask<T> {
    Now(fn(SystemTime) -> T),
    Bits(&'static str, fn(u128) -> T),
    Version(String, u32, fn(u32) -> T),
}

impl<T> std::fmt::Debug for Fact<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.ask {
            Ask::Now(_) => "now()",
            Ask::Bits(name, _) => name,
            Ask::Version(..) => "version()",
        })
    }
}

/// The run's own time: when what the code is going on with was appended to the log (its start, or the step that was over
/// last). Never goes backwards within a run, and is the same on every replay. Resolution: a millisecond.
pub fn now() -> Fact<SystemTime> {
    Fact { ask: Ask::Now(std::convert::identity) }
}

/// A random value that is the same on every replay: derived from 128 bits of the operating system's entropy, taken when
/// the run began, and from the place in the run. Not for cryptographic secrets.
pub fn random<T: Random>() -> Fact<T> {
    Fact { ask: Ask::Bits("random", T::from_bits) }
}

/// A UUID (version 4) that is the same on every replay; see [`random`].
pub fn uuid() -> Fact<uuid::Uuid> {
    Fact { ask: Ask::Bits("uuid", |bits| uuid::Builder::from_random_bytes(bits.to_le_bytes()).into_uuid()) }
}

/// Which version of the code this run follows at the change that `name` stands for: `version`, if the run gets here for the first
/// time; the recorded one, if it got here before; 0, if it was past this place before the code asked.
///
/// The first answer for a name holds for the whole run.
///
/// ```
/// # #[durable::effect(read_only)]
/// # async fn check_stock(order: &str) -> durable::Result<()> { Ok(()) }
/// #[durable::workflow]
/// async fn fulfil(order: String) -> durable::Result<()> {
///     if durable::version("check-stock", 1).await >= 1 {
///         check_stock(&order).await?;
///     }
///     Ok(())
/// }
/// ```
pub fn version(name: impl Into<String>, version: u32) -> Fact<u32> {
    Fact { ask: Ask::Version(name.into(), version, std::convert::identity) }
}

/// What [`random`] can give.
pub trait Random: Sealed {
    #[doc(hidden)]
    fn from_bits(bits: u128) -> Self;
}

macro_rules! random {
    ($($int:ty),*) => {$(
        impl Sealed for $int {}
        impl Random for $int {
            fn from_bits(bits: u128) -> Self {
                bits as $int
            }
        }
    )*};
}
random!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

impl Sealed for bool {}
impl Random for bool {
    fn from_bits(bits: u128) -> Self {
        bits & 1 == 1
    }
}

impl Sealed for f64 {}
/// Evenly spread from 0 up to, and without, 1.
impl Random for f64 {
    fn from_bits(bits: u128) -> Self {
        ((bits as u64) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Sealed for [u8; 16] {}
impl Random for [u8; 16] {
    fn from_bits(bits: u128) -> Self {
        bits.to_le_bytes()
    }
}

only_in_workflows!([T] Fact<T>);

impl<T> Sealed for Fact<T> {}

impl<T> Step for Fact<T> {
    type Output = T;
    type Future = FactFuture<T>;

    fn into_future(self, site: &'static Site) -> FactFuture<T> {
        FactFuture { ask: self.ask, site, _gives: PhantomData }
    }
}

/// A fact that is awaited.
#[doc(hidden)]
pub struct FactFuture<T> {
    ask: Ask<T>,
    site: &'static Site,
    _gives: PhantomData<fn() -> T>,
}

impl<T> Future for FactFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        let site = self.site;
        let known = with(|core| match &self.ask {
            Ask::Now(give) => Some(give(system_time(core.now))),
            Ask::Bits(name, give) => Some(give(core.bits(name))),
            Ask::Version(name, version, give) => core.version(name, *version, site).map(give),
        });
        // A version that is not known yet would be a command, and where the run is being cancelled there is none any more.
        known.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Runs plain code that the attribute would refuse, in the knowledge that it runs again on every replay: for logging, or for reading what cannot change
/// what the workflow does.
pub fn untracked<T>(code: impl FnOnce() -> T) -> T {
    code()
}
