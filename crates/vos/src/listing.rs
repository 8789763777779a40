//! Listings of dkeys, akeys and record ranges, in pages.
//!
//! An anchor is a tag byte and the last thing given, never a count: whatever is inserted or
//! removed between two pages, what was there during the whole walk is given exactly once.

use std::ops::Range;

use types::{Code, Epoch, Error, Result, Unit, limits};
use wire::link::{Link, LinkKind};
use wire::obj::{ListScope, Listed, Recx, Tail};

use crate::index::at::ObjectAt;
use crate::index::object::Position;
use crate::index::slot::AkeyRef;
use crate::view::View;

const TAG_KEY: u8 = 1;
const TAG_INDEX: u8 = 2;

/// One page of a listing.
#[derive(Debug, Default)]
pub struct Listing {
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// Where to go on; empty at the end.
    pub anchor: Vec<u8>,
    /// Epoch of the last change of the set of keys listed; [`Epoch::ZERO`] when there is none.
    pub keys_epoch: Epoch,
}

#[derive(Debug)]
enum Item {
    Key(Range<usize>),
    Entry { key: Range<usize>, value: Range<usize>, epoch: Epoch, tail: Option<Tail> },
    Recx { recx: Recx, record_bytes: u32, epoch: Epoch },
}

impl Listing {
    /// The items, in the shard's order.
    pub fn items(&self) -> impl ExactSizeIterator<Item = Listed<'_>> {
        self.items.iter().map(|item| match item {
            Item::Key(key) => Listed::Key { key: &self.bytes[key.clone()] },
            Item::Entry { key, value, epoch, tail } => Listed::Entry {
                key: &self.bytes[key.clone()],
                value: &self.bytes[value.clone()],
                epoch: *epoch,
                tail: *tail,
            },
            Item::Recx { recx, record_bytes, epoch } => {
                Listed::Recx { recx: *recx, record_bytes: *record_bytes, epoch: *epoch }
            }
        })
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

/// Room left in a page; the first item always fits.
struct Room {
    count: usize,
    bytes: usize,
    first: bool,
}

impl Room {
    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.first || (self.count > 0 && self.bytes >= bytes);
        self.first = false;
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        fits
    }
}

fn anchored(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + bytes.len());
    out.push(tag);
    out.extend_from_slice(bytes);
    out
}

fn bad_anchor() -> Error {
    Error::inval("this anchor was not made by a listing of the same kind")
}

/// The key in an anchor; `None` at the start.
fn anchor_key(anchor: &[u8]) -> Result<Option<&[u8]>> {
    match anchor {
        [] => Ok(None),
        [TAG_KEY, key @ ..] if key.len() <= limits::KEY_BYTES_MAX => Ok(Some(key)),
        _ => Err(bad_anchor()),
    }
}

/// The record index in an anchor; `None` at the start.
fn anchor_index(anchor: &[u8]) -> Result<Option<u64>> {
    match anchor {
        [] => Ok(None),
        [TAG_INDEX, index @ ..] => {
            crate::index::object::number_of(index).map(Some).ok_or_else(bad_anchor)
        }
        _ => Err(bad_anchor()),
    }
}

impl View<'_> {
    /// One page of keys or ranges, at least one item if any is left. An absent object, dkey or
    /// akey is an empty listing. `Inval` for a foreign anchor or a single value's ranges.
    pub fn list(
        &self,
        unit: Unit,
        scope: ListScope<'_>,
        anchor: &[u8],
        count_max: u32,
        bytes_max: u32,
    ) -> Result<Listing> {
        let mut page = Listing::default();
        let mut room = Room { count: count_max as usize, bytes: bytes_max as usize, first: true };
        match scope {
            ListScope::Dkeys { value_of, follow, hash_range } => {
                let after = anchor_key(anchor)?;
                if let Some(after) = after {
                    crate::keys::check_dkey(unit, after)?;
                }
                let Some(object) = self.object(unit) else { return Ok(page) };
                let moved = crate::spread::moved_at(&self.cont, unit, self.at);
                page.keys_epoch = object.facts().keys_epoch.max(moved);
                let position = after.map_or(Position::Start, Position::After);
                self.list_dkeys(
                    object, position, hash_range, value_of, follow, &mut room, &mut page,
                );
            }
            ListScope::Akeys { dkey } => {
                crate::keys::check_dkey(unit, dkey)?;
                let after = anchor_key(anchor)?;
                let Some(found) = self.object(unit).and_then(|object| object.dkey(dkey)) else {
                    return Ok(page);
                };
                page.keys_epoch = found.epoch();
                let mut last: &[u8] = b"";
                for (akey, _) in
                    found.akeys().skip_while(|(akey, _)| after.is_some_and(|a| *akey <= a))
                {
                    if !room.take(akey.len()) {
                        page.anchor = anchored(TAG_KEY, last);
                        break;
                    }
                    let key = page.keep(akey);
                    page.items.push(Item::Key(key));
                    last = akey;
                }
            }
            ListScope::Recxs { dkey, akey, descending } => {
                crate::keys::check_dkey(unit, dkey)?;
                let from = anchor_index(anchor)?;
                let value = self
                    .object(unit)
                    .and_then(|object| object.dkey(dkey))
                    .and_then(|dkey| dkey.akey(akey));
                let Some(value) = value else { return Ok(page) };
                let Some(array) = value.array() else {
                    return Err(Error::new(
                        Code::Inval,
                        "the akey holds a single value, which has no ranges",
                    ));
                };
                page.keys_epoch = array.epoch();
                let record_bytes = array.record_bytes();
                let walk = if descending {
                    array.below(from.unwrap_or(u64::MAX))
                } else {
                    array.from(from.unwrap_or(0))
                };
                let mut bound = from;
                for extent in walk {
                    let start = extent.index;
                    let mut recx = Recx { index: start, count: extent.count };
                    // An extent that grew over the anchor since is given in part.
                    match (descending, bound) {
                        (true, Some(to)) => recx.count = recx.count.min(to - start),
                        (false, Some(from)) if from > start => {
                            recx = Recx { index: from, count: start + extent.count - from };
                        }
                        _ => {}
                    }
                    if !room.take(16) {
                        let at = bound.unwrap_or(0);
                        page.anchor = anchored(TAG_INDEX, &at.to_le_bytes());
                        break;
                    }
                    page.items.push(Item::Recx { recx, record_bytes, epoch: extent.epoch });
                    bound = Some(if descending { recx.index } else { recx.index + recx.count });
                }
            }
        }
        Ok(page)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one scope")]
    fn list_dkeys(
        &self,
        object: ObjectAt<'_>,
        position: Position<'_>,
        hash_range: (u64, u64),
        value_of: Option<&[u8]>,
        follow: bool,
        room: &mut Room,
        page: &mut Listing,
    ) {
        let mut last = 0..0;
        for (name, dkey) in object.dkeys_after(position, hash_range) {
            let found = value_of.and_then(|akey| match dkey.akey(akey) {
                Some(AkeyRef::Inline(epoch, value)) => Some((epoch, value)),
                // A value in the data area is too long for a listing; its epoch is told.
                Some(other) => Some((other.epoch(), &b""[..])),
                None => None,
            });
            let (epoch, value) = found.unwrap_or((Epoch::ZERO, b""));
            if !room.take(name.with_bytes(<[u8]>::len) + value.len()) {
                page.anchor = anchored(TAG_KEY, &page.bytes[last]);
                return;
            }
            let key = name.with_bytes(|bytes| page.keep(bytes));
            last = key.clone();
            if value_of.is_none() {
                page.items.push(Item::Key(key));
                continue;
            }
            let tail = match Link::decode(value) {
                Some(link) if follow && link.kind == LinkKind::Array => {
                    // Who asks for tails asks for this, too, and finds it in memory.
                    self.reaches_beyond(link.oid.first_unit());
                    self.tail(link.oid.first_unit())
                }
                _ => None,
            };
            let value = page.keep(value);
            page.items.push(Item::Entry { key, value, epoch, tail });
        }
    }
}
