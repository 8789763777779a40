//! Open handles: which clients hold which objects of this target open.
//!
//! An object with an open handle outlives its last link (POSIX: a file that is unlinked while
//! open stays readable). Handles live in memory only; after a restart clients register theirs
//! again, and orphans wait for that (see `openers`).

use std::cell::RefCell;
use std::time::Duration;
use types::map::{HashMap, HashSet};
use types::{ClientId, ContId, Unit};

/// An object of a pool, named over its containers.
pub(crate) type Handle = (ContId, Unit);

/// What is open in a pool's part, and what becomes of objects without a name that nobody holds open any more.
#[derive(Default)]
pub(crate) struct Handles {
    opens: RefCell<Opens>,
    /// Orphans that are not freed yet though nobody holds them open, and until when.
    lingering: RefCell<HashMap<Handle, Duration>>,
    /// Orphans being freed.
    freeing: RefCell<HashSet<Handle>>,
}

impl Handles {
    pub fn open(&self, client: ClientId, handle: Handle) {
        self.opens.borrow_mut().open(client, handle);
    }

    /// A client registers an object unless it has already.
    pub fn register(&self, client: ClientId, handle: Handle) {
        let mut opens = self.opens.borrow_mut();
        if !opens.is_held_by(client, &handle) {
            opens.open(client, handle);
        }
    }

    /// See [`Opens::close`].
    pub fn close(&self, client: ClientId, handle: Handle) -> bool {
        self.opens.borrow_mut().close(client, handle)
    }

    /// See [`Opens::close_client`].
    pub fn close_client(&self, client: ClientId) -> Vec<Handle> {
        self.opens.borrow_mut().close_client(client)
    }

    /// See [`Opens::close_all`].
    pub fn close_all(&self, client: ClientId, handle: Handle) -> bool {
        self.opens.borrow_mut().close_all(client, handle)
    }

    /// True when the client holds anything open.
    pub fn holds_any(&self, client: ClientId) -> bool {
        self.opens.borrow().holds_any(client)
    }

    /// True when some client holds the object open.
    pub fn is_open(&self, handle: &Handle) -> bool {
        self.opens.borrow().is_open(handle)
    }

    /// Keeps an object from being freed until then.
    pub fn linger(&self, handle: Handle, until: Duration) {
        self.lingering.borrow_mut().insert(handle, until);
    }

    /// Ends that; false when it is to linger for longer, meanwhile.
    pub fn end_lingering(&self, handle: Handle, until: Duration) -> bool {
        let mut lingering = self.lingering.borrow_mut();
        let is_over = lingering.get(&handle) == Some(&until);
        if is_over {
            lingering.remove(&handle);
        }
        is_over
    }

    /// Begins to free an object, until [`Handles::end_freeing`]; false when it is open, lingers, or somebody is at it.
    pub fn begin_to_free(&self, handle: Handle) -> bool {
        !self.is_open(&handle)
            && !self.lingering.borrow().contains_key(&handle)
            && self.freeing.borrow_mut().insert(handle)
    }

    pub fn end_freeing(&self, handle: &Handle) {
        self.freeing.borrow_mut().remove(handle);
    }

    /// True when it may have lost parts on other targets.
    pub fn is_being_freed(&self, handle: &Handle) -> bool {
        self.freeing.borrow().contains(handle)
    }
}

/// All open handles.
#[derive(Default)]
struct Opens {
    by_object: HashMap<Handle, u32>,
    by_client: HashMap<ClientId, HashMap<Handle, u32>>,
}

impl Opens {
    pub fn open(&mut self, client: ClientId, handle: Handle) {
        *self.by_object.entry(handle).or_insert(0) += 1;
        *self.by_client.entry(client).or_default().entry(handle).or_insert(0) += 1;
    }

    /// True when the client holds anything open.
    pub fn holds_any(&self, client: ClientId) -> bool {
        self.by_client.get(&client).is_some_and(|handles| !handles.is_empty())
    }

    /// True when the client has registered a handle on the object.
    pub fn is_held_by(&self, client: ClientId, handle: &Handle) -> bool {
        self.by_client.get(&client).is_some_and(|handles| handles.contains_key(handle))
    }

    /// Drops one handle; true when it was the object's last.
    pub fn close(&mut self, client: ClientId, handle: Handle) -> bool {
        let Some(handles) = self.by_client.get_mut(&client) else { return false };
        match handles.get_mut(&handle) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                handles.remove(&handle);
            }
            None => return false,
        }
        self.drop_object(handle, 1)
    }

    /// Drops all handles of a client; returns the objects that nobody holds open any more.
    pub fn close_client(&mut self, client: ClientId) -> Vec<Handle> {
        let handles = self.by_client.remove(&client).unwrap_or_default();
        let mut freed: Vec<Handle> = handles
            .into_iter()
            .filter_map(|(handle, count)| self.drop_object(handle, count).then_some(handle))
            .collect();
        // In a fixed order, so that simulated runs repeat.
        freed.sort_unstable();
        freed
    }

    /// Drops all handles of a client on an object; true when it held any, and nobody else does.
    pub fn close_all(&mut self, client: ClientId, handle: Handle) -> bool {
        let count = self.by_client.get_mut(&client).and_then(|handles| handles.remove(&handle));
        count.is_some_and(|count| self.drop_object(handle, count))
    }

    fn drop_object(&mut self, handle: Handle, count: u32) -> bool {
        match self.by_object.get_mut(&handle) {
            Some(left) if *left > count => {
                *left -= count;
                false
            }
            Some(_) => {
                self.by_object.remove(&handle);
                true
            }
            None => false,
        }
    }

    /// True when some client holds the object open.
    pub fn is_open(&self, handle: &Handle) -> bool {
        !self.by_object.is_empty() && self.by_object.contains_key(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_open_until_its_last_handle_goes() {
        let mut opens = Opens::default();
        let handle = (ContId(1), types::Oid { hi: 1, lo: 2 }.first_unit());
        let (a, b) = (ClientId(1), ClientId(2));
        opens.open(a, handle);
        opens.open(a, handle);
        opens.open(b, handle);
        assert!(!opens.close(a, handle));
        assert!(!opens.close(b, handle));
        assert!(!opens.close(b, handle), "b holds none any more");
        assert!(opens.is_open(&handle));
        assert!(opens.is_held_by(a, &handle) && !opens.is_held_by(b, &handle));
        assert!(opens.holds_any(a) && !opens.holds_any(b));
        opens.open(b, handle);
        opens.open(b, handle);
        assert!(!opens.close_all(b, handle), "a holds one still");
        assert!(!opens.close_all(b, handle) && !opens.holds_any(b));
        assert_eq!(opens.close_client(a), vec![handle]);
        assert!(!opens.is_open(&handle));
        assert!(opens.by_object.is_empty());
    }
}
