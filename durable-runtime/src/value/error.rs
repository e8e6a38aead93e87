//! Why a value could not be recorded or read back.

use std::fmt;

/// What went wrong with a value; see [`ValueError::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueErrorKind {
    /// The value cannot be written down in the recorded format.
    Encode,
    /// It can be written down, but what is read back is another value, or cannot be read at all.
    Changes,
    /// The record does not decode as the wanted type.
    Decode,
    /// The bytes are not a record: cut off, damaged, nested too deep, or of an unknown codec.
    Malformed,
    /// The encoded value is over the limit; see [`ValueError::size`] and [`ValueError::limit`].
    TooLarge,
}

/// A value that cannot be recorded, or a record that does not decode.
///
/// Names the type, the path of the field inside it and the reason. The text is the same on every machine that runs the
/// same build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    kind: ValueErrorKind,
    /// Path of the field from the root of the value: `order.lines[3].cents`. Empty at the root.
    path: String,
    /// Empty where no type is concerned.
    type_name: &'static str,
    reason: String,
    /// Encoded size and its limit in bytes, of a value too large.
    size: Option<(u64, u64)>,
}

impl ValueError {
    pub(crate) fn new(kind: ValueErrorKind, type_name: &'static str, path: String, reason: String) -> ValueError {
        ValueError { kind, path, type_name, reason, size: None }
    }

    /// Says that an encoded value of `size` bytes is over a limit of `limit` bytes.
    ///
    /// ```
    /// # use durable::ValueError;
    /// let error = ValueError::too_large(70_000, 65_536);
    /// assert_eq!((error.size(), error.limit()), (Some(70_000), Some(65_536)));
    /// assert_eq!(error.to_string(), "value is too large to record: 70000 bytes, the limit is 65536");
    /// ```
    pub fn too_large(size: u64, limit: u64) -> ValueError {
        let reason = format!("{size} bytes, the limit is {limit}");
        ValueError { size: Some((size, limit)), ..ValueError::new(ValueErrorKind::TooLarge, "", String::new(), reason) }
    }

    /// Puts `field` in front of the path: what was inside a value is now inside that field of it.
    pub(crate) fn inside(mut self, field: &str) -> ValueError {
        self.path = join_path(field, &self.path);
        self
    }

    /// What sort of mistake it is.
    pub fn kind(&self) -> ValueErrorKind {
        self.kind
    }

    /// Path of the field, `order.lines[3].cents`; empty if the whole value is meant.
    ///
    /// Below a `#[serde(flatten)]` or a tagged or untagged enum the path ends at the type that holds it, because serde
    /// reads those by way of a buffer.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The Rust type that was encoded or wanted; empty if none was.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// The reason alone, without type and path.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Encoded size in bytes of a value too large.
    pub fn size(&self) -> Option<u64> {
        self.size.map(|(size, _)| size)
    }

    /// The limit in bytes that a value too large is over.
    pub fn limit(&self) -> Option<u64> {
        self.size.map(|(_, limit)| limit)
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ValueError { path, type_name, reason, .. } = self;
        if type_name.is_empty() {
            f.write_str("value ")?;
        } else {
            write!(f, "`{type_name}` ")?;
        }
        f.write_str(match self.kind {
            ValueErrorKind::Encode => "cannot be recorded",
            ValueErrorKind::Changes => "would not come back equal from its record",
            ValueErrorKind::Decode => "does not decode from its record",
            ValueErrorKind::Malformed => "has no readable record",
            ValueErrorKind::TooLarge => "is too large to record",
        })?;
        if !path.is_empty() {
            write!(f, ", at `{path}`")?;
        }
        write!(f, ": {reason}")
    }
}

impl std::error::Error for ValueError {}

/// `a` and `b.c` make `a.b.c`, `a` and `[0]` make `a[0]`.
pub(super) fn join_path(outer: &str, inner: &str) -> String {
    match (outer, inner) {
        ("", path) | (path, "") => path.to_owned(),
        (outer, inner) if inner.starts_with('[') => format!("{outer}{inner}"),
        (outer, inner) => format!("{outer}.{inner}"),
    }
}

/// The text of a tracked path; the root is the empty path.
pub(super) fn path_text(path: &serde_path_to_error::Path) -> String {
    if path.iter().next().is_none() { String::new() } else { path.to_string() }
}
