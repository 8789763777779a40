//! An open container: object ids, layouts, open handles.

use crate::attempt::Attempt;
use crate::batch::Batch;
use crate::cells::{CellTraffic, CellsKnown};
use crate::client::{Client, unexpected};
use crate::first_part::KnownMarks;
use crate::held::HeldHandle;
use crate::leader::LedAsk;
use crate::object::Object;
use crate::pool::Pool;
use crate::spread::KnownSpreads;
use crate::target::Ask;
use async_recursion::async_recursion as boxed;
use futures_util::future::try_join_all;
use placement::Layout;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use transport::Ending;
use types::{
    Code, ContId, DkeyKind, Epoch, Error, ObjClass, ObjType, Oid, Rank, Result, TargetId, Unit,
};
use wire::control::{ContAsk, ContInfo, ControlReply, ControlRequest, Evict, Name, OpenMode};
use wire::obj::{ObjectList, PoolShardStat, Request};

/// The members of a group of several, in order; empty for one of one member.
pub(crate) type Members = SmallVec<[TargetId; 6]>;

/// Half of the first pause before a newer map is asked for again; it is doubled each time.
const LEARN_PAUSE: Duration = Duration::from_millis(50);
/// The last of these pauses.
const LEARN_PAUSE_MAX: Duration = Duration::from_millis(800);
/// Layouts remembered, by object; a small direct-mapped cache.
const LAYOUTS_CACHED: usize = 256;

/// An open container. Cheap to clone.
#[derive(Clone)]
pub struct Container(Rc<Inner>);

struct Inner {
    pool: Pool,
    handle: HeldHandle,
    info: ContInfo,
    mode: OpenMode,
    /// A snapshot to look at; zero: the present.
    at: Epoch,
    layouts: RefCell<Vec<Option<CachedLayout>>>,
    marks: RefCell<KnownMarks>,
    spreads: RefCell<KnownSpreads>,
    cells: CellsKnown,
}

/// Objects of a container.
#[derive(Clone, Debug)]
pub struct Objects {
    /// Which, in [`Oid::list_order`].
    pub oids: Vec<Oid>,
    /// True when no more follow.
    pub complete: bool,
}

struct CachedLayout {
    oid: Oid,
    of_cells: bool,
    map_version: u32,
    layout: Rc<Layout>,
}

impl Container {
    /// A container with a handle that was given on a connection, as it was asked for.
    pub(crate) fn opened(
        pool: Pool,
        (handle, on): (u64, Ending),
        info: ContInfo,
        ask: ContAsk,
    ) -> Container {
        let again = ControlRequest::ContOpen {
            pool: pool.name(),
            cont: Name::Uuid(info.uuid),
            ask: ContAsk { evict: Evict::Nobody, ..ask },
        };
        let handle = HeldHandle::new(pool.client(), handle, on, again);
        Container::new(pool, handle, info, ask.mode)
    }

    fn new(pool: Pool, handle: HeldHandle, info: ContInfo, mode: OpenMode) -> Container {
        let mut layouts = Vec::new();
        layouts.resize_with(LAYOUTS_CACHED, || None);
        let layouts = RefCell::new(layouts);
        let (marks, spreads) = (RefCell::default(), RefCell::default());
        let (at, cells) = (Epoch::ZERO, CellsKnown::default());
        Container(Rc::new(Inner { pool, handle, info, mode, at, layouts, marks, spreads, cells }))
    }

    /// A container that this or another process has opened: asks nobody, and closing it gives
    /// no handle back.
    pub fn attach(pool: &Pool, info: ContInfo, mode: OpenMode) -> Container {
        Container::new(pool.clone(), HeldHandle::default(), info, mode)
    }

    /// The container as its snapshot at `epoch` shows it, to read only; reading fails with
    /// `NonExist` if there is no such snapshot. Costs nothing, and holds no handle.
    pub fn at_epoch(&self, epoch: Epoch) -> Container {
        let (pool, info) = (self.0.pool.clone(), self.0.info.clone());
        let mut layouts = Vec::new();
        layouts.resize_with(LAYOUTS_CACHED, || None);
        Container(Rc::new(Inner {
            pool,
            handle: HeldHandle::default(),
            info,
            mode: OpenMode::ReadOnly,
            at: epoch,
            layouts: RefCell::new(layouts),
            marks: RefCell::default(),
            spreads: RefCell::default(),
            cells: CellsKnown::default(),
        }))
    }

    /// The snapshot it shows; [`Epoch::ZERO`]: the present.
    pub fn at(&self) -> Epoch {
        self.0.at
    }

    /// What the catalog said when it was opened.
    pub fn info(&self) -> &ContInfo {
        &self.0.info
    }

    pub fn id(&self) -> ContId {
        self.0.info.id
    }

    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// The client it was opened with.
    pub fn client(&self) -> &Client {
        self.0.pool.client()
    }

    /// How it was opened.
    pub fn mode(&self) -> OpenMode {
        self.0.mode
    }

    /// True when opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.0.mode == OpenMode::ReadOnly
    }

    /// Reserves `count` object numbers that nobody else gets; returns the first.
    #[boxed(?Send)]
    pub async fn alloc_oids(&self, count: u64) -> Result<u64> {
        let request =
            ControlRequest::AllocOids { pool: self.0.pool.info().id, cont: self.id(), count };
        match self.client().control(&request).await? {
            ControlReply::Oids(first) => Ok(first),
            _ => Err(unexpected()),
        }
    }

    /// Fills our bits of an object id. The same for the same arguments as long as the container lives: programs that
    /// know the numbers of their objects make the ids again whenever they need them, so it is in the placement epoch
    /// that was the pool's newest when the container was made.
    ///
    /// Errors: `NotSupported` for a class that needs redundancy, `Redundancy` for one weaker
    /// than the container's `rd_fac`.
    pub fn generate_oid(
        &self,
        kind: ObjType,
        class: ObjClass,
        user_hi: u32,
        user_lo: u64,
    ) -> Result<Oid> {
        placement::check_class(class, &self.0.info.props, &self.0.pool.map())?;
        check_kind(kind, class)?;
        let epoch = self.0.info.placement_epoch;
        let oid = Oid::generate(user_hi, user_lo, kind, class, epoch);
        Ok(oid.with_cell_bytes(self.0.info.props.cell_bytes))
    }

    /// An id in the pool's newest placement epoch, so that targets that were added get their part. For numbers that
    /// nobody has used ([`Self::alloc_oids`]) and ids that are written down: it is another one once the pool has changed.
    ///
    /// Errors: as [`Self::generate_oid`].
    pub fn new_oid(&self, kind: ObjType, class: ObjClass, number: u64) -> Result<Oid> {
        let map = self.0.pool.map();
        placement::check_class(class, &self.0.info.props, &map)?;
        check_kind(kind, class)?;
        let oid = Oid::generate(0, number, kind, class, map.placement_epoch());
        Ok(oid.with_cell_bytes(self.0.info.props.cell_bytes))
    }

    /// A placement hint that puts an object's first group on `target`.
    pub fn hint_for(&self, target: TargetId) -> u32 {
        let random = self.client().env().random_u64();
        self.0.pool.0.state.hints().pick(target, random)
    }

    /// A placement hint that puts the first group of an object of `class` where `unit` is: on all members of its
    /// group, in their order. Whether that is so, too; else only the leaders are the same.
    pub fn hint_near(&self, unit: Unit, class: ObjClass) -> Result<(u32, bool)> {
        let is_alone = class.scheme.members() == 1;
        if unit.object.is_alone() {
            return Ok((self.hint_for(self.target_of(unit)?), is_alone));
        }
        // Where they were placed: they stay together whoever stands in for whom.
        let layout = self.layout(unit.object)?;
        let members = SmallVec::from_slice(layout.placed(unit.group as usize));
        let beside = if is_alone { None } else { self.0.pool.0.state.hint_beside(&members, class) };
        if let Some(hint) = beside {
            return Ok((hint, true));
        }
        // Where nobody leads at the moment one that did will: what comes waits for that.
        let leader = self.target_of(unit).or_else(|error| members.first().copied().ok_or(error))?;
        Ok((self.hint_for(leader), false))
    }

    /// The same for an object of which all that takes room will be there: elsewhere when that target
    /// is nearly full and another one has more room. Whether it is near, too. Asks nobody while there
    /// is room.
    #[boxed(?Send)]
    pub async fn roomy_hint_near(&self, unit: Unit) -> Result<(u32, bool)> {
        if !unit.object.is_alone() {
            return self.hint_near(unit, ObjClass::S1);
        }
        let preferred = self.target_of(unit)?;
        let chosen = self.0.pool.roomy_target(preferred).await;
        Ok((self.hint_for(chosen), chosen == preferred))
    }

    /// True when all changes of both units go to the same targets at the moment, so that one request may carry what is to happen to
    /// them at once. While a pool gives targets their share, units that were placed together may be apart for a while.
    pub fn are_together(&self, a: Unit, b: Unit) -> Result<bool> {
        Ok(self.everyone(a)? == self.everyone(b)?)
    }

    /// Progressive arrays that are known to reach beyond their first part.
    pub(crate) fn marks(&self) -> &RefCell<KnownMarks> {
        &self.0.marks
    }

    /// Objects whose dkeys are known to have moved.
    pub(crate) fn spreads_known(&self) -> &RefCell<KnownSpreads> {
        &self.0.spreads
    }

    /// How often this client reached cells itself, through this handle and its clones.
    pub fn cell_traffic(&self) -> CellTraffic {
        self.0.cells.traffic()
    }

    /// What is known of reaching cells.
    pub(crate) fn cells_known(&self) -> &CellsKnown {
        &self.0.cells
    }

    /// The layout of an object, or of its cells.
    fn cached_layout(&self, oid: Oid, of_cells: bool) -> Result<Rc<Layout>> {
        let map_version = self.0.pool.0.state.map_version();
        let key = types::hash::mix2(oid.hi, oid.lo).wrapping_add(of_cells.into());
        let slot = (key as usize) % LAYOUTS_CACHED;
        let mut layouts = self.0.layouts.borrow_mut();
        if let Some(cached) = &layouts[slot]
            && (cached.oid, cached.of_cells) == (oid, of_cells)
            && cached.map_version == map_version
        {
            return Ok(cached.layout.clone());
        }
        let map = self.0.pool.map();
        let layout = Rc::new(match of_cells {
            true => placement::cell_layout(oid, &map)?,
            false => placement::layout(oid, &map)?,
        });
        layouts[slot] = Some(CachedLayout { oid, of_cells, map_version, layout: layout.clone() });
        Ok(layout)
    }

    /// Gets a newer pool map if the object was made in a placement epoch that this one does not know: by somebody who has seen
    /// the pool extended, and told its id. True if the epoch is known then. Whoever is asked first may not have heard of it either,
    /// but nobody waits long for an id that was not made here.
    pub async fn learn(&self, oid: Oid) -> bool {
        // What is rare is boxed: a future is as large as the largest thing it may do, and is moved as it is made.
        placement::knows_epoch(oid, &self.0.pool.map()) || Box::pin(self.learn_late(oid)).await
    }

    async fn learn_late(&self, oid: Oid) -> bool {
        let state = &self.0.pool.0.state;
        let mut pause = LEARN_PAUSE;
        while !placement::knows_epoch(oid, &state.map()) {
            if pause > LEARN_PAUSE_MAX {
                return false;
            }
            if pause > LEARN_PAUSE {
                self.client().env().sleep(pause).await;
            }
            pause *= 2;
            state.refresh_briefly(self.client()).await;
        }
        true
    }

    /// The unit that holds `dkey`, of an object that spreads as far as is known. A newer map is asked for if this one does not know when the object was made; `Stale` when nobody
    /// knows.
    pub async fn unit_of(&self, oid: Oid, dkey: &[u8]) -> Result<Unit> {
        self.learn(oid).await;
        self.known_unit_of(oid, dkey)
    }

    /// The units that together hold the object, first group first; else as [`Container::unit_of`].
    pub async fn units(&self, oid: Oid) -> Result<Vec<Unit>> {
        self.learn(oid).await;
        self.known_units(oid)
    }

    /// The layout of an object under the map that is here; `Stale` if it does not know when the object was made
    /// ([`Container::learn`]).
    pub fn layout(&self, oid: Oid) -> Result<Rc<Layout>> {
        self.cached_layout(oid, false)
    }

    /// The unit that holds `dkey`, likewise.
    pub(crate) fn known_unit_of(&self, oid: Oid, dkey: &[u8]) -> Result<Unit> {
        if oid.spreads() {
            return self.known_unit_of_spreading(oid, dkey);
        }
        Ok(oid.unit(self.layout(oid)?.group_of(oid, dkey) as u32))
    }

    /// All units, likewise.
    pub(crate) fn known_units(&self, oid: Oid) -> Result<Vec<Unit>> {
        let count = self.layout(oid)?.group_count() as u32;
        Ok((0..count).map(|group| oid.unit(group)).collect())
    }

    /// Sorts work on units into lots that one request each can carry, which keep its order. Whether anybody answers for
    /// them at the moment is the matter of who asks: that may be so a little later.
    pub fn lots<T>(
        &self,
        work: impl IntoIterator<Item = (Unit, T)>,
    ) -> Result<Vec<Vec<(Unit, T)>>> {
        let mut lots: BTreeMap<Members, Vec<(Unit, T)>> = BTreeMap::new();
        for (unit, item) in work {
            lots.entry(self.everyone(unit)?).or_default().push((unit, item));
        }
        Ok(lots.into_values().collect())
    }

    /// The engines that hold the object now, that of its first group first, each once.
    pub fn engines_of(&self, oid: Oid) -> Result<Vec<Rank>> {
        let units = self.known_units(oid)?;
        let map = self.0.pool.map();
        let mut ranks = Vec::new();
        for unit in units {
            let target = self.target_of(unit)?;
            let engine = map.engine_of(target).ok_or_else(|| {
                Error::new(Code::NonExist, format!("target {target} has no engine"))
            })?;
            if !ranks.contains(&engine.rank) {
                ranks.push(engine.rank);
            }
        }
        Ok(ranks)
    }

    /// What the targets that lead the object's groups say of their space, one for each unit.
    #[boxed(?Send)]
    pub async fn space_of(&self, oid: Oid) -> Result<Vec<PoolShardStat>> {
        let body = wire::encode(&Request::PoolShardStat { pool: self.0.pool.info().id });
        let asked = self.units(oid).await?.into_iter().map(|unit| {
            let ask = LedAsk { unit, body: &body, may_take_long: false, since: 0 };
            async move {
                let answer = self.ask_leader(&Cell::new(TargetId(0)), ask).await?;
                wire::decode(&answer.body[1..])
            }
        });
        try_join_all(asked).await
    }

    /// All that changes of a unit go to while they are there, in the order in which they would lead.
    fn everyone(&self, unit: Unit) -> Result<Members> {
        if unit.is_cell() {
            let keepers = self.keepers(unit)?;
            let keeper = keepers.get(unit.cell as usize - 1);
            let none = || Error::inval(format!("object {} has no cell {}", unit.object, unit.cell));
            return keeper.map(|keeper| Members::from_slice(&[*keeper])).ok_or_else(none);
        }
        let layout = self.layout(unit.placed_as())?;
        let group = unit.group as usize;
        let none = || Error::inval(format!("object {} has no group {group}", unit.object));
        (group < layout.group_count()).then(|| layout.everyone(group)).ok_or_else(none)
    }

    /// The target that keeps an object's open handles and locks now.
    pub(crate) fn home(&self, oid: Oid) -> Result<TargetId> {
        self.target_of(oid.first_unit())
    }

    /// The target that answers for a unit now, and if wanted all that changes of its group go to.
    pub(crate) fn group_of(&self, unit: Unit, with_members: bool) -> Result<(TargetId, Members)> {
        let leader = self.target_of(unit)?;
        let is_of_one = unit.is_cell() || placement::is_alone(unit.object, &self.0.pool.map());
        if !with_members || is_of_one {
            return Ok((leader, Members::new()));
        }
        let layout = self.layout(unit.placed_as())?;
        Ok((leader, layout.everyone(unit.group as usize)))
    }

    /// Who keeps the cells of a unit of an object with an erasure code, cell 0 first.
    pub(crate) fn keepers(&self, unit: Unit) -> Result<SmallVec<[TargetId; 6]>> {
        let layout = self.cached_layout(unit.object, true)?;
        let group = unit.group as usize;
        if group >= layout.group_count() {
            return Err(Error::inval(format!("object {} has no group {group}", unit.object)));
        }
        Ok(SmallVec::from_slice(layout.members(group)))
    }

    /// Who comes to keep cells of a unit, and which: they get those, too, that are kept meanwhile.
    pub(crate) fn joining_keepers(&self, unit: Unit) -> Result<SmallVec<[(usize, TargetId); 2]>> {
        let (layout, map) = (self.cached_layout(unit.object, true)?, self.0.pool.map());
        let joiners = layout.places_to_join(unit.group as usize);
        Ok(joiners.filter(|(_, joiner)| placement::is_live(*joiner, &map)).collect())
    }

    /// Who keeps a cell, if that is whole.
    fn keeper_of(&self, unit: Unit) -> Result<TargetId> {
        let keepers = self.keepers(unit)?;
        let keeper = keepers.get(unit.cell as usize - 1).copied();
        keeper.filter(|keeper| placement::is_live(*keeper, &self.0.pool.map())).ok_or_else(|| {
            Error::new(Code::Unreach, format!("who keeps cell {} is away", unit.cell))
        })
    }

    /// The target that answers for a unit now.
    pub(crate) fn target_of(&self, unit: Unit) -> Result<TargetId> {
        if unit.is_cell() {
            return self.keeper_of(unit);
        }
        let layout = self.layout(unit.placed_as())?;
        let group = unit.group as usize;
        let known = group < layout.group_count();
        known.then(|| layout.leader(group, &self.0.pool.map())).flatten().ok_or_else(|| {
            let Unit { object, group, .. } = unit;
            Error::new(
                Code::Unreach,
                format!("object {object}: the target of its group {group} is down; query the pool"),
            )
        })
    }

    /// A handle on an object; costs nothing.
    pub fn object(&self, oid: Oid) -> Object {
        Object::new(self.clone(), oid)
    }

    /// Ops that take effect together.
    pub fn batch<'a>(&self) -> Batch<'a> {
        Batch::new(self)
    }

    /// Closes an open handle on an object that `Op::Open` or `Op::FetchLink` registered. The
    /// target is told with the next request.
    pub fn release(&self, oid: Oid) {
        if self.0.at != Epoch::ZERO {
            return;
        }
        let unit = oid.first_unit();
        if let Ok(target) = self.target_of(unit) {
            self.client().target(target).release((self.0.pool.info().id, self.id(), unit));
        }
    }

    pub(crate) fn note_open(&self, target: TargetId, unit: Unit) {
        // A snapshot needs no handles: what it shows does not go away.
        if self.0.at != Epoch::ZERO {
            return;
        }
        let link = self.client().target(target);
        link.note_open((self.0.pool.info().id, self.id(), unit));
        link.keep_connected(self.client(), self.pool());
    }

    /// Targets that together hold all objects: all of the pool, but of those that are not whole without such as have given all they held to others, and without any
    /// while each object has a whole copy elsewhere.
    pub fn listers(&self) -> Vec<TargetId> {
        let map = self.0.pool.map();
        let copies = 1 + usize::from(self.0.info.props.rd_fac);
        let is_covered = copies > 1 && placement::losses(copies, &map, |_| true).copies_left > 0;
        let all = map.targets.iter().map(|target| target.id);
        let holds_nothing = |target| is_covered || placement::has_given_all(target, &map);
        all.filter(|&target| placement::is_live(target, &map) || !holds_nothing(target)).collect()
    }

    /// Units that `target` holds, in [`Unit::list_order`] from after `after`.
    #[boxed(?Send)]
    pub async fn list_objects(
        &self,
        target: TargetId,
        after: Option<Unit>,
        count_max: u32,
    ) -> Result<ObjectList> {
        let (pool, cont) = (self.0.pool.0.state.id, self.id());
        let at = self.0.at;
        self.ask_list(target, Request::ListObjects { pool, cont, at, after, count_max }).await
    }

    /// Objects of the container, whatever targets they are on, in [`Oid::list_order`] from after
    /// `after`: some `count_max` of them, each once. Asks all [`Container::listers`] at once.
    #[boxed(?Send)]
    pub async fn list_all_objects(&self, after: Option<Oid>, count_max: u32) -> Result<Objects> {
        let from = after.map(Unit::last_of);
        let listers = self.listers();
        let asked = listers.iter().map(|&target| self.list_objects(target, from, count_max));
        let shards = try_join_all(asked).await?;
        // What is beyond the last one of a cut list may be missing in the others' order.
        let known_to = shards
            .iter()
            .filter(|shard| !shard.complete)
            .map(|shard| shard.units.last().map(|unit| unit.object))
            .map(|last| last.or(after).unwrap_or_default().list_order())
            .min();
        let complete = known_to.is_none();
        let mut oids: Vec<Oid> =
            shards.iter().flat_map(|shard| &shard.units).map(|unit| unit.object).collect();
        oids.retain(|oid| known_to.is_none_or(|last| oid.list_order() <= last));
        oids.sort_unstable_by_key(|oid| oid.list_order());
        oids.dedup();
        Ok(Objects { oids, complete })
    }

    /// One page of the objects whose home is `target` and that live only until their last open handle goes: some
    /// `count_max` of them, from after `after`.
    #[boxed(?Send)]
    pub async fn list_orphans(
        &self,
        target: TargetId,
        after: Option<Unit>,
        count_max: u32,
    ) -> Result<ObjectList> {
        let (pool, cont) = (self.0.pool.0.state.id, self.id());
        self.ask_list(target, Request::ListOrphans { pool, cont, after, count_max }).await
    }

    /// Asks a target for a list. What ceases to be one of [`Container::listers`] while it is asked has nothing to tell: others list what
    /// it held.
    async fn ask_list(&self, target: TargetId, request: Request<'_>) -> Result<ObjectList> {
        let (client, pool) = (self.client(), &self.0.pool.0.state);
        let body = wire::encode(&request);
        let mut attempt = Attempt::new(client);
        attempt.may_go_elsewhere();
        loop {
            attempt.route(pool.map_version());
            let is_live = placement::is_live(target, &self.0.pool.map());
            if !is_live && !self.listers().contains(&target) {
                return Ok(ObjectList { units: Vec::new(), complete: true });
            }
            let ask = Ask { body: &body, bulk_out: &[], bulk_in: &mut [] };
            let link = client.target(target);
            match link.ask_as(client, pool, ask, &mut attempt).await {
                Ok(answer) => return wire::decode(&answer.body[1..]),
                // There is another map.
                Err(error) if error.code == Code::Stale && !attempt.is_over(client) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// By UUID: a name that survives a change of label.
    pub fn name(&self) -> Name {
        Name::Uuid(self.0.info.uuid)
    }

    /// Gives the handle back and waits for the answer.
    #[boxed(?Send)]
    pub async fn close(self) -> Result<()> {
        self.client().flush();
        let Some(handle) = self.0.handle.release() else { return Ok(()) };
        let request = ControlRequest::ContClose { handle };
        self.client().control(&request).await.map(|_| ())
    }
}

/// Only what is listed by the hashes of its dkeys can spread.
fn check_kind(kind: ObjType, class: ObjClass) -> Result<()> {
    if class.small_keys_max().is_some() && kind.dkey_kind() != DkeyKind::Hashed {
        return Err(Error::inval(format!("class {class} is one of directories, not of files")));
    }
    Ok(())
}
