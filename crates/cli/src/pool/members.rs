//! What `azekura pool query` tells of copies: redundancy of the containers, and what is on its way between members.

use super::health::ContReport;
use crate::output::Table;
use serde::Serialize;
use std::io::{Result, Write};
use types::{TargetId, size};
use wire::store::{CatchUpStat, StoreStat};

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

    /// Keys that it has got since it began.
    pub fn keys_mended(&self) -> u64 {
        self.catching_up.map_or(0, |stat| stat.keys_mended)
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
            "\nTarget {} catches up, try {}: {} keys mended; {} objects that differ and {} targets to compare with \
             are left.",
            member.target, stat.tries, stat.keys_mended, stat.units_left, stat.targets_left
        )?;
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
