//! Locks of prepared transactions.
//!
//! A prepared part must still be applicable when its outcome comes, so nothing may change what
//! its checks and conditions saw, or see what it will change. Locks are per dkey, or on the
//! whole object for what concerns its set of dkeys. An `OBJ_EXISTS` condition alone (a create in
//! a directory) takes a weak lock that only a whole-object change conflicts with, so that
//! creates in one directory do not wait for each other. Dkeys that a transaction moves to another unit ([`crate::spread`]) are locked by
//! their hashes, for nobody may make one of them meanwhile where it is not looked for afterwards. Nothing waits here: the caller retries.

use types::map::HashMap;
use types::{ContId, Key, Unit, hash};
use wire::footprint::{Extent, Footprint};
use wire::obj::{Op, ReadCheck, ReadScope};
use wire::spread::MARKER;
use wire::walk::walk;

/// How much of an object, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub unit: Unit,
    pub of: Part,
}

/// What of an object is claimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// That it is there.
    Exists,
    /// All of it, to read.
    AllShared,
    /// All of it, to change.
    AllExclusive,
    /// One dkey, to read.
    DkeyShared(Key),
    /// One dkey, to change.
    DkeyExclusive(Key),
    /// All dkeys with a hash from one to another, there or not, to move; the marker of an object that spreads is none of them.
    Moving(u64, u64),
}

/// Counts of holders.
#[derive(Debug, Default)]
struct ObjectLocks {
    exists: u32,
    all_shared: u32,
    all_exclusive: u32,
    dkeys_shared: u32,
    dkeys_exclusive: u32,
    /// Shared and exclusive holders of each dkey.
    dkeys: HashMap<Key, (u32, u32)>,
    /// Hashes of what is moved.
    moving: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
pub(crate) struct LockTable {
    objects: HashMap<(ContId, Unit), ObjectLocks>,
}

impl LockTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// True when the claim cannot be granted beside what is held.
    pub(crate) fn conflicts(&self, cont: ContId, claim: &Claim) -> bool {
        let Some(held) = self.objects.get(&(cont, claim.unit)) else { return false };
        if held.all_exclusive > 0 {
            return true;
        }
        let dkey = |key: &Key| held.dkeys.get(key).copied().unwrap_or((0, 0));
        let is_in = |key: &Key, range: &(u64, u64)| {
            let hash = hash::bytes(key);
            &**key != MARKER && range.0 <= hash && hash <= range.1
        };
        let moves = |key: &Key| held.moving.iter().any(|range| is_in(key, range));
        match &claim.of {
            Part::Exists => false,
            Part::AllShared => held.dkeys_exclusive > 0 || !held.moving.is_empty(),
            Part::AllExclusive => {
                let some = held.exists + held.all_shared + held.dkeys_shared + held.dkeys_exclusive;
                some > 0 || !held.moving.is_empty()
            }
            Part::DkeyShared(key) => dkey(key).1 > 0 || moves(key),
            Part::DkeyExclusive(key) => held.all_shared > 0 || dkey(key) != (0, 0) || moves(key),
            Part::Moving(from, to) => {
                held.all_shared > 0
                    || !held.moving.is_empty()
                    || held.dkeys.keys().any(|key| is_in(key, &(*from, *to)))
            }
        }
    }

    /// True when a transaction in preparation writes dkeys of the object.
    pub(crate) fn writes_dkeys(&self, cont: ContId, unit: Unit) -> bool {
        self.objects.get(&(cont, unit)).is_some_and(|held| held.dkeys_exclusive > 0)
    }

    /// Grants a claim. Claims of one transaction may overlap.
    pub(crate) fn lock(&mut self, cont: ContId, claim: &Claim) {
        let held = self.objects.entry((cont, claim.unit)).or_default();
        match &claim.of {
            Part::Exists => held.exists += 1,
            Part::AllShared => held.all_shared += 1,
            Part::AllExclusive => held.all_exclusive += 1,
            Part::DkeyShared(key) => {
                held.dkeys_shared += 1;
                held.dkeys.entry(key.clone()).or_default().0 += 1;
            }
            Part::DkeyExclusive(key) => {
                held.dkeys_exclusive += 1;
                held.dkeys.entry(key.clone()).or_default().1 += 1;
            }
            Part::Moving(from, to) => held.moving.push((*from, *to)),
        }
    }

    /// Returns a claim that was granted.
    pub(crate) fn unlock(&mut self, cont: ContId, claim: &Claim) {
        let slot = (cont, claim.unit);
        let held = self.objects.get_mut(&slot).expect("unlock: the claim is held");
        let drop_dkey = |dkeys: &mut HashMap<Key, (u32, u32)>, key: &Key, exclusive: bool| {
            let counts = dkeys.get_mut(key).expect("unlock: the dkey is held");
            *(if exclusive { &mut counts.1 } else { &mut counts.0 }) -= 1;
            if *counts == (0, 0) {
                dkeys.remove(key);
            }
        };
        match &claim.of {
            Part::Exists => held.exists -= 1,
            Part::AllShared => held.all_shared -= 1,
            Part::AllExclusive => held.all_exclusive -= 1,
            Part::DkeyShared(key) => {
                held.dkeys_shared -= 1;
                drop_dkey(&mut held.dkeys, key, false);
            }
            Part::DkeyExclusive(key) => {
                held.dkeys_exclusive -= 1;
                drop_dkey(&mut held.dkeys, key, true);
            }
            Part::Moving(from, to) => {
                let place = held.moving.iter().position(|range| *range == (*from, *to));
                held.moving.swap_remove(place.expect("unlock: the range is held"));
            }
        }
        let all = held.exists + held.all_shared + held.all_exclusive;
        if all + held.dkeys_shared + held.dkeys_exclusive == 0 && held.moving.is_empty() {
            self.objects.remove(&slot);
        }
    }
}

impl Claim {
    /// True when it relies on the object being there.
    pub(crate) fn wants_existence(&self) -> bool {
        matches!(self.of, Part::Exists)
    }
}

/// Calls `each` with everything that checks and ops claim.
pub(crate) fn claims(checks: &[ReadCheck<'_>], ops: &[Op<'_>], each: &mut dyn FnMut(Claim)) {
    checks.iter().for_each(|check| each(claim_of_check(check)));
    walk(ops).for_each(|op| claims_of_op(op, &op.footprint(), each));
}

/// What a check claims.
pub(crate) fn claim_of_check(check: &ReadCheck<'_>) -> Claim {
    let of = match check.of {
        ReadScope::Keys | ReadScope::Object => Part::AllShared,
        ReadScope::Dkey(dkey) | ReadScope::Akey(dkey, _) => Part::DkeyShared(Key::new(dkey)),
    };
    Claim { unit: check.unit, of }
}

/// What an op claims, whose footprint is `at`.
#[inline]
pub(crate) fn claims_of_op(op: &Op<'_>, at: &Footprint<'_>, each: &mut dyn FnMut(Claim)) {
    let mut claim = |of: Part| each(Claim { unit: at.unit, of });
    let (extent, exclusive) = (at.extent(), at.is_write());
    // Who claims all of the object claims that it is there.
    if at.needs_object && extent != Extent::All {
        claim(Part::Exists);
    }
    if let Some((from, to)) = crate::spread::moves(op) {
        claim(Part::Moving(from, to));
    }
    let dkey = |dkey: &[u8]| match exclusive {
        true => Part::DkeyExclusive(Key::new(dkey)),
        false => Part::DkeyShared(Key::new(dkey)),
    };
    match extent {
        Extent::Nothing => {}
        Extent::Existence if !exclusive => claim(Part::Exists),
        Extent::Dkey(key) => claim(dkey(key)),
        Extent::Dkeys(keys) => keys.iter().for_each(|key| claim(dkey(key))),
        Extent::Existence | Extent::All => claim(match exclusive {
            true => Part::AllExclusive,
            false => Part::AllShared,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONT: ContId = ContId(1);
    const UNIT: Unit = Unit { object: types::Oid { hi: 0, lo: 1 }, group: 3, cell: 4 };

    fn claim(of: Part) -> Claim {
        Claim { unit: UNIT, of }
    }

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes())
    }

    /// What each operation claims: that the object is there (`?`), all of it (`a` to read, `A` to change), or a dkey (`k`, `K`).
    const CLAIMED: &[(&str, &str)] = &[
        ("update.inline", "? K:dkey"),
        ("update.single", "? K:dkey"),
        ("update.array", "? K:dkey"),
        ("update.zero", "? K:dkey"),
        ("update.punch_records", "? K:dkey"),
        ("update.coded", "? K:dkey"),
        ("fetch.single", "k:dkey"),
        ("fetch.array", "k:dkey"),
        ("fetch.probe", "k:dkey"),
        ("fetch.sparse", "k:dkey"),
        ("punch_obj", "A"),
        ("punch_dkeys", "K:one K:"),
        ("punch_dkeys_from", "A"),
        ("punch_akeys", "K:dkey"),
        ("list.dkeys", "a"),
        ("list.dkeys_bare", "a"),
        ("list.akeys", "k:dkey"),
        ("list.recxs", "k:dkey"),
        ("query", "a"),
        ("stat", "a"),
        ("fetch_link", "k:d"),
        ("remove_link", "K:d"),
        ("open", "?"),
        ("punch_unless_open", "A"),
        ("append", "A"),
        ("list_runs", "a"),
        ("adopt", "A"),
        ("free_closed", "A"),
    ];

    fn claimed(op: &Op<'_>) -> String {
        let mut told = Vec::new();
        claims(&[], std::slice::from_ref(op), &mut |claim| {
            assert_eq!(claim.unit, op.unit());
            told.push(match claim.of {
                Part::Exists => "?".to_string(),
                Part::AllShared => "a".to_string(),
                Part::AllExclusive => "A".to_string(),
                Part::DkeyShared(key) => format!("k:{}", key.escape_ascii()),
                Part::DkeyExclusive(key) => format!("K:{}", key.escape_ascii()),
                Part::Moving(from, to) => format!("m:{from}-{to}"),
            });
        });
        told.join(" ")
    }

    #[test]
    fn what_operations_claim() {
        let ops = crate::op_samples::ops();
        let made: Vec<_> = ops.iter().map(|(name, op)| (*name, claimed(op))).collect();
        let made: Vec<_> = made.iter().map(|(name, told)| (*name, &told[..])).collect();
        assert_eq!(made, CLAIMED);
    }

    #[test]
    fn who_needs_the_object_claims_that_it_is_there_unless_all_is_claimed() {
        let (unit, cond, dkey) = (UNIT, wire::obj::Cond::OBJ_EXISTS, &b"d"[..]);
        let keys = || vec![serde_bytes::Bytes::new(b"k")];
        let fetch = Op::Fetch { unit, dkey, cond, iods: Vec::new() };
        let akeys = Op::PunchAkeys { unit, dkey, cond, akeys: keys() };
        let dkeys = Op::PunchDkeys { unit, cond, dkeys: keys() };
        let object = Op::PunchObj { unit, cond, besides: b"" };
        let told = [fetch, akeys, dkeys, object].map(|op| claimed(&op));
        assert_eq!(told, ["? k:d", "? K:d", "? K:k", "A"]);
    }

    #[test]
    fn who_notes_how_far_dkeys_have_moved_claims_those_that_move() {
        let class = "SX@8".parse().unwrap();
        let oid = types::Oid::generate(1, 2, types::ObjType::MultiHashed, class, 0);
        let note = wire::spread::Spread { own_first: 10, own_last: 19, reached: 30 }.encode();
        let told = |unit: Unit, dkey: &[u8], akey: &[u8]| {
            let value = wire::obj::UpdateValue::Inline(&note);
            let iods = vec![wire::obj::UpdateIod { akey, cond: wire::obj::Cond::NONE, value }];
            claimed(&Op::Update { unit, dkey, cond: wire::obj::Cond::NONE, iods })
        };
        assert_eq!(told(oid.unit(0), MARKER, wire::spread::REACHED), "m:20-30 K:/");
        assert_eq!(told(oid.unit(1), MARKER, wire::spread::REACHED), "m:10-19 K:/");
        assert_eq!(told(oid.unit(0), MARKER, b"p"), "K:/");
        assert_eq!(told(oid.unit(0), b"name", wire::spread::REACHED), "K:name");
        assert_eq!(told(UNIT, MARKER, wire::spread::REACHED), "K:/");
    }

    #[test]
    fn the_table_of_conflicts() {
        use Part::*;
        let hash = hash::bytes(b"a");
        let parts = [
            Exists,
            AllShared,
            AllExclusive,
            DkeyShared(key("a")),
            DkeyExclusive(key("a")),
            DkeyShared(key("b")),
            DkeyExclusive(key("b")),
            Moving(hash, hash),
        ];
        // One row per part held, one letter per part asked for.
        let want = [
            "..X.....", //
            "..X.X.XX", "XXXXXXXX", "..X.X..X", ".XXXX..X", "..X...X.", ".XX..XX.", ".XXXX..X",
        ];
        for (held, row) in parts.iter().zip(want) {
            let mut table = LockTable::default();
            table.lock(CONT, &claim(held.clone()));
            for (asked, expected) in parts.iter().zip(row.chars()) {
                let got = table.conflicts(CONT, &claim(asked.clone()));
                assert_eq!(got, expected == 'X', "held {held:?}, asked {asked:?}");
            }
            assert!(!table.conflicts(ContId(2), &claim(AllExclusive)));
            table.unlock(CONT, &claim(held.clone()));
            assert!(table.is_empty());
        }
    }
}
