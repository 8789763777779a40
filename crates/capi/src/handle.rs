//! The process-wide table of handles.
//!
//! A handle that C holds is a number: the slot in the table and the slot's generation. What it
//! stands for is plain data that any thread may read; what the crates below keep for it lives in
//! contexts ([`crate::ctx`]). A number whose slot was freed never comes back, so a handle that is
//! used after it was closed is told as such.

use perthread::ForkRwLock;
use std::any::Any;
use std::sync::Arc;
use types::{Code, Error, Result};

/// Low bits of a handle: the slot.
const SLOT_BITS: u32 = 24;

type Entry = Arc<dyn Any + Send + Sync>;

struct Slot {
    generation: u64,
    entry: Option<Entry>,
}

struct Table {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

static TABLE: ForkRwLock<Table> = ForkRwLock::new(Table { slots: Vec::new(), free: Vec::new() });

fn join(slot: usize, generation: u64) -> u64 {
    generation << SLOT_BITS | slot as u64
}

fn split(handle: u64) -> (usize, u64) {
    ((handle & ((1 << SLOT_BITS) - 1)) as usize, handle >> SLOT_BITS)
}

fn stale() -> Error {
    Error::new(Code::BadHandle, "the handle was never given out, or was closed")
}

/// Enters something; the handle is never 0. `NoMem` when 16 million are open.
pub fn add<T: Any + Send + Sync>(value: Arc<T>) -> Result<u64> {
    Ok(add_with(|_| value)?.0)
}

/// Enters something that knows its handle.
pub fn add_with<T: Any + Send + Sync>(make: impl FnOnce(u64) -> Arc<T>) -> Result<(u64, Arc<T>)> {
    let mut table = TABLE.write();
    let slot = match table.free.pop() {
        Some(slot) => slot,
        None if table.slots.len() >= 1 << SLOT_BITS => {
            return Err(Error::new(Code::NoMem, "too many open handles"));
        }
        None => {
            table.slots.push(Slot { generation: 1, entry: None });
            table.slots.len() - 1
        }
    };
    let handle = join(slot, table.slots[slot].generation);
    let value = make(handle);
    table.slots[slot].entry = Some(value.clone());
    Ok((handle, value))
}

/// What a handle stands for. `BadHandle` when it is closed or stands for something else.
pub fn get<T: Any + Send + Sync>(handle: u64) -> Result<Arc<T>> {
    let (slot, generation) = split(handle);
    let table = TABLE.read();
    let found = table.slots.get(slot).filter(|slot| slot.generation == generation);
    let entry = found.and_then(|slot| slot.entry.clone()).ok_or_else(stale)?;
    drop(table);
    entry.downcast().map_err(|_| Error::new(Code::BadHandle, "the handle is of another kind"))
}

/// Takes an entry out; from now on its handle is stale. `BadHandle` as for [`get`].
pub fn remove<T: Any + Send + Sync>(handle: u64) -> Result<Arc<T>> {
    let value = get::<T>(handle)?;
    let (slot, generation) = split(handle);
    let mut table = TABLE.write();
    let found = table.slots.get_mut(slot).filter(|slot| slot.generation == generation);
    // Of two threads that close one handle, one is late.
    let entry = found.and_then(|slot| slot.entry.take()).ok_or_else(stale)?;
    table.slots[slot].generation += 1;
    table.free.push(slot);
    drop(table);
    drop(entry);
    Ok(value)
}

/// True while a handle is open.
pub fn is_live(handle: u64) -> bool {
    let (slot, generation) = split(handle);
    let table = TABLE.read();
    table.slots.get(slot).is_some_and(|slot| slot.generation == generation && slot.entry.is_some())
}

/// True when an open handle of a kind is such a one.
pub fn any<T: Any + Send + Sync>(is_it: impl Fn(&T) -> bool) -> bool {
    let table = TABLE.read();
    let mut entries = table.slots.iter().filter_map(|slot| slot.entry.as_ref());
    entries.any(|entry| entry.downcast_ref::<T>().is_some_and(&is_it))
}

/// Takes all entries of a kind out, and returns them.
pub fn drain<T: Any + Send + Sync>() -> Vec<Arc<T>> {
    let mut table = TABLE.write();
    let Table { slots, free } = &mut *table;
    let mut taken = Vec::new();
    for (at, slot) in slots.iter_mut().enumerate() {
        if let Some(entry) = &slot.entry
            && let Ok(value) = entry.clone().downcast::<T>()
        {
            slot.entry = None;
            slot.generation += 1;
            free.push(at);
            taken.push(value);
        }
    }
    taken
}

/// Before a fork: nobody may be in the middle of a change.
pub(crate) fn fork_lock() {
    TABLE.hold();
}

/// After a fork, on both sides.
///
/// # Safety
/// Only by the thread that called [`fork_lock`].
pub(crate) unsafe fn fork_unlock() {
    // SAFETY: this thread (or its copy in the child) holds the lock.
    unsafe { TABLE.release() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_handle_is_stale_for_ever() {
        let first = add(Arc::new(7u32)).unwrap();
        assert_eq!(*get::<u32>(first).unwrap(), 7);
        assert_eq!(get::<String>(first).unwrap_err().code, Code::BadHandle);
        assert!(remove::<String>(first).is_err());
        assert_eq!(*remove::<u32>(first).unwrap(), 7);
        assert!(!is_live(first));
        for round in 0..1000u32 {
            let next = add(Arc::new(round)).unwrap();
            assert_ne!(next, first);
            assert_eq!(get::<u32>(first).unwrap_err().code, Code::BadHandle);
            remove::<u32>(next).unwrap();
        }
        assert!(remove::<u32>(first).is_err());
        for nonsense in [0, 1, u64::MAX, 1 << 63, (1 << 24) - 1] {
            assert!(get::<u32>(nonsense).is_err());
        }
    }
}
