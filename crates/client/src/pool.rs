//! An open pool: its map, its space, its containers.

use crate::client::{Client, unexpected};
use crate::cont::{Container, Members};
use crate::held::HeldHandle;
use crate::target::Ask;
use async_recursion::async_recursion as boxed;
use futures_util::future::{Either, join, select, try_join_all};
use placement::HintTable;
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;
use transport::Ending;
use types::map::HashMap;
use types::{Code, ContProps, Error, ObjClass, PoolId, Result, TargetId};
use uuid::Uuid;
use wire::admission::AdmissionStat;
use wire::cache::CacheStat;
use wire::control::{
    ContAsk, ContInfo, ControlReply, ControlRequest, Evict, Name, OpenMode, PoolInfo, Subject,
};
use wire::map::{DownReason, PoolMap, TargetState};
use wire::obj::{PoolShardStat, Request};
use wire::scrub::ScrubStat;
use wire::stale::NewerMap;
use wire::store::{PageWait, StoreStat};

/// How long a batch waits for a newer map when a target does not hold what it held.
const REFRESH_WAIT_MAX: Duration = Duration::from_secs(2);

/// How often who waits for a target's answer looks whether it is down.
const DOWN_PAUSE: Duration = Duration::from_secs(1);

/// How long the control service may take to tell of a newer map before a target is asked for one.
const TOLD_PAUSE: Duration = Duration::from_millis(500);
/// How long that target may take.
const ASK_TIME_MAX: Duration = Duration::from_secs(2);
/// How long the catalog is asked for a newer map, when an engine cannot be reached.
const REFRESH_TIME_MAX: Duration = Duration::from_secs(10);

/// The map of a pool, renewed when a target says it is stale.
pub(crate) struct PoolState {
    pub id: PoolId,
    map: RefCell<Rc<PoolMap>>,
    version: Cell<u32>,
    hints: RefCell<Option<Rc<HintTable>>>,
    /// Hints for groups of several members, by those and their number.
    hints_beside: RefCell<HashMap<Members, Option<u32>>>,
    /// Where there is room, and when that was asked for.
    rooms: RefCell<Vec<TargetRoom>>,
    rooms_asked: Cell<Option<Duration>>,
    /// Targets that were to tell something and did not under a map of this version, and until when they are not asked again.
    untold: RefCell<HashMap<TargetId, (u32, Duration)>>,
    this: Weak<PoolState>,
    /// The control service knows of no such pool any more.
    is_gone: Cell<bool>,
    is_refreshing: Cell<bool>,
    /// How often a target was asked for its map in the place of the control service.
    looks: Cell<usize>,
}

impl PoolState {
    /// What is known of the room of targets is not so any more.
    pub fn forget_rooms(&self) {
        self.rooms_asked.set(None);
    }

    /// The state without keeping it from ending.
    pub fn downgrade(&self) -> Weak<PoolState> {
        self.this.clone()
    }

    pub fn map(&self) -> Rc<PoolMap> {
        self.map.borrow().clone()
    }

    pub fn map_version(&self) -> u32 {
        self.version.get()
    }

    /// `NonExist` once it is known that the pool is destroyed.
    pub fn require_there(&self) -> Result<()> {
        match self.is_gone.get() {
            true => Err(Error::new(Code::NonExist, format!("pool {} is destroyed", self.id))),
            false => Ok(()),
        }
    }

    /// Gets the newest map.
    #[boxed(?Send)]
    pub async fn refresh(&self, client: &Client) -> Result<()> {
        let map = client.pool_map(self.id).await;
        if map.as_ref().is_err_and(|error| error.code == Code::NonExist) {
            self.is_gone.set(true);
        }
        self.take(client, map?);
        Ok(())
    }

    /// Takes a map if it is newer.
    pub fn take(&self, client: &Client, fresh: PoolMap) {
        if fresh.version > self.version.get() {
            self.version.set(fresh.version);
            let before = self.map.replace(Rc::new(fresh));
            let map = self.map();
            for target in map.targets.iter().filter(|target| {
                target.reason == Some(DownReason::Silent) && placement::follows(target.id, &before)
            }) {
                client.hang_up(target.id);
            }
            self.hints.replace(None);
            self.hints_beside.take();
            client.follow_leaders(self);
        }
    }

    /// Takes the map that a target has sent with a refusal, if it is newer.
    pub fn take_newer(&self, client: &Client, newer: NewerMap) {
        if let Some(map) = newer.from_known(&self.map()) {
            self.take(client, map);
        }
    }

    /// Gets the newest map in the background: who only needs it to find an engine that has moved does not
    /// wait for the catalog. A target is asked beside, in turn, unless the control service tells of a newer one at once: the engine
    /// that is asked for that may not reach it.
    pub fn refresh_soon(&self, client: &Client) {
        if self.is_refreshing.replace(true) {
            return;
        }
        let (state, client) = (self.this.clone(), client.clone());
        client.env().clone().spawn(async move {
            let Some(state) = state.upgrade() else { return };
            let env = client.env();
            let told = async {
                match env.timeout(REFRESH_TIME_MAX, state.refresh(&client)).await {
                    Some(Err(error)) => tracing::debug!("refreshing the pool map: {error}"),
                    None => tracing::debug!("refreshing the pool map: no answer"),
                    Some(Ok(())) => {}
                }
            };
            let known = state.map_version();
            let mut told = pin!(told);
            let is_told = env.timeout(TOLD_PAUSE, &mut told).await.is_some();
            if state.map_version() == known && !state.is_gone.get() {
                let asked = env.timeout(ASK_TIME_MAX, state.ask_a_target(&client));
                match is_told {
                    true => drop(asked.await),
                    false => drop(join(asked, told).await),
                }
            }
            state.is_refreshing.set(false);
        });
    }

    /// Gets the map of a target that is up, of another one each time.
    async fn ask_a_target(&self, client: &Client) {
        let map = self.map();
        let up: Vec<TargetId> = map
            .targets
            .iter()
            .filter(|target| target.state == TargetState::Up)
            .map(|target| target.id)
            .collect();
        let look = self.looks.get();
        self.looks.set(look.wrapping_add(1));
        if let Some(target) = up.get(look % up.len().max(1)) {
            client.target(*target).look_for_map(client, self).await;
        }
    }

    /// Gets the newest map, if that does not take long.
    pub async fn refresh_briefly(&self, client: &Client) {
        // Rare and large.
        match client.env().timeout(REFRESH_WAIT_MAX, Box::pin(self.refresh(client))).await {
            Some(Err(error)) => tracing::debug!("refreshing the pool map: {error}"),
            None => tracing::debug!("refreshing the pool map: no answer"),
            Some(Ok(())) => {}
        }
    }

    /// A placement hint for objects of `class` whose first group is on these members; the same until the map changes:
    /// what shares a hint moves together.
    pub fn hint_beside(&self, members: &Members, class: ObjClass) -> Option<u32> {
        if class.scheme.copies() != members.len() {
            return None;
        }
        if let Some(known) = self.hints_beside.borrow().get(members) {
            return *known;
        }
        let first = types::hash::mix(
            members.iter().fold(0, |all, member| types::hash::mix2(all, member.0.into())),
        ) as u32;
        let hint = placement::hint_beside(members, class, &self.map(), first);
        self.hints_beside.borrow_mut().insert(members.clone(), hint);
        hint
    }

    pub fn hints(&self) -> Rc<HintTable> {
        let mut hints = self.hints.borrow_mut();
        hints.get_or_insert_with(|| Rc::new(HintTable::new(&self.map.borrow()))).clone()
    }
}

/// How a container is opened, beside the mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContOpenOptions {
    /// Whose handles on the container are closed first. Who goes on with such a handle is not
    /// stopped.
    pub evict: Evict,
    /// A handle for reading is left out of the container's times.
    pub leaves_times: bool,
}

/// An open pool. The handle goes back when the last clone (and container of it) is dropped.
#[derive(Clone)]
pub struct Pool(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub client: Client,
    pub state: Rc<PoolState>,
    info: PoolInfo,
    handle: HeldHandle,
}

/// Space of one target in a pool.
#[derive(Clone, Debug)]
pub struct TargetSpace {
    pub target: TargetId,
    /// Its state in the pool.
    pub state: TargetState,
    /// New objects land on it: it is not drained, nor being drained, nor excluded.
    pub takes_objects: bool,
    /// Space and counts; `None` when it gave no answer.
    pub stat: Option<PoolShardStat>,
}

/// What is known of the room of a target.
struct TargetRoom {
    target: TargetId,
    is_short: bool,
    /// See [`PoolShardStat::free_share`].
    share: u64,
}

/// What is known of the room of targets is asked for again after this long.
const ROOM_AGE_MAX: Duration = Duration::from_secs(2);
/// How long who makes a file waits to learn where there is room.
const ROOM_TIME_MAX: Duration = Duration::from_secs(1);

/// How long a target may take to tell something of itself, and one that is excluded.
const TELL_TIME_MAX: Duration = Duration::from_secs(10);
const EXCLUDED_TIME_MAX: Duration = Duration::from_secs(2);
/// One that has not told is not asked for anything else for so long: who looks at a pool asks several things, one after the other.
const UNTOLD_TIME: Duration = Duration::from_secs(5);

/// Space of a pool.
#[derive(Clone, Debug, Default)]
pub struct SpaceInfo {
    /// Sum over the targets that answered.
    pub total: PoolShardStat,
    pub targets: Vec<TargetSpace>,
}

impl SpaceInfo {
    /// What data of new files may take on all targets together, bytes. A file that is not striped has no
    /// more than its target has.
    pub fn available_bytes(&self) -> u64 {
        self.stats_for_new_files().map(|stat| stat.available_bytes()).sum()
    }

    /// The same of files with copies; each copy takes its part of it.
    pub fn available_with_copies(&self) -> u64 {
        self.stats_for_new_files().map(|stat| stat.available_with_copies()).sum()
    }

    /// What is free on others is of no use to them.
    fn stats_for_new_files(&self) -> impl Iterator<Item = PoolShardStat> {
        self.targets.iter().filter(|target| target.takes_objects).filter_map(|target| target.stat)
    }
}

impl Pool {
    /// A pool with a handle that was given on a connection.
    pub(crate) fn opened(
        client: &Client,
        (handle, on): (u64, Ending),
        info: PoolInfo,
        mode: OpenMode,
    ) -> Pool {
        let again = ControlRequest::PoolOpen { pool: Name::Uuid(info.uuid), mode };
        Pool::new(client.clone(), HeldHandle::new(client, handle, on, again), info)
    }

    fn new(client: Client, handle: HeldHandle, info: PoolInfo) -> Pool {
        let state = Rc::new_cyclic(|this| PoolState {
            this: this.clone(),
            is_gone: Cell::new(false),
            is_refreshing: Cell::new(false),
            looks: Cell::new(0),
            id: info.id,
            version: Cell::new(info.map.version),
            map: RefCell::new(Rc::new(info.map.clone())),
            hints: RefCell::new(None),
            hints_beside: RefCell::default(),
            rooms: RefCell::default(),
            rooms_asked: Cell::new(None),
            untold: RefCell::default(),
        });
        client.note_pool(&state);
        Pool(Rc::new(Inner { client, state, info, handle }))
    }

    /// A pool that this or another process has opened: asks nobody, and closing it gives no
    /// handle back.
    pub fn attach(client: &Client, info: PoolInfo) -> Pool {
        Pool::new(client.clone(), HeldHandle::default(), info)
    }

    /// What the catalog said when the pool was opened.
    pub fn info(&self) -> &PoolInfo {
        &self.0.info
    }

    /// The client it was opened with.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The newest pool map received.
    pub fn map(&self) -> Rc<PoolMap> {
        self.0.state.map()
    }

    /// By UUID: names that survive a change of label.
    pub fn name(&self) -> Name {
        Name::Uuid(self.0.info.uuid)
    }

    /// Opens a pool and a container of it, for a client that needs no more: both are asked for at once, so that it takes one round trip
    /// to one engine.
    ///
    /// Errors name which of the two could not be opened.
    pub(crate) async fn open_both(
        client: &Client,
        (pool, pool_mode): (&Name, OpenMode),
        (cont, mode): (&Name, OpenMode),
    ) -> Result<Container> {
        let options = ContOpenOptions::default();
        let ContOpenOptions { evict, leaves_times } = options;
        let ask = ContAsk { mode, evict, user: env::user_id(), leaves_times };
        let request = ControlRequest::ContOpen { pool: pool.clone(), cont: cont.clone(), ask };
        let (opened, answer) =
            join(client.pool_open(pool, pool_mode), client.control_by(&request)).await;
        let named = |error: types::Error| error.context(format!("container '{pool}/{cont}'"));
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                if let Ok((ControlReply::ContOpened { handle, .. }, _)) = answer {
                    // It ends with the connection in any case.
                    let _ = client.control(&ControlRequest::ContClose { handle }).await;
                }
                return Err(error.context(format!("pool '{pool}'")));
            }
        };
        match answer.map_err(named)? {
            (ControlReply::ContOpened { handle, pool: of, cont: info }, on)
                if of == opened.0.state.id =>
            {
                Ok(Container::opened(opened, (handle, on), info, ask))
            }
            // The name went from one pool to another in between.
            (ControlReply::ContOpened { handle, .. }, _) => {
                let _ = client.control(&ControlRequest::ContClose { handle }).await;
                opened.cont_open_with(cont, mode, options).await.map_err(named)
            }
            _ => Err(unexpected()),
        }
    }

    /// Asks every target for its space. Targets that do not answer count as absent.
    #[boxed(?Send)]
    pub async fn query(&self) -> Result<SpaceInfo> {
        let map = self.map();
        let stats = self.ask_all(&Request::PoolShardStat { pool: self.0.state.id }).await?;
        let state =
            |target: TargetId| map.target(target).map_or(TargetState::DownOut, |of| of.state);
        let hints = self.0.state.hints();
        let space = |(target, stat)| TargetSpace {
            target,
            state: state(target),
            takes_objects: hints.takes(target),
            stat,
        };
        let targets: Vec<TargetSpace> = stats.into_iter().map(space).collect();
        let mut total = PoolShardStat::default();
        for stat in targets.iter().filter_map(|target| target.stat) {
            total.scm_bytes += stat.scm_bytes;
            total.scm_free_bytes += stat.scm_free_bytes;
            total.nvme_bytes += stat.nvme_bytes;
            total.nvme_free_bytes += stat.nvme_free_bytes;
            total.object_count += stat.object_count;
            total.dkey_count += stat.dkey_count;
        }
        Ok(SpaceInfo { total, targets })
    }

    /// The target for a new object that would be on `preferred`: another one when that is nearly full
    /// and the other has more room.
    pub(crate) async fn roomy_target(&self, preferred: TargetId) -> TargetId {
        let (client, state) = (&self.0.client, &self.0.state);
        if !client.target(preferred).is_short() {
            return preferred;
        }
        let now = client.env().now();
        if state.rooms_asked.get().is_none_or(|asked| asked + ROOM_AGE_MAX <= now) {
            // Others go on with what was known meanwhile.
            state.rooms_asked.set(Some(now));
            if let Some(Ok(space)) =
                client.env().timeout(ROOM_TIME_MAX, Box::pin(self.query())).await
            {
                let takes = |target: &&TargetSpace| target.takes_objects;
                let rooms = space.targets.iter().filter(takes).filter_map(|target| {
                    let (stat, target) = (target.stat?, target.target);
                    let (is_short, share) = (stat.is_short(), stat.free_share());
                    Some(TargetRoom { target, is_short, share })
                });
                state.rooms.replace(rooms.collect());
            }
        }
        let rooms = state.rooms.borrow();
        // The target may have said it of another pool.
        if !rooms.iter().any(|room| room.target == preferred && room.is_short) {
            return preferred;
        }
        // By chance, and more often where there is more: what is known is of a while ago.
        let is_roomy = |room: &&TargetRoom| !client.target(room.target).is_short();
        let roomy: Vec<&TargetRoom> = rooms.iter().filter(is_roomy).collect();
        let some = if roomy.is_empty() { rooms.iter().collect() } else { roomy };
        let total: u128 = some.iter().map(|room| room.share as u128).sum();
        let mut at = (client.env().random_u64() as u128 * total) >> 64;
        for room in some {
            if at < room.share as u128 {
                return room.target;
            }
            at -= room.share as u128;
        }
        preferred
    }

    /// Asks every target for its devices, its log and its aggregation; `None` for one that gives
    /// no answer.
    #[boxed(?Send)]
    pub async fn store_stats(&self) -> Result<Vec<(TargetId, Option<StoreStat>)>> {
        self.ask_all(&Request::StoreStat { pool: self.0.state.id }).await
    }

    /// Asks every target whose damaged pages it waits for; `None` for one that gives no answer, or is of a version that cannot tell.
    #[boxed(?Send)]
    pub async fn page_waits(&self) -> Result<Vec<(TargetId, Option<Option<PageWait>>)>> {
        self.ask_all(&Request::PageWait { pool: self.0.state.id }).await
    }

    /// Asks one target for its space.
    #[boxed(?Send)]
    pub async fn query_one(&self, target: TargetId) -> Result<PoolShardStat> {
        let request = wire::encode(&Request::PoolShardStat { pool: self.0.state.id });
        let ask = Ask { body: &request, bulk_out: &[], bulk_in: &mut [] };
        let client = &self.0.client;
        let answer = client.target(target).ask(client, &self.0.state, ask).await?;
        wire::decode(&answer.body[1..])
    }

    /// Asks every target how bulk transfers of the pool are admitted there; `None` for one that
    /// gives no answer.
    #[boxed(?Send)]
    pub async fn admission(&self) -> Result<Vec<(TargetId, Option<AdmissionStat>)>> {
        self.ask_all(&Request::AdmissionStat { pool: self.0.state.id }).await
    }

    /// Asks every target what of its data is in its engine's memory; `None` for one that gives no answer.
    #[boxed(?Send)]
    pub async fn cache_stats(&self) -> Result<Vec<(TargetId, Option<CacheStat>)>> {
        self.ask_all(&Request::CacheStat { pool: self.0.state.id }).await
    }

    /// Asks every target how its data are checked and what is known to be damaged; `None` for one that
    /// gives no answer.
    #[boxed(?Send)]
    pub async fn scrub_stat(&self) -> Result<Vec<(TargetId, Option<ScrubStat>)>> {
        self.ask_all(&Request::ScrubStat { pool: self.0.state.id }).await
    }

    /// Has every target check all its data now, as fast as it goes. Returns the number of the pass,
    /// which is over when [`ScrubStat::passes`] has reached it; `None` for a target that gives no
    /// answer.
    #[boxed(?Send)]
    pub async fn scrub(&self) -> Result<Vec<(TargetId, Option<u64>)>> {
        self.ask_all(&Request::Scrub { pool: self.0.state.id }).await
    }

    /// Asks every target; `None` for one that gives no answer, and at once for one that is known to give none. Who was away may be
    /// back: nobody else tells, as long as nothing else is asked of the pool.
    async fn ask_all<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
    ) -> Result<Vec<(TargetId, Option<T>)>> {
        if self.map().targets.iter().any(|target| target.reason.is_some()) {
            self.0.state.refresh_briefly(&self.0.client).await;
        }
        let map = self.map();
        let map_version = map.version;
        let request = wire::encode(request);
        let asked = map.targets.iter().map(|target| {
            let request = &request;
            async move {
                let client = &self.0.client;
                let link = client.target(target.id);
                let ask = Ask { body: request, bulk_out: &[], bulk_in: &mut [] };
                let asked = link.ask(client, &self.0.state, ask);
                let untold = &self.0.state.untold;
                let is_untold = untold.borrow().get(&target.id).copied();
                let is_untold = is_untold
                    .is_some_and(|(at, until)| at == map_version && client.env().now() < until);
                let answer = match target.reason {
                    Some(DownReason::Silent | DownReason::Stopped) => None,
                    _ if is_untold => None,
                    // Many of them run no more.
                    Some(DownReason::Excluded) => {
                        client.env().timeout(EXCLUDED_TIME_MAX, asked).await
                    }
                    Some(DownReason::Behind | DownReason::Lost) | None => {
                        let given_up = pin!(self.until_down(target.id));
                        let asked = client.env().timeout(TELL_TIME_MAX, asked);
                        match select(pin!(asked), given_up).await {
                            Either::Left((answer, _)) => answer,
                            Either::Right(_) => None,
                        }
                    }
                };
                if !is_untold {
                    match &answer {
                        Some(Ok(_)) => untold.borrow_mut().remove(&target.id),
                        // That did not take long.
                        Some(Err(_)) => None,
                        None => {
                            let until = client.env().now() + UNTOLD_TIME;
                            untold.borrow_mut().insert(target.id, (map_version, until))
                        }
                    };
                }
                let answer = match answer {
                    Some(Ok(answer)) => Some(wire::decode::<T>(&answer.body[1..])?),
                    Some(Err(error)) => {
                        // Who asked says of which targets nothing is known.
                        tracing::debug!("target {}: {error}", target.id);
                        None
                    }
                    None => None,
                };
                Ok::<_, types::Error>((target.id, answer))
            }
        });
        try_join_all(asked).await
    }

    /// Ends when the map says that a target gives no answer.
    async fn until_down(&self, target: TargetId) {
        let is_down = || {
            let map = self.map();
            let reason = map.target(target).and_then(|target| target.reason);
            matches!(reason, Some(DownReason::Silent | DownReason::Stopped))
        };
        while !is_down() {
            self.0.client.env().sleep(DOWN_PAUSE).await;
            self.0.state.refresh_soon(&self.0.client);
        }
    }

    /// The properties that can be changed, by name.
    #[boxed(?Send)]
    pub async fn props(&self) -> Result<BTreeMap<String, String>> {
        let request = ControlRequest::GetProps { subject: Subject::Pool(self.name()) };
        match self.0.client.control(&request).await? {
            ControlReply::Props(props) => Ok(props),
            _ => Err(unexpected()),
        }
    }

    /// Changes properties by name, all or none: `label`, `ioc_max_writers`, …
    #[boxed(?Send)]
    pub async fn set_props(&self, props: BTreeMap<String, String>) -> Result<()> {
        let request = ControlRequest::SetProps { subject: Subject::Pool(self.name()), props };
        self.0.client.control(&request).await.map(|_| ())
    }

    /// Makes a container. An empty label is none; a nil UUID lets the system choose.
    #[boxed(?Send)]
    pub async fn cont_create(
        &self,
        label: &str,
        uuid: Uuid,
        props: ContProps,
        attrs: BTreeMap<String, Vec<u8>>,
    ) -> Result<ContInfo> {
        let request = ControlRequest::ContCreate {
            pool: self.name(),
            label: label.to_string(),
            uuid,
            props,
            attrs,
        };
        match self.0.client.control(&request).await? {
            ControlReply::Cont(info) => Ok(info),
            _ => Err(unexpected()),
        }
    }

    /// Opens a container.
    #[boxed(?Send)]
    pub async fn cont_open(&self, cont: &Name, mode: OpenMode) -> Result<Container> {
        self.cont_open_with(cont, mode, ContOpenOptions::default()).await
    }

    /// The same, with options.
    #[boxed(?Send)]
    pub async fn cont_open_with(
        &self,
        cont: &Name,
        mode: OpenMode,
        options: ContOpenOptions,
    ) -> Result<Container> {
        let ContOpenOptions { evict, leaves_times } = options;
        let ask = ContAsk { mode, evict, user: env::user_id(), leaves_times };
        let request = ControlRequest::ContOpen { pool: self.name(), cont: cont.clone(), ask };
        match self.0.client.control_by(&request).await? {
            (ControlReply::ContOpened { handle, cont, .. }, on) => {
                Ok(Container::opened(self.clone(), (handle, on), cont, ask))
            }
            _ => Err(unexpected()),
        }
    }

    #[boxed(?Send)]
    pub async fn cont_list(&self) -> Result<Vec<ContInfo>> {
        match self.0.client.control(&ControlRequest::ContList(self.name())).await? {
            ControlReply::Conts(conts) => Ok(conts),
            _ => Err(unexpected()),
        }
    }

    #[boxed(?Send)]
    pub async fn cont_query(&self, cont: &Name) -> Result<ContInfo> {
        let request = ControlRequest::ContQuery(self.name(), cont.clone());
        match self.0.client.control(&request).await? {
            ControlReply::Cont(info) => Ok(info),
            _ => Err(unexpected()),
        }
    }

    /// Removes a container; with `force` even one in use.
    #[boxed(?Send)]
    pub async fn cont_destroy(&self, cont: Name, force: bool) -> Result<()> {
        let request = ControlRequest::ContDestroy { pool: self.name(), cont, force };
        self.0.client.control(&request).await.map(|_| ())
    }

    /// Gives the handle back and waits for the answer.
    #[boxed(?Send)]
    pub async fn close(self) -> Result<()> {
        let Some(handle) = self.0.handle.release() else { return Ok(()) };
        let request = ControlRequest::PoolClose { handle };
        self.0.client.control(&request).await.map(|_| ())
    }
}
