//! Walking over everything in a shard: for the dump, and for checks of each value.

use std::rc::Rc;

use serde::Serialize;
use types::{ContId, DkeyKind, Epoch, Oid, PoolId, Result, Unit};
use wire::obj::{ListScope, Op};

use super::Severity;
use crate::blocks::{BLOCK_BYTES, Run};
use crate::index::extent;
use crate::index::slot::AkeyRef;
use crate::segments::Segments;
use crate::shard::PoolShard;

/// Dkeys looked at between two awaits.
const PAGE_COUNT: u32 = 512;

/// What to dump; an absent part lets everything pass.
#[derive(Clone, Debug, Default)]
pub struct DumpFilter {
    pub pool: Option<PoolId>,
    pub cont: Option<ContId>,
    pub oid: Option<Oid>,
    /// One dkey, as [`DumpItem`] writes it.
    pub dkey: Option<String>,
    /// Objects only, not what is in them.
    pub objects_only: bool,
}

/// Where bytes are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "place")]
pub enum Place {
    /// In the index and the log.
    Index,
    /// In the data area, from this byte.
    Data {
        /// Byte offset in the shard's data area.
        at: u64,
    },
    Zero,
    /// In cells of other targets.
    Coded {
        stripe: wire::cell::Stripe,
    },
}

/// One line of a dump. Keys are text, with `\xNN` for other bytes; integer dkeys are numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum DumpItem {
    Container {
        pool: u32,
        /// Its number in the pool.
        cont: u64,
    },
    /// What is here of an object: one of its units.
    Object {
        pool: u32,
        cont: u64,
        oid: String,
        group: u32,
        cell: u8,
        /// Last change.
        epoch: u64,
        /// Dkeys here.
        dkeys: u64,
        /// Bytes of user data here.
        bytes: u64,
    },
    /// A single value, or a piece of one that is in several.
    Single {
        oid: String,
        group: u32,
        cell: u8,
        dkey: String,
        akey: String,
        /// Last change.
        epoch: u64,
        /// Length of the piece.
        bytes: u64,
        #[serde(flatten)]
        place: Place,
    },
    /// An extent of an array.
    Extent {
        oid: String,
        group: u32,
        cell: u8,
        dkey: String,
        akey: String,
        /// When it was written.
        epoch: u64,
        /// First record.
        index: u64,
        count: u64,
        /// Size of a record.
        record_bytes: u32,
        #[serde(flatten)]
        place: Place,
    },
}

fn text(kind: Option<DkeyKind>, key: &[u8]) -> String {
    match (kind, crate::index::object::number_of(key)) {
        (Some(DkeyKind::U64), Some(number)) => number.to_string(),
        _ => key.escape_ascii().to_string(),
    }
}

/// Gives everything in a shard that passes the filter to `each`.
pub(super) async fn dump(
    shard: &Rc<PoolShard>,
    filter: &DumpFilter,
    each: &mut dyn FnMut(DumpItem) -> Result<()>,
) -> Result<()> {
    let pool = shard.pool().0;
    for cont in shard.conts() {
        if filter.cont.is_some_and(|wanted| wanted != cont) {
            continue;
        }
        each(DumpItem::Container { pool, cont: cont.0 })?;
        for unit in shard.list_objects(cont, Epoch::ZERO, None, usize::MAX).await?.units {
            if filter.oid.is_some_and(|wanted| wanted != unit.object) {
                continue;
            }
            shard.ready(cont, &[], &[Op::Stat { unit }]).await?;
            let stat = shard.view(cont)?.stat(unit);
            each(DumpItem::Object {
                pool,
                cont: cont.0,
                oid: unit.object.to_string(),
                group: unit.group,
                cell: unit.cell,
                epoch: stat.tail.epoch.0,
                dkeys: stat.dkey_count,
                bytes: stat.tail.bytes_used,
            })?;
            if filter.objects_only {
                continue;
            }
            walk(shard, cont, unit, &mut |dkey, akey, value| {
                let (dkey, akey) = (text(Some(unit.dkey_kind()), dkey), text(None, akey));
                if filter.dkey.as_ref().is_some_and(|wanted| *wanted != dkey) {
                    return Ok(());
                }
                items(unit, &dkey, &akey, value, each)
            })
            .await?;
        }
    }
    Ok(())
}

/// The lines of one value.
fn items(
    unit: Unit,
    dkey: &str,
    akey: &str,
    value: AkeyRef<'_>,
    each: &mut dyn FnMut(DumpItem) -> Result<()>,
) -> Result<()> {
    let epoch = value.epoch().0;
    let Unit { object, group, cell } = unit;
    let (oid, dkey, akey) = (|| object.to_string(), || dkey.to_string(), || akey.to_string());
    match value {
        AkeyRef::Inline(_, bytes) => each(DumpItem::Single {
            oid: oid(),
            group,
            cell,
            dkey: dkey(),
            akey: akey(),
            epoch,
            bytes: bytes.len() as u64,
            place: Place::Index,
        }),
        AkeyRef::Runs(_, runs) => runs.iter().try_for_each(|run| {
            each(DumpItem::Single {
                oid: oid(),
                group,
                cell,
                dkey: dkey(),
                akey: akey(),
                epoch,
                bytes: run.bytes,
                place: Place::Data { at: run.at },
            })
        }),
        AkeyRef::Array(array) => array.iter().try_for_each(|(index, extent)| {
            each(DumpItem::Extent {
                oid: oid(),
                group,
                cell,
                dkey: dkey(),
                akey: akey(),
                epoch: extent.epoch.0,
                index,
                count: extent.count,
                record_bytes: array.record_bytes,
                place: match extent.place {
                    extent::Place::Inline(_) => Place::Index,
                    extent::Place::Blocks(at) => Place::Data { at },
                    extent::Place::Zero => Place::Zero,
                    extent::Place::Coded(stripe) => Place::Coded { stripe },
                },
            })
        }),
        // The present holds no such values.
        AkeyRef::Old(_) => Ok(()),
    }
}

/// Called with dkey, akey and value.
type EachValue<'a> = dyn FnMut(&[u8], &[u8], AkeyRef<'_>) -> Result<()> + 'a;

/// Calls `each` with dkey, akey and value of everything in a unit.
async fn walk(
    shard: &Rc<PoolShard>,
    cont: ContId,
    unit: Unit,
    each: &mut EachValue<'_>,
) -> Result<()> {
    let scope = ListScope::Dkeys { value_of: None, follow: false, hash_range: (0, u64::MAX) };
    let mut anchor = Vec::new();
    loop {
        let (count_max, bytes_max) = (PAGE_COUNT, u32::MAX);
        let touched = Op::List { unit, scope, anchor: &anchor, count_max, bytes_max };
        shard.ready(cont, &[], &[touched]).await?;
        let view = shard.view(cont)?;
        let page = view.list(unit, scope, &anchor, count_max, bytes_max)?;
        for item in page.items() {
            let wire::obj::Listed::Key { key } = item else { continue };
            let Some(found) = view.cont.object(unit).and_then(|object| object.dkey(key)) else {
                continue;
            };
            for (akey, value) in found.akeys() {
                each(key, akey, value)?;
            }
        }
        drop(view);
        anchor = page.anchor;
        if anchor.is_empty() {
            return Ok(());
        }
        shard.core.env.yield_now().await;
    }
}

/// Checks the places of all values, those that only snapshots see included, and with `data` reads
/// them.
pub(super) async fn check_values(
    shard: &Rc<PoolShard>,
    data: bool,
    add: &dyn Fn(Severity, String),
) -> Result<()> {
    let area = shard.core.space.borrow().bytes();
    let inside = |run: &Run| run.at.checked_add(run.bytes).is_some_and(|end| end <= area);
    for cont in shard.conts() {
        let mut at = Some(0);
        while let Some(hash) = at {
            let (units, next) = shard.units_at(cont, hash).await?;
            for unit in units {
                let whose = format!("container {cont}, object {unit}");
                let mut runs: Vec<(String, Run)> = Vec::new();
                let mut values = 0u64;
                walk(shard, cont, unit, &mut |dkey, akey, value| {
                    values += 1;
                    let dkey = text(Some(unit.dkey_kind()), dkey);
                    let akey = text(None, akey);
                    value.runs(|run| {
                        runs.push((format!("{whose}, dkey {dkey}, akey {akey}"), run));
                    });
                    Ok(())
                })
                .await?;
                shard.ready_bucket(cont, hash).await?;
                if let Some(past) =
                    shard.look(cont)?.whole(unit).and_then(|object| object.past.as_ref())
                {
                    values += 1;
                    past.runs(&mut |run| runs.push((format!("{whose}, seen by snapshots"), run)));
                }
                if values == 0 {
                    add(Severity::Damage, format!("{whose}: holds nothing"));
                }
                for (name, run) in runs {
                    if !inside(&run) {
                        add(Severity::Damage, format!("{name}: lies outside the data area"));
                    } else if data {
                        check_run(shard, &name, run, add).await;
                    }
                }
            }
            at = next;
        }
    }
    Ok(())
}

/// Reads a run and compares it with its sums.
async fn check_run(shard: &Rc<PoolShard>, name: &str, run: Run, add: &dyn Fn(Severity, String)) {
    let mut at = run.at;
    while at < run.at + run.bytes {
        let stop = (at / BLOCK_BYTES * BLOCK_BYTES + (4 << 20)).min(run.at + run.bytes);
        let mut segments = Segments::new();
        let part = Run { at, bytes: stop - at };
        let outcome = match segments.push_run(&shard.core, part) {
            Ok(()) => segments.load().await,
            known => known,
        };
        let text = match outcome {
            Ok(()) if segments.damaged().is_empty() => None,
            Ok(()) => Some("they differ from their checksums".to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(text) = text {
            let text = format!("{name}: bytes {at} to {stop} of the data: {text}");
            add(Severity::Damage, text);
        }
        at = stop;
    }
}
