//! The contract between the control service and whatever keeps its facts.
//!
//! A catalog is a small ordered map from text keys to bytes. Every key has a *revision*, which
//! changes whenever the key is written, and a commit takes effect only if the revisions it names
//! are still current. That is the part of etcd that the service needs and no more, so that one
//! file on one machine and a consensus group are the same to it.

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
}

/// A versioned key-value store.
///
/// Reads see every commit that was acknowledged before them. Errors are `Io` when the store
/// fails, `NoSpace` when its disk is full; after an error of `commit` the change may or may not
/// have happened.
pub trait Catalog {
    /// The value of a key; `None` when it does not exist.
    fn get<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Result<Option<Versioned>>>;

    /// All keys that begin with `prefix`, ascending, with their values as of one moment.
    fn list<'a>(&'a self, prefix: &'a str) -> LocalBoxFuture<'a, Result<Vec<(String, Versioned)>>>;

    /// Makes all changes at once and durably if all comparisons hold: true. Else changes
    /// nothing: false. No key may be changed twice in one commit.
    fn commit<'a>(
        &'a self,
        compares: &'a [Compare],
        changes: &'a [Change],
    ) -> LocalBoxFuture<'a, Result<bool>>;
}
