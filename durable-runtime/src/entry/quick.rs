//! The two entries that nearly all of a log is made of, decoded without `bincode`'s generality: the replay of a step is not much more
//! than that. What is not whole, or not one of them, is none of its business: `bincode` decodes it, or says what is wrong.

use std::borrow::Cow;

use super::{Call, Entry, Kind, Outcome, Path, RecordedContract};
use crate::id::{Attempt, StepNo};

/// The places of the variants in [`Kind`], which never change.
const EFFECT_QUEUED: u32 = 3;
const EFFECT_CALLED: u32 = 4;
const EFFECT_RESULT: u32 = 14;

#[inline]
pub(super) fn decode(frame: &[u8]) -> Option<Entry<'_>> {
    let mut bytes = Bytes(frame);
    let at = bytes.u64()?;
    let kind = match bytes.u32()? {
        EFFECT_QUEUED => Kind::EffectQueued(call(&mut bytes)?),
        EFFECT_CALLED => Kind::EffectCalled(call(&mut bytes)?),
        EFFECT_RESULT => {
            let (step, attempt) = (StepNo(bytes.u32()?), Attempt(bytes.u32()?));
            let outcome = match bytes.u32()? {
                0 => Outcome::Ok(Cow::Borrowed(bytes.slice()?)),
                1 => Outcome::Err(Cow::Borrowed(bytes.slice()?)),
                _ => return None,
            };
            Kind::EffectResult { step, attempt, outcome, unsure: bytes.bool()? }
        }
        _ => return None,
    };
    bytes.0.is_empty().then_some(Entry { at, kind })
}

#[inline]
fn call<'a>(bytes: &mut Bytes<'a>) -> Option<Call<'a>> {
    Some(Call {
        path: Path { scope: Cow::Borrowed(bytes.str()?), name: Cow::Borrowed(bytes.str()?), n: bytes.u32()? },
        effect: bytes.option(Bytes::str)?.map(Cow::Borrowed),
        contract: match bytes.u32()? {
            0 => RecordedContract::ReadOnly,
            1 => RecordedContract::Idempotent,
            2 => RecordedContract::Keyed,
            3 => RecordedContract::AtMostOnce,
            _ => return None,
        },
        args: Cow::Borrowed(bytes.slice()?),
        digest: bytes.u128()?,
        key: bytes.option(Bytes::str)?.map(Cow::Borrowed),
        site: bytes.u128()?,
    })
}

/// Numbers up to 250 are a byte; 251 to 254 say that two, four, eight or sixteen bytes of the number follow.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    #[inline]
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    #[inline]
    fn u64(&mut self) -> Option<u64> {
        match self.array()? {
            [byte @ 0..=250] => Some(byte.into()),
            [251] => self.array().map(u16::from_le_bytes).map(u64::from),
            [252] => self.array().map(u32::from_le_bytes).map(u64::from),
            [253] => self.array().map(u64::from_le_bytes),
            _ => None,
        }
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        match self.array()? {
            [byte @ 0..=250] => Some(byte.into()),
            [251] => self.array().map(u16::from_le_bytes).map(u32::from),
            [252] => self.array().map(u32::from_le_bytes),
            _ => None,
        }
    }

    #[inline]
    fn u128(&mut self) -> Option<u128> {
        match self.0.first()? {
            254 => {
                self.take(1)?;
                self.array().map(u128::from_le_bytes)
            }
            _ => self.u64().map(u128::from),
        }
    }

    fn bool(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    #[inline]
    fn option<T>(&mut self, some: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.bool()? {
            true => some(self).map(Some),
            false => Some(None),
        }
    }

    #[inline]
    fn slice(&mut self) -> Option<&'a [u8]> {
        let len = self.u64()?;
        self.take(usize::try_from(len).ok()?)
    }

    #[inline]
    fn str(&mut self) -> Option<&'a str> {
        str::from_utf8(self.slice()?).ok()
    }
}
