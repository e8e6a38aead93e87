//! MessagePack as a flat sequence of tokens: what everything that does not need a Rust type reads.

use std::fmt;

/// Deepest nesting of arrays and maps in a record. Bounds the stack of every recursion over one; serde_json has the same limit.
pub(super) const MAX_DEPTH: usize = 128;

pub(super) const NIL: u8 = 0xc0;

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// Cut off, or a length promises more than there is.
    Ends,
    /// The one byte MessagePack never uses.
    Reserved,
    /// Nested deeper than [`MAX_DEPTH`].
    Deep,
    /// Bytes are left after the value.
    Trailing,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Ends => f.write_str("the bytes end before the value does"),
            Malformed::Reserved => f.write_str("the bytes are not MessagePack"),
            Malformed::Deep => write!(f, "arrays and maps are nested more than {MAX_DEPTH} deep"),
            Malformed::Trailing => f.write_str("bytes are left after the value"),
        }
    }
}

/// A scalar, or the head of an array or map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Nil,
    Bool(bool),
    /// Any integer: MessagePack knows widths, a value does not.
    Int(i128),
    /// Bits, so that no NaN is touched on the way.
    F32(u32),
    /// Bits.
    F64(u64),
    /// A string's bytes, UTF-8 if the writer was honest.
    Str(&'a [u8]),
    Bin(&'a [u8]),
    Ext(i8, &'a [u8]),
    /// Number of elements that follow.
    Array(u32),
    /// Number of entries that follow; `wide` if the length takes more bytes than needed, which says that entries with
    /// a nil value are part of the value and not absent fields (see `encode.rs`).
    Map {
        len: u32,
        wide: bool,
    },
}

/// Reads tokens off the front of a slice.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Says whether all bytes are read.
    pub(super) fn finish(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Ends)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed::Ends)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    fn ext(&mut self, len: usize) -> Result<Token<'a>, Malformed> {
        let [tag] = self.array()?;
        Ok(Token::Ext(tag as i8, self.take(len)?))
    }

    /// An element takes at least one byte, so a length over what is left is refused before anyone allocates for it.
    fn seq(&self, len: u32) -> Result<Token<'a>, Malformed> {
        if len as usize > self.rest.len() { Err(Malformed::Ends) } else { Ok(Token::Array(len)) }
    }

    fn map(&self, len: u32, wide: bool) -> Result<Token<'a>, Malformed> {
        if len as usize > self.rest.len() / 2 { Err(Malformed::Ends) } else { Ok(Token::Map { len, wide }) }
    }

    /// Reads the next token.
    pub(super) fn token(&mut self) -> Result<Token<'a>, Malformed> {
        Ok(match self.u8()? {
            byte @ 0x00..=0x7f => Token::Int(byte.into()),
            byte @ 0x80..=0x8f => self.map(u32::from(byte & 0x0f), false)?,
            byte @ 0x90..=0x9f => self.seq(u32::from(byte & 0x0f))?,
            byte @ 0xa0..=0xbf => Token::Str(self.take(usize::from(byte & 0x1f))?),
            NIL => Token::Nil,
            0xc1 => return Err(Malformed::Reserved),
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xc4 => {
                let len = self.u8()?;
                Token::Bin(self.take(len.into())?)
            }
            0xc5 => {
                let len = self.u16()?;
                Token::Bin(self.take(len.into())?)
            }
            0xc6 => {
                let len = self.u32()?;
                Token::Bin(self.take(len as usize)?)
            }
            0xc7 => {
                let len = self.u8()?;
                self.ext(len.into())?
            }
            0xc8 => {
                let len = self.u16()?;
                self.ext(len.into())?
            }
            0xc9 => {
                let len = self.u32()?;
                self.ext(len as usize)?
            }
            0xca => Token::F32(self.u32()?),
            0xcb => Token::F64(u64::from_be_bytes(self.array()?)),
            0xcc => Token::Int(self.u8()?.into()),
            0xcd => Token::Int(self.u16()?.into()),
            0xce => Token::Int(self.u32()?.into()),
            0xcf => Token::Int(u64::from_be_bytes(self.array()?).into()),
            0xd0 => Token::Int(i8::from_be_bytes(self.array()?).into()),
            0xd1 => Token::Int(i16::from_be_bytes(self.array()?).into()),
            0xd2 => Token::Int(i32::from_be_bytes(self.array()?).into()),
            0xd3 => Token::Int(i64::from_be_bytes(self.array()?).into()),
            byte @ 0xd4..=0xd8 => self.ext(1 << (byte - 0xd4))?,
            0xd9 => {
                let len = self.u8()?;
                Token::Str(self.take(len.into())?)
            }
            0xda => {
                let len = self.u16()?;
                Token::Str(self.take(len.into())?)
            }
            0xdb => {
                let len = self.u32()?;
                Token::Str(self.take(len as usize)?)
            }
            0xdc => {
                let len = self.u16()?;
                self.seq(len.into())?
            }
            0xdd => {
                let len = self.u32()?;
                self.seq(len)?
            }
            0xde => {
                let len = self.u16()?;
                self.map(len.into(), len < 0x10)?
            }
            0xdf => {
                let len = self.u32()?;
                self.map(len, len < 0x1_0000)?
            }
            byte @ 0xe0..=0xff => Token::Int((byte as i8).into()),
        })
    }

    /// Passes over one value and returns its bytes. Checks all of them, at a cost linear in their number, without recursion.
    pub(super) fn skip(&mut self) -> Result<&'a [u8], Malformed> {
        let mut ahead = self.clone();
        if !matches!(ahead.token()?, Token::Array(_) | Token::Map { .. }) {
            let (value, _) = self.rest.split_at(self.rest.len() - ahead.rest.len());
            *self = ahead;
            return Ok(value);
        }
        self.skip_nested()
    }

    fn skip_nested(&mut self) -> Result<&'a [u8], Malformed> {
        let whole = self.rest;
        // What is left to read at each level of nesting.
        let mut left = [0u64; MAX_DEPTH + 1];
        left[0] = 1;
        let mut depth = 0;
        loop {
            while left[depth] == 0 {
                if depth == 0 {
                    return Ok(&whole[..whole.len() - self.rest.len()]);
                }
                depth -= 1;
            }
            left[depth] -= 1;
            let inner = match self.token()? {
                Token::Array(len) => u64::from(len),
                Token::Map { len, .. } => u64::from(len) * 2,
                _ => continue,
            };
            depth += 1;
            *left.get_mut(depth).ok_or(Malformed::Deep)? = inner;
        }
    }
}

/// Says whether the bytes are exactly one value, nested no deeper than [`MAX_DEPTH`].
pub(super) fn check(bytes: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    reader.skip()?;
    reader.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Result<Token<'_>, Malformed>) {
        assert_eq!(Reader::new(bytes).token(), expected, "{bytes:02x?}");
    }

    #[test]
    fn every_first_byte_is_a_token_or_refused() {
        for first in 0..=u8::MAX {
            // Lengths of zero, so that whatever it is, it is whole.
            let mut bytes = [0; 20];
            bytes[0] = first;
            match Reader::new(&bytes).token() {
                Ok(Token::Str(_)) if (0xb4..=0xbf).contains(&first) => {
                    panic!("{first:02x}: there are only 19 bytes left")
                }
                Ok(_) => assert_ne!(first, 0xc1),
                Err(Malformed::Reserved) => assert_eq!(first, 0xc1),
                Err(error) => {
                    assert!((0x8a..=0x8f).contains(&first) || (0xb4..=0xbf).contains(&first), "{first:02x}: {error}")
                }
            }
        }
    }

    #[test]
    fn tokens_are_what_the_specification_says() {
        check(&[0x7f], Ok(Token::Int(127)));
        check(&[0xe0], Ok(Token::Int(-32)));
        check(&[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0], Ok(Token::Int(i64::MIN.into())));
        check(&[0xcf, 255, 255, 255, 255, 255, 255, 255, 255], Ok(Token::Int(u64::MAX.into())));
        check(&[0xca, 0x7f, 0x80, 0, 1], Ok(Token::F32(0x7f80_0001)));
        check(&[0xd9, 2, b'h', b'i'], Ok(Token::Str(b"hi")));
        check(&[0xc5, 0, 1, 9], Ok(Token::Bin(&[9])));
        check(&[0xd5, 0xff, 1, 2], Ok(Token::Ext(-1, &[1, 2])));
        check(&[0xc7, 1, 7, 3], Ok(Token::Ext(7, &[3])));
        check(&[0x81, 0, 0], Ok(Token::Map { len: 1, wide: false }));
        check(&[0xde, 0, 1, 0, 0], Ok(Token::Map { len: 1, wide: true }));
        check(&[0xdf, 0, 0, 0, 1, 0, 0], Ok(Token::Map { len: 1, wide: true }));
        check(&[0xdd, 0xff, 0xff, 0xff, 0xff, 0], Err(Malformed::Ends));
        check(&[], Err(Malformed::Ends));
    }

    #[test]
    fn a_value_is_passed_over_whole() {
        let check = |bytes: &[u8], len: Result<usize, Malformed>| {
            assert_eq!(Reader::new(bytes).skip().map(<[u8]>::len), len, "{bytes:02x?}");
        };
        check(&[0x92, 0x81, 1, 0x90, 0x80, 5, 5], Ok(5));
        check(&[0x90], Ok(1));
        check(&[0x92, 1], Err(Malformed::Ends));
        check(&[&[0x91; 128][..], &[NIL]].concat(), Ok(129));
        check(&[&[0x91; 129][..], &[NIL]].concat(), Err(Malformed::Deep));
        assert_eq!(super::check(&[1, 2]), Err(Malformed::Trailing));
    }
}
