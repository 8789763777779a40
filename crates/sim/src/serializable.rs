//! Is there an order of the transactions in which each, run alone, sees what it saw?
//!
//! For keys that only transactions write, that read them first, and whose values are unique: then
//! the order of a key's versions is known, and the question is whether the graph of dependencies has
//! a cycle. A read depends on who wrote what it saw, a write on who wrote before it and on all who
//! read that; and, because it is to hold as a user tells time, whatever was invoked after an answer
//! depends on that, too.
//!
//! A. Adya: Weak consistency, 1999, for the graph.

use crate::history::Moment;
use std::collections::BTreeMap;

/// A transaction that was committed, or may have been.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// When its first read was asked.
    pub begun: Moment,
    /// When it was answered; `None`: it may have been committed, or not.
    pub committed: Option<Moment>,
    /// Values seen, by key.
    pub reads: BTreeMap<u64, u64>,
    /// Values written, by key; each key was read, too.
    pub writes: BTreeMap<u64, u64>,
}

/// Checks transactions over keys that held `start` before the first of them. What is wrong, if
/// anything is.
pub fn check(start: &BTreeMap<u64, u64>, all: &[Transaction]) -> Result<(), String> {
    let mut writers: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for (at, tx) in all.iter().enumerate() {
        for (key, value) in &tx.writes {
            assert!(writers.insert((*key, *value), at).is_none(), "values are unique");
        }
    }
    let happened = happened(all, &writers);
    // Who took the place of a version.
    let mut successors: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for (at, tx) in all.iter().enumerate().filter(|(at, _)| happened[*at]) {
        for key in tx.writes.keys() {
            let seen = tx.reads.get(key).ok_or_else(|| format!("{tx:?} wrote {key} unread"))?;
            if let Some(other) = successors.insert((*key, *seen), at) {
                return Err(format!("an update was lost: {:?} and {tx:?}", all[other]));
            }
        }
    }
    let mut edges: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (at, tx) in all.iter().enumerate().filter(|(at, _)| happened[*at]) {
        for (key, value) in &tx.reads {
            match writers.get(&(*key, *value)) {
                Some(writer) => edges[*writer].push(at),
                None if start.get(key) == Some(value) => {}
                None => return Err(format!("nobody wrote what {tx:?} saw of key {key}")),
            }
            if let Some(next) = successors.get(&(*key, *value)).filter(|next| **next != at) {
                edges[at].push(*next);
            }
        }
        if let Some(end) = tx.committed {
            let later = (0..all.len()).filter(|other| all[*other].begun > end && happened[*other]);
            edges[at].extend(later);
        }
    }
    match cycle(&edges) {
        Some(cycle) => {
            let list: Vec<String> = cycle.iter().map(|at| format!("{:?}", all[*at])).collect();
            Err(format!("transactions depend on each other in a circle:\n{}", list.join("\n")))
        }
        None => Ok(()),
    }
}

/// Which transactions took effect: the answered ones, and those whose values were seen by one that did.
fn happened(all: &[Transaction], writers: &BTreeMap<(u64, u64), usize>) -> Vec<bool> {
    let mut happened = vec![false; all.len()];
    let mut waiting: Vec<usize> =
        (0..all.len()).filter(|at| all[*at].committed.is_some()).collect();
    while let Some(at) = waiting.pop() {
        if !std::mem::replace(&mut happened[at], true) {
            let seen = all[at].reads.iter().filter_map(|(key, value)| writers.get(&(*key, *value)));
            waiting.extend(seen);
        }
    }
    happened
}

/// The nodes of a cycle, if there is one.
fn cycle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; edges.len()];
    for start in 0..edges.len() {
        if marks[start] != Mark::New {
            continue;
        }
        marks[start] = Mark::Open;
        let mut path = vec![(start, 0)];
        while let Some((at, taken)) = path.last_mut() {
            let Some(next) = edges[*at].get(*taken).copied() else {
                marks[*at] = Mark::Done;
                path.pop();
                continue;
            };
            *taken += 1;
            match marks[next] {
                Mark::New => {
                    marks[next] = Mark::Open;
                    path.push((next, 0));
                }
                Mark::Open => {
                    let from = path.iter().position(|(at, _)| *at == next).unwrap_or(0);
                    return Some(path[from..].iter().map(|(at, _)| *at).collect());
                }
                Mark::Done => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tx(begun: Moment, end: Moment, reads: &[(u64, u64)], writes: &[(u64, u64)]) -> Transaction {
        Transaction {
            begun,
            committed: Some(end).filter(|end| *end > 0),
            reads: reads.iter().copied().collect(),
            writes: writes.iter().copied().collect(),
        }
    }

    fn start() -> BTreeMap<u64, u64> {
        [(1, 100), (2, 200)].into()
    }

    #[test]
    fn known_good() {
        let all = [
            tx(1, 2, &[(1, 100), (2, 200)], &[(1, 101)]),
            tx(3, 4, &[(1, 101), (2, 200)], &[(2, 201)]),
            // A reader that overlaps both and comes between them.
            tx(1, 9, &[(1, 101), (2, 200)], &[]),
        ];
        assert_eq!(check(&start(), &all), Ok(()));
        // One without an answer that was seen, one that was not.
        let all = [
            tx(1, 0, &[(1, 100)], &[(1, 101)]),
            tx(3, 4, &[(1, 101)], &[]),
            tx(5, 0, &[(1, 101)], &[(1, 102)]),
            tx(6, 7, &[(1, 101)], &[(1, 103)]),
        ];
        assert_eq!(check(&start(), &all), Ok(()));
    }

    #[test]
    fn known_bad() {
        let fails = |all: &[Transaction], text: &str| {
            let error = check(&start(), all).unwrap_err();
            assert!(error.contains(text), "{error}");
        };
        // Write skew.
        let both = [(1, 100), (2, 200)];
        fails(&[tx(1, 9, &both, &[(1, 101)]), tx(1, 9, &both, &[(2, 201)])], "circle");
        // A lost update.
        let one = [(1, 100)];
        fails(&[tx(1, 9, &one, &[(1, 101)]), tx(1, 9, &one, &[(1, 102)])], "lost");
        // Half of a transaction.
        let writer = tx(1, 9, &both, &[(1, 101), (2, 201)]);
        fails(&[writer, tx(1, 9, &[(1, 101), (2, 200)], &[])], "circle");
        // A read of the past.
        fails(&[tx(1, 2, &one, &[(1, 101)]), tx(3, 4, &one, &[])], "circle");
        // What nobody wrote.
        fails(&[tx(1, 2, &[(1, 7)], &[])], "nobody");
        // Two readers that see two writes in two orders.
        let writes = [tx(1, 20, &[(1, 100)], &[(1, 101)]), tx(1, 20, &[(2, 200)], &[(2, 201)])];
        let first = tx(2, 19, &[(1, 101), (2, 200)], &[]);
        let second = tx(2, 19, &[(1, 100), (2, 201)], &[]);
        fails(&[&writes[..], &[first, second]].concat(), "circle");
    }
}
