//! All histories of small worlds, breadth first: in every state the invariants of [`crate::world`] hold, and from every state the
//! world comes to an end when nothing more goes wrong. Defects that a driver could have must be found.

use crate::moves::Move;
use crate::world::{Defect, Rules, World};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use types::map::{HashMap, SeededState};

/// Most states of a world that is gone through.
const STATE_COUNT_MAX: usize = 20_000_000;

/// What was found, and how it came to that.
#[derive(Debug)]
struct Found {
    wrong: &'static str,
    trace: Vec<Move>,
}

/// Nothing comes to an end any more.
const STUCK: &str = "somebody waits for ever";

/// States that were seen.
#[derive(Default)]
struct Graph {
    known: HashMap<u64, u32>,
    /// Where each was first come from.
    from: Vec<Option<(u32, Move)>>,
    /// Steps with which nothing goes wrong.
    edges: Vec<(u32, u32)>,
    over: Vec<u32>,
}

impl Graph {
    fn trace(&self, at: u32, last: Option<Move>) -> Vec<Move> {
        let mut trace: Vec<Move> = last.into_iter().collect();
        let mut at = at;
        while let Some((from, step)) = self.from[at as usize] {
            trace.push(step);
            at = from;
        }
        trace.reverse();
        trace
    }

    /// A state from which no end can be reached.
    fn stuck(&self) -> Option<u32> {
        let count = self.from.len();
        // Steps sorted by where they lead to.
        let mut begins = vec![0u32; count + 1];
        self.edges.iter().for_each(|(_, to)| begins[*to as usize + 1] += 1);
        (0..count).for_each(|at| begins[at + 1] += begins[at]);
        let mut places = begins.clone();
        let mut sources = vec![0u32; self.edges.len()];
        for (from, to) in &self.edges {
            sources[places[*to as usize] as usize] = *from;
            places[*to as usize] += 1;
        }
        let mut ends = vec![false; count];
        let mut todo = self.over.clone();
        todo.iter().for_each(|at| ends[*at as usize] = true);
        while let Some(at) = todo.pop() {
            let (begin, end) = (begins[at as usize], begins[at as usize + 1]);
            for from in &sources[begin as usize..end as usize] {
                if !std::mem::replace(&mut ends[*from as usize], true) {
                    todo.push(*from);
                }
            }
        }
        ends.iter().position(|ends| !ends).map(|at| at as u32)
    }
}

/// Goes through all histories; how many states there are.
fn explore(rules: &Rules) -> Result<usize, Found> {
    let hasher = SeededState::default();
    let mut graph = Graph::default();
    let mut todo = VecDeque::new();
    let start = World::new(rules).map_err(|wrong| Found { wrong, trace: Vec::new() })?;
    graph.known.insert(hasher.hash_one(&start), 0);
    graph.from.push(None);
    todo.push_back(start);
    let (mut at, mut moves) = (0u32, Vec::new());
    while let Some(world) = todo.pop_front() {
        match world.is_over() {
            Ok(true) => graph.over.push(at),
            Ok(false) => {}
            Err(wrong) => return Err(Found { wrong, trace: graph.trace(at, None) }),
        }
        moves.clear();
        world.moves(rules, &mut moves);
        for step in &moves {
            let next = match world.after(rules, *step) {
                Ok(next) => next,
                Err(wrong) => return Err(Found { wrong, trace: graph.trace(at, Some(*step)) }),
            };
            let count = graph.from.len() as u32;
            let to = *graph.known.entry(hasher.hash_one(&next)).or_insert(count);
            if to == count {
                graph.from.push(Some((at, *step)));
                todo.push_back(next);
            }
            if !matches!(step, Move::Trouble(_)) && to != at {
                graph.edges.push((at, to));
            }
        }
        at += 1;
        assert!(graph.from.len() < STATE_COUNT_MAX, "{rules:?} is too large to be gone through");
    }
    match graph.stuck() {
        Some(at) => Err(Found { wrong: STUCK, trace: graph.trace(at, None) }),
        None => Ok(graph.from.len()),
    }
}

/// A leader without followers, one participant, one trouble.
const ALONE: Rules =
    Rules { member_count: 1, remote_count: 1, fault_count: 1, is_first_local: false, defect: None };
const PAIR: Rules = Rules { member_count: 2, ..ALONE };
const TRIPLE: Rules = Rules { member_count: 3, ..ALONE };
/// The participant's part is with the leader's own target.
const LOCAL: Rules = Rules { member_count: 2, is_first_local: true, ..ALONE };
/// Two participants.
const TWO: Rules = Rules { remote_count: 2, ..ALONE };

fn with_more(rules: Rules, count: u8) -> Rules {
    Rules { fault_count: rules.fault_count + count, ..rules }
}

#[test]
fn small_worlds_stay_whole_and_come_to_an_end() {
    let more = std::env::var("AZEKURA_TX_TROUBLES").ok().and_then(|count| count.parse().ok());
    let (more, mut count) = (more.unwrap_or(0), 0);
    for rules in [with_more(ALONE, 2), LOCAL, TWO, PAIR, TRIPLE] {
        let rules = with_more(rules, more);
        match explore(&rules) {
            Ok(of_world) => {
                println!("{rules:?}: {of_world} states");
                count += of_world;
            }
            Err(found) => panic!("{rules:?}: {}: {:#?}", found.wrong, found.trace),
        }
    }
    assert!(count > 100_000, "{count} states are not all of these worlds");
}

/// What was wrong in drivers once, and what could be.
#[test]
fn every_defect_is_found() {
    let defects = [
        (Defect::ToldBeforeWritten, ALONE),
        (Defect::ToldAfterFailure, ALONE),
        (Defect::ToldBeforeSettled, PAIR),
        (Defect::RepeatedBeforeWritten, with_more(PAIR, 1)),
        (Defect::AnsweredBeforeWritten, with_more(PAIR, 1)),
        (Defect::ForgottenTooEarly, ALONE),
        (Defect::MembersNotToldToForget, with_more(TRIPLE, 1)),
        (Defect::MembersNotToldBefore, with_more(TRIPLE, 1)),
        (Defect::AbortedWhilePending, ALONE),
        (Defect::PreparedBeforeWritten, ALONE),
        (Defect::AcknowledgedBeforeWritten, ALONE),
        (Defect::ToldOnce, ALONE),
        (Defect::NobodyAsks, ALONE),
        (Defect::NothingToldUnwritten, LOCAL),
        (Defect::NobodyAsksHere, LOCAL),
    ];
    for (defect, rules) in defects {
        match explore(&Rules { defect: Some(defect), ..rules }) {
            Ok(count) => panic!("{defect:?} is not found in {count} states"),
            Err(found) => println!("{defect:?}: {} after {:?}", found.wrong, found.trace),
        }
    }
}
