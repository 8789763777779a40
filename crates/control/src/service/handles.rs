//! Open handles: who uses a pool or container now.
//!
//! Handles live in memory only. They belong to a session (a caller's connection) and end with
//! it. When the service begins anew, or elsewhere, engines end the connections, and clients ask for
//! their handles again on the next ones; see `grace`.
//!
//! Invariant: while an [`Closing`] mark is out for something, no handle on it can be opened. A
//! destroyer takes the mark, which fails while there are handles, and keeps it until its intent is
//! in the catalog; an opener registers its handle first and looks at the catalog afterwards. So
//! one of the two always sees the other.

use super::SessionId;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use types::map::HashMap;
use types::{Code, ContId, Error, PoolId, Result};
use wire::control::{Evict, OpenMode};

/// What a handle is on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner {
    Pool(PoolId),
    Cont(PoolId, ContId),
}

impl Owner {
    /// A pool covers its containers.
    fn covers(self, other: Owner) -> bool {
        match (self, other) {
            (Owner::Pool(pool), Owner::Cont(other, _)) => pool == other,
            _ => self == other,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Owner::Pool(_) => "pool",
            Owner::Cont(..) => "container",
        }
    }
}

/// Ended sessions remembered. A request that was under way when its caller went comes through
/// long before so many others have gone.
const ENDED_MAX: usize = 1024;

struct Handle {
    session: SessionId,
    user: u32,
    owner: Owner,
    mode: OpenMode,
    /// Its close is not noted as a use.
    is_quiet: bool,
}

/// Who opens a handle, and whose handles on the same are closed for it.
#[derive(Clone, Copy)]
pub struct Opener {
    pub session: SessionId,
    pub user: u32,
    pub evict: Evict,
    /// The handle's close is not noted as a use.
    pub is_quiet: bool,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Handle>,
    /// What is being closed, and what is being done to it.
    closing: HashMap<Owner, &'static str>,
    ended: VecDeque<SessionId>,
}

/// All open handles.
#[derive(Clone, Default)]
pub struct Handles(Rc<RefCell<Table>>);

/// Keeps handles from being opened until dropped.
pub struct Closing {
    handles: Handles,
    owner: Owner,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.handles.0.borrow_mut().closing.remove(&self.owner);
    }
}

impl Handles {
    /// Handles are numbered from `first`; a random one, so that a handle of an earlier run of the
    /// service is not taken for one of this run.
    pub fn new(first: u64) -> Handles {
        Handles(Rc::new(RefCell::new(Table { next: first, ..Table::default() })))
    }

    /// Opens a handle, and closes those to be evicted. `Closed` when the session has ended. `Busy` when
    /// `mode` and the modes of the other open handles exclude each other, or the owner is being
    /// destroyed. `name` is for people.
    pub fn open(&self, who: Opener, owner: Owner, mode: OpenMode, name: &str) -> Result<u64> {
        let Opener { session, user, evict, is_quiet } = who;
        let table = &mut *self.0.borrow_mut();
        let busy =
            |why: &str| Err(Error::new(Code::Busy, format!("{} '{name}' {why}", owner.noun())));
        if table.ended.contains(&session) {
            // Nobody would ever close the handle.
            return Err(Error::new(
                Code::Closed,
                format!("{} '{name}' was not opened: the caller has gone", owner.noun()),
            ));
        }
        let mut closing = table.closing.iter();
        if let Some((_, doing)) = closing.find(|(closing, _)| closing.covers(owner)) {
            return busy(&format!("is being {doing}"));
        }
        let is_evicted = |handle: &Handle| {
            handle.owner == owner
                && match evict {
                    Evict::Nobody => false,
                    Evict::User => handle.user == user,
                    Evict::All => true,
                }
        };
        let others = table.open.values().filter(|handle| handle.owner == owner);
        let mut others = others.filter(|handle| !is_evicted(handle)).peekable();
        if mode == OpenMode::Exclusive && others.peek().is_some() {
            return busy("has open handles; close them before opening it exclusively");
        }
        if others.any(|handle| handle.mode == OpenMode::Exclusive) {
            return busy("is opened exclusively by another client; try again when it is closed");
        }
        table.open.retain(|_, handle| !is_evicted(handle));
        while table.open.contains_key(&table.next) {
            table.next = table.next.wrapping_add(1);
        }
        let number = table.next;
        table.next = number.wrapping_add(1);
        table.open.insert(number, Handle { session, user, owner, mode, is_quiet });
        Ok(number)
    }

    /// Closes a handle of the session: what it was on, and whether that is a use to be noted. `BadHandle`
    /// when it has no such handle of this kind.
    pub fn close(&self, session: SessionId, number: u64, is_pool: bool) -> Result<(Owner, bool)> {
        let mut table = self.0.borrow_mut();
        let noun = if is_pool { "pool" } else { "container" };
        match table.open.get(&number) {
            Some(handle)
                if handle.session == session
                    && matches!(handle.owner, Owner::Pool(_)) == is_pool =>
            {
                let closed = (handle.owner, !handle.is_quiet);
                table.open.remove(&number);
                Ok(closed)
            }
            _ => Err(Error::new(
                Code::BadHandle,
                format!(
                    "{number:#x} is not an open {noun} handle of this connection; it may have been \
                     closed, evicted, or its {noun} destroyed by force"
                ),
            )),
        }
    }

    /// Takes back a handle that was opened in vain.
    pub fn revoke(&self, number: u64) {
        self.0.borrow_mut().open.remove(&number);
    }

    /// Handles on exactly this.
    pub fn count(&self, owner: Owner) -> u64 {
        self.0.borrow().open.values().filter(|handle| handle.owner == owner).count() as u64
    }

    /// True when there are some on this, or on something in it.
    pub fn are_on(&self, owner: Owner) -> bool {
        self.0.borrow().open.values().any(|handle| owner.covers(handle.owner))
    }

    /// Keeps handles from being opened on `owner` and all in it. Unless `force`, `Busy` while
    /// there are any. `doing`: what becomes of it.
    pub fn begin_close(
        &self,
        owner: Owner,
        force: bool,
        name: &str,
        doing: &'static str,
    ) -> Result<Closing> {
        let mut table = self.0.borrow_mut();
        let busy =
            |why: String| Err(Error::new(Code::Busy, format!("{} '{name}' {why}", owner.noun())));
        let count = table.open.values().filter(|handle| owner.covers(handle.owner)).count();
        if count > 0 && !force {
            let what = if count == 1 {
                "1 open handle; close it"
            } else {
                &format!("{count} open handles; close them")
            };
            return busy(format!("has {what} or use --force"));
        }
        if let Some(doing) = table.closing.get(&owner) {
            return busy(format!("is being {doing} by another request"));
        }
        table.closing.insert(owner, doing);
        Ok(Closing { handles: self.clone(), owner })
    }

    /// Forgets all handles on `owner` and all in it.
    pub fn drop_owner(&self, owner: Owner) {
        self.0.borrow_mut().open.retain(|_, handle| !owner.covers(handle.owner));
    }

    /// Forgets all handles of a session, which gets no new ones. Returns what those were on whose
    /// close is a use to be noted.
    pub fn drop_session(&self, session: SessionId) -> Vec<Owner> {
        let table = &mut *self.0.borrow_mut();
        let mut used = Vec::new();
        table.open.retain(|_, handle| {
            if handle.session == session && !handle.is_quiet {
                used.push(handle.owner);
            }
            handle.session != session
        });
        table.ended.push_back(session);
        if table.ended.len() > ENDED_MAX {
            table.ended.pop_front();
        }
        used
    }
}
