//! Whom of a group's members reads are asked of.
//!
//! The leader of a group answers everything. A member that follows answers what is only looked at, unless it is not sure that all members
//! show the same (`crates/engine/src/member_reads.rs`); then the leader is asked, and for a while nobody else. The leader is asked in turn with the others; should it give no
//! answer, another member is asked before it is waited for.

use crate::client::Client;
use crate::cont::Container;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::str::FromStr;
use std::time::Duration;
use types::map::HashMap;
use types::{Code, Error, Oid, Result, Scheme, TargetId, Unit, hash};

/// Names whom programs read from that say nothing themselves.
const READ_FROM_VAR: &str = "AZEKURA_READ_FROM";
/// A member that takes longer than this to answer is not waited for.
pub(crate) const MEMBER_TIME_MAX: Duration = Duration::from_millis(500);
/// A leader that takes longer than this is asked again when no other member could answer.
pub(crate) const LEADER_TIME_MAX: Duration = Duration::from_secs(1);
/// One that gave no answer, or is not sure of itself, is not asked for so long.
const AVOID_TIME: Duration = Duration::from_secs(5);
/// What not all members may have had is asked of the leader for so long.
const DIRTY_TIME: Duration = Duration::from_millis(20);
/// So many objects at most are remembered to be asked of their leaders.
const DIRTY_MAX: usize = 1024;

/// Who is asked for what is only looked at, of objects with copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadFrom {
    /// The leaders of groups, as for changes.
    Leaders,
    /// Any member: for each client and group the same one, of those on its machine if there are any.
    Members,
}

impl ReadFrom {
    /// What the environment (`AZEKURA_READ_FROM`) says. `None` when it says nothing; what makes no sense is told in the log.
    pub fn from_env() -> Option<ReadFrom> {
        let text = std::env::var(READ_FROM_VAR).ok().filter(|text| !text.is_empty())?;
        match text.parse() {
            Ok(read_from) => Some(read_from),
            Err(error) => {
                tracing::warn!("{READ_FROM_VAR}: {error}");
                None
            }
        }
    }
}

impl FromStr for ReadFrom {
    type Err = Error;

    /// `leaders` or `members`.
    fn from_str(text: &str) -> Result<ReadFrom> {
        match text {
            "leaders" => Ok(ReadFrom::Leaders),
            "members" => Ok(ReadFrom::Members),
            _ => Err(Error::inval(format!("'{text}' is neither 'leaders' nor 'members'"))),
        }
    }
}

/// Whom a client does not ask now.
#[derive(Default)]
pub(crate) struct Avoided {
    members: RefCell<HashMap<TargetId, Duration>>,
    dirty: RefCell<HashMap<(Oid, u32), Duration>>,
    shown_count: Cell<u64>,
    refused_count: Cell<u64>,
}

impl Avoided {
    fn is_avoided(&self, member: TargetId, now: Duration) -> bool {
        self.members.borrow().get(&member).is_some_and(|until| now < *until)
    }

    fn was_dirty(&self, unit: Unit, now: Duration) -> bool {
        self.dirty.borrow().get(&(unit.object, unit.group)).is_some_and(|until| now < *until)
    }

    /// A member did not answer for a unit.
    fn note(&self, member: TargetId, unit: Unit, error: &Error, now: Duration) {
        match error.code {
            Code::Busy => {
                let mut dirty = self.dirty.borrow_mut();
                if dirty.len() >= DIRTY_MAX {
                    dirty.clear();
                }
                dirty.insert((unit.object, unit.group), now + DIRTY_TIME);
            }
            Code::Unreach | Code::TimedOut | Code::Closed | Code::Csum | Code::Io | Code::Proto => {
                self.members.borrow_mut().insert(member, now + AVOID_TIME);
            }
            // It has another map, or will have; or the question is wrong, which the leader says, too.
            _ => {}
        }
    }
}

impl Client {
    /// What members have answered in the place of leaders so far, and what they did not, so that leaders were asked.
    pub fn member_read_counts(&self) -> (u64, u64) {
        (self.avoided().shown_count.get(), self.avoided().refused_count.get())
    }

    /// A member has answered.
    pub(crate) fn note_shown(&self) {
        let count = &self.avoided().shown_count;
        count.set(count.get() + 1);
    }

    /// A member was asked for a unit, or the leader in turn, and did not tell.
    pub(crate) fn note_refused(&self, member: TargetId, leads: bool, unit: Unit, error: &Error) {
        tracing::debug!("target {member} as a member: {error}");
        let count = &self.avoided().refused_count;
        if !leads {
            count.set(count.get() + 1);
        }
        let is_passing = matches!(error.code, Code::Unreach | Code::TimedOut | Code::Closed);
        if !leads || is_passing {
            self.avoided().note(member, unit, error, self.env().now());
        }
    }
}

impl Container {
    /// Who is asked for what is only looked at of a unit, the leader in turn; `None`: the leader, as for all else.
    pub(crate) fn member_to_ask(&self, unit: Unit) -> Option<TargetId> {
        let client = self.client();
        if client.options().read_from == ReadFrom::Leaders || unit.is_cell() {
            return None;
        }
        let class = unit.object.class().ok()?;
        if !matches!(class.scheme, Scheme::Replicated { .. }) {
            return None;
        }
        let (now, avoided) = (client.env().now(), client.avoided());
        if avoided.was_dirty(unit, now) {
            return None;
        }
        let (layout, map) = (self.layout(unit.object).ok()?, self.pool().map());
        let may_be_asked = |target: &TargetId| {
            placement::is_live(*target, &map) && !avoided.is_avoided(*target, now)
        };
        let is_near =
            |target: &TargetId| map.engine_of(*target).is_some_and(|of| client.is_near(of));
        let all = layout.members(unit.group as usize).iter().copied().filter(may_be_asked);
        let all: SmallVec<[TargetId; 6]> = all.collect();
        let near: SmallVec<[TargetId; 6]> = all.iter().copied().filter(is_near).collect();
        let members = if near.is_empty() { &all } else { &near };
        let of_group = hash::mix2(unit.object.hi, hash::mix2(unit.object.lo, unit.group.into()));
        let drawn = hash::mix2(client.id().0, of_group).checked_rem(members.len() as u64)?;
        members.get(drawn as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_avoided_for_a_while() {
        let avoided = Avoided::default();
        let [a, b] = [TargetId(1), TargetId(2)];
        let unit = |lo| Oid { hi: 0, lo }.unit(0);
        let ms = Duration::from_millis;
        let refused = |member, unit, code, now| {
            avoided.note(member, unit, &Error::bare(code), now);
        };
        refused(a, unit(1), Code::Busy, ms(1_000));
        assert!(avoided.was_dirty(unit(1), ms(1_019)) && !avoided.was_dirty(unit(1), ms(1_020)));
        assert!(!avoided.was_dirty(unit(2), ms(1_000)) && !avoided.is_avoided(a, ms(1_000)));
        refused(a, unit(1), Code::Unreach, ms(1_000));
        refused(b, unit(1), Code::Stale, ms(1_000));
        assert!(avoided.is_avoided(a, ms(5_999)) && !avoided.is_avoided(a, ms(6_000)));
        assert!(!avoided.is_avoided(b, ms(1_000)));
    }

    #[test]
    fn words() {
        assert_eq!("members".parse::<ReadFrom>().unwrap(), ReadFrom::Members);
        assert_eq!("leaders".parse::<ReadFrom>().unwrap(), ReadFrom::Leaders);
        assert!("leader".parse::<ReadFrom>().unwrap_err().to_string().contains("members"));
    }
}
