//! The lock table compared with one that keeps a list of locked bytes and looks at all of it.

use super::*;
use proptest::prelude::*;
use types::{ContId, Oid, PoolId, Unit};
use wire::lock::LockOwner;

const BYTES: u64 = 8;

fn key(object: u64, kind: LockKind) -> Key {
    (
        (PoolId(1), ContId(1), Unit { object: Oid { hi: 0, lo: object }, group: 3, cell: 4 }),
        kind.space(),
    )
}

fn owner(id: u64) -> LockOwner {
    LockOwner { holder: 1, id }
}

fn wish(kind: LockKind, id: u64, range: (u64, u64), mode: LockMode) -> Wish {
    let range = LockRange { first: range.0, last: range.1 };
    // Owners 0 and 2 live in one client, 1 and 3 in the other.
    Wish { kind, owner: owner(id), pid: id as u32, client: ClientId(id % 2), range, mode }
}

/// Bytes held, and waits in the order of coming.
#[derive(Default)]
struct Model {
    held: Vec<(Key, LockOwner, ClientId, u64, LockMode)>,
    waiting: Vec<(Ticket, Key, Wish)>,
}

impl Model {
    fn covers(range: LockRange, byte: u64) -> bool {
        (range.first..=range.last).contains(&byte)
    }

    fn blockers(&self, key: Key, wish: &Wish, before: usize) -> Vec<LockOwner> {
        let held = self.held.iter().filter(|(at, whose, _, byte, mode)| {
            *at == key
                && *whose != wish.owner
                && Model::covers(wish.range, *byte)
                && mode.excludes(wish.mode)
        });
        let mut all: Vec<LockOwner> = held.map(|(_, whose, ..)| *whose).collect();
        let holds = self.held.iter().any(|(at, whose, ..)| at.1 == key.1 && *whose == wish.owner);
        if !holds {
            let ahead = self.waiting[..before].iter().filter(|(_, at, first)| {
                *at == key
                    && first.owner != wish.owner
                    && first.mode.excludes(wish.mode)
                    && (0..BYTES).any(|byte| {
                        Model::covers(first.range, byte) && Model::covers(wish.range, byte)
                    })
            });
            all.extend(ahead.map(|(.., first)| first.owner));
        }
        all
    }

    fn is_held_off(&self, key: Key, wish: &Wish) -> bool {
        self.held.iter().any(|(at, whose, _, byte, mode)| {
            *at == key
                && *whose != wish.owner
                && Model::covers(wish.range, *byte)
                && mode.excludes(wish.mode)
        })
    }

    fn waits_for_itself(&self, key: Key, wish: &Wish) -> bool {
        let mut reached = self.blockers(key, wish, self.waiting.len());
        reached.sort_unstable();
        reached.dedup();
        loop {
            let mut more = reached.clone();
            for (place, (_, at, waiting)) in self.waiting.iter().enumerate() {
                if waiting.kind == LockKind::Posix
                    && at.1 == key.1
                    && reached.contains(&waiting.owner)
                {
                    more.extend(self.blockers(*at, waiting, place));
                }
            }
            more.sort_unstable();
            more.dedup();
            if more.len() == reached.len() {
                return reached.contains(&wish.owner);
            }
            reached = more;
        }
    }

    fn clear(&mut self, key: Key, owner: LockOwner, range: LockRange) {
        self.held.retain(|(at, whose, _, byte, _)| {
            *at != key || *whose != owner || !Model::covers(range, *byte)
        });
    }

    fn grant(&mut self, key: Key, wish: &Wish) {
        assert!(!self.is_held_off(key, wish), "{wish:?} was granted against a holder");
        self.clear(key, wish.owner, wish.range);
        // All of an owner's locks on an object go with the client that locked last.
        for (at, whose, client, ..) in &mut self.held {
            if *at == key && *whose == wish.owner {
                *client = wish.client;
            }
        }
        for byte in (0..BYTES).filter(|byte| Model::covers(wish.range, *byte)) {
            self.held.push((key, wish.owner, wish.client, byte, wish.mode));
        }
    }

    /// Carries out what the table says it granted, checking each.
    fn follow(&mut self, granted: &[Ticket]) {
        for ticket in granted {
            let at = self.waiting.iter().position(|(t, ..)| t == ticket).expect("somebody waits");
            let (_, key, wish) = self.waiting[at];
            assert!(self.blockers(key, &wish, at).is_empty(), "{wish:?} went past others");
            self.waiting.remove(at);
            self.grant(key, &wish);
        }
        for (at, (_, key, wish)) in self.waiting.iter().enumerate() {
            assert!(!self.blockers(*key, wish, at).is_empty(), "{wish:?} waits for nothing");
        }
    }

    fn compare(&self, table: &LockTable) {
        for object in 0..2 {
            for kind in [LockKind::Flock, LockKind::Posix] {
                for id in 0..4 {
                    for byte in 0..BYTES {
                        let key = key(object, kind);
                        let found = table.held_by(key, owner(id)).and_then(|held| {
                            let range = LockRange { first: byte, last: byte };
                            held.iter().find(|(held, _)| held.overlaps(range))
                        });
                        let want = self.held.iter().find(|(at, whose, _, held, _)| {
                            *at == key && *whose == owner(id) && *held == byte
                        });
                        assert_eq!(found.map(|(_, mode)| mode), want.map(|(.., mode)| *mode));
                    }
                }
            }
        }
        let idle = self.held.is_empty() && self.waiting.is_empty();
        assert_eq!(table.is_empty(), idle);
        if idle {
            assert!(table.waits.is_empty() && table.holds.is_empty() && table.counts.is_empty());
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Acquire { object: u64, kind: LockKind, id: u64, range: (u64, u64), mode: LockMode, wait: bool },
    Release { object: u64, kind: LockKind, id: u64, range: (u64, u64) },
    Cancel { which: usize },
    DropClient { client: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let kind = prop_oneof![Just(LockKind::Posix), Just(LockKind::Ofd), Just(LockKind::Flock)];
    let mode = prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)];
    let step = prop_oneof![
        8 => (0..2u64, kind.clone(), 0..4u64, range.clone(), mode, any::<bool>()).prop_map(
            |(object, kind, id, range, mode, wait)| {
                let range = if kind == LockKind::Flock { (0, BYTES - 1) } else { range };
                Step::Acquire { object, kind, id, range, mode, wait }
            }
        ),
        4 => (0..2u64, kind, 0..4u64, range)
            .prop_map(|(object, kind, id, range)| Step::Release { object, kind, id, range }),
        1 => (0..8usize).prop_map(|which| Step::Cancel { which }),
        1 => (0..2u64).prop_map(|client| Step::DropClient { client }),
    ];
    prop::collection::vec(step, 1..60)
}

fn run(steps: &[Step]) {
    let (mut table, mut model) = (LockTable::default(), Model::default());
    for (number, step) in steps.iter().enumerate() {
        let mut granted = Vec::new();
        match *step {
            Step::Acquire { object, kind, id, range, mode, wait } => {
                let (key, wish) = (key(object, kind), wish(kind, id, range, mode));
                let ticket = wait.then_some(Ticket { client: wish.client, number: number as u64 });
                let held_off = model.is_held_off(key, &wish);
                let blocked = !model.blockers(key, &wish, model.waiting.len()).is_empty();
                let circle = kind == LockKind::Posix && model.waits_for_itself(key, &wish);
                match table.acquire(key, wish, ticket, &mut granted) {
                    Err(error) => {
                        assert_eq!(error.code, Code::Deadlock);
                        assert!(wait && blocked && circle, "{step:?}");
                    }
                    Ok(Outcome::Refused(holder)) => {
                        assert!(!wait && held_off);
                        assert!(holder.owner != wish.owner && holder.range.overlaps(wish.range));
                    }
                    Ok(Outcome::Waiting) => {
                        assert!(wait && blocked && !circle);
                        if kind == LockKind::Flock {
                            model.clear(key, wish.owner, LockRange::WHOLE);
                        }
                        model.waiting.push((ticket.expect("it waits"), key, wish));
                    }
                    Ok(Outcome::Granted) => {
                        if wait && blocked {
                            // A flock that gave up what others then gave back at once.
                            assert_eq!(kind, LockKind::Flock);
                            model.clear(key, wish.owner, LockRange::WHOLE);
                        }
                        assert!(wait || !held_off);
                        model.grant(key, &wish);
                    }
                }
            }
            Step::Release { object, kind, id, range } => {
                let range = LockRange { first: range.0, last: range.1 };
                table.release(key(object, kind), owner(id), range, &mut granted);
                model.clear(key(object, kind), owner(id), range);
            }
            Step::Cancel { which } => {
                if which < model.waiting.len() {
                    let (ticket, ..) = model.waiting.remove(which);
                    assert!(table.cancel(ticket, &mut granted));
                } else {
                    let nobody = Ticket { client: ClientId(9), number: 0 };
                    assert!(!table.cancel(nobody, &mut granted));
                }
            }
            Step::DropClient { client } => {
                table.drop_client(ClientId(client), |_| true, &mut granted);
                model.waiting.retain(|(ticket, ..)| ticket.client != ClientId(client));
                model.held.retain(|(_, _, of, ..)| *of != ClientId(client));
            }
        }
        model.follow(&granted);
        model.compare(&table);
    }
}

proptest! {
    #[test]
    fn the_table_does_what_a_list_of_bytes_does(steps in steps()) {
        run(&steps);
    }
}

#[test]
fn who_came_first_is_served_first_and_a_circle_is_refused() {
    let (mut table, mut granted) = (LockTable::default(), Vec::new());
    let at = key(0, LockKind::Posix);
    let ticket = |number| Some(Ticket { client: ClientId(number % 2), number });
    let whole = (0, BYTES - 1);
    let mut ask = |object, id, mode, wait: Option<u64>, granted: &mut Vec<Ticket>| {
        let wish = wish(LockKind::Posix, id, whole, mode);
        table.acquire(key(object, LockKind::Posix), wish, wait.and_then(ticket), granted)
    };
    use LockMode::{Exclusive, Shared};
    assert_eq!(ask(0, 0, Shared, None, &mut granted).unwrap(), Outcome::Granted);
    assert_eq!(ask(0, 1, Exclusive, Some(1), &mut granted).unwrap(), Outcome::Waiting);
    // A reader that came after the writer does not go past it, unless it does not wait.
    assert_eq!(ask(0, 2, Shared, Some(2), &mut granted).unwrap(), Outcome::Waiting);
    assert_eq!(ask(1, 3, Exclusive, None, &mut granted).unwrap(), Outcome::Granted);
    assert_eq!(ask(1, 0, Shared, Some(4), &mut granted).unwrap(), Outcome::Waiting);
    // 3 would wait for 0, which waits for 3.
    assert_eq!(ask(0, 3, Exclusive, Some(5), &mut granted).unwrap_err().code, Code::Deadlock);
    assert!(granted.is_empty());
    table.release(at, owner(0), LockRange::WHOLE, &mut granted);
    assert_eq!(granted.iter().map(|t| t.number).collect::<Vec<_>>(), [1]);
    granted.clear();
    table.release(at, owner(1), LockRange::WHOLE, &mut granted);
    assert_eq!(granted.iter().map(|t| t.number).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_client_has_only_so_many_locks() {
    let (mut table, mut granted) = (LockTable::default(), Vec::new());
    let at = key(0, LockKind::Posix);
    let mut ask = |byte: u64, id: u64| {
        let wish = wish(LockKind::Posix, id, (byte, byte), LockMode::Exclusive);
        table.acquire(at, wish, None, &mut granted)
    };
    for n in 0..LOCKS_PER_CLIENT_MAX as u64 - 1 {
        assert_eq!(ask(2 * n, 0).unwrap(), Outcome::Granted);
    }
    assert_eq!(ask(1 << 40, 0).unwrap_err().code, Code::NoLocks);
    // Another client has its own.
    assert_eq!(ask(1 << 41, 1).unwrap(), Outcome::Granted);
}

/// A lock of a description that two processes have ended with the process that took it:
/// `flock 9` in a script locked nothing for the commands after it.
#[test]
fn a_shared_owners_lock_lasts_until_the_last_client_that_holds_it_has_gone() {
    let (mut table, mut granted) = (LockTable::default(), Vec::new());
    let at = key(0, LockKind::Flock);
    let shared = LockOwner { holder: LockOwner::SHARED, id: 77 };
    let whole = (0, u64::MAX);
    let taken = |client, owner| Wish {
        owner,
        client: ClientId(client),
        ..wish(LockKind::Flock, 0, whole, LockMode::Exclusive)
    };
    assert!(!table.join(at, shared, ClientId(2)), "there is nothing to hold");
    let outcome = table.acquire(at, taken(1, shared), None, &mut granted).unwrap();
    assert_eq!(outcome, Outcome::Granted);
    assert!(table.join(at, shared, ClientId(2)) && table.join(at, shared, ClientId(3)));
    table.drop_client(ClientId(1), |_| true, &mut granted);
    let other = taken(4, owner(5));
    assert!(matches!(table.acquire(at, other, None, &mut granted), Ok(Outcome::Refused(_))));
    table.part(at, shared, ClientId(2), &mut granted);
    table.part(at, shared, ClientId(2), &mut granted);
    let ticket = Ticket { client: ClientId(4), number: 1 };
    let waits = table.acquire(at, other, Some(ticket), &mut granted).unwrap();
    assert_eq!((waits, &granted[..]), (Outcome::Waiting, &[][..]));
    assert!(table.is_last(at, shared, ClientId(3)) && !table.is_last(at, shared, ClientId(2)));
    table.drop_client(ClientId(3), |_| true, &mut granted);
    assert_eq!(granted, [ticket]);
    // Whoever changes it is one that holds it; one unlock is an unlock for all.
    table.release(at, owner(5), LockRange::WHOLE, &mut granted);
    for client in [1, 2, 1] {
        let outcome = table.acquire(at, taken(client, shared), None, &mut granted).unwrap();
        assert_eq!(outcome, Outcome::Granted);
    }
    table.drop_client(ClientId(1), |_| true, &mut granted);
    assert!(table.held_by(at, shared).is_some());
    table.release(at, shared, LockRange::WHOLE, &mut granted);
    assert!(table.is_empty() && table.counts.is_empty() && table.holds.is_empty());
    // When the process of a client has ended, it loses what is its own and what it waits for.
    let own = owner(7);
    let bytes = |mode| Wish { range: LockRange { first: 0, last: 3 }, mode, ..taken(8, own) };
    for wish in [taken(8, shared), taken(9, shared), taken(8, shared)] {
        table.acquire(at, wish, None, &mut granted).unwrap();
    }
    let elsewhere = key(1, LockKind::Posix);
    table.acquire(elsewhere, bytes(LockMode::Exclusive), None, &mut granted).unwrap();
    let behind = Ticket { client: ClientId(8), number: 5 };
    let waits = table.acquire(at, bytes(LockMode::Shared), Some(behind), &mut granted).unwrap();
    assert_eq!(waits, Outcome::Waiting);
    table.drop_client(ClientId(8), |owner| !owner.is_shared(), &mut granted);
    assert!(table.held_by(elsewhere, own).is_none() && !table.is_waiting(behind));
    assert!(!table.is_last(at, shared, ClientId(8)) && table.held(at, shared).len() == 1);
    table.drop_client(ClientId(8), |_| true, &mut granted);
    assert!(table.is_last(at, shared, ClientId(9)));
    table.drop_client(ClientId(9), |_| true, &mut granted);
    // The second client parted, but has not gone.
    assert!(table.is_empty() && table.counts.is_empty());
    assert!(table.joined.iter().eq([&ClientId(2)]));
    // An owner of one process is not joined.
    table.acquire(at, other, None, &mut granted).unwrap();
    assert!(!table.join(at, owner(5), ClientId(2)));
}

/// A client locks again what it knew of when it began; what another one of its process has taken since is not less for that.
#[test]
fn what_is_held_exclusively_stays_so_when_it_is_locked_again() {
    let (kind, mut granted) = (LockKind::Posix, Vec::new());
    let (key, mut table) = (key(1, kind), LockTable::default());
    let set = wish(kind, 1, (2, 3), LockMode::Exclusive);
    assert_eq!(table.acquire(key, set, None, &mut granted).unwrap(), Outcome::Granted);
    let range = |first, last| LockRange { first, last };
    let again = [(range(0, 5), LockMode::Shared), (range(7, 7), LockMode::Exclusive)];
    assert!(table.reclaim(key, wish(kind, 1, (0, 0), LockMode::Shared), &again, &mut granted));
    let expected = [
        (range(0, 1), LockMode::Shared),
        (range(2, 3), LockMode::Exclusive),
        (range(4, 5), LockMode::Shared),
        (range(7, 7), LockMode::Exclusive),
    ];
    assert_eq!(table.held(key, owner(1)), expected);
}
