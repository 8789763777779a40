//! Strings and lists of names that live in place, without the heap.
//!
//! The preload library decides about a call inside a signal handler as well, possibly one that
//! interrupted `malloc`; whatever it touches there must not allocate. Both types cut or refuse
//! what does not fit instead of growing.

use crate::message::{NAME_BYTES_MAX, TARGETS_MAX};
use types::hash;

/// A byte string of at most `N` bytes.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    pub const EMPTY: Self = Self { bytes: [0; N], len: 0 };

    /// A text from bytes; what does not fit is cut off.
    pub fn cut(bytes: &[u8]) -> Self {
        let mut text = Self::EMPTY;
        bytes.iter().for_each(|byte| text.push(*byte));
        text
    }

    /// Appends one byte; a full text stays as it is.
    pub fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Bytes of a long name that are kept in front of the hash of the whole.
const NAME_BYTES_KEPT: usize = NAME_BYTES_MAX - 1 - 16;

/// Names of the targets that one call touches: distinct, in the order found, at most
/// [`TARGETS_MAX`].
///
/// Names are printable ASCII: any other byte, a blank and `%` become `%XX`. A name that would be
/// longer than [`NAME_BYTES_MAX`] is cut and ends in `~` and a hash of the whole, so that
/// different names stay different on all nodes.
pub struct Names {
    bytes: [u8; TARGETS_MAX * NAME_BYTES_MAX],
    ends: [usize; TARGETS_MAX],
    count: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

impl Names {
    pub const fn new() -> Self {
        let bytes = [0; TARGETS_MAX * NAME_BYTES_MAX];
        Self { bytes, ends: [0; TARGETS_MAX], count: 0 }
    }

    pub fn clear(&mut self) {
        self.count = 0;
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there is no name.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        (0..self.count).map(|at| {
            let name = self.bytes.get(self.start(at)..self.ends[at]).unwrap_or_default();
            // Only ASCII is ever stored.
            std::str::from_utf8(name).unwrap_or_default()
        })
    }

    /// Adds the name that the parts make together. False when it is there already or when there
    /// is no room for another name.
    pub fn push(&mut self, parts: &[&[u8]]) -> bool {
        if self.count == TARGETS_MAX {
            return false;
        }
        let start = self.start(self.count);
        let room = &mut self.bytes[start..start + NAME_BYTES_MAX];
        let mut len = 0;
        let mut digest = 0;
        for byte in parts.iter().flat_map(|part| part.iter().copied()) {
            digest = hash::mix2(digest, u64::from(byte));
            if byte.is_ascii_graphic() && byte != b'%' {
                put(room, &mut len, byte);
            } else {
                put(room, &mut len, b'%');
                put(room, &mut len, hex(byte >> 4));
                put(room, &mut len, hex(byte));
            }
        }
        if len > NAME_BYTES_MAX {
            len = NAME_BYTES_KEPT;
            put(room, &mut len, b'~');
            (0..16)
                .rev()
                .for_each(|nibble| put(room, &mut len, hex((digest >> (4 * nibble)) as u8)));
        }
        let (known, fresh) = self.bytes.split_at(start);
        let fresh = &fresh[..len];
        let starts = std::iter::once(0).chain(self.ends);
        let mut ranges = starts.zip(self.ends).take(self.count);
        if len == 0 || ranges.any(|(from, to)| known.get(from..to) == Some(fresh)) {
            return false;
        }
        self.ends[self.count] = start + len;
        self.count += 1;
        true
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

/// Stores a byte where there is room and counts it in any case.
fn put(room: &mut [u8], len: &mut usize, byte: u8) {
    if let Some(place) = room.get_mut(*len) {
        *place = byte;
    }
    *len += 1;
}

/// The low four bits as a digit.
pub(super) fn hex(nibble: u8) -> u8 {
    match nibble & 15 {
        digit @ 0..10 => b'0' + digit,
        digit => b'a' + digit - 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &Names) -> Vec<&str> {
        names.iter().collect()
    }

    #[test]
    fn names_are_joined_distinct_and_in_order() {
        let mut names = Names::new();
        assert!(names.push(&[b"mount:", b"/scratch"]));
        assert!(names.push(&[b"ost:1"]));
        assert!(!names.push(&[b"mount:/scratch"]), "known");
        assert!(!names.push(&[b""]), "an empty name names nothing");
        assert_eq!(listed(&names), ["mount:/scratch", "ost:1"]);
        names.clear();
        assert!(names.is_empty());
        assert!(names.push(&[b"ost:1"]));
    }

    #[test]
    fn odd_bytes_are_written_out() {
        let mut names = Names::new();
        assert!(names.push(&[b"a b%\n\xff"]));
        assert_eq!(listed(&names), ["a%20b%25%0a%ff"]);
    }

    #[test]
    fn long_names_stay_distinct_and_bounded() {
        let mut names = Names::new();
        for last in 0..TARGETS_MAX as u8 {
            let mut long = vec![b'x'; 400];
            long.push(b'a' + last);
            assert!(names.push(&[&long]));
        }
        assert!(!names.push(&[b"one more"]), "full");
        assert_eq!(names.len(), TARGETS_MAX);
        assert!(names.iter().all(|name| name.len() == NAME_BYTES_MAX));
        let mut exact = Names::new();
        exact.push(&[&[b'y'; NAME_BYTES_MAX]]);
        assert!(exact.iter().all(|name| name.bytes().all(|byte| byte == b'y')));
    }

    #[test]
    fn text_is_cut() {
        assert_eq!(Text::<3>::cut(b"abcd").as_bytes(), b"abc");
        assert_eq!(Text::<3>::EMPTY.as_bytes(), b"");
    }
}
