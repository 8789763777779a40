//! What `azekura pool query` tells of copies: redundancy of the containers, and what is on its way between members.

use super::health::ContReport;
use crate::output::Table;
use client::Pool;
use serde::Serialize;
use std::io::{Result, Write};
use std::time::Duration;
use types::{TargetId, size};
use wire::store::{CatchUpStat, GroupStat, StoreStat};

/// Pauses between looks whether targets have counted their groups, and how many.
const COUNT_PAUSE: Duration = Duration::from_millis(50);
const COUNT_TRIES: u32 = 40;

/// What a target has to give to others, and to get from them.
#[derive(Serialize)]
pub struct TargetMembers {
    target: u32,
    streams: Vec<Stream>,
    /// It was away, and has this left to compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    catching_up: Option<CatchUpStat>,
}

#[derive(Serialize)]
struct Stream {
    to: u32,
    orders: u64,
    bytes: u64,
}

impl TargetMembers {
    /// `None`: no answer.
    pub fn of((target, stat): &(TargetId, Option<StoreStat>)) -> Option<TargetMembers> {
        let stat = stat.as_ref()?;
        let streams = stat.streams.iter().map(|stream| Stream {
            to: stream.member.0,
            orders: stream.orders,
            bytes: stream.bytes,
        });
        Some(TargetMembers {
            target: target.0,
            streams: streams.collect(),
            catching_up: stat.catching_up,
        })
    }
}

impl TargetMembers {
    /// True while it compares what it has with others.
    pub fn is_busy(&self) -> bool {
        self.catching_up.is_some()
    }

    /// Bytes that it gets a second.
    pub fn bytes_s(&self) -> u64 {
        self.catching_up.map_or(0, |stat| stat.bytes_s())
    }

    /// Bytes that it has got since it began.
    pub fn bytes_mended(&self) -> u64 {
        self.catching_up.map_or(0, |stat| stat.bytes_mended)
    }

    /// How long it takes still, milliseconds; `None`: not known yet.
    pub fn left_ms(&self) -> Option<u64> {
        self.catching_up.and_then(|stat| stat.left_ms())
    }

    /// Groups known to differ that it has still to compare.
    pub fn groups_left(&self) -> u64 {
        self.catching_up.map_or(0, |stat| stat.units_left)
    }

    /// Keys that it has got since it began.
    pub fn keys_mended(&self) -> u64 {
        self.catching_up.map_or(0, |stat| stat.keys_mended)
    }
}

/// What all targets tell of their stores. Those that have still to count their groups are waited for, for a while.
pub fn counted_stats(pool: &Pool) -> types::Result<Vec<(TargetId, Option<StoreStat>)>> {
    let client = pool.client();
    let mut stats = client.block_on(pool.store_stats())?;
    for _ in 0..COUNT_TRIES {
        let is_counted = |stat: &StoreStat| stat.groups.is_counted;
        if stats.iter().all(|(_, stat)| stat.as_ref().is_none_or(is_counted)) {
            break;
        }
        std::thread::sleep(COUNT_PAUSE);
        stats = client.block_on(pool.store_stats())?;
    }
    Ok(stats)
}

/// Of all targets together.
pub fn groups_of(stats: &[(TargetId, Option<StoreStat>)]) -> GroupStat {
    let mut all = GroupStat { is_counted: true, ..GroupStat::default() };
    for groups in stats.iter().filter_map(|(_, stat)| stat.as_ref()).map(|stat| stat.groups) {
        all.one_left += groups.one_left;
        all.two_left += groups.two_left;
        all.more_left += groups.more_left;
        all.is_counted &= groups.is_counted;
    }
    all
}

/// In a few words.
pub fn groups_text(groups: GroupStat) -> String {
    let GroupStat { one_left, two_left, more_left, is_counted } = groups;
    let all = one_left + two_left + more_left;
    let still = if is_counted { "" } else { "; still counting" };
    match all {
        0 => format!("0{still}"),
        _ => format!(
            "{all}: {one_left} with one left, {two_left} with two, {more_left} with more{still}"
        ),
    }
}

/// Writes a table of the containers' redundancy.
pub fn show_containers(containers: &[ContReport], out: &mut dyn Write) -> Result<()> {
    if containers.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new(&["CONTAINER", ">RD_FAC", ">COPIES", ">LEFT OF THE WORST"]);
    for cont in containers {
        table.row(vec![
            cont.name.clone(),
            cont.rd_fac.to_string(),
            cont.copies.to_string(),
            match cont.available {
                true => cont.copies_left.to_string(),
                false => format!("{}, UNAVAILABLE", cont.copies_left),
            },
        ]);
    }
    table.write(out)
}

/// Writes how far targets are that catch up; with `all` what is on its way to others, too.
pub fn show(members: &[TargetMembers], all: bool, out: &mut dyn Write) -> Result<()> {
    for member in members {
        let Some(stat) = &member.catching_up else { continue };
        writeln!(
            out,
            "\nTarget {} catches up, try {}: {} keys mended, {} in {}, {} a second; {} objects that differ and {} targets \
             to compare with are left.",
            member.target,
            stat.tries,
            stat.keys_mended,
            size::format(stat.bytes_mended),
            time_text(stat.time_ms / 1000),
            size::format(stat.bytes_s()),
            stat.units_left,
            stat.targets_left
        )?;
        if stat.is_full {
            writeln!(
                out,
                "It has no room for more of it: see 'spare-full' in 'azekura system events'."
            )?;
        } else if let Some(left_ms) = stat.left_ms() {
            writeln!(out, "About {} left.", time_text(left_ms.div_ceil(1000)))?;
        }
    }
    if !all || members.iter().all(|member| member.streams.is_empty()) {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new(&[">TARGET", ">SENDS TO", ">ORDERS WAITING", ">BYTES"]);
    for member in members {
        for stream in &member.streams {
            table.row(vec![
                member.target.to_string(),
                stream.to.to_string(),
                stream.orders.to_string(),
                size::format(stream.bytes),
            ]);
        }
    }
    table.write(out)
}

/// A time as people say it, cut to two units: `42 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`.
pub fn time_text(seconds: u64) -> String {
    let two = |whole: u64, of: &str, rest: u64, and: &str| match rest {
        0 => format!("{whole} {of}"),
        rest => format!("{whole} {of} {rest} {and}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::time_text;

    #[test]
    fn times_have_two_units_at_most() {
        let all = [0, 42, 60, 185, 3600, 7_830, 86_400, 356_400];
        let texts = ["0 s", "42 s", "1 min", "3 min 5 s", "1 h", "2 h 10 min", "1 d", "4 d 3 h"];
        assert_eq!(all.map(time_text), texts);
    }
}
