//! Attributes of many entries at once.
//!
//! What a listing does not tell by itself (directories, striped and moved files) is asked for
//! with one request per target and [`OBJECTS_PER_REQUEST`] objects, however many entries there
//! are.

use crate::attr::{Stat, stat_from};
use crate::entry::{Found, reply_kind};
use crate::fs::Shared;
use crate::inode::Inode;
use client::Container;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use types::{Error, Key, Oid, Result, Unit};
use wire::obj::{ObjectStat, Op, OpReply, Tail};

/// Objects asked about in one request.
const OBJECTS_PER_REQUEST: usize = 512;
/// Hard-linked files whose inodes are fetched at the same time.
const PARALLEL: usize = 32;

/// What the shards of a file or directory say together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Size, newest change, space.
    pub tail: Tail,
    /// Directories in a directory; `None` when that cannot be told, as while its names move between its shards.
    pub directories: Option<u64>,
}

impl Told {
    /// Of what holds nothing.
    pub fn empty() -> Told {
        Told { tail: Tail::default(), directories: Some(0) }
    }
}

/// The facts of an object's shards.
#[derive(Clone, Default)]
struct Shards {
    stats: Vec<ObjectStat>,
    /// Names may be on their way from one to another.
    are_moving: bool,
}

impl Shared {
    /// Inodes and attributes of entries of a directory as listed, in their order; `None` for what vanished
    /// meanwhile.
    pub async fn stat_page(
        &self,
        dir: Oid,
        entries: Vec<(Key, Found)>,
    ) -> Result<Vec<Option<(Inode, Stat)>>> {
        let resolved = stream::iter(entries).map(|(name, found)| async move {
            if !found.inode.hard {
                return Ok(Some(found));
            }
            match self.fetch_record(found).await? {
                // It may have got another object since it was listed.
                None => self.fetch_entry(dir, &name, false).await,
                record => Ok(record),
            }
        });
        let entries: Vec<Option<Found>> = resolved.buffered(PARALLEL).try_collect().await?;
        let unknown: Vec<&Found> =
            entries.iter().flatten().filter(|found| found.needs_shards()).collect();
        let oids: Vec<Oid> = unknown.iter().map(|found| found.inode.oid).collect();
        let shards = self.stat_shards(&oids).await?;
        let mut told = unknown.iter().zip(&shards).map(|(found, shards)| self.merge(found, shards));
        let mut told_of = |found: &Found| match found.tail {
            _ if found.needs_shards() => told.next().unwrap_or_else(Told::empty),
            Some(tail) if found.inode.is_regular() => {
                let end = self.array(&found.inode).size_from_tail(&tail);
                Told { tail: Tail { end, ..tail }, ..Told::empty() }
            }
            _ => Told::empty(),
        };
        let mut stat = |found: &Found| stat_from(found, &told_of(found));
        let all =
            entries.iter().map(|found| found.as_ref().map(|found| (found.inode, stat(found))));
        Ok(all.collect())
    }

    /// What all shards of a file or directory together say of size, newest change, space.
    pub async fn merged_tail(&self, found: &Found) -> Result<Tail> {
        if found.inode.oid.first_part_bytes().is_some() {
            // Of most of these the first unit knows all.
            return self.array(&found.inode).stat().await;
        }
        Ok(self.merged(found).await?.tail)
    }

    /// The same, and how many directories are in a directory.
    pub async fn merged(&self, found: &Found) -> Result<Told> {
        let shards = self.stat_shards(&[found.inode.oid]).await?;
        Ok(shards.first().map_or_else(Told::empty, |shards| self.merge(found, shards)))
    }

    /// Merges what an object's shards say. Of directories the epoch is that of the last change
    /// of their names.
    fn merge(&self, found: &Found, shards: &Shards) -> Told {
        let array = self.array(&found.inode);
        let mut merged = Tail::default();
        let mut directories = 0;
        for shard in &shards.stats {
            directories += shard.counted_links;
            merged.bytes_used += shard.tail.bytes_used;
            if found.inode.is_dir() {
                merged.epoch = merged.epoch.max(shard.keys_epoch);
            } else {
                merged.end = merged.end.max(array.size_from_tail(&shard.tail));
                merged.epoch = merged.epoch.max(shard.tail.epoch);
            }
        }
        Told { tail: merged, directories: (!shards.are_moving).then_some(directories) }
    }

    /// The facts of every shard of every object.
    async fn stat_shards(&self, oids: &[Oid]) -> Result<Vec<Shards>> {
        let mut units = Vec::with_capacity(oids.len());
        for (at, oid) in oids.iter().enumerate() {
            units.extend(self.cont.units_in_use(*oid).await?.into_iter().map(|unit| (unit, at)));
        }
        let mut shards = vec![Shards::default(); oids.len()];
        let mut spread = self.stat_units(&units, &mut shards).await?;
        // Of most directories that can spread the first unit has told all.
        spread.retain(|at| shards[*at].stats.len() == 1);
        let mut more = Vec::new();
        for at in spread {
            let others = self.cont.units(oids[at]).await?.into_iter().skip(1);
            more.extend(others.map(|unit| (unit, at)));
        }
        self.stat_units(&more, &mut shards).await?;
        Ok(shards)
    }

    /// The facts of some units, each added to those of its object. Returns the objects whose first units say that they have spread.
    async fn stat_units(
        &self,
        units: &[(Unit, usize)],
        shards: &mut [Shards],
    ) -> Result<Vec<usize>> {
        let lots = self.cont.lots(units.iter().copied())?;
        let asked = lots.iter().flat_map(|lot| {
            lot.chunks(OBJECTS_PER_REQUEST).map(move |places| async move {
                let can_tell = |unit: &Unit| unit.object.spreads() && unit.group == 0;
                let mut batch = self.cont.batch();
                for &(unit, _) in places {
                    batch.op(Op::Stat { unit });
                }
                for (unit, _) in places.iter().filter(|(unit, _)| can_tell(unit)) {
                    batch.op_of_unit(Container::fetch_spread(unit.object));
                }
                let result = batch.run().await?;
                let mut replies = result.replies()?.into_iter();
                let mut stats = Vec::with_capacity(places.len());
                for reply in replies.by_ref().take(places.len()) {
                    match reply {
                        OpReply::Stat(stat) => stats.push(stat),
                        _ => return Err(reply_kind()),
                    }
                }
                let mut spread = Vec::new();
                for (unit, at) in places.iter().filter(|(unit, _)| can_tell(unit)) {
                    if let Some(far) =
                        self.cont.note_spread(unit.object, replies.next().as_ref())?
                    {
                        spread.push((*at, !far.is_over()));
                    }
                }
                Ok::<_, Error>((places, stats, spread))
            })
        });
        let mut all_spread = Vec::new();
        for (places, stats, spread) in try_join_all(asked).await? {
            for (at, are_moving) in spread {
                shards[at].are_moving |= are_moving;
                all_spread.push(at);
            }
            for (&(_, at), stat) in places.iter().zip(stats) {
                shards[at].stats.push(stat);
            }
        }
        Ok(all_spread)
    }
}
