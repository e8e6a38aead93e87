//! What was called, in one piece of memory that the next call takes over when this one is over: most calls of a log are over at once
//! when it is replayed.

use crate::entry::Path;

/// Path, effect, key and arguments of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Called {
    /// The scope, the name in it, the recorded name of the effect if that is another one, the rendered key if there is one, and the
    /// arguments, one behind the other.
    bytes: Vec<u8>,
    scope_len: u32,
    name_len: u32,
    /// The name's number in the scope.
    n: u32,
    effect_len: Option<u32>,
    key_len: Option<u32>,
}

impl Called {
    /// Longer ones are not kept for the next call.
    const SPARE_BYTES: usize = 1024;

    /// Whether its memory is kept for the next call.
    pub(super) fn is_spare(&self) -> bool {
        self.bytes.capacity() <= Called::SPARE_BYTES
    }

    /// Says anew what was called.
    pub(super) fn fill(&mut self, path: &Path<'_>, effect: Option<&str>, key: Option<&str>, args: &[u8]) {
        // No entry is longer than a `u32` says.
        self.effect_len = effect.map(|effect| effect.len() as u32);
        self.key_len = key.map(|key| key.len() as u32);
        let (effect, key) = (effect.unwrap_or_default(), key.unwrap_or_default());
        self.bytes.clear();
        self.bytes.reserve(path.scope.len() + path.name.len() + effect.len() + key.len() + args.len());
        for part in [path.scope.as_bytes(), path.name.as_bytes(), effect.as_bytes(), key.as_bytes(), args] {
            self.bytes.extend_from_slice(part);
        }
        (self.scope_len, self.name_len) = (path.scope.len() as u32, path.name.len() as u32);
        self.n = path.n;
    }

    /// Scope, name, effect and key, and the arguments.
    fn split(&self) -> ([&str; 4], &[u8]) {
        fn split(bytes: &[u8], at: u32) -> (&str, &[u8]) {
            let (word, rest) = bytes.split_at_checked(at as usize).unwrap_or_default();
            (str::from_utf8(word).unwrap_or_default(), rest)
        }
        let (scope, rest) = split(&self.bytes, self.scope_len);
        let (name, rest) = split(rest, self.name_len);
        let (effect, rest) = split(rest, self.effect_len.unwrap_or_default());
        let (key, args) = split(rest, self.key_len.unwrap_or_default());
        ([scope, name, effect, key], args)
    }

    /// Path, as text.
    pub(crate) fn path(&self) -> String {
        let ([scope, name, ..], _) = self.split();
        Path { scope: scope.into(), name: name.into(), n: self.n }.text()
    }

    /// Recorded name of the effect.
    pub(crate) fn effect(&self) -> &str {
        let ([_, name, effect, _], _) = self.split();
        if self.effect_len.is_some() { effect } else { name }
    }

    /// The rendered key.
    pub(crate) fn key(&self) -> Option<&str> {
        self.key_len.map(|_| self.split().0[3])
    }

    /// The arguments.
    pub(crate) fn args(&self) -> &[u8] {
        self.split().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_called_is_told_as_it_was_also_in_the_memory_of_a_longer_call() {
        let mut called = Called::default();
        let path = |scope: &'static str, name: &'static str, n| Path { scope: scope.into(), name: name.into(), n };
        let mut check = |path: &Path<'_>, effect: Option<&str>, key: Option<&str>, args: &[u8]| {
            called.fill(path, effect, key, args);
            let name = effect.unwrap_or(&path.name);
            assert_eq!((called.path(), called.effect(), called.key()), (path.to_string(), name, key));
            assert_eq!(called.args(), args);
        };
        check(&path("join[0]/1", "pay a/b", 12), Some("charge"), Some("k:\u{20ac}"), b"\x01\x81\xff");
        check(&path("", "pay", 0), None, None, b"");
        check(&path("", "pay", 1), None, Some(""), b"\x01\x80");
        check(&path("async[0]", "", 0), Some(""), None, b"\x01");
    }
}
