//! Answers of the naive store that own what they say.

use types::Epoch;
use wire::obj::{Fetched, FetchedIod, FoundKey, Linked, Listed, ObjectStat, OpReply, Recx, Tail};

/// A dkey, an akey, a range of records and their size.
pub(crate) type Place = (Vec<u8>, Vec<u8>, Option<Recx>, u32);

/// An answer that owns what it says.
pub(crate) enum Answer {
    Done,
    Fetched(Vec<(Epoch, OwnedFetch)>),
    Listed(Vec<OwnedItem>, Vec<u8>, Epoch),
    Found(Option<Place>),
    Stat(ObjectStat),
    Link(Option<Vec<u8>>, Epoch, Option<Tail>, bool),
    Removed(Option<Vec<u8>>, bool, Linked),
}

/// What was found at one akey.
pub(crate) enum OwnedFetch {
    Absent,
    Inline(Vec<u8>),
    Single(u64, bool),
    Array(u32, u64),
    Sparse(u32, u64, Vec<Recx>),
}

/// One listed item.
pub(crate) enum OwnedItem {
    Key(Vec<u8>),
    Entry(Vec<u8>, Vec<u8>, Epoch, Option<Tail>),
    Recx(Recx, u32, Epoch),
}

impl Answer {
    pub(crate) fn as_wire(&self) -> OpReply<'_> {
        match self {
            Answer::Done => OpReply::Done,
            Answer::Fetched(iods) => OpReply::Fetched(
                iods.iter()
                    .map(|(epoch, value)| FetchedIod {
                        epoch: *epoch,
                        value: match value {
                            OwnedFetch::Absent => Fetched::Absent,
                            OwnedFetch::Inline(value) => Fetched::Inline(value),
                            OwnedFetch::Single(bytes, in_bulk) => {
                                Fetched::Single { bytes: *bytes, in_bulk: *in_bulk }
                            }
                            OwnedFetch::Array(record_bytes, end) => {
                                Fetched::Array { record_bytes: *record_bytes, end: *end }
                            }
                            OwnedFetch::Sparse(record_bytes, end, holes) => Fetched::Sparse {
                                record_bytes: *record_bytes,
                                end: *end,
                                holes: holes.clone(),
                            },
                        },
                    })
                    .collect(),
            ),
            Answer::Listed(items, anchor, keys_epoch) => OpReply::Listed {
                items: items
                    .iter()
                    .map(|item| match item {
                        OwnedItem::Key(key) => Listed::Key { key },
                        OwnedItem::Entry(key, value, epoch, tail) => {
                            Listed::Entry { key, value, epoch: *epoch, tail: *tail }
                        }
                        OwnedItem::Recx(recx, record_bytes, epoch) => {
                            Listed::Recx { recx: *recx, record_bytes: *record_bytes, epoch: *epoch }
                        }
                    })
                    .collect(),
                anchor,
                keys_epoch: *keys_epoch,
            },
            Answer::Found(found) => {
                OpReply::Found(found.as_ref().map(|(dkey, akey, recx, bytes)| FoundKey {
                    dkey,
                    akey,
                    recx: *recx,
                    record_bytes: *bytes,
                }))
            }
            Answer::Stat(stat) => OpReply::Stat(*stat),
            Answer::Link(value, epoch, tail, opened) => OpReply::Link {
                value: value.as_deref(),
                epoch: *epoch,
                tail: *tail,
                opened: *opened,
            },
            Answer::Removed(value, removed, linked) => {
                OpReply::Removed { value: value.as_deref(), removed: *removed, linked: *linked }
            }
        }
    }
}
