//! What a loss gives the others to do: bytes that each target and each engine's link moves until all groups are whole.

use super::pool::{Groups, Kind, Shape, in_parallel, members_of};
use types::{Oid, Result, Scheme, TargetId};
use wire::map::{OutTarget, PoolMap};

/// Bytes of one rebuild.
#[derive(Clone, PartialEq, Debug)]
pub struct Loads {
    /// Read from and written to each target.
    pub read: Vec<u64>,
    pub written: Vec<u64>,
    /// Sent and received by each engine.
    pub sent: Vec<u64>,
    pub received: Vec<u64>,
    /// Members that others stand in for.
    pub replaced: u64,
    /// Groups of which too few are left.
    pub lost: u64,
    /// Members that are gone and that nobody can stand in for.
    pub stranded: u64,
}

impl Loads {
    fn none(shape: Shape) -> Loads {
        let targets = vec![0; shape.count(Kind::Target) as usize];
        let engines = vec![0; shape.count(Kind::Engine) as usize];
        Loads {
            read: targets.clone(),
            written: targets,
            sent: engines.clone(),
            received: engines,
            replaced: 0,
            lost: 0,
            stranded: 0,
        }
    }

    fn add(&mut self, other: &Loads) {
        let add = |to: &mut Vec<u64>, from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from)
        };
        add(&mut self.read, &other.read);
        add(&mut self.written, &other.written);
        add(&mut self.sent, &other.sent);
        add(&mut self.received, &other.received);
        self.replaced += other.replaced;
        self.lost += other.lost;
        self.stranded += other.stranded;
    }

    fn copy(&mut self, shape: Shape, from: TargetId, to: TargetId, bytes: u64) {
        self.read[from.0 as usize] += bytes;
        let (from, to) = (shape.unit_of(Kind::Engine, from), shape.unit_of(Kind::Engine, to));
        if from != to {
            self.sent[from as usize] += bytes;
            self.received[to as usize] += bytes;
        }
    }

    /// Until the last one is done, seconds, when a target reads and writes `target_bytes_s` in all and an engine sends
    /// as much as it receives, `link_bytes_s` each.
    pub fn seconds(&self, target_bytes_s: u64, link_bytes_s: u64) -> f64 {
        let moved = self.read.iter().zip(&self.written).map(|(read, written)| read + written);
        let targets = moved.max().unwrap_or(0) as f64 / target_bytes_s as f64;
        let links = self.sent.iter().chain(&self.received).max().copied().unwrap_or(0);
        targets.max(links as f64 / link_bytes_s as f64)
    }
}

/// The loads when the `at`th of a kind is lost for good. Who stands in for its targets is what [`placement`] says.
/// Copies are read from the group's leader; a cell is made by who is to hold it, from as many others as the code has data cells.
pub fn loads(
    groups: &Groups,
    map: &PoolMap,
    shape: Shape,
    (kind, at): (Kind, u32),
    member_bytes: u64,
) -> Result<Loads> {
    let mut after = map.clone();
    let out = |target| OutTarget { target, round: 1, epoch: 0, is_drained: false };
    after.outs = shape.targets_of(kind, at).map(out).collect();
    let is_out = |target: &TargetId| shape.unit_of(kind, *target) == at;
    let each = groups.per_object * groups.width;
    let objects: Vec<(Oid, &[TargetId])> =
        groups.oids.iter().copied().zip(groups.members.chunks_exact(each)).collect();
    let parts = in_parallel(&objects, |part| {
        let mut loads = Loads::none(shape);
        for (oid, before) in part.iter().filter(|(_, before)| before.iter().any(is_out)) {
            let now = members_of(*oid, &after)?;
            let both = before.chunks_exact(groups.width).zip(now.chunks_exact(groups.width));
            for (before, now) in both.filter(|(before, _)| before.iter().any(is_out)) {
                rebuild(groups.class.scheme, before, now, is_out, shape, member_bytes, &mut loads);
            }
        }
        Ok(loads)
    })?;
    let mut all = Loads::none(shape);
    parts.iter().for_each(|part| all.add(part));
    Ok(all)
}

/// One group.
fn rebuild(
    scheme: Scheme,
    before: &[TargetId],
    now: &[TargetId],
    is_out: impl Fn(&TargetId) -> bool,
    shape: Shape,
    bytes: u64,
    loads: &mut Loads,
) {
    let left: Vec<TargetId> = before.iter().copied().filter(|target| !is_out(target)).collect();
    let sources = match scheme {
        Scheme::Striped | Scheme::Replicated { .. } => 1,
        Scheme::ErasureCoded { data, .. } => data as usize,
    };
    if left.len() < sources {
        loads.lost += 1;
        return;
    }
    loads.stranded += now.iter().filter(|target| is_out(target)).count() as u64;
    for new in now.iter().filter(|target| !before.contains(target)) {
        for from in &left[..sources] {
            loads.copy(shape, *from, *new, bytes);
        }
        loads.written[new.0 as usize] += bytes;
        loads.replaced += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { racks: 8, engines_per_rack: 3, targets_per_engine: 2 };

    fn of(class: &str, lost: (Kind, u32)) -> (Groups, Loads) {
        let map = SHAPE.map();
        let groups = Groups::place(class.parse().unwrap(), 2_000, &map).unwrap();
        let loads = loads(&groups, &map, SHAPE, lost, 10).unwrap();
        (groups, loads)
    }

    #[test]
    fn what_was_lost_is_written_again_once_and_read_as_the_class_says() {
        for (class, reads, lost) in [
            ("RP_2GX", 1, (Kind::Target, 5)),
            ("RP_3G1", 1, (Kind::Engine, 7)),
            ("EC_2P1GX", 2, (Kind::Rack, 1)),
            ("EC_4P2G1", 4, (Kind::Target, 47)),
        ] {
            let (groups, loads) = of(class, lost);
            let is_gone = |target: &TargetId| SHAPE.unit_of(lost.0, *target) == lost.1;
            let gone = groups.members.iter().filter(|target| is_gone(target)).count() as u64;
            assert!(gone > 0, "{class}");
            assert_eq!(loads.replaced, gone, "{class}: racks are enough");
            assert_eq!((loads.lost, loads.stranded), (0, 0), "{class}");
            assert_eq!(loads.written.iter().sum::<u64>(), gone * 10, "{class}");
            assert_eq!(loads.read.iter().sum::<u64>(), gone * 10 * reads, "{class}");
            assert_eq!(loads.sent.iter().sum::<u64>(), loads.received.iter().sum::<u64>());
            for target in SHAPE.targets_of(lost.0, lost.1) {
                let at = target.0 as usize;
                assert_eq!((loads.read[at], loads.written[at]), (0, 0), "{class}: it is lost");
            }
        }
    }

    #[test]
    fn without_copies_all_on_it_is_lost() {
        let (groups, loads) = of("SX", (Kind::Engine, 0));
        let gone = groups.members.iter().filter(|target| target.0 < 2).count() as u64;
        assert_eq!((loads.lost, loads.replaced), (gone, 0));
        assert_eq!(loads.seconds(1, 1), 0.0);
    }

    #[test]
    fn the_slowest_target_or_link_decides() {
        let mut loads = Loads::none(SHAPE);
        loads.copy(SHAPE, TargetId(0), TargetId(9), 600);
        loads.copy(SHAPE, TargetId(1), TargetId(9), 500);
        loads.written[9] += 300;
        assert_eq!(loads.seconds(100, 1_000_000), 6.0, "target 0 reads");
        assert_eq!(loads.seconds(100, 100), 11.0, "engine 0 sends for both");
        // Between targets of one engine nothing is sent.
        let mut loads = Loads::none(SHAPE);
        loads.copy(SHAPE, TargetId(2), TargetId(3), 600);
        assert_eq!(loads.sent, Loads::none(SHAPE).sent);
    }
}
