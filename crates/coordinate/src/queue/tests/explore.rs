//! Every reachable state of small cases: some clients that ask, complete, cancel and crash in any
//! order, and a coordinator that is replaced by a new one at any time.
//!
//! States are told apart by what decides the future, so the graph is finite and complete: not
//! paths up to a length, but all paths. In every state the queue's invariants are checked. Then
//! the graph is searched for starvation: a loop in which a client waits all the time although
//! everybody who is in goes out again and again. Deadlock is the shortest such loop, and a state
//! from which nobody gets further is looked for separately.

use super::*;
use std::collections::VecDeque;

/// A client of a case.
#[derive(Clone, Copy)]
struct Actor {
    job: &'static str,
    weight: u16,
    priority: u8,
    targets: &'static [&'static str],
}

const fn actor(targets: &'static [&'static str]) -> Actor {
    Actor { job: "", weight: 1, priority: 0, targets }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Move {
    Ask,
    Complete,
    Cancel,
    Crash,
    Restart,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ActorState {
    Idle,
    Waiting,
    In,
}

struct Edge {
    to: usize,
    actor: usize,
    /// The actor was in and goes out.
    out: bool,
}

#[derive(Default)]
struct Graph {
    states: Vec<Vec<ActorState>>,
    edges: Vec<Vec<Edge>>,
}

fn fresh(settings: &Settings, actors: &[Actor]) -> Queue {
    let mut queue = Queue::new(settings.clone());
    for (at, actor) in actors.iter().enumerate() {
        let Actor { job, weight, priority, .. } = *actor;
        let client = ClientId(at as u64);
        queue.step(0, Event::Joined { client, job, weight, priority }, &mut Vec::new()).unwrap();
    }
    queue
}

fn states(queue: &Queue, actors: usize) -> Vec<ActorState> {
    let state = |at: usize| match queue.clients[&ClientId(at as u64)].outstanding.first() {
        None => ActorState::Idle,
        Some((_, arrival)) if queue.entries[arrival].granted_us.is_some() => ActorState::In,
        Some(_) => ActorState::Waiting,
    };
    (0..actors).map(state).collect()
}

/// All that decides the future, in terms of clients and names.
fn signature(queue: &Queue) -> String {
    // Counters count up to their bound; without one they decide nothing.
    let up_to = |bound: u32| if bound == u32::MAX { 0 } else { bound };
    let overtakes_max = up_to(queue.settings.overtakes_max);
    let passes_max = up_to(queue.settings.passes_max);
    let number_of = |arrival: u64| queue.entries[&arrival].client.0 as usize;
    let mut lanes: Vec<String> = queue
        .targets
        .values()
        .map(|target| {
            let [write, read] = &target.lanes;
            let lanes = [write, read].map(|lane| lane.signature(overtakes_max, &number_of));
            (target.name.clone(), lanes)
        })
        .filter(|(_, lanes)| lanes.iter().any(|lane| !lane.is_empty()))
        .map(|(name, lanes)| format!("{name}{lanes:?}"))
        .collect();
    lanes.sort();
    let mut entries: Vec<_> = queue
        .entries
        .values()
        .map(|entry| {
            let waits = entry.granted_us.is_none();
            // Passes no longer matter to one that reserves or is in.
            let passes =
                if waits && entry.reserves.is_none() { entry.passes.min(passes_max) } else { 0 };
            (entry.client, waits, passes)
        })
        .collect();
    entries.sort_unstable();
    let mut turns: Vec<_> =
        queue.entries.values().filter_map(|e| Some((e.reserves?, e.client))).collect();
    turns.sort_unstable();
    let turns: Vec<_> = turns.iter().map(|(_, client)| client).collect();
    format!("{lanes:?} {entries:?} {turns:?}")
}

fn apply(settings: &Settings, actors: &[Actor], queue: &Queue, at: usize, step: Move) -> Queue {
    let (mut next, client) = (queue.clone(), ClientId(at as u64));
    let mut take = |event: Event<'_>| next.step(0, event, &mut Vec::new()).unwrap();
    let Actor { job, weight, priority, targets } = actors[at];
    match step {
        Move::Ask => take(Event::Asked { client, id: 0, kind: IoKind::Write, bytes: 0, targets }),
        Move::Complete => take(Event::Completed { client, id: 0, bytes: 0, io_us: 0 }),
        Move::Cancel => take(Event::Cancelled { client, id: 0 }),
        Move::Crash => {
            take(Event::Left { client });
            take(Event::Joined { client, job, weight, priority });
        }
        // Everybody goes on without it, and asks the new one next time.
        Move::Restart => return fresh(settings, actors),
    }
    next
}

/// Builds the whole graph, checking every state.
fn explore(settings: &Settings, actors: &[Actor]) -> Graph {
    let start = fresh(settings, actors);
    let mut known = HashMap::from([(signature(&start), 0)]);
    let mut graph = Graph { states: vec![states(&start, actors.len())], edges: vec![Vec::new()] };
    let mut todo = VecDeque::from([start]);
    let mut from = 0;
    while let Some(queue) = todo.pop_front() {
        queue.check();
        let state = graph.states[from].clone();
        if state.iter().all(|one| *one == ActorState::Idle) {
            let lanes = queue.targets.values().flat_map(|target| &target.lanes);
            assert!(lanes.into_iter().all(Lane::is_idle), "a slot is lost");
        }
        let waits = state.contains(&ActorState::Waiting);
        assert!(!waits || state.contains(&ActorState::In), "somebody waits for nobody: deadlock");
        for (at, here) in state.iter().enumerate() {
            let moves: &[Move] = match here {
                ActorState::Idle => &[Move::Ask, Move::Restart],
                ActorState::Waiting => &[Move::Complete, Move::Cancel, Move::Crash],
                ActorState::In => &[Move::Complete, Move::Cancel, Move::Crash],
            };
            for step in moves {
                let next = apply(settings, actors, &queue, at, *step);
                let to = *known.entry(signature(&next)).or_insert_with(|| {
                    graph.states.push(states(&next, actors.len()));
                    graph.edges.push(Vec::new());
                    todo.push_back(next);
                    graph.states.len() - 1
                });
                // A new coordinator ends all waiting: no part of a loop.
                if *step != Move::Restart {
                    let out = *here == ActorState::In;
                    graph.edges[from].push(Edge { to, actor: at, out });
                }
            }
        }
        from += 1;
        assert!(graph.states.len() < 300_000, "the case is too large to be explored");
    }
    graph
}

/// Strongly connected components of the states in which `waiter` waits, moves of its own left out.
fn components(graph: &Graph, waiter: usize) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let waits = |state: usize| graph.states[state][waiter] == ActorState::Waiting;
    let (mut index, mut low) = (vec![NEW; graph.states.len()], vec![0; graph.states.len()]);
    let mut on_stack = vec![false; graph.states.len()];
    let (mut stack, mut next, mut found) = (Vec::new(), 0, Vec::new());
    for root in (0..graph.states.len()).filter(|state| waits(*state)) {
        if index[root] != NEW {
            continue;
        }
        // Tarjan's algorithm; the work list holds states being visited and their next edge.
        let mut work = vec![(root, 0)];
        while let Some((state, edge)) = work.last_mut() {
            let state = *state;
            if *edge == 0 {
                (index[state], low[state]) = (next, next);
                next += 1;
                stack.push(state);
                on_stack[state] = true;
            }
            if let Some(step) = graph.edges[state].get(*edge) {
                *edge += 1;
                let follow = step.actor != waiter && waits(step.to);
                if follow && index[step.to] == NEW {
                    work.push((step.to, 0));
                } else if follow && on_stack[step.to] {
                    low[state] = low[state].min(index[step.to]);
                }
                continue;
            }
            work.pop();
            if let Some((parent, _)) = work.last() {
                low[*parent] = low[*parent].min(low[state]);
            }
            if low[state] == index[state] {
                let at = stack.iter().position(|one| *one == state).expect("it is on the stack");
                let component = stack.split_off(at);
                component.iter().for_each(|one| on_stack[*one] = false);
                found.push(component);
            }
        }
    }
    found
}

/// A loop in which `waiter` waits for ever although everybody who is in goes out, if there is one.
fn starves(graph: &Graph, actors: usize, waiter: usize) -> Option<Vec<usize>> {
    components(graph, waiter).into_iter().find(|component| {
        let inside: std::collections::HashSet<usize> = component.iter().copied().collect();
        let steps = || {
            let all = component.iter().flat_map(|state| &graph.edges[*state]);
            all.filter(|step| step.actor != waiter && inside.contains(&step.to))
        };
        steps().next().is_some()
            && (0..actors).all(|other| {
                component.iter().any(|state| graph.states[*state][other] != ActorState::In)
                    || steps().any(|step| step.actor == other && step.out)
            })
    })
}

fn settings(limit: u32) -> Settings {
    let limits = Limits { write: Limit::Fixed(limit), read: Limit::Off };
    Settings { limits, passes_max: 1, overtakes_max: 2, hold_us_max: 0, ..Settings::default() }
}

/// Explores, demands that nobody starves; returns the number of states.
fn prove(settings: &Settings, actors: &[Actor]) -> usize {
    let graph = explore(settings, actors);
    for waiter in 0..actors.len() {
        if let Some(component) = starves(&graph, actors.len(), waiter) {
            let seen: Vec<_> = component.iter().take(5).map(|at| &graph.states[*at]).collect();
            panic!("client {waiter} waits for ever, as in {seen:?}");
        }
    }
    graph.states.len()
}

const A: Actor = actor(&["a"]);
const B: Actor = actor(&["b"]);
const AB: Actor = actor(&["a", "b"]);
const BA: Actor = actor(&["b", "a"]);

#[test]
fn one_target() {
    // Nobody; or one of 3 is in and none, one, or two in either order wait.
    assert_eq!(prove(&settings(1), &[A, A, A]), 1 + 3 * (1 + 2 + 2));
    // Nobody, one, or two of 4 are in, and in the last case the others may wait.
    assert_eq!(prove(&settings(2), &[A, A, A, A]), 1 + 4 + 6 * (1 + 2 + 2));
}

#[test]
fn several_targets_at_once() {
    for limit in [1, 2] {
        prove(&settings(limit), &[AB, A, B]);
        prove(&settings(limit), &[AB, BA, A, B]);
    }
    prove(&settings(1), &[A, A, B, AB]);
}

#[test]
fn a_ring_of_targets() {
    let ring = [actor(&["a", "b"]), actor(&["b", "c"]), actor(&["c", "a"])];
    prove(&settings(1), &ring);
    prove(&settings(1), &[ring[0], ring[1], ring[2], A]);
}

#[test]
fn priorities() {
    let low = |actor: Actor| Actor { priority: 0, ..actor };
    let high = |actor: Actor| Actor { priority: 1, ..actor };
    prove(&settings(1), &[low(A), high(A), high(A)]);
    prove(&settings(1), &[low(AB), high(A), high(B), high(A)]);
    prove(&settings(2), &[low(A), high(A), high(A), high(A)]);
}

#[test]
fn jobs_of_different_weight() {
    let of = |actor: Actor, job, weight| Actor { job, weight, ..actor };
    prove(&settings(1), &[of(A, "x", 1), of(A, "y", 2), of(A, "y", 2)]);
    prove(&settings(1), &[of(AB, "x", 1), of(A, "y", 2), of(B, "y", 2)]);
}

/// The search must be able to find what it looks for.
#[test]
fn without_the_bounds_starvation_is_found() {
    let unbounded = Settings { passes_max: u32::MAX, overtakes_max: u32::MAX, ..settings(1) };
    let high = Actor { priority: 1, ..A };
    let graph = explore(&unbounded, &[A, high, high]);
    assert!(starves(&graph, 3, 0).is_some(), "low priority");
    assert!(starves(&graph, 3, 1).is_none(), "high priority");
    let graph = explore(&unbounded, &[AB, A, B]);
    assert!(starves(&graph, 3, 0).is_some(), "two targets that are never free together");
}
