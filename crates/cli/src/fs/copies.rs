//! Where the copies of an object are, as `azekura fs stat` tells it.

use crate::output::Table;
use client::ObjectCopy;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{Result, Write};
use wire::map::{DownReason, TargetState};

/// Objects of more groups are summed up unless all is asked for.
const GROUPS_SHOWN_MAX: usize = 4;

/// The groups of an object.
#[derive(Serialize)]
pub struct ObjectCopies {
    /// Members of each group.
    copies: usize,
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    group: usize,
    /// Members that are whole.
    copies_up: usize,
    /// The target that answers for it; `null`: none does.
    leader: Option<u32>,
    members: Vec<Member>,
    /// Who has each cell of what is folded; none without an erasure code.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cells: Vec<Member>,
}

#[derive(Serialize)]
struct Member {
    target: u32,
    rank: u32,
    address: String,
    /// `up`, `behind` or `down`.
    state: &'static str,
    /// Why it is down: `silent`, `lost` or `excluded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<DownReason>,
    leads: bool,
}

impl Member {
    fn of(copy: &ObjectCopy) -> Member {
        Member {
            target: copy.target.0,
            rank: copy.rank.0,
            address: copy.address.clone(),
            state: match (copy.state, copy.reason) {
                (TargetState::Up | TargetState::Drain | TargetState::New, _) => "up",
                (TargetState::Down, Some(DownReason::Behind)) => "behind",
                (TargetState::Down | TargetState::DownOut, _) => "down",
            },
            reason: copy.reason.filter(|reason| *reason != DownReason::Behind),
            leads: copy.leads,
        }
    }
}

impl ObjectCopies {
    /// From the members of each group, and those who have its cells.
    pub fn of(groups: &[Vec<ObjectCopy>], cells: Option<&[Vec<ObjectCopy>]>) -> ObjectCopies {
        let group = |(group, members): (usize, &Vec<ObjectCopy>)| {
            let cells = cells.and_then(|cells| cells.get(group)).into_iter().flatten();
            // Who leads says so among the members.
            let cells = cells.map(|copy| Member { leads: false, ..Member::of(copy) }).collect();
            let members: Vec<Member> = members.iter().map(Member::of).collect();
            let leader = members.iter().find(|member| member.leads).map(|member| member.target);
            let copies_up = members.iter().filter(|member| member.state == "up").count();
            Group { group, copies_up, leader, members, cells }
        };
        ObjectCopies {
            copies: groups.first().map_or(0, Vec::len),
            groups: groups.iter().enumerate().map(group).collect(),
        }
    }

    /// One line: how many, over how many groups and targets, and what of them is missing.
    pub fn summary(&self) -> String {
        let members = || self.groups.iter().flat_map(|group| &group.members);
        let targets: BTreeSet<u32> = members().map(|member| member.target).collect();
        let mut text = match (self.groups.len(), targets.len()) {
            (1, _) => self.copies.to_string(),
            (groups, targets) => {
                format!("{} in each of {groups} groups, on {targets} targets", self.copies)
            }
        };
        if let Some(cells) = self.groups.first().map(|group| group.cells.len()).filter(|n| *n > 0) {
            text += &format!("; {cells} cells of each stripe");
            let is_away = |group: &&Group| group.cells.iter().any(|cell| cell.state != "up");
            match self.groups.iter().filter(is_away).count() {
                0 => {}
                1 if self.groups.len() == 1 => text += ", not all there",
                count => text += &format!(", not all there in {count} groups"),
            }
        }
        for left in 0..self.copies {
            let count = self.groups.iter().filter(|group| group.copies_up == left).count();
            let groups = if count == 1 { "group has" } else { "groups have" };
            match (count, left) {
                (0, _) => {}
                _ if self.groups.len() == 1 => text += &format!("; {left} left"),
                (_, 1) => text += &format!("; {count} {groups} 1 copy left"),
                _ => text += &format!("; {count} {groups} {left} copies left"),
            }
        }
        text
    }

    /// Writes where each one is, unless there are many and not `all` are asked for.
    pub fn show(&self, all: bool, out: &mut dyn Write) -> Result<()> {
        if !all && self.groups.len() > GROUPS_SHOWN_MAX {
            return Ok(());
        }
        let mut table = Table::new(&[">GROUP", ">TARGET", ">ENGINE", "ADDRESS", "HOLDS", "STATE"]);
        for group in &self.groups {
            let cells = group.cells.iter().enumerate();
            let cells = cells.map(|(at, member)| (format!("cell {at}"), member));
            let members = group.members.iter().map(|member| ("copy".to_string(), member));
            for (holds, member) in members.chain(cells) {
                let why = match member.reason {
                    Some(DownReason::Silent) => ", gives no answer",
                    Some(DownReason::Stopped) => ", has stopped",
                    Some(DownReason::Excluded) => ", excluded",
                    Some(DownReason::Lost) => ", lost what it held",
                    Some(DownReason::Behind) | None => "",
                };
                let leads = if member.leads { ", leads" } else { "" };
                table.row(vec![
                    group.group.to_string(),
                    member.target.to_string(),
                    member.rank.to_string(),
                    member.address.clone(),
                    holds,
                    format!("{}{why}{leads}", member.state),
                ]);
            }
        }
        table.write(out)
    }
}
