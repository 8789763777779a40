//! The contract between the control service and whatever keeps its facts.
//!
//! A catalog is a small ordered map from text keys to bytes. Every key has a *revision*, which
//! changes whenever the key is written, and a commit takes effect only if the revisions it names
//! are still current. That is the part of etcd that the service needs and no more, so that one
//! file on one machine and a consensus group are the same to it.
//!
//! A catalog has one *writer* at a time: whoever opened it last with success. What an earlier one
//! commits is refused, however late it arrives, for its decisions rest on memory that it no longer
//! shares with anybody. How that is done is the back end's business (a lock on a file; a key that
//! every commit compares).

use futures_util::future::LocalBoxFuture;
use types::Result;

/// Identifies one write of one key. Greater than that of any earlier write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Revision(pub u64);

impl Revision {
    /// "The key does not exist".
    pub const ABSENT: Revision = Revision(0);
}

/// The value of a key, and the write it came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned {
    /// Which write this is.
    pub revision: Revision,
    pub bytes: Vec<u8>,
}

/// A condition of a commit: the key's last write is this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compare {
    pub key: String,
    /// Its revision, [`Revision::ABSENT`] if it must not exist.
    pub revision: Revision,
}

/// A change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put(String, Vec<u8>),
    /// Remove the key; nothing happens if it is not there.
    Delete(String),
    /// Remove all keys that begin with this and are there when the commit takes effect.
    DeletePrefix(String),
}

/// A versioned key-value store.
///
/// Reads see every commit that was acknowledged before them. Errors of all calls: `Unreach` when the
/// store cannot be reached, `Busy` when there is another writer now, `NoPerm` when the store lets
/// this one do nothing, `Io` when it fails.
pub trait Catalog {
    /// The value of a key; `None` when it does not exist.
    fn get<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Result<Option<Versioned>>>;

    /// Grows with each writer that takes over from another; the same as long as one writes. 0 where
    /// there is one for ever.
    fn term(&self) -> u64 {
        0
    }

    /// True while it is sure that nobody else has become the writer, as far as clocks run alike.
    fn is_held(&self) -> bool {
        true
    }

    /// All keys that begin with `prefix`, ascending, with their values as of one moment.
    fn list<'a>(&'a self, prefix: &'a str) -> LocalBoxFuture<'a, Result<Vec<(String, Versioned)>>>;

    /// Makes all changes at once and durably if all comparisons hold: true. Else changes
    /// nothing: false. No key may be changed twice in one commit, by a prefix either.
    ///
    /// After `TimedOut` and `Io` the changes may or may not have been made, and may still be made until
    /// a later commit has succeeded; reads tell. After any other error, `NoSpace` (the store is full)
    /// and `RecordTooBig` (it takes no commit of this size) too, nothing was changed.
    fn commit<'a>(
        &'a self,
        compares: &'a [Compare],
        changes: &'a [Change],
    ) -> LocalBoxFuture<'a, Result<bool>>;
}
