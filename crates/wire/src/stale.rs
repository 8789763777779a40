//! Refusals, and with one for an old pool map the newer map, so that who is refused needs nobody else to go on.
//!
//! A refusal is an encoded `Err(Error)`. Where it is [`Code::Stale`] because of the map that the request was sent with, a [`NewerMap`] may
//! follow. It is left out where it would be large: it is asked for then.

use crate::map::PoolMap;
use crate::map_change::MapChange;
use serde::{Deserialize, Serialize};
use types::{Code, Error, Result};

/// The way to a newer map of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NewerMap {
    /// One after the other; the first is made from the map that the request was sent with.
    Changes(Vec<MapChange>),
    /// For those who have an older one than is remembered.
    Whole(PoolMap),
}

impl NewerMap {
    /// The map that it leads to from `known`; `None` when it leads nowhere newer from there, or is another pool's.
    pub fn from_known(self, known: &PoolMap) -> Option<PoolMap> {
        match self {
            NewerMap::Whole(map) => {
                (map.pool == known.pool && map.version > known.version).then_some(map)
            }
            NewerMap::Changes(changes) => {
                let mut newer: Option<PoolMap> = None;
                for change in &changes {
                    let map = newer.as_ref().unwrap_or(known);
                    // Some may be known already: answers to other requests came before.
                    if change.version > map.version {
                        newer = Some(map.changed(change)?);
                    }
                }
                newer
            }
        }
    }
}

/// An encoded refusal.
pub fn encode_refusal(error: &Error, newer: Option<&NewerMap>) -> Vec<u8> {
    let mut body = crate::encode(&Err::<(), _>(error));
    if let Some(newer) = newer {
        crate::encode_into(newer, &mut body);
    }
    body
}

/// What [`encode_refusal`] made.
///
/// Errors: `Proto` for other bytes, also for an answer that is no refusal.
pub fn decode_refusal(body: &[u8]) -> Result<(Error, Option<NewerMap>)> {
    let malformed = |error| Error::new(Code::Proto, format!("malformed refusal: {error}"));
    let (outcome, rest) = postcard::take_from_bytes::<Result<()>>(body).map_err(malformed)?;
    let Err(error) = outcome else {
        return Err(Error::new(Code::Proto, "an answer of another kind than was asked for"));
    };
    match rest {
        [] => Ok((error, None)),
        rest => Ok((error, Some(crate::decode(rest)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PoolId;

    fn map(version: u32) -> PoolMap {
        PoolMap {
            pool: PoolId(7),
            version,
            engines: Vec::new(),
            targets: Vec::new(),
            placements: Vec::new(),
            outs: Vec::new(),
            next: None,
            balanced: version as u8,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        }
    }

    fn steps(from: u32, to: u32) -> NewerMap {
        NewerMap::Changes((from..to).map(|at| map(at).change_to(&map(at + 1)).unwrap()).collect())
    }

    #[test]
    fn a_refusal_is_read_back_with_and_without_a_map() {
        let error = Error::new(Code::Stale, "old");
        assert_eq!(decode_refusal(&encode_refusal(&error, None)), Ok((error.clone(), None)));
        for newer in [steps(3, 6), NewerMap::Whole(map(6))] {
            let body = encode_refusal(&error, Some(&newer));
            assert_eq!(decode_refusal(&body), Ok((error.clone(), Some(newer))));
            assert_eq!(decode_refusal(&body[..body.len() - 1]).unwrap_err().code, Code::Proto);
        }
        assert_eq!(
            decode_refusal(&crate::encode(&Ok::<_, Error>(()))).unwrap_err().code,
            Code::Proto
        );
        assert_eq!(decode_refusal(&[]).unwrap_err().code, Code::Proto);
    }

    #[test]
    fn changes_lead_on_from_each_map_on_their_way_and_from_no_other() {
        for known in 3..6 {
            assert_eq!(steps(3, 6).from_known(&map(known)), Some(map(6)), "{known}");
        }
        for known in [2, 6, 7] {
            assert_eq!(steps(3, 6).from_known(&map(known)), None, "{known}");
        }
        let of_another = PoolMap { pool: PoolId(8), ..map(3) };
        assert_eq!(steps(3, 6).from_known(&of_another), None);
        assert_eq!(NewerMap::Whole(map(6)).from_known(&of_another), None);
        assert_eq!(NewerMap::Whole(map(6)).from_known(&map(6)), None);
        assert_eq!(NewerMap::Whole(map(6)).from_known(&map(5)), Some(map(6)));
    }
}
