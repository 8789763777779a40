//! Open handles: which clients hold which objects of this target open.
//!
//! An object with an open handle outlives its last link (POSIX: a file that is unlinked while
//! open stays readable). Handles live in memory only; after a restart clients register theirs
//! again, and orphans wait for that (see `openers`).

use types::map::HashMap;
use types::{ClientId, ContId, PoolId, Unit};

/// An object, named over pools and containers.
pub type Handle = (PoolId, ContId, Unit);

/// All open handles of a target.
#[derive(Default)]
pub struct Opens {
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
        let handle = (PoolId(1), ContId(1), types::Oid { hi: 1, lo: 2 }.first_unit());
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
