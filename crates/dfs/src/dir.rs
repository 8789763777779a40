//! Listing directories.
//!
//! A listing walks the directory's shards one after the other, each in the server's own order
//! (by hash of the name). A directory whose class lets it spread is one row of hashes, whatever shards its names are in
//! ([`wire::spread`]): of its anchors the shard says nothing, and they stay valid while names move. Invariant: an entry that is there during the whole listing is listed
//! exactly once, whatever else happens meanwhile. `.` and `..` are not listed.

use crate::attr::Stat;
use crate::entry::{Found, reply_kind};
use crate::flags::Access;
use crate::fs::{Dfs, Shared};
use crate::inode::{FileKind, Inode};
use crate::layout::{INODE, MARKER};
use crate::node::Obj;
use async_recursion::async_recursion as boxed;
use types::{Code, Error, Key, Oid, Result, hash};
use wire::obj::{ListScope, Listed, Op, OpReply};

/// Names and inodes asked for in one request, bytes.
const PAGE_BYTES: u32 = 256 << 10;
/// Times that a page follows names that move meanwhile.
const MOVES_MAX: u32 = 100;
/// First byte of a short anchor that holds a digest.
const SHORT: u8 = 2;

/// Where a listing stands, and where it ends. Good for any client, for ever.
#[derive(Clone, Debug)]
pub struct DirAnchor {
    /// The directory's shard in hand; 0 in one that spreads.
    shard: u32,
    /// First hash wanted of the shard in hand.
    hash_from: u64,
    /// Last shard wanted.
    shard_last: u32,
    /// Last hash wanted of the last shard.
    hash_last: u64,
    /// The server's own anchor in the shard in hand; empty at its start.
    server: Vec<u8>,
    /// The name given last, when the shard in hand is not at its start.
    last: Option<NameMark>,
    /// In place of `server`: entries whose hash is `hash_from` are wanted only from behind the
    /// name with this digest.
    skip_to: Option<u64>,
    end: bool,
}

/// A name by its place in a listing and a second digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NameMark {
    hash: u64,
    digest: u64,
}

impl NameMark {
    fn of(name: &[u8]) -> NameMark {
        NameMark { hash: hash::bytes(name), digest: digest(name) }
    }
}

/// Tells names of equal hash apart.
fn digest(name: &[u8]) -> u64 {
    name.iter().fold(hash::mix(!(name.len() as u64)), |state, &b| hash::mix(state ^ b as u64))
}

impl PartialEq for DirAnchor {
    /// `last` tells nothing that `server` does not.
    fn eq(&self, other: &DirAnchor) -> bool {
        self.skip_to == other.skip_to && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for DirAnchor {}

impl Default for DirAnchor {
    fn default() -> DirAnchor {
        DirAnchor::start()
    }
}

impl DirAnchor {
    /// Longest result of [`DirAnchor::to_short`].
    pub const SHORT_BYTES: usize = 100;

    /// The start of a whole directory.
    pub fn start() -> DirAnchor {
        DirAnchor {
            shard: 0,
            hash_from: 0,
            shard_last: u32::MAX,
            hash_last: u64::MAX,
            server: Vec::new(),
            last: None,
            skip_to: None,
            end: false,
        }
    }

    /// A listing that is over.
    pub(crate) fn ended() -> DirAnchor {
        DirAnchor { end: true, ..DirAnchor::start() }
    }

    /// True when nothing is left.
    pub fn is_end(&self) -> bool {
        self.end
    }

    /// As bytes, for callers that keep anchors elsewhere.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut raw = Vec::with_capacity(25 + self.server.len());
        raw.push(self.end as u8);
        raw.extend_from_slice(&self.shard.to_le_bytes());
        raw.extend_from_slice(&self.hash_from.to_le_bytes());
        raw.extend_from_slice(&self.shard_last.to_le_bytes());
        raw.extend_from_slice(&self.hash_last.to_le_bytes());
        raw.extend_from_slice(&self.server);
        raw
    }

    /// The inverse of [`DirAnchor::to_bytes`]; `Inval` for bytes that are no anchor.
    pub fn from_bytes(raw: &[u8]) -> Result<DirAnchor> {
        let bad = || Error::inval("these bytes are no directory anchor");
        let (head, server) = raw.split_at_checked(25).ok_or_else(bad)?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| word(at) as u64 | (word(at + 4) as u64) << 32;
        if head[0] > 1 {
            return Err(bad());
        }
        Ok(DirAnchor {
            end: head[0] == 1,
            shard: word(1),
            hash_from: long(5),
            shard_last: word(13),
            hash_last: long(17),
            server: server.to_vec(),
            last: None,
            skip_to: None,
        })
    }

    /// As at most [`DirAnchor::SHORT_BYTES`] bytes, for callers with little room. Of a long name
    /// that was given last only two hashes are kept: should both it be removed meanwhile and
    /// another name of the same 64-bit hash exist, that one may be listed twice.
    pub fn to_short(&self) -> Vec<u8> {
        let raw = self.to_bytes();
        match self.last {
            Some(last) if raw.len() > DirAnchor::SHORT_BYTES => {
                let marked = DirAnchor { hash_from: last.hash, server: Vec::new(), ..self.clone() };
                let mut raw = marked.to_bytes();
                raw[0] = SHORT;
                raw.extend_from_slice(&last.digest.to_le_bytes());
                raw
            }
            _ => match self.skip_to {
                Some(digest) => {
                    let mut raw = raw;
                    raw[0] = SHORT;
                    raw.extend_from_slice(&digest.to_le_bytes());
                    raw
                }
                None => raw,
            },
        }
    }

    /// The inverse of [`DirAnchor::to_short`]; `Inval` for bytes that are no anchor.
    pub fn from_short(raw: &[u8]) -> Result<DirAnchor> {
        if raw.first() != Some(&SHORT) {
            return DirAnchor::from_bytes(raw);
        }
        let mut plain = raw.to_vec();
        plain[0] = 0;
        let mut anchor = DirAnchor::from_bytes(&plain)?;
        let digest = std::mem::take(&mut anchor.server);
        let digest: [u8; 8] =
            digest.try_into().map_err(|_| Error::inval("these bytes are no directory anchor"))?;
        anchor.skip_to = Some(u64::from_le_bytes(digest));
        Ok(anchor)
    }

    /// Cuts a directory of `shards` shards into `parts` listings that together give every
    /// entry once.
    fn split(shards: u32, parts: u32) -> Vec<DirAnchor> {
        let whole = (shards.max(1) as u128) << 64;
        let parts = parts.max(1) as u128;
        let cut = |part: u128| whole / parts * part + whole % parts * part / parts;
        (0..parts)
            .map(|part| {
                let (from, last) = (cut(part), cut(part + 1) - 1);
                DirAnchor {
                    shard: (from >> 64) as u32,
                    hash_from: from as u64,
                    shard_last: (last >> 64) as u32,
                    hash_last: last as u64,
                    ..DirAnchor::start()
                }
            })
            .collect()
    }

    /// Hashes wanted of the shard in hand.
    fn hash_range(&self) -> (u64, u64) {
        (self.hash_from, if self.shard == self.shard_last { self.hash_last } else { u64::MAX })
    }

    /// How many of the first of these names were given before.
    fn given_before(&self, names: &[&[u8]]) -> usize {
        let Some(digest_given) = self.skip_to else { return 0 };
        let same = names.iter().take_while(|name| hash::bytes(name) == self.hash_from);
        same.map(|name| digest(name)).position(|d| d == digest_given).map_or(0, |at| at + 1)
    }

    /// Goes on after a page, which ended in the name `last`.
    fn advance(&mut self, server: &[u8], last: Option<&[u8]>, shard_count: u32) {
        self.server.clear();
        self.skip_to = None;
        self.last = last.filter(|_| !server.is_empty()).map(NameMark::of);
        if !server.is_empty() {
            self.server.extend_from_slice(server);
            return;
        }
        self.hash_from = 0;
        if self.shard >= self.shard_last || self.shard + 1 >= shard_count {
            self.end = true;
        } else {
            self.shard += 1;
        }
    }

    /// The first hash that is wanted next, in a directory that spreads.
    fn hash_next(&self) -> u64 {
        // The server's anchor is a byte and the name given last.
        self.server.get(1..).map_or(self.hash_from, hash::bytes)
    }

    /// The same as [`DirAnchor::advance`] in a directory that spreads, when names with hashes up to `to` were wanted.
    fn advance_to(&mut self, server: &[u8], last: Option<&[u8]>, to: u64) {
        self.skip_to = None;
        self.last = last.filter(|_| !server.is_empty()).map(NameMark::of);
        self.server.clear();
        self.server.extend_from_slice(server);
        if server.is_empty() {
            match to.checked_add(1).filter(|_| to < self.hash_last) {
                Some(next) => self.hash_from = next,
                None => self.end = true,
            }
        }
    }
}

/// An entry of a directory, as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    pub name: Key,
    pub kind: FileKind,
    /// Number of its object.
    pub ino: u64,
    pub oid: Oid,
}

impl DirEntry {
    fn new(name: &[u8], inode: &Inode) -> DirEntry {
        DirEntry { name: Key::new(name), kind: inode.kind(), ino: inode.oid.lo, oid: inode.oid }
    }
}

impl Dfs {
    /// The next entries of a directory, at most `count_max`, and `anchor` moved behind them.
    /// The end may come with entries or without: ask [`DirAnchor::is_end`].
    #[boxed(?Send)]
    pub async fn readdir(
        &self,
        dir: &Obj,
        anchor: &mut DirAnchor,
        count_max: u32,
    ) -> Result<Vec<DirEntry>> {
        let page = self.read_page(dir, anchor, count_max, false).await?;
        Ok(page.into_iter().map(|(name, found)| DirEntry::new(&name, &found.inode)).collect())
    }

    /// The same, each entry with its attributes: one request for all whose file is on the
    /// entry's target, one more per target for directories, striped and moved files, one for each
    /// hard-linked file.
    /// Entries that vanish meanwhile are left out.
    #[boxed(?Send)]
    pub async fn readdirplus(
        &self,
        dir: &Obj,
        anchor: &mut DirAnchor,
        count_max: u32,
    ) -> Result<Vec<(DirEntry, Stat)>> {
        self.check_access(&dir.require_dir()?, Access::EXECUTE)?;
        let page = self.read_page(dir, anchor, count_max, true).await?;
        let entries: Vec<DirEntry> =
            page.iter().map(|(name, found)| DirEntry::new(name, &found.inode)).collect();
        let stats = self.shared.stat_page(dir.oid(), page).await?;
        Ok(entries.into_iter().zip(stats).filter_map(|(e, stat)| Some((e, stat?.1))).collect())
    }

    /// All entries. For directories of unknown size prefer [`Dfs::readdir`].
    #[boxed(?Send)]
    pub async fn list(&self, dir: &Obj) -> Result<Vec<DirEntry>> {
        let mut all = Vec::new();
        let mut anchor = DirAnchor::start();
        while !anchor.is_end() {
            all.append(&mut self.readdir(dir, &mut anchor, 4096).await?);
        }
        Ok(all)
    }

    /// Shards of a directory: its units, each of which is listed by itself. One that can spread has one until it is known here to
    /// have done so.
    #[boxed(?Send)]
    pub async fn shard_count(&self, dir: &Obj) -> Result<u32> {
        dir.require_dir()?;
        Ok(self.shared.cont.units_in_use(dir.oid()).await?.len() as u32)
    }

    /// Anchors for `parts` readers that together list every entry once.
    #[boxed(?Send)]
    pub async fn split(&self, dir: &Obj, parts: u32) -> Result<Vec<DirAnchor>> {
        dir.require_dir()?;
        let shards = match dir.oid().spreads() {
            true => 1,
            false => self.shared.cont.units(dir.oid()).await?.len(),
        };
        Ok(DirAnchor::split(shards as u32, parts))
    }

    /// An anchor that makes a listing begin with `name`, or where it would be.
    #[boxed(?Send)]
    pub async fn anchor_at(&self, dir: &Obj, name: &[u8]) -> Result<DirAnchor> {
        dir.require_dir()?;
        types::limits::check_name(name)?;
        let shard = match dir.oid().spreads() {
            true => 0,
            false => self.shared.cont.unit_of(dir.oid(), name).await?.group,
        };
        Ok(DirAnchor { shard, hash_from: hash::bytes(name), ..DirAnchor::start() })
    }

    pub(crate) async fn read_page(
        &self,
        dir: &Obj,
        anchor: &mut DirAnchor,
        count_max: u32,
        follow: bool,
    ) -> Result<Vec<(Key, Found)>> {
        self.check_access(&dir.require_dir()?, Access::READ)?;
        self.shared.read_page(dir.oid(), anchor, count_max, follow).await
    }
}

/// The name in an item of a listing.
fn key_of<'a>(item: &Listed<'a>) -> Result<&'a [u8]> {
    match item {
        &Listed::Entry { key, .. } => Ok(key),
        _ => Err(reply_kind()),
    }
}

impl Shared {
    /// The next entries of a directory; see [`Dfs::readdir`]. With `follow`, each with the tail of
    /// its file where the listing target knows it.
    pub async fn read_page(
        &self,
        oid: Oid,
        anchor: &mut DirAnchor,
        count_max: u32,
        follow: bool,
    ) -> Result<Vec<(Key, Found)>> {
        if count_max == 0 {
            return Err(Error::new(Code::Inval, "a listing needs room for one entry at least"));
        }
        let cont = &self.cont;
        let units = cont.units(oid).await?;
        let (mut page, mut moves) = (Vec::new(), 0);
        // Empty shards are passed over here rather than by the caller.
        while page.is_empty() && !anchor.end {
            let (unit, hash_range) = match oid.spreads() {
                true => {
                    let (unit, to) = cont.unit_of_hash(oid, anchor.hash_next())?;
                    (unit, (anchor.hash_from, to.min(anchor.hash_last)))
                }
                false => match units.get(anchor.shard as usize) {
                    Some(&unit) => (unit, anchor.hash_range()),
                    None => {
                        anchor.end = true;
                        break;
                    }
                },
            };
            let scope = ListScope::Dkeys { value_of: Some(INODE), follow, hash_range };
            // Kept until the answer is there, so that a caller can try again after an error.
            let server = anchor.server.clone();
            let mut batch = cont.batch();
            let bytes_max = PAGE_BYTES;
            batch.op_of_unit(Op::List { unit, scope, anchor: &server, count_max, bytes_max });
            batch.may_ask_members();
            let result = match batch.run().await {
                // Where they are now is known with this answer.
                Err(error) if error.code == Code::Moved && moves < MOVES_MAX => {
                    moves += 1;
                    continue;
                }
                other => other?,
            };
            let replies = result.replies()?;
            let Some(OpReply::Listed { items, anchor: next, .. }) = replies.first() else {
                return Err(reply_kind());
            };
            let last = items.last().map(key_of).transpose()?;
            let mut given = 0;
            if anchor.skip_to.is_some() {
                let keys: Vec<_> = items.iter().map(key_of).collect::<Result<_>>()?;
                given = anchor.given_before(&keys);
            }
            for item in items.iter().skip(given) {
                let &Listed::Entry { key, value, epoch, tail } = item else {
                    return Err(reply_kind());
                };
                if key != MARKER && !value.is_empty() {
                    page.push((Key::new(key), Found::from_link(value, epoch, tail, false)?));
                }
            }
            match oid.spreads() {
                true => anchor.advance_to(next, last, hash_range.1),
                false => anchor.advance(next, last, units.len() as u32),
            }
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_cover_every_hash_of_every_shard_once() {
        for shards in [1, 2, 3, 7, 16] {
            for parts in [1, 2, 3, 5, 16, 17, 100] {
                let cuts = DirAnchor::split(shards, parts);
                assert_eq!(cuts.len(), parts as usize);
                let start = |a: &DirAnchor| (a.shard as u128) << 64 | a.hash_from as u128;
                let last = |a: &DirAnchor| (a.shard_last as u128) << 64 | a.hash_last as u128;
                assert_eq!(start(&cuts[0]), 0);
                assert_eq!(last(&cuts[cuts.len() - 1]), ((shards as u128) << 64) - 1);
                for pair in cuts.windows(2) {
                    assert_eq!(last(&pair[0]) + 1, start(&pair[1]));
                    assert!(start(&pair[0]) <= last(&pair[0]));
                }
            }
        }
    }

    #[test]
    fn anchors_walk_through_their_shards_and_end() {
        let mut anchor = DirAnchor::split(4, 2).remove(1);
        assert_eq!((anchor.shard, anchor.shard_last), (2, 3));
        anchor.advance(b"x", Some(b"a"), 4);
        assert_eq!((anchor.shard, &anchor.server[..]), (2, &b"x"[..]));
        anchor.advance(b"", Some(b"a"), 4);
        assert_eq!((anchor.shard, anchor.hash_range()), (3, (0, u64::MAX)));
        assert!(!anchor.is_end());
        anchor.advance(b"", Some(b"a"), 4);
        assert!(anchor.is_end());
    }

    #[test]
    fn anchors_of_directories_that_spread_go_along_one_row_of_hashes() {
        let mut anchor = DirAnchor::split(1, 2).remove(1);
        assert_eq!((anchor.hash_next(), anchor.hash_last), (1 << 63, u64::MAX));
        anchor.advance_to(b"\x01a", Some(b"a"), (1 << 63) + 9);
        assert_eq!(anchor.hash_next(), hash::bytes(b"a"));
        anchor.advance_to(b"", Some(b"b"), (1 << 63) + 9);
        assert_eq!((anchor.hash_next(), anchor.is_end()), ((1 << 63) + 10, false));
        anchor.advance_to(b"", None, u64::MAX);
        assert!(anchor.is_end());
        let mut first = DirAnchor::split(1, 2).remove(0);
        first.advance_to(b"", None, (1 << 63) - 1);
        assert!(first.is_end());
    }

    #[test]
    fn anchors_round_trip_as_bytes_and_garbage_is_refused() {
        let mut anchor = DirAnchor::split(3, 2).remove(1);
        anchor.advance(b"server's own", None, 3);
        assert_eq!(DirAnchor::from_bytes(&anchor.to_bytes()).unwrap(), anchor);
        assert!(DirAnchor::from_bytes(&anchor.to_bytes()[..24]).is_err());
        assert!(DirAnchor::from_bytes(&[9; 30]).is_err());
    }

    #[test]
    fn short_anchors_stay_short_whatever_the_names() {
        for bytes in [1, 74, 75, 76, 255] {
            let name = vec![b'n'; bytes];
            let mut anchor = DirAnchor::split(3, 2).remove(1);
            anchor.advance(&[&[1], &name[..]].concat(), Some(&name), 3);
            let raw = anchor.to_short();
            assert!(raw.len() <= DirAnchor::SHORT_BYTES, "{bytes}");
            let back = DirAnchor::from_short(&raw).unwrap();
            assert_eq!(back.to_short(), raw);
            if bytes == 255 {
                assert_eq!(back.hash_range().0, hash::bytes(&name));
                let other = vec![b'o'; bytes];
                assert_eq!(back.given_before(&[&name, &other]), 1);
                assert_eq!(back.given_before(&[&other, &name]), 0);
                assert_eq!(back.given_before(&[]), 0);
            }
        }
        assert!(DirAnchor::from_short(&[SHORT; 30]).is_err());
        assert!(DirAnchor::from_short(&[]).is_err());
    }
}
