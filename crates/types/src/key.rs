//! Keys: dkeys and akeys are byte strings; short ones are kept inline.

use smallvec::SmallVec;
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

/// A dkey or akey. Up to 22 bytes cost no allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(SmallVec<[u8; 22]>);

impl Key {
    /// Copies the bytes.
    pub fn new(bytes: &[u8]) -> Key {
        Key(SmallVec::from_slice(bytes))
    }

    /// Bytes on the heap beside this struct.
    pub fn heap_bytes(&self) -> usize {
        if self.0.spilled() { self.0.capacity() } else { 0 }
    }
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        Key::new(bytes)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
