//! An ordered map that is small while it holds little.
//!
//! Most objects have one dkey, most dkeys one akey, most arrays one extent: a `BTreeMap` would
//! spend a node of eleven slots on each. Up to [`FEW_MAX`] entries live in a sorted vector of
//! exact size, more in a `BTreeMap`. A map that has grown large stays a tree.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

/// Most entries of the vector form.
const FEW_MAX: usize = 12;

/// Ordered map; see the module.
#[derive(Debug)]
pub(crate) enum OrdMap<K, V> {
    /// Sorted by key, no key twice.
    Few(Vec<(K, V)>),
    /// The same as a tree.
    Many(BTreeMap<K, V>),
}

impl<K, V> Default for OrdMap<K, V> {
    fn default() -> Self {
        OrdMap::Few(Vec::new())
    }
}

impl<K: Ord, V> OrdMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        match self {
            OrdMap::Few(few) => few.len(),
            OrdMap::Many(many) => many.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match self {
            OrdMap::Few(few) => {
                let at = few.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
                Some(&few[at].1)
            }
            OrdMap::Many(many) => many.get(key),
        }
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        match self {
            OrdMap::Few(few) => {
                let at = few.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
                Some(&mut few[at].1)
            }
            OrdMap::Many(many) => many.get_mut(key),
        }
    }

    /// The value at `key`, made by `make` if there was none; true when it was made.
    pub(crate) fn get_or_insert_with(
        &mut self,
        key: K,
        make: impl FnOnce() -> V,
    ) -> (&mut V, bool) {
        if let OrdMap::Few(few) = self
            && few.len() == FEW_MAX
            && few.binary_search_by(|(k, _)| k.cmp(&key)).is_err()
        {
            *self = OrdMap::Many(std::mem::take(few).into_iter().collect());
        }
        match self {
            OrdMap::Few(few) => match few.binary_search_by(|(k, _)| k.cmp(&key)) {
                Ok(at) => (&mut few[at].1, false),
                Err(at) => {
                    if few.len() == few.capacity() {
                        few.reserve_exact(few.len().max(1));
                    }
                    few.insert(at, (key, make()));
                    (&mut few[at].1, true)
                }
            },
            OrdMap::Many(many) => match many.entry(key) {
                btree_map::Entry::Occupied(slot) => (slot.into_mut(), false),
                btree_map::Entry::Vacant(slot) => (slot.insert(make()), true),
            },
        }
    }

    /// Inserts a key that is not there.
    pub(crate) fn insert_new(&mut self, key: K, value: V) {
        let (_, new) = self.get_or_insert_with(key, || value);
        assert!(new, "insert_new: the key was there");
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match self {
            OrdMap::Few(few) => {
                let at = few.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
                Some(few.remove(at).1)
            }
            OrdMap::Many(many) => many.remove(key),
        }
    }

    pub(crate) fn range<Q: Ord + ?Sized>(&self, from: Bound<&Q>, to: Bound<&Q>) -> Range<'_, K, V>
    where
        K: Borrow<Q>,
    {
        match self {
            OrdMap::Few(few) => {
                let start = match from {
                    Bound::Unbounded => 0,
                    Bound::Included(q) => few.partition_point(|(k, _)| k.borrow() < q),
                    Bound::Excluded(q) => few.partition_point(|(k, _)| k.borrow() <= q),
                };
                let end = match to {
                    Bound::Unbounded => few.len(),
                    Bound::Included(q) => few.partition_point(|(k, _)| k.borrow() <= q),
                    Bound::Excluded(q) => few.partition_point(|(k, _)| k.borrow() < q),
                };
                Range::Few(few[start.min(end)..end].iter())
            }
            OrdMap::Many(many) => {
                // The tree panics on an inverted range; such a range is empty.
                let inverted = match (from, to) {
                    (Bound::Included(a), Bound::Included(b)) => a > b,
                    (Bound::Included(a), Bound::Excluded(b))
                    | (Bound::Excluded(a), Bound::Included(b))
                    | (Bound::Excluded(a), Bound::Excluded(b)) => a >= b,
                    _ => false,
                };
                if inverted {
                    return Range::Few([].iter());
                }
                Range::Many(many.range::<Q, _>((from, to)))
            }
        }
    }

    /// The last entry at or before `key`.
    pub(crate) fn floor_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(&K, &mut V)>
    where
        K: Borrow<Q>,
    {
        match self {
            OrdMap::Few(few) => {
                let after = few.partition_point(|(k, _)| k.borrow() <= key);
                let (key, value) = few[..after].last_mut()?;
                Some((key, value))
            }
            OrdMap::Many(many) => {
                many.range_mut::<Q, _>((Bound::Unbounded, Bound::Included(key))).next_back()
            }
        }
    }

    pub(crate) fn iter(&self) -> Range<'_, K, V> {
        match self {
            OrdMap::Few(few) => Range::Few(few.iter()),
            OrdMap::Many(many) => Range::Many(many.range::<K, _>(..)),
        }
    }

    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        match self {
            OrdMap::Few(few) => few.first().map(|(k, v)| (k, v)),
            OrdMap::Many(many) => many.first_key_value(),
        }
    }

    pub(crate) fn last(&self) -> Option<(&K, &V)> {
        match self {
            OrdMap::Few(few) => few.last().map(|(k, v)| (k, v)),
            OrdMap::Many(many) => many.last_key_value(),
        }
    }
}

/// Iterator over a part of an [`OrdMap`].
#[derive(Debug)]
pub(crate) enum Range<'a, K, V> {
    Few(std::slice::Iter<'a, (K, V)>),
    Many(btree_map::Range<'a, K, V>),
}

impl<'a, K, V> Iterator for Range<'a, K, V> {
    type Item = (&'a K, &'a V);
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Range::Few(few) => few.next().map(|(k, v)| (k, v)),
            Range::Many(many) => many.next(),
        }
    }
}

impl<K, V> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Range::Few(few) => few.next_back().map(|(k, v)| (k, v)),
            Range::Many(many) => many.next_back(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_btree_map_on_both_sides_of_the_switch(
            steps in prop::collection::vec((0u8..4, 0u64..40), 0..120),
        ) {
            let mut model = BTreeMap::new();
            let mut map = OrdMap::default();
            for (n, (kind, key)) in steps.into_iter().enumerate() {
                match kind {
                    0 | 1 => {
                        let (value, new) = map.get_or_insert_with(key, || n);
                        prop_assert_eq!(new, !model.contains_key(&key));
                        prop_assert_eq!(*value, *model.entry(key).or_insert(n));
                    }
                    2 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    _ => {
                        let part: Vec<_> = map
                            .range(Bound::Excluded(&key), Bound::Included(&(key + 9)))
                            .rev()
                            .collect();
                        let want: Vec<_> = model
                            .range((Bound::Excluded(key), Bound::Included(key + 9)))
                            .rev()
                            .collect();
                        prop_assert_eq!(part, want);
                        let floor = map.floor_mut(&key).map(|(key, value)| (*key, *value));
                        let want = model.range(..=key).next_back();
                        prop_assert_eq!(floor, want.map(|(key, value)| (*key, *value)));
                    }
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.first(), model.first_key_value());
                prop_assert_eq!(map.last(), model.last_key_value());
            }
        }
    }

    #[test]
    fn an_inverted_range_is_empty_in_both_forms() {
        let mut map = OrdMap::default();
        for key in 0..FEW_MAX as u64 + 4 {
            map.insert_new(key, ());
            assert!(map.range(Bound::Excluded(&5), Bound::Included(&2)).next().is_none());
            assert!(map.range(Bound::Excluded(&2), Bound::Excluded(&2)).next().is_none());
        }
    }
}
