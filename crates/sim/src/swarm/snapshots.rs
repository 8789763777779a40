//! An administrator who takes snapshots, looks at them now and later, and removes some. What one shows of a key is what the key had at one
//! moment while it was made, of all accounts at the same one, and it shows that for ever. Some containers are rolled back to one: then each
//! key has that once more, from a moment on while this went on.

use super::clients::{Place, Worker, open};
use super::names::{NameAnswer, NameCall, Shown, hash_of};
use super::run::Run;
use super::settings::Fault;
use crate::history::{Call, CallId, Moment};
use crate::register::{Asked, Said};
use crate::serializable::Transaction;
use client::Client;
use env::Env;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Epoch, Error, Result};
use wire::control::{Name, SnapName};

/// Who asks at a snapshot, in histories.
pub(super) const KEEPER: u32 = u32::MAX - 1;
/// Longest time from one look to the next.
const LOOK_TIME_MAX: Duration = Duration::from_secs(30);
/// A rollback is over after so long, also when engines come and go meanwhile: virtual time.
const ROLLBACK_TIME_MAX: Duration = Duration::from_secs(200);
/// Pause before it is asked for again.
const ROLLBACK_PAUSE: Duration = Duration::from_secs(2);
/// So many stay until the end.
const KEPT_MAX: usize = 4;
/// So many are taken.
const TAKEN_MAX: u64 = 12;

/// A snapshot, and what it has shown.
#[derive(Clone)]
pub(super) struct Snapshot {
    epoch: Epoch,
    /// When it was asked for, and when it was there.
    pub(super) made: (Moment, Moment),
    shown: BTreeMap<Place, Option<u64>>,
    /// Of seeds with names.
    pub(super) tree: Shown,
}

impl Run {
    /// One is taken, and looked at until it is kept or removed. One at a time.
    pub(super) async fn take_snapshot(self: &Rc<Self>, env: &Env) {
        if self.is_taking.get() || self.snapshots_taken.get() >= TAKEN_MAX {
            return;
        }
        self.is_taking.set(true);
        let keeper = self.cluster.client_within("keeper", Duration::from_secs(5));
        match self.taken(env, &keeper).await {
            Ok(()) => {}
            Err(error) => drop(self.wrong.borrow_mut().get_or_insert(error.to_string())),
        }
        self.is_taking.set(false);
    }

    async fn taken(self: &Rc<Self>, env: &Env, keeper: &Client) -> Result<()> {
        let cont = match open(keeper).await {
            Ok(cont) => cont,
            Err(error) => {
                self.note(|| format!("no snapshot: {error}"));
                return Ok(());
            }
        };
        let begun = self.moments.next();
        let made = match cont.pool().snap_create(&cont_name(), "").await {
            Ok(made) => made,
            // Somebody was away. If there is one nobody knows of it.
            Err(error) => {
                self.note(|| format!("no snapshot: {error}"));
                return Ok(());
            }
        };
        let (epoch, made) = (made.epoch, (begun, self.moments.next()));
        self.snapshots_taken.set(self.snapshots_taken.get() + 1);
        self.note(|| format!("snapshot {epoch}"));
        let mut snapshot = Snapshot { epoch, made, shown: BTreeMap::new(), tree: Shown::default() };
        for _ in 0..1 + env.random_u64() % 3 {
            self.look_back(keeper, &mut snapshot, false).await?;
            // Each length is as likely as one of half of it.
            self.pause(env, LOOK_TIME_MAX / (1 << (env.random_u64() % 8))).await;
        }
        if self.settings.faults.contains(&Fault::Rollback) && env.random_u64().is_multiple_of(2) {
            self.rolled_back(env, keeper, &snapshot).await?;
        }
        if env.random_u64().is_multiple_of(2) && self.kept.borrow().len() < KEPT_MAX {
            self.kept.borrow_mut().push(snapshot);
            return Ok(());
        }
        match cont.pool().snap_destroy(&cont_name(), &SnapName::Epoch(epoch)).await {
            Ok(()) => self.note(|| format!("snapshot {epoch} is removed")),
            Err(error) => self.note(|| format!("removing snapshot {epoch}: {error}")),
        }
        Ok(())
    }

    /// All is what a snapshot shows, once everybody who is to do it has; where not all of it was shown nobody knows what that is.
    async fn rolled_back(
        self: &Rc<Self>,
        env: &Env,
        keeper: &Client,
        snapshot: &Snapshot,
    ) -> Result<()> {
        let Ok(cont) = open(keeper).await else { return Ok(()) };
        let all = Worker::new(self.clone(), KEEPER, cont.clone()).places();
        let tree = snapshot.tree.names();
        let lacks_tree = self.settings.has_names && tree.is_none();
        if lacks_tree || all.iter().any(|place| !snapshot.shown.contains_key(place)) {
            return Ok(());
        }
        let tree = tree.filter(|_| self.settings.has_names).map(|names| hash_of(&names));
        let begin_tree = |hash: u64| self.names().invoke(KEEPER, NameCall::Back(hash));
        let epoch = snapshot.epoch;
        self.note(|| format!("back to snapshot {epoch}"));
        let begin = |(place, value): (&Place, &Option<u64>)| {
            let asked = value.map_or(Asked::Remove, Asked::Put);
            (*place, self.history(*place).invoke(KEEPER, asked))
        };
        let which = SnapName::Epoch(epoch);
        let (pool, name) = (cont.pool(), cont_name());
        let done = async {
            loop {
                // One that is asked for again when it is over begins anew. Those without an answer may have happened, or not.
                let calls: Vec<(Place, CallId)> = snapshot.shown.iter().map(begin).collect();
                let call_of_tree = tree.map(begin_tree);
                match pool.roll_back(&name, &which, true).await {
                    Ok(()) => {
                        for (place, call) in calls {
                            self.history(place).answer(call, Said::Done);
                        }
                        if let Some(call) = call_of_tree {
                            self.names().answer(call, NameAnswer::Done);
                        }
                        return;
                    }
                    Err(error) => self.note(|| format!("back to snapshot {epoch}: {error}")),
                }
                env.sleep(ROLLBACK_PAUSE).await;
                loop {
                    match pool.snap_list(&name).await {
                        // Whoever is told to go on with it does.
                        Ok((_, Some(_))) => break,
                        Ok((_, None)) => return,
                        Err(_) => env.sleep(ROLLBACK_PAUSE).await,
                    }
                }
            }
        };
        if env.timeout(ROLLBACK_TIME_MAX, done).await.is_none() {
            return Err(Error::new(Code::TimedOut, "a rollback does not come to its end"));
        }
        self.rollbacks.set(self.rollbacks.get() + 1);
        self.note(|| format!("all is as in snapshot {epoch}"));
        Ok(())
    }

    /// In peace, they show what they showed.
    pub(super) async fn look_at_kept(self: &Rc<Self>, client: &Client) -> Result<()> {
        let kept = self.kept.take();
        for mut snapshot in kept {
            self.look_back(client, &mut snapshot, true).await?;
        }
        Ok(())
    }

    /// What all places had when it was taken. Not all of them answer, unless there is peace.
    async fn look_back(
        self: &Rc<Self>,
        client: &Client,
        snapshot: &mut Snapshot,
        in_peace: bool,
    ) -> Result<()> {
        let cont = match open(client).await {
            Ok(cont) => cont.at_epoch(snapshot.epoch),
            Err(error) if in_peace => return Err(error),
            Err(error) => return self.bear(error),
        };
        let worker = Worker::new(self.clone(), KEEPER, cont);
        if self.settings.has_names {
            return worker.look_back_at_names(snapshot, in_peace).await;
        }
        let all = worker.places();
        for place in &all {
            let value = match worker.value_of_place(*place).await {
                Ok(value) => value,
                Err(error) if in_peace => return Err(error),
                Err(error) => {
                    self.bear(error)?;
                    continue;
                }
            };
            self.shown.set(self.shown.get() + 1);
            match snapshot.shown.insert(*place, value) {
                None => self.history(*place).note(Call {
                    client: KEEPER,
                    op: Asked::Get,
                    invoked: snapshot.made.0,
                    returned: Some((snapshot.made.1, Said::Found(value))),
                }),
                Some(before) if before == value => {}
                Some(before) => {
                    let epoch = snapshot.epoch;
                    let text = format!(
                        "snapshot {epoch} showed {place:?} as {before:?}, and now as {value:?}"
                    );
                    return Err(Error::new(Code::Csum, text));
                }
            }
        }
        let account = |place: &Place| match place {
            Place::Account(at) => Some((*at, snapshot.shown.get(place)?.unwrap_or(0))),
            _ => None,
        };
        let reads: BTreeMap<u64, u64> = all.iter().filter_map(account).collect();
        if reads.len() as u64 == self.settings.accounts && !reads.is_empty() {
            let (begun, committed) = (snapshot.made.0, Some(snapshot.made.1));
            self.note_tx(Transaction { begun, committed, reads, writes: BTreeMap::new() });
        }
        Ok(())
    }
}

fn cont_name() -> Name {
    Name::Label("c".into())
}
