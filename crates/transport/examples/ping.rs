//! How fast a connection is: 64-byte round trips and 1 MiB of bulk, over shared memory and TCP,
//! with one or two client processes and as many server threads.
//!
//! `cargo run --release -p transport --example ping [-- SECONDS]`
//!
//! CPU time is that of clients and servers together; with two of each on two cores it shows what
//! a wake-up costs when nobody has a core to itself.

use env::Env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use transport::{Acceptor, Address, Call, Conn, Dial, Handoff, connect};
use types::{ClientId, TargetId};
use wire::Kind;
use wire::hello::{HelloReply, Service};

const ROLE_VAR: &str = "AZEKURA_PING_CLIENT";
const BULK_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Small,
    Write,
    Read,
}

fn cpu_time(who: libc::c_int) -> Duration {
    // SAFETY: an all-zero rusage is valid, and the kernel fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

async fn one(conn: &Conn, id: u64, work: Work, data: &[u8], room: &mut [u8]) {
    let body = [work as u8; 64];
    let out = [data];
    let mut rooms = [room];
    let call = Call {
        kind: Kind::Request,
        request_id: id,
        flags: 0,
        map_version: 1,
        deadline: Duration::from_secs(30),
        body: &body,
        bulk_out: if work == Work::Write { &out } else { &[] },
        bulk_in: if work == Work::Read { &mut rooms } else { &mut [] },
    };
    conn.call(call).await.expect("the call fails");
}

fn client(spec: &str) {
    let parts: Vec<&str> = spec.split('|').collect();
    let [scheme, place, number, work, seconds] = parts[..] else { panic!("bad {spec}") };
    let address = match scheme {
        "shm" => Address::Unix(place.into()),
        _ => Address::Tcp(place.into()),
    };
    let work = match work {
        "small" => Work::Small,
        "write" => Work::Write,
        _ => Work::Read,
    };
    let seconds: f64 = seconds.parse().expect("seconds");
    let env = Env::real().expect("env");
    let dial = Dial {
        client: ClientId(1),
        service: Service::Target(TargetId(number.parse().expect("number"))),
        token: b"",
        job: "",
        timeout: Duration::from_secs(10),
    };
    let conn = env.block_on(connect(&env, &address, &dial)).expect("connecting");
    let data = vec![7; BULK_BYTES];
    let mut room = vec![0; BULK_BYTES];
    let begun = Instant::now();
    let mut count = 0u64;
    while begun.elapsed().as_secs_f64() < seconds {
        for _ in 0..if work == Work::Small { 64 } else { 4 } {
            count += 1;
            // As a library does it: one blocking call after the other.
            env.block_on(one(&conn, count, work, &data, &mut room));
        }
    }
    println!("{count}");
}

fn serve(handoffs: std::sync::mpsc::Receiver<Handoff>) {
    let env = Env::real().expect("env");
    let reply = HelloReply {
        incarnation: 1,
        remote_bulk: false,
        engine_version: "ping".into(),
        proof: Default::default(),
    };
    while let Ok(handoff) = handoffs.recv() {
        let conn = handoff.serve(&env, reply.clone()).expect("serving");
        let mut data = vec![0; BULK_BYTES];
        env.block_on(async {
            while let Ok(Some(mut incoming)) = conn.recv().await {
                let bytes = incoming.bulk.remaining();
                let _ = incoming.bulk.read_into(&mut data[..bytes]).await;
                let whole = [&data[..]];
                let segments = if incoming.body[0] == Work::Read as u8 { &whole[..] } else { &[] };
                let _ = incoming.responder.reply(1, &incoming.body, segments).await;
            }
        });
    }
}

struct Server {
    unix: PathBuf,
    tcp: String,
}

fn start_server(unix: &Path) -> Server {
    let (send, receive) = std::sync::mpsc::channel();
    let path = unix.to_path_buf();
    std::thread::spawn(move || {
        let env = Env::real().expect("env");
        let acceptor =
            env.block_on(Acceptor::bind(&env, Some("127.0.0.1:0"), Some(&path))).expect("binding");
        let tcp = acceptor.tcp_addr().expect("a tcp address");
        send.send(tcp).expect("the main thread waits");
        let servers: Vec<_> = (0..2)
            .map(|_| {
                let (send, receive) = std::sync::mpsc::channel();
                std::thread::spawn(move || serve(receive));
                send
            })
            .collect();
        env.block_on(async {
            loop {
                let incomer = acceptor.accept().await.expect("accepting");
                let Service::Target(target) = incomer.hello().service else { continue };
                let _ = servers[target.0 as usize % 2].send(incomer.into_handoff());
            }
        });
    });
    let tcp = receive.recv().expect("the server starts");
    Server { unix: unix.into(), tcp: tcp.to_string() }
}

fn measure(server: &Server, scheme: &str, work: &str, client_count: usize, seconds: f64) {
    let place =
        if scheme == "shm" { server.unix.display().to_string() } else { server.tcp.clone() };
    let before = cpu_time(libc::RUSAGE_SELF) + cpu_time(libc::RUSAGE_CHILDREN);
    let children: Vec<_> = (0..client_count)
        .map(|number| {
            Command::new(std::env::current_exe().expect("own path"))
                .env(ROLE_VAR, format!("{scheme}|{place}|{number}|{work}|{seconds}"))
                .stdout(Stdio::piped())
                .spawn()
                .expect("starting a client")
        })
        .collect();
    let mut count = 0u64;
    for child in children {
        let output = child.wait_with_output().expect("a client ends");
        count += String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().unwrap_or(0);
    }
    let cpu = cpu_time(libc::RUSAGE_SELF) + cpu_time(libc::RUSAGE_CHILDREN) - before;
    let rate = count as f64 / seconds;
    let cpu_us = cpu.as_secs_f64() * 1e6 / count.max(1) as f64;
    let throughput = match work {
        "small" => String::new(),
        _ => format!("  {:8.0} MB/s", rate * BULK_BYTES as f64 / 1e6),
    };
    println!(
        "{scheme} {work:5} x{client_count}: {rate:9.0} op/s  {:6.2} us each  {cpu_us:7.2} CPU us/op{throughput}",
        client_count as f64 * 1e6 / rate,
    );
}

fn main() {
    if let Ok(spec) = std::env::var(ROLE_VAR) {
        return client(&spec);
    }
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let path = std::env::temp_dir().join(format!("azekura-ping-{}", std::process::id()));
    let server = start_server(&path);
    for scheme in ["shm", "tcp"] {
        for work in ["small", "write", "read"] {
            for client_count in [1, 2] {
                measure(&server, scheme, work, client_count, seconds);
            }
        }
    }
    let _ = std::fs::remove_file(path);
}
