//! What a return type is: whether it is a `Result`, how its error reads, whether the error takes a [`Fault`].
//!
//! An expansion knows the type only by its tokens, and an alias such as `durable::Result<T>` hides which it is. So the
//! expansion asks the compiler, by the order in which method calls look for candidates: see [`probe`].

use std::{fmt, marker::PhantomData};

use crate::{
    contract::Returns,
    failure::Fault,
    value::{Recordable, Value, ValueError},
};

/// What a return type is to the engine. Made by an expansion through [`probe`].
///
/// That the type can be recorded is asked once, where the shape is made: what uses a shape asks for nothing, so that a
/// type that cannot be is one compile error.
pub struct Shape<R> {
    /// Whether a value is an `Err`. Never, if the type is no `Result`.
    pub(crate) is_err: fn(&R) -> bool,
    /// The error in words; only asked of an `Err`.
    pub(crate) text: fn(&R) -> String,
    /// Records a value, after making sure that it comes back equal.
    pub(crate) encode: fn(&R) -> Result<Value, ValueError>,
    check: fn(&Value) -> Result<(), ValueError>,
    fault: Option<fn(Fault) -> Result<Value, ValueError>>,
    is_result: bool,
}

impl<R> Clone for Shape<R> {
    fn clone(&self) -> Shape<R> {
        *self
    }
}

impl<R> Copy for Shape<R> {}

impl<R> fmt::Debug for Shape<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shape")
            .field("is_result", &self.is_result)
            .field("takes_fault", &self.fault.is_some())
            .finish_non_exhaustive()
    }
}

impl<R> Shape<R> {
    /// The error in words, for people: an error that panics when it is shown is an error all the same.
    pub(crate) fn words(&self, out: &R) -> String {
        let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.text)(out)));
        text.unwrap_or_else(|payload| {
            std::mem::forget(payload);
            "an error that cannot be shown".to_owned()
        })
    }

    /// The same without the type, for the effect's metadata.
    pub fn returns(self) -> Returns {
        Returns { fault: self.fault, check: self.check, is_result: self.is_result }
    }
}

/// Finds the [`Shape`] of a type by autoref specialisation.
///
/// A method call on `&&&Probe<R>` takes the first implementation that fits of `&&Probe`, `&Probe`, `Probe`: so the
/// special cases are implemented for more references. This works where `R` is concrete, as it is in an expansion.
pub mod probe {
    use super::*;

    /// Stands for a value of type `R`.
    #[derive(Debug)]
    pub struct Probe<R>(PhantomData<fn() -> R>);

    impl<R> Probe<R> {
        /// Makes one out of nothing.
        #[expect(clippy::new_without_default, reason = "only expansions make one")]
        pub const fn new() -> Probe<R> {
            Probe(PhantomData)
        }
    }

    fn shape<R: Recordable>(
        is_err: fn(&R) -> bool,
        text: fn(&R) -> String,
        fault: Option<fn(Fault) -> Result<Value, ValueError>>,
        is_result: bool,
    ) -> Shape<R> {
        let (encode, check) = (Value::encode_checked::<R>, |value: &Value| value.decode::<R>().map(drop));
        Shape { is_err, text, encode, check, fault, is_result }
    }

    /// The text of an error with `Display`.
    pub trait TextOfDisplay<R> {
        /// The function that makes it.
        fn text(&self) -> fn(&R) -> String;
    }

    impl<T, E: fmt::Display> TextOfDisplay<Result<T, E>> for &&Probe<Result<T, E>> {
        fn text(&self) -> fn(&Result<T, E>) -> String {
            |out| out.as_ref().err().map(E::to_string).unwrap_or_default()
        }
    }

    /// The text of an error with `Debug` only.
    pub trait TextOfDebug<R> {
        /// The function that makes it.
        fn text(&self) -> fn(&R) -> String;
    }

    impl<T, E: fmt::Debug> TextOfDebug<Result<T, E>> for &Probe<Result<T, E>> {
        fn text(&self) -> fn(&Result<T, E>) -> String {
            |out| out.as_ref().err().map(|error| format!("{error:?}")).unwrap_or_default()
        }
    }

    /// The text of an error that has none.
    pub trait TextOfAny<R> {
        /// The function that makes it.
        fn text(&self) -> fn(&R) -> String;
    }

    impl<R> TextOfAny<R> for Probe<R> {
        fn text(&self) -> fn(&R) -> String {
            |_| format!("an error in `{}`", std::any::type_name::<R>())
        }
    }

    /// The shape of a `Result` whose error takes a fault.
    pub trait ShapeOfFaulty<R> {
        /// The shape, with the error's text.
        fn shape(&self, text: fn(&R) -> String) -> Shape<R>
        where
            R: Recordable;
    }

    impl<T, E: From<Fault>> ShapeOfFaulty<Result<T, E>> for &&Probe<Result<T, E>> {
        fn shape(&self, text: fn(&Result<T, E>) -> String) -> Shape<Result<T, E>>
        where
            Result<T, E>: Recordable,
        {
            shape(Result::is_err, text, Some(|fault| Value::encode(&Result::<T, E>::Err(E::from(fault)))), true)
        }
    }

    /// The shape of any other `Result`.
    pub trait ShapeOfResult<R> {
        /// The shape, with the error's text.
        fn shape(&self, text: fn(&R) -> String) -> Shape<R>
        where
            R: Recordable;
    }

    impl<T, E> ShapeOfResult<Result<T, E>> for &Probe<Result<T, E>> {
        fn shape(&self, text: fn(&Result<T, E>) -> String) -> Shape<Result<T, E>>
        where
            Result<T, E>: Recordable,
        {
            shape(Result::is_err, text, None, true)
        }
    }

    /// The shape of what is no `Result`.
    pub trait ShapeOfAny<R> {
        /// The shape; the text is never asked for.
        fn shape(&self, text: fn(&R) -> String) -> Shape<R>
        where
            R: Recordable;
    }

    impl<R> ShapeOfAny<R> for Probe<R> {
        fn shape(&self, text: fn(&R) -> String) -> Shape<R>
        where
            R: Recordable,
        {
            shape(|_| false, text, None, false)
        }
    }
}

/// A return type that a reconcile function can give the success of: any `Result`.
#[diagnostic::on_unimplemented(
    message = "`reconcile` needs an effect that returns a `Result`, not `{Self}`",
    label = "has no `Ok` for `Reconciled::Happened` to be",
    note = "let the effect return `durable::Result<{Self}>`"
)]
pub trait FromOk {
    /// What `Reconciled::Happened` holds.
    type Ok;

    /// The effect's whole return value.
    fn from_ok(ok: Self::Ok) -> Self;
}

impl<T, E> FromOk for Result<T, E> {
    type Ok = T;

    fn from_ok(ok: T) -> Result<T, E> {
        Ok(ok)
    }
}

/// A return type that can say what the engine found: a `Result` whose error is made of a [`Fault`].
#[diagnostic::on_unimplemented(
    message = "`in_doubt = error` needs an error type that takes what the engine found, and `{Self}` has none",
    label = "cannot hold a `durable::Fault`",
    note = "return `durable::Result<T>`, or implement `From<durable::Fault>` for the error type"
)]
pub trait TakesFault {}

#[diagnostic::do_not_recommend]
impl<T, E: From<Fault>> TakesFault for Result<T, E> {}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::failure::Failure;

    /// An error with the text `Debug` only.
    #[derive(Debug, Serialize, Deserialize)]
    enum Plain {
        No,
    }

    /// An error without a text.
    #[derive(Serialize, Deserialize)]
    struct Mute;

    /// An error that takes a fault and has its own text.
    #[derive(Debug, Serialize, Deserialize)]
    struct Own(String);

    impl fmt::Display for Own {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "own: {}", self.0)
        }
    }

    impl From<Fault> for Own {
        fn from(fault: Fault) -> Own {
            Own(fault.kind().to_owned())
        }
    }

    type Alias = crate::failure::Result<u8>;

    /// As an expansion asks for it: where the type is concrete.
    macro_rules! shape {
        ($type:ty) => {{
            use probe::*;
            (&&&Probe::<$type>::new()).shape((&&&Probe::<$type>::new()).text())
        }};
    }

    /// Whether the type is a `Result`, whether it takes a fault, and the text of a value if it is an error.
    fn check<R: Recordable>(shape: Shape<R>, value: R, is_result: bool, takes_fault: bool, text: Option<&str>) {
        let returns = shape.returns();
        assert_eq!((returns.is_result, returns.fault.is_some()), (is_result, takes_fault));
        assert_eq!((shape.is_err)(&value).then(|| (shape.text)(&value)).as_deref(), text);
        let recorded = (shape.encode)(&value).unwrap();
        (returns.check)(&recorded).unwrap();
        (returns.check)(&Value::from_json(&serde_json::json!({ "neither": [] }))).unwrap_err();
        if let Some(record) = returns.fault {
            let fault = Fault::Panicked { effect: "pay".to_owned(), attempt: 1, message: "no".to_owned() };
            assert!((shape.is_err)(&record(fault).unwrap().decode().unwrap()));
        }
    }

    #[test]
    fn a_type_is_what_it_is_whatever_its_name() {
        check(shape!(u8), 1, false, false, None);
        check(shape!(Vec<Alias>), vec![Err(Failure::new("no"))], false, false, None);
        check(shape!(Option<u8>), None, false, false, None);
        check(shape!(Alias), Ok(1), true, true, None);
        check(shape!(Alias), Err(Failure::new("no")), true, true, Some("no"));
        check(shape!(Result<(), Own>), Err(Own("x".to_owned())), true, true, Some("own: x"));
        check(shape!(Result<(), String>), Err("no".to_owned()), true, false, Some("no"));
        check(shape!(Result<(), Plain>), Err(Plain::No), true, false, Some("No"));
        let mute = format!("an error in `{}`", std::any::type_name::<Result<(), Mute>>());
        check(shape!(Result<(), Mute>), Err(Mute), true, false, Some(&mute));
        check(shape!(Result<(), Fault>), Ok(()), true, true, None);
    }

    #[test]
    fn a_success_can_be_given_for_a_result() {
        assert_eq!(<Result<u8, String> as FromOk>::from_ok(1), Ok(1));
        fn takes_fault<R: TakesFault>() {}
        takes_fault::<Alias>();
        takes_fault::<Result<(), Own>>();
    }
}
