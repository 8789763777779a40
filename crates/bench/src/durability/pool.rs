//! A pool that exists only as its map, and the groups of objects that fill it.

use std::num::NonZero;
use std::thread;
use types::{Error, ObjClass, ObjType, Oid, PoolId, Rank, Result, Scheme, TargetId};
use wire::map::{EngineInfo, PlacementSet, PoolMap, TargetInfo, TargetState};

/// What can be lost at once, smallest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Target,
    Engine,
    Rack,
}

pub const KINDS: [Kind; 3] = [Kind::Target, Kind::Engine, Kind::Rack];

/// How many of what; targets are numbered engine by engine, engines rack by rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    pub racks: u32,
    pub engines_per_rack: u32,
    pub targets_per_engine: u32,
}

impl Shape {
    /// How many there are of a kind.
    pub fn count(self, kind: Kind) -> u32 {
        self.racks * self.in_rack(kind)
    }

    /// How many of a kind a rack holds.
    pub fn in_rack(self, kind: Kind) -> u32 {
        match kind {
            Kind::Target => self.engines_per_rack * self.targets_per_engine,
            Kind::Engine => self.engines_per_rack,
            Kind::Rack => 1,
        }
    }

    /// Which of a kind holds a target.
    pub fn unit_of(self, kind: Kind, target: TargetId) -> u32 {
        target.0 / (self.in_rack(Kind::Target) / self.in_rack(kind))
    }

    /// The targets of the `at`th of a kind.
    pub fn targets_of(self, kind: Kind, at: u32) -> impl Iterator<Item = TargetId> {
        let each = self.in_rack(Kind::Target) / self.in_rack(kind);
        (at * each..(at + 1) * each).map(TargetId)
    }

    /// The map of such a pool: all targets weigh the same and are up.
    pub fn map(self) -> PoolMap {
        let engine = |rank: u32| EngineInfo {
            rank: Rank(rank),
            tcp: format!("node{rank}:10301"),
            unix: String::new(),
            host: format!("node{rank}"),
            domain: vec![format!("rack{}", rank / self.engines_per_rack)],
        };
        let target = |id: u32| TargetInfo {
            id: TargetId(id),
            rank: Rank(id / self.targets_per_engine),
            state: TargetState::Up,
            since: 0,
            reason: None,
            left: 0,
            incarnation: 0,
        };
        let ids = 0..self.count(Kind::Target);
        let weights = ids.clone().map(|id| (TargetId(id), 65_536)).collect();
        PoolMap {
            pool: PoolId(1),
            version: 1,
            engines: (0..self.count(Kind::Engine)).map(engine).collect(),
            targets: ids.map(target).collect(),
            placements: vec![PlacementSet { epoch: 0, weights }],
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        }
    }
}

/// All groups of a pool that is filled with objects of one class, each member of a group holding the same amount.
pub struct Groups {
    pub class: ObjClass,
    /// Each object, in order.
    pub oids: Vec<Oid>,
    /// Members of all groups of all objects, `width` each.
    pub members: Vec<TargetId>,
    pub width: usize,
    /// Groups of each object.
    pub per_object: usize,
}

impl Groups {
    /// Places objects until there are `count` groups or a few more.
    ///
    /// Errors: `Redundancy` when the pool has too few targets for a group.
    pub fn place(class: ObjClass, count: u64, map: &PoolMap) -> Result<Groups> {
        let oid = |number: u64| Oid::generate(0, number, ObjType::DkeyU64, class, 0);
        let first = members_of(oid(1), map)?;
        let width = class.scheme.members();
        let per_object = first.len() / width;
        let objects = count.div_ceil(per_object as u64);
        let oids: Vec<Oid> = (1..=objects).map(oid).collect();
        let members = in_parallel(&oids, |part| {
            let mut members = Vec::with_capacity(part.len() * first.len());
            for oid in part {
                members.extend(members_of(*oid, map)?);
            }
            Ok(members)
        })?;
        Ok(Groups { class, oids, members: members.concat(), width, per_object })
    }

    pub fn len(&self) -> usize {
        self.members.len() / self.width
    }

    /// The members of each group.
    pub fn iter(&self) -> impl Iterator<Item = &[TargetId]> {
        self.members.chunks_exact(self.width)
    }

    /// The largest kind of which no group has two members in one.
    pub fn apart(&self, shape: Shape) -> Kind {
        let is_apart = |kind: &Kind| {
            self.iter().all(|members| {
                let mut units: Vec<u32> =
                    members.iter().map(|target| shape.unit_of(*kind, *target)).collect();
                units.sort_unstable();
                units.windows(2).all(|pair| pair[0] != pair[1])
            })
        };
        KINDS.into_iter().rev().find(is_apart).unwrap_or(Kind::Target)
    }
}

/// Members of all groups of an object: of those with an erasure code, who holds the cells.
pub fn members_of(oid: Oid, map: &PoolMap) -> Result<Vec<TargetId>> {
    let layout = match oid.class()?.scheme {
        Scheme::ErasureCoded { .. } => placement::cell_layout(oid, map)?,
        Scheme::Striped | Scheme::Replicated { .. } => placement::layout(oid, map)?,
    };
    Ok(layout.targets().to_vec())
}

/// Works on parts of `all` in as many threads as there are CPUs; what comes out is in order.
pub fn in_parallel<T: Sync, R: Send>(
    all: &[T],
    work: impl Fn(&[T]) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let each = all.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts = all.chunks(each);
        let begun: Vec<_> = parts.map(|part| scope.spawn(|| work(part))).collect();
        let ended = begun.into_iter().map(|part| {
            part.join().unwrap_or_else(|_| Err(Error::inval("a thread of the simulation failed")))
        });
        ended.collect()
    })
}
