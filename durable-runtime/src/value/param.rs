//! Recorded parameters, for expansions.

use std::{borrow::Borrow, ops::Deref};

use serde::Serialize;

use super::{Args, ArgsWriter, Recordable, ValueError, ValueErrorKind};

/// A recorded parameter: its name, and how a value of it is written and read.
///
/// That the type can be recorded is asked once, where the parameter is made: what uses a parameter asks for nothing, so
/// that a type that cannot be is one compile error.
pub struct Param<T: ?Sized, O = T> {
    pub(crate) name: &'static str,
    pub(crate) write: fn(&mut ArgsWriter, &'static str, &T),
    pub(crate) read: fn(&Args, &'static str) -> Result<O, ValueError>,
    /// Whether the recorded value is the same on every replay.
    pub(crate) check: Check,
}

/// Says why a recorded argument is not the same on every replay, if so.
pub(crate) type Check = fn(&Args, &'static str) -> Result<(), ValueError>;

/// How often [`comes_back`] reads a value: the order of a set of two is right by chance every other time.
const READS: usize = 6;

/// Reads an argument again and again: what is written of it must be the same each time, and reading must not panic.
fn comes_back<T: Recordable>(args: &Args, name: &'static str) -> Result<(), ValueError> {
    let changes = |reason: &str| {
        Err(ValueError::new(ValueErrorKind::Changes, std::any::type_name::<T>(), name.to_owned(), reason.to_owned()))
    };
    let read = || -> Result<u128, ValueError> {
        let mut again = ArgsWriter::new(1);
        again.arg(name, &args.decode::<T>(name)?);
        Ok(again.finish()?.1)
    };
    let mut first = None;
    for _ in 0..READS {
        // Reading is user code, and may panic.
        let Ok(digest) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)) else {
            return changes("its Deserialize panics on it");
        };
        if *first.get_or_insert(digest.clone()?) != digest? {
            return changes(
                "it is written in another order each time it was read: use a BTreeSet or BTreeMap, not a HashSet",
            );
        }
    }
    Ok(())
}

impl<T> Param<T> {
    /// A parameter that the function owns.
    pub const fn new(name: &'static str) -> Param<T>
    where
        T: Recordable,
    {
        Param {
            name,
            write: |args, name, value| {
                args.arg(name, value);
            },
            read: Args::decode::<T>,
            check: comes_back::<T>,
        }
    }
}

impl<T: ?Sized> Param<T, Lent<T>> {
    /// A parameter that the function borrows.
    pub const fn lent(name: &'static str) -> Param<T, Lent<T>>
    where
        T: Lend,
    {
        Param { name, write: T::write, read: T::read, check: T::check }
    }
}

/// What a borrowed parameter is lent from on replay.
pub struct Lent<T: ?Sized>(Box<dyn Borrow<T> + Send + Sync>);

impl<T: ?Sized> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        (*self.0).borrow()
    }
}

/// A type that a function may take by reference: its owned form can be recorded.
#[diagnostic::on_unimplemented(
    message = "`&{Self}` cannot be a recorded parameter",
    label = "the log must be able to write this and read it back",
    note = "a borrowed parameter is lent from the engine's own copy, so its type must be `Clone`, `Serialize`, `DeserializeOwned`, `Send` and `Sync`; add `#[derive(Clone, serde::Serialize, serde::Deserialize)]`",
    note = "a client, a pool, or what else each process makes anew is no argument: write `#[resource]` before the parameter of an effect, and give it to `Runtime::builder().resource(..)`"
)]
pub trait Lend {
    /// Adds the value to a call's arguments.
    fn write(args: &mut ArgsWriter, name: &'static str, value: &Self);

    /// Reads the value from a call's arguments.
    ///
    /// # Errors
    ///
    /// As [`Args::decode`].
    fn read(args: &Args, name: &'static str) -> Result<Lent<Self>, ValueError>;

    /// Says why the value is not the same on every replay, if so.
    ///
    /// # Errors
    ///
    /// As [`Args::get`].
    fn check(args: &Args, name: &'static str) -> Result<(), ValueError>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ToOwned<Owned: Recordable + Sync> + ?Sized> Lend for T {
    fn write(args: &mut ArgsWriter, name: &'static str, value: &T) {
        args.arg(name, value);
    }

    fn read(args: &Args, name: &'static str) -> Result<Lent<T>, ValueError> {
        args.decode::<T::Owned>(name).map(|owned| Lent(Box::new(owned)))
    }

    fn check(args: &Args, name: &'static str) -> Result<(), ValueError> {
        comes_back::<T::Owned>(args, name)
    }
}

impl Args {
    /// Reads one parameter; for expansions.
    ///
    /// # Errors
    ///
    /// As [`Args::decode`].
    pub fn get<T: ?Sized, O>(&self, param: &Param<T, O>) -> Result<O, ValueError> {
        (param.read)(self, param.name)
    }
}
