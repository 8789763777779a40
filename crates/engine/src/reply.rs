//! Answers of ops before they are encoded.

use serde::{Serialize, Serializer};
use types::Epoch;
use vos::{FetchedOwned, FoundOwned, Listing};
use wire::obj::{Linked, Listed, ObjectStat, OpReply, Tail};

/// The owned form of [`OpReply`].
pub(crate) enum Answer {
    Done,
    Fetched(Vec<FetchedOwned>),
    /// A page of a listing, and the tails of its items when links were followed.
    Listed(Listing, Option<Vec<Option<Tail>>>),
    Found(Option<FoundOwned>),
    Stat(ObjectStat),
    Link {
        value: Option<Vec<u8>>,
        epoch: Epoch,
        tail: Option<Tail>,
        opened: bool,
    },
    Removed {
        value: Option<Vec<u8>>,
        removed: bool,
        linked: Linked,
    },
    /// Written ranges, and up to where they are all.
    Runs(Vec<wire::obj::Recx>, u64),
}

impl Answer {
    /// The form that goes on the wire.
    pub fn as_wire(&self) -> OpReply<'_> {
        match self {
            Answer::Done => OpReply::Done,
            Answer::Fetched(iods) => {
                OpReply::Fetched(iods.iter().map(FetchedOwned::as_wire).collect())
            }
            Answer::Listed(listing, tails) => {
                let mut items: Vec<Listed<'_>> = listing.items().collect();
                for (item, known) in items.iter_mut().zip(tails.iter().flatten()) {
                    if let Listed::Entry { tail, .. } = item {
                        *tail = *known;
                    }
                }
                let keys_epoch = listing.keys_epoch;
                OpReply::Listed { items, anchor: &listing.anchor, keys_epoch }
            }
            Answer::Found(found) => OpReply::Found(found.as_ref().map(FoundOwned::as_wire)),
            Answer::Stat(stat) => OpReply::Stat(*stat),
            Answer::Link { value, epoch, tail, opened } => OpReply::Link {
                value: value.as_deref(),
                epoch: *epoch,
                tail: *tail,
                opened: *opened,
            },
            Answer::Removed { value, removed, linked } => {
                OpReply::Removed { value: value.as_deref(), removed: *removed, linked: *linked }
            }
            Answer::Runs(runs, to) => OpReply::Runs { runs: runs.clone(), to: *to },
        }
    }
}

/// Answers as they are encoded: a list of [`OpReply`]s.
pub(crate) struct Answers<'a>(pub &'a [Answer]);

impl Serialize for Answers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Answer::as_wire))
    }
}
