//! The parts of pools that a target has: what its dispatcher looks up before a pool's part is asked.
//!
//! Invariants: a pool that is not served and not refused is unknown; what is unknown once the target was introduced does not exist. Each
//! change wakes who waits for an introduction.

use crate::opens::{Handle, Handles};
use crate::target_pool::TargetPool;
use env::{Env, Signal};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::map::HashMap;
use types::{ClientId, Code, ContId, Error, PoolId, Result, TargetId};

/// After its start a target has those who ask for a pool or container that it does not know wait so long for the
/// control service to tell it of that; then they are to come again.
const INTRODUCTION_TIME_MAX: Duration = Duration::from_secs(10);

/// A part that is not the one that is meant.
struct Replaced {
    incarnation: u64,
    /// What clients have open in it: it may have been an older word that meant another one.
    handles: Rc<Handles>,
}

/// The parts of a target by pool.
pub(crate) struct Pools {
    env: Env,
    target: TargetId,
    /// Who waits for an introduction waits until then.
    until: Duration,
    served: RefCell<HashMap<PoolId, Rc<TargetPool>>>,
    /// Pools whose part here cannot be served, and why.
    refused: RefCell<HashMap<PoolId, Error>>,
    /// They are refused, too.
    replaced: RefCell<HashMap<PoolId, Replaced>>,
    /// The target has been told of all it holds.
    is_introduced: Cell<bool>,
    /// An order, or another target, has told something: of a part, of a map, of a container.
    told: Signal,
}

impl Pools {
    /// What a target that starts finds on its devices.
    pub fn found(
        env: &Env,
        target: TargetId,
        served: HashMap<PoolId, Rc<TargetPool>>,
        refused: HashMap<PoolId, Error>,
    ) -> Pools {
        Pools {
            until: env.now() + INTRODUCTION_TIME_MAX,
            env: env.clone(),
            target,
            served: RefCell::new(served),
            refused: RefCell::new(refused),
            replaced: RefCell::default(),
            is_introduced: Cell::new(false),
            told: Signal::default(),
        }
    }

    pub fn served(&self, pool: PoolId) -> Option<Rc<TargetPool>> {
        self.served.borrow().get(&pool).cloned()
    }

    /// In a fixed order, so that simulated runs repeat.
    pub fn all(&self) -> Vec<(PoolId, Rc<TargetPool>)> {
        let served = self.served.borrow();
        let mut all: Vec<_> = served.iter().map(|(pool, ctx)| (*pool, ctx.clone())).collect();
        all.sort_unstable_by_key(|(pool, _)| *pool);
        all
    }

    /// True when it is so of any part.
    pub fn any(&self, is_so: impl Fn(&TargetPool) -> bool) -> bool {
        self.served.borrow().values().any(|ctx| is_so(ctx))
    }

    /// True while this part is the one that is served of its pool.
    pub fn serves(&self, ctx: &Rc<TargetPool>) -> bool {
        let served = self.served.borrow();
        served.get(&ctx.shard.pool()).is_some_and(|served| Rc::ptr_eq(served, ctx))
    }

    /// A client closes an object. The pool's part, if nobody holds the object open any more and the part is served.
    pub fn close(&self, client: ClientId, pool: PoolId, handle: Handle) -> Option<Rc<TargetPool>> {
        if let Some(replaced) = self.replaced.borrow().get(&pool) {
            replaced.handles.close(client, handle);
        }
        self.served(pool).filter(|ctx| ctx.handles.close(client, handle))
    }

    /// Gives a client up: closes all that it has open, and what it has left stays with that. What of parts that are served nobody holds open
    /// any more.
    pub fn give_up(&self, client: ClientId) -> Vec<(Rc<TargetPool>, Handle)> {
        for replaced in self.replaced.borrow().values() {
            replaced.handles.close_client(client);
        }
        let mut closed = Vec::new();
        for (_, ctx) in self.all() {
            ctx.left.forget_client(client);
            let handles = ctx.handles.close_client(client);
            closed.extend(handles.into_iter().map(|handle| (ctx.clone(), handle)));
        }
        closed
    }

    /// Why a pool is refused.
    pub fn refusal_of(&self, pool: PoolId) -> Option<Error> {
        self.refused.borrow().get(&pool).cloned()
    }

    /// Pools whose part here cannot be served.
    pub fn refused(&self) -> Vec<PoolId> {
        self.refused.borrow().keys().copied().collect()
    }

    /// Which making of a pool's part is here and was not meant, with what is open in it.
    pub fn replaced(&self, pool: PoolId) -> Option<(u64, Rc<Handles>)> {
        let replaced = self.replaced.borrow();
        replaced.get(&pool).map(|of| (of.incarnation, of.handles.clone()))
    }

    /// Which making of a pool's part is here, served or not.
    pub fn incarnation_of(&self, pool: PoolId) -> Option<u64> {
        let served = self.served(pool).map(|ctx| ctx.shard.incarnation());
        served.or_else(|| self.replaced(pool).map(|(incarnation, _)| incarnation))
    }

    /// A pool's part is served from now on.
    pub fn serve(&self, pool: PoolId, ctx: Rc<TargetPool>) {
        self.refused.borrow_mut().remove(&pool);
        self.replaced.borrow_mut().remove(&pool);
        self.served.borrow_mut().insert(pool, ctx);
        self.told.notify();
    }

    /// A pool's part is not the one that is meant: it is served no more. What was, until now.
    pub fn refuse(&self, pool: PoolId, error: Error) -> Option<Rc<TargetPool>> {
        self.refused.borrow_mut().insert(pool, error);
        let served = self.served.borrow_mut().remove(&pool);
        if let Some(ctx) = &served {
            let (incarnation, handles) = (ctx.shard.incarnation(), ctx.handles.clone());
            self.replaced.borrow_mut().insert(pool, Replaced { incarnation, handles });
        }
        self.told.notify();
        served
    }

    /// A pool's part is about to be destroyed. What was served.
    pub fn take(&self, pool: PoolId) -> Option<Rc<TargetPool>> {
        self.served.borrow_mut().remove(&pool)
    }

    /// It is destroyed.
    pub fn forget(&self, pool: PoolId) {
        self.refused.borrow_mut().remove(&pool);
        self.replaced.borrow_mut().remove(&pool);
    }

    /// The target has been told of all it holds.
    pub fn introduced(&self) {
        self.is_introduced.set(true);
        self.told.notify();
    }

    /// A part has got a map, or a container.
    pub fn note_told(&self) {
        self.told.notify();
    }

    /// The part of a pool; shortly after the start, waits to be told of it.
    ///
    /// Errors: why it is refused; those of an introduction: see `await_word`.
    pub async fn of(&self, pool: PoolId) -> Result<Rc<TargetPool>> {
        let known = || self.served(pool).map(Ok).or_else(|| self.refusal_of(pool).map(Err));
        let unknown = || format!("target {} holds no part of pool {pool}", self.target);
        self.await_word(known, unknown).await?
    }

    /// The part of a pool and its map; shortly after the start, waits to be told of them.
    pub async fn mapped(&self, pool: PoolId) -> Result<Rc<TargetPool>> {
        let ctx = self.of(pool).await?;
        let known = || ctx.known_map().map(drop);
        let unknown = || format!("target {} has no map of pool {pool}", self.target);
        // Its part is there, so the map comes: it was made anew.
        self.await_word(known, unknown).await.map_err(|error| match error.code {
            Code::NonExist => Error::bare(Code::Stale),
            _ => error,
        })?;
        Ok(ctx)
    }

    /// Makes sure that a part knows a container; shortly after the start, waits for it to be told.
    pub async fn known_cont(&self, ctx: &TargetPool, cont: ContId) -> Result<()> {
        let known = || ctx.shard.has_cont(cont).then_some(());
        let id = self.target;
        let unknown = || format!("target {id} knows no container {cont}; it may be destroyed");
        self.await_word(known, unknown).await
    }

    /// Waits for what an order may yet tell. `NonExist` once the target has been told all:
    /// what is not known then does not exist. `Closed` when it has not been for long.
    async fn await_word<T>(
        &self,
        known: impl Fn() -> Option<T>,
        unknown: impl Fn() -> String,
    ) -> Result<T> {
        if let Some(known) = known() {
            return Ok(known);
        }
        let limit = self.until.saturating_sub(self.env.now());
        let look = || match known() {
            None if self.is_introduced.get() => Some(None),
            known => known.map(Some),
        };
        // Boxed: nearly all that comes here knows what it asks for.
        match Box::pin(self.env.timeout(limit, self.told.until_some(look))).await {
            Some(Some(known)) => Ok(known),
            Some(None) => Err(Error::new(Code::NonExist, unknown())),
            None => {
                let text = format!("{}, as far as it has been told: try again", unknown());
                Err(Error::new(Code::Closed, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimWorld;
    use std::path::Path;
    use types::{Durability, Oid};
    use vos::Store;

    const POOL: PoolId = PoolId(1);

    fn handle(lo: u64) -> Handle {
        (ContId(1), Oid { hi: 1, lo }.first_unit())
    }

    /// An older word may mean another making of a pool's part, and the part is served again afterwards. What clients have open in it is
    /// open then, but for what they have closed meanwhile: they close nothing twice, and who has gone never comes again.
    #[test]
    fn what_is_open_outlives_a_wrong_word_and_is_closed_meanwhile() {
        let world = SimWorld::new(1);
        let env = world.node("a");
        world.block_on(async {
            let store = Store::open(&env, Path::new("/target")).await.unwrap();
            let (durability, scm_bytes, nvme_bytes) = (Durability::Wal, 16 << 20, 64 << 20);
            let config = vos::PoolShardConfig { durability, scm_bytes, nvme_bytes };
            let shard = store.create_shard(POOL, &config).await.unwrap();
            let pools = Pools::found(&env, TargetId(3), HashMap::default(), HashMap::default());
            let first = Rc::new(TargetPool::new(&env, shard));
            pools.serve(POOL, first.clone());
            let [stays, closes, goes] = [1, 2, 3].map(ClientId);
            first.handles.open(stays, handle(1));
            first.handles.open(closes, handle(2));
            first.handles.open(goes, handle(3));
            let refused = pools.refuse(POOL, Error::bare(Code::Unreach)).unwrap();
            assert!(Rc::ptr_eq(&refused, &first) && !pools.serves(&first));
            assert!(pools.close(closes, POOL, handle(2)).is_none());
            assert!(pools.give_up(goes).is_empty());
            refused.shard.close().await.unwrap();

            let (incarnation, handles) = pools.replaced(POOL).unwrap();
            let shard = store.open_shard(POOL).await.unwrap();
            assert_eq!(shard.incarnation(), incarnation);
            let again = Rc::new(TargetPool::opened_again(&env, shard).with_handles(&handles));
            pools.serve(POOL, again.clone());
            assert!(pools.serves(&again) && !pools.serves(&first));
            assert_eq!(
                [1, 2, 3].map(|lo| again.handles.is_open(&handle(lo))),
                [true, false, false]
            );
            assert!(pools.replaced(POOL).is_none());
            again.left.note(stays, 2, [handle(1)]);
            let closed = pools.give_up(stays);
            assert!(Rc::ptr_eq(&closed[0].0, &again) && closed[0].1 == handle(1));
            assert_eq!(again.left.take(2), vec![], "there is nothing to forget any more");
        });
        world.clear();
    }

    /// Who asked for a pool looked each 5 milliseconds whether an order had told of it. It hears of the order's end at once, of the end of
    /// the introduction, too, and gives up at last.
    #[test]
    fn who_asks_early_waits_for_the_introduction() {
        let world = SimWorld::new(1);
        let env = world.node("a");
        let pools =
            || Rc::new(Pools::found(&env, TargetId(3), HashMap::default(), HashMap::default()));
        world.block_on(async {
            let told = pools();
            // What has been told when who asks gets its answer.
            let words: Rc<Cell<u32>> = Rc::default();
            let ask = async |pools: &Rc<Pools>, pool| {
                let code = pools.of(PoolId(pool)).await.map_err(|error| error.code).err();
                (code, words.get())
            };
            let (own, later, spoken) = (told.clone(), env.clone(), words.clone());
            env.spawn(async move {
                later.sleep(Duration::from_millis(3)).await;
                spoken.set(1);
                own.refuse(PoolId(1), Error::bare(Code::Csum));
                later.sleep(Duration::from_millis(4)).await;
                spoken.set(2);
                own.introduced();
            });
            assert_eq!(ask(&told, 1).await, (Some(Code::Csum), 1));
            assert_eq!(ask(&told, 2).await, (Some(Code::NonExist), 2));
            assert_eq!(ask(&told, 2).await, (Some(Code::NonExist), 2));
            assert_eq!(ask(&pools(), 1).await, (Some(Code::Closed), 2));
        });
        world.clear();
    }
}
