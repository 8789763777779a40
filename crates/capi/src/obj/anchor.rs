//! Where a listing stands, in the room that C gives for it.
//!
//! | bytes of `da_buf` | meaning |
//! |---|---|
//! | 1 | 0: the position follows; 1: a number of one kept here follows |
//! | 1 | bytes that follow |
//! | rest | the position, or this process's mark and the number, 8 bytes each |
//!
//! A position holds the last key given, so that of keys longer than some 80 bytes does not fit.
//! It is kept in the process; the oldest of [`KEPT_MAX`] is forgotten. An anchor with such a
//! position works in this process only, and says so elsewhere.

use crate::ctypes::{
    DAOS_ANCHOR_BUF_MAX, DAOS_ANCHOR_TYPE_EOF, DAOS_ANCHOR_TYPE_KEY, DAOS_ANCHOR_TYPE_ZERO,
    daos_anchor_t,
};
use client::Anchor;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use types::{Error, Result};

/// Long positions kept.
const KEPT_MAX: usize = 4096;
const HEAD_BYTES: usize = 2;
const WHOLE: u8 = 0;
const KEPT: u8 = 1;

struct Kept {
    /// Number of the oldest.
    first: u64,
    positions: VecDeque<Vec<u8>>,
}

static LONG: Mutex<Kept> = Mutex::new(Kept { first: 0, positions: VecDeque::new() });

/// Tells anchors of this process from others'.
fn mark() -> u64 {
    static MARK: OnceLock<u64> = OnceLock::new();
    *MARK.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}

fn bad() -> Error {
    Error::inval("the anchor is not one of a listing in this process, or too old")
}

/// What C's anchor says. `None` at the end.
pub fn read<T>(
    anchor: &daos_anchor_t,
    start: T,
    from: impl Fn(&[u8]) -> Result<T>,
) -> Result<Option<T>> {
    match anchor.da_type {
        DAOS_ANCHOR_TYPE_ZERO => return Ok(Some(start)),
        DAOS_ANCHOR_TYPE_EOF => return Ok(None),
        DAOS_ANCHOR_TYPE_KEY => {}
        _ => return Err(bad()),
    }
    let [kind, bytes, rest @ ..] = &anchor.da_buf;
    let body = rest.get(..*bytes as usize).ok_or_else(bad)?;
    match *kind {
        WHOLE => from(body).map(Some),
        KEPT => {
            let (whose, number) = body.split_at_checked(8).ok_or_else(bad)?;
            let number = u64::from_le_bytes(number.try_into().map_err(|_| bad())?);
            if whose != mark().to_le_bytes() {
                return Err(bad());
            }
            let kept = LONG.lock();
            let at = usize::try_from(number.wrapping_sub(kept.first)).map_err(|_| bad())?;
            from(kept.positions.get(at).ok_or_else(bad)?).map(Some)
        }
        _ => Err(bad()),
    }
}

/// Writes a position into C's anchor; `None` is the end.
pub fn write(anchor: &mut daos_anchor_t, position: Option<&[u8]>) {
    let Some(position) = position else {
        anchor.da_type = DAOS_ANCHOR_TYPE_EOF;
        return;
    };
    anchor.da_type = DAOS_ANCHOR_TYPE_KEY;
    anchor.da_buf = [0; DAOS_ANCHOR_BUF_MAX];
    let mut put = |kind: u8, body: &[u8]| {
        anchor.da_buf[0] = kind;
        anchor.da_buf[1] = body.len() as u8;
        anchor.da_buf[HEAD_BYTES..HEAD_BYTES + body.len()].copy_from_slice(body);
    };
    if position.len() <= DAOS_ANCHOR_BUF_MAX - HEAD_BYTES {
        return put(WHOLE, position);
    }
    let mut kept = LONG.lock();
    if kept.positions.len() == KEPT_MAX {
        kept.positions.pop_front();
        kept.first += 1;
    }
    let number = kept.first + kept.positions.len() as u64;
    kept.positions.push_back(position.to_vec());
    drop(kept);
    let mut body = mark().to_le_bytes().to_vec();
    body.extend(number.to_le_bytes());
    put(KEPT, &body);
}

/// The position in an anchor of keys or ranges. `None` at the end.
pub fn position(anchor: &daos_anchor_t) -> Result<Option<Anchor>> {
    let position = read(anchor, Anchor::start(), Anchor::from_bytes)?;
    Ok(position.filter(|position| !position.is_end()))
}

/// Writes a position of keys or ranges.
pub fn put_position(anchor: &mut daos_anchor_t, position: &Anchor) {
    let raw = (!position.is_end()).then(|| position.to_bytes());
    write(anchor, raw.as_deref());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zero() -> daos_anchor_t {
        daos_anchor_t {
            da_type: 0,
            da_shard: 0,
            da_flags: 0,
            da_sub_anchors: 0,
            da_buf: [0; DAOS_ANCHOR_BUF_MAX],
        }
    }

    fn back(anchor: &daos_anchor_t) -> Result<Option<Vec<u8>>> {
        read(anchor, b"start".to_vec(), |raw| Ok(raw.to_vec()))
    }

    #[test]
    fn positions_of_all_lengths_come_back() {
        assert_eq!(back(&zero()).unwrap().unwrap(), b"start");
        let mut anchor = zero();
        for bytes in [0, 1, 50, 101, 102, 103, 104, 500, 4200] {
            let position: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            write(&mut anchor, Some(&position));
            assert_eq!(back(&anchor).unwrap().unwrap(), position);
            // Asking does not use it up.
            assert_eq!(back(&anchor).unwrap().unwrap(), position);
        }
        write(&mut anchor, None);
        assert_eq!(anchor.da_type, DAOS_ANCHOR_TYPE_EOF);
        assert_eq!(back(&anchor).unwrap(), None);
    }

    #[test]
    fn what_was_forgotten_or_is_foreign_is_refused() {
        let mut old = zero();
        write(&mut old, Some(&[7; 200]));
        let mut foreign = old;
        foreign.da_buf[HEAD_BYTES] ^= 1;
        assert!(back(&foreign).is_err());
        let mut next = zero();
        for _ in 0..KEPT_MAX {
            write(&mut next, Some(&[8; 200]));
        }
        assert!(back(&old).is_err());
        assert_eq!(back(&next).unwrap().unwrap(), [8; 200]);
        for (kind, bytes) in [(2, 0), (0, 103), (1, 0), (1, 15), (1, 16)] {
            let mut nonsense = zero();
            nonsense.da_type = DAOS_ANCHOR_TYPE_KEY;
            nonsense.da_buf[0] = kind;
            nonsense.da_buf[1] = bytes;
            assert!(back(&nonsense).is_err(), "{kind} {bytes}");
        }
    }
}
