//! The yardsticks of a round trip: what a connection costs without a store behind it, and what the
//! kernel's TCP costs without a connection of ours.
//!
//! The asking side is a worker process, the answering side a thread of this process. Over TCP it
//! is tried both ways, with sides that sleep in the kernel and with sides that look again and
//! again; the faster one counts. Large messages come from, and go to, as much memory on the
//! answering side as a file of the pattern has that they are held against: what a store sends lies
//! in memory, not in the processor's cache.

use super::bed::Bed;
use super::collect::Collector;
use crate::crew::{Crew, Job, Phase, PhaseSamples, Step};
use crate::report::PhaseResult;
use crate::worker::{Task, Work};
use env::Env;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use transport::{Acceptor, Address, Call, Conn, Dial, connect};
use types::{ClientId, Code, Error, Result, TargetId};
use wire::Kind;
use wire::hello::{HelloReply, Service};

/// Bytes of a small message, about what a request and an answer have.
pub const SMALL_BYTES: usize = 128;
/// How long to wait for the other side at most.
const PATIENCE: Duration = Duration::from_secs(30);
const MIB: f64 = (1 << 20) as f64;

/// How a worker asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Through a connection of ours over shared memory; the answering sides' sockets, by rank.
    Shm(Vec<PathBuf>),
    /// Through a bare TCP connection to a port of this host.
    Tcp { port: u16, exchange: Exchange },
}

/// What goes to and fro over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exchange {
    /// Bytes of a question.
    pub asks: usize,
    /// Bytes of an answer.
    pub answers: usize,
    /// The sides look for bytes without sleeping.
    pub looks: bool,
    /// Bytes of the answering side's memory that messages come from and go to, one piece after the
    /// other; at least one message of each kind.
    pub memory: usize,
}

/// A worker with its connection open.
pub(crate) enum HopTask {
    Shm { env: Env, conn: Conn, id_last: u64 },
    Tcp { stream: TcpStream, exchange: Exchange },
}

fn doing(error: std::io::Error) -> Error {
    Error::io("exchanging over loopback", error)
}

impl HopTask {
    pub(crate) fn connect(load: &Load, rank: u32) -> Result<HopTask> {
        match load {
            Load::Shm(paths) => {
                let missing = || Error::inval("no answering side for this rank");
                let path = paths.get(rank as usize).ok_or_else(missing)?;
                let env = Env::real()?;
                let dial = Dial {
                    client: ClientId(u64::from(rank) + 1),
                    service: Service::Target(TargetId(rank)),
                    token: b"",
                    job: "",
                    timeout: PATIENCE,
                };
                let address = Address::Unix(path.clone());
                let conn = env.block_on(connect(&env, &address, &dial))?;
                Ok(HopTask::Shm { env, conn, id_last: 0 })
            }
            Load::Tcp { port, exchange } => {
                let stream = TcpStream::connect(("127.0.0.1", *port)).map_err(doing)?;
                stream.set_nodelay(true).map_err(doing)?;
                stream.set_nonblocking(exchange.looks).map_err(doing)?;
                Ok(HopTask::Tcp { stream, exchange: *exchange })
            }
        }
    }
}

impl Task for HopTask {
    fn run(&mut self, step: &Step, _: &mut dyn FnMut(u64) -> Result<u64>) -> Result<Work> {
        let mut bytes = 0;
        match self {
            HopTask::Shm { env, conn, id_last } => {
                let body = [7; SMALL_BYTES];
                for _ in 0..step.item_count {
                    *id_last += 1;
                    let call = Call {
                        kind: Kind::Request,
                        request_id: *id_last,
                        flags: 0,
                        map_version: 1,
                        deadline: PATIENCE,
                        body: &body,
                        bulk_out: &[],
                        bulk_in: &mut [],
                    };
                    env.block_on(conn.call(call))?;
                }
            }
            HopTask::Tcp { stream, exchange } => {
                let question = vec![7; exchange.asks];
                let mut answer = vec![0; exchange.answers];
                for _ in 0..step.item_count {
                    write_all(stream, &question)?;
                    if !read_all(stream, &mut answer)? {
                        return Err(Error::new(Code::Closed, "the answering side has gone"));
                    }
                    bytes += exchange.asks.max(exchange.answers) as u64;
                }
            }
        }
        Ok(Work { ops: step.item_count, bytes })
    }
}

fn write_all(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if is_retry(&error) => std::hint::spin_loop(),
            Err(error) => return Err(doing(error)),
        }
    }
    Ok(())
}

/// Reads all of `out`; false when the other side has closed.
fn read_all(stream: &mut TcpStream, mut out: &mut [u8]) -> Result<bool> {
    while !out.is_empty() {
        match stream.read(out) {
            Ok(0) => return Ok(false),
            Ok(count) => out = &mut out[count..],
            Err(error) if is_retry(&error) => std::hint::spin_loop(),
            Err(error) => return Err(doing(error)),
        }
    }
    Ok(true)
}

fn is_retry(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Answers one connection of ours until it closes.
fn serve_shm(env: &Env, acceptor: &Acceptor) -> Result<()> {
    let late = || Error::new(Code::TimedOut, "nobody has connected");
    env.block_on(async {
        let incomer = env.timeout(PATIENCE, acceptor.accept()).await.ok_or_else(late)??;
        let reply = HelloReply {
            incarnation: 1,
            remote_bulk: false,
            engine_version: "hop".into(),
            proof: Default::default(),
        };
        let conn = incomer.into_handoff().serve(env, reply)?;
        while let Some(incoming) = conn.recv().await? {
            incoming.responder.reply(1, &incoming.body, &[]).await?;
        }
        Ok(())
    })
}

/// Answers one TCP connection until it closes.
fn serve_tcp(listener: &TcpListener, exchange: Exchange) -> Result<()> {
    let (mut stream, _) = listener.accept().map_err(doing)?;
    stream.set_nodelay(true).map_err(doing)?;
    stream.set_nonblocking(exchange.looks).map_err(doing)?;
    let largest = exchange.asks.max(exchange.answers);
    let mut memory = vec![7; exchange.memory.max(largest)];
    for at in (0..=memory.len() - largest).step_by(largest.max(1)).cycle() {
        if !read_all(&mut stream, &mut memory[at..at + exchange.asks])? {
            break;
        }
        write_all(&mut stream, &memory[at..at + exchange.answers])?;
    }
    Ok(())
}

/// Has workers ask `count` times each.
fn ask(load: Load, place: &crate::Where, processes: u32, count: u64) -> Result<PhaseResult> {
    let mut crew = Crew::start(&Job::Hop(load), place, processes)?;
    let mut run = |item_count: u64| -> Result<PhaseSamples> {
        let step = Step { phase: Phase::Read, iteration: 0, item_count, wall_ns: None };
        crew.run(step, &[std::process::id()])
    };
    // What is learned and taken from the system at the start is no round trip.
    run(count.div_ceil(10))?;
    let done = run(count)?;
    crew.finish()?;
    Ok(PhaseResult::from_samples(Phase::Read, 0, &done))
}

/// Round trips per second of `pairs` pairs over shared memory.
fn shm_hop(dir: &Path, place: &crate::Where, pairs: u32, count: u64) -> Result<PhaseResult> {
    let paths: Vec<PathBuf> = (0..pairs).map(|rank| dir.join(format!("hop{rank}"))).collect();
    let mut sides = Vec::new();
    for path in &paths {
        let (path, (ready, is_ready)) = (path.clone(), std::sync::mpsc::channel());
        sides.push(std::thread::spawn(move || {
            let env = Env::real()?;
            let acceptor = env.block_on(Acceptor::bind(&env, None, Some(&path)))?;
            // The other end is gone when nobody waits any more.
            let _ = ready.send(());
            let served = serve_shm(&env, &acceptor);
            drop(acceptor);
            env.clear();
            served
        }));
        // An error here is told below: the thread has ended.
        let _ = is_ready.recv();
    }
    let asked = ask(Load::Shm(paths.clone()), place, pairs, count);
    let mut outcome = asked?;
    for side in sides {
        join(side)?;
    }
    for path in paths {
        let _ = std::fs::remove_file(path);
    }
    outcome.bytes = 0;
    Ok(outcome)
}

fn join(side: std::thread::JoinHandle<Result<()>>) -> Result<()> {
    side.join().map_err(|_| Error::new(Code::Io, "the answering thread panicked"))?
}

fn tcp_exchange(place: &crate::Where, exchange: Exchange, count: u64) -> Result<PhaseResult> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(doing)?;
    let port = listener.local_addr().map_err(doing)?.port();
    let side = std::thread::spawn(move || serve_tcp(&listener, exchange));
    let asked = ask(Load::Tcp { port, exchange }, place, 1, count);
    if asked.is_err() && !side.is_finished() {
        // Nobody may have come; this lets the thread go.
        let _ = TcpStream::connect(("127.0.0.1", port));
    }
    let served = join(side);
    let outcome = asked?;
    served.map(|()| outcome)
}

/// What is exchanged beside small messages: the name, bytes asked with and answered.
pub const TRANSFERS: [(&str, u64); 3] = [("47008", 47_008), ("64k", 64 << 10), ("1m", 1 << 20)];

/// Measures all yardsticks once.
pub fn measure(bed: &Bed, pairs: u32, scaled: &dyn Fn(u64, u64) -> u64, all: &mut Collector) {
    let place = bed.yardstick();
    match shm_hop(bed.root(), &place, pairs, scaled(200_000, 50)) {
        Ok(hop) => {
            all.put("bare hop", "op/s", hop.ops_per_s);
            all.put("bare hop cpu", "µs/op", hop.cpu_us_per_op());
        }
        Err(error) => all.fail("bare hop", &error),
    }
    let mut better = |name: String, asks: usize, answers: usize, count: u64, is_small: bool| {
        let both: Result<Vec<PhaseResult>> = [false, true]
            .into_iter()
            .map(|looks| {
                let memory = if is_small { 0 } else { asks.max(answers) * count as usize };
                tcp_exchange(&place, Exchange { asks, answers, looks, memory }, count)
            })
            .collect();
        let best =
            both.map(|both| both.into_iter().max_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s)));
        match best {
            Ok(Some(best)) if is_small => {
                all.put(&name, "op/s", best.ops_per_s);
                all.put(&format!("{name} cpu"), "µs/op", best.cpu_us_per_op());
            }
            Ok(Some(best)) => all.put(&name, "MiB/s", best.bytes_per_s / MIB),
            Ok(None) => {}
            Err(error) => all.fail(&name, &error),
        }
    };
    better("bare tcp exchange".into(), SMALL_BYTES, SMALL_BYTES, scaled(50_000, 50), true);
    for (name, bytes) in TRANSFERS {
        let count = scaled((512 << 20) / bytes, 10);
        let large = bytes as usize;
        better(format!("bare tcp {name} write"), large, SMALL_BYTES, count, false);
        better(format!("bare tcp {name} read"), SMALL_BYTES, large, count, false);
    }
}

/// Names of the figures that goals may rely on.
#[cfg(test)]
pub fn figure_names() -> Vec<String> {
    let mut names = vec!["bare hop".to_string(), "bare tcp exchange".to_string()];
    for (name, _) in TRANSFERS {
        names.push(format!("bare tcp {name} write"));
        names.push(format!("bare tcp {name} read"));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides in threads here; workers are processes of a program, which a unit test is not.
    #[test]
    fn both_ways_carry_questions_and_answers() {
        let dir = tempfile::tempdir().unwrap();
        let step = Step { phase: Phase::Read, iteration: 0, item_count: 20, wall_ns: None };
        let no_wall = &mut |count| Ok(count);
        let path = dir.path().join("hop");
        let env = Env::real().unwrap();
        let acceptor = env.block_on(Acceptor::bind(&env, None, Some(&path))).unwrap();
        let load = Load::Shm(vec![path]);
        let asking = std::thread::spawn(move || {
            let mut task = HopTask::connect(&load, 0).unwrap();
            task.run(&step, &mut |count| Ok(count)).unwrap().ops
        });
        serve_shm(&env, &acceptor).unwrap();
        assert_eq!(asking.join().unwrap(), 20);
        drop(acceptor);
        env.clear();
        for looks in [false, true] {
            for (asks, answers) in [(SMALL_BYTES, SMALL_BYTES), (300_000, 1), (1, 300_000)] {
                let memory = 700_000;
                let exchange = Exchange { asks, answers, looks, memory };
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                let side = std::thread::spawn(move || serve_tcp(&listener, exchange));
                let mut task = HopTask::connect(&Load::Tcp { port, exchange }, 0).unwrap();
                let work = task.run(&step, no_wall).unwrap();
                assert_eq!((work.ops, work.bytes), (20, 20 * asks.max(answers) as u64));
                drop(task);
                join(side).unwrap();
            }
        }
    }
}
