//! What of a pool's data is in the memory of its engines.

use crate::output::Table;
use serde::Serialize;
use std::io::{self, Write};
use types::{Result, TargetId, size};
use wire::cache::CacheStat;

/// What one target says.
#[derive(Serialize)]
pub struct TargetCache {
    target: u32,
    /// `null`: no answer.
    #[serde(flatten)]
    stat: Option<CacheStat>,
}

/// Asks all targets; `None` when none keeps anything.
pub fn report(pool: &client::Pool) -> Result<Option<Vec<TargetCache>>> {
    let asked = pool.client().block_on(pool.cache_stats())?;
    let keeps = |stat: &Option<CacheStat>| stat.as_ref().is_some_and(|stat| stat.limit_bytes > 0);
    if !asked.iter().any(|(_, stat)| keeps(stat)) {
        return Ok(None);
    }
    let one = |(target, stat): (TargetId, _)| TargetCache { target: target.0, stat };
    Ok(Some(asked.into_iter().map(one).collect()))
}

/// Prints a table.
pub fn show(targets: &[TargetCache], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    let mut table = Table::new(&[
        ">TARGET",
        ">IN MEMORY",
        ">AT MOST",
        ">HITS",
        ">OF READS",
        ">FROM MEMORY",
        ">FROM DEVICES",
    ]);
    for target in targets {
        let Some(stat) = &target.stat else { continue };
        let reads = stat.hits + stat.misses;
        let share = match reads {
            0 => "-".to_string(),
            reads => format!("{}%", stat.hits as u128 * 100 / reads as u128),
        };
        table.row(vec![
            target.target.to_string(),
            size::format(stat.used_bytes),
            size::format(stat.limit_bytes),
            stat.hits.to_string(),
            share,
            size::format(stat.hit_bytes),
            size::format(stat.miss_bytes),
        ]);
    }
    table.write(out)
}
