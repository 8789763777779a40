//! Whose memory an engine reaches: a client's own, and only what the kernel lets any program of its
//! user reach.

use crate::across::{ServerProcess, net_to};
use crate::net::*;
use env::Env;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use types::Code;

const CALL_VAR: &str = "TRANSPORT_TEST_CALL_AND_EXEC";
const VICTIM_VAR: &str = "TRANSPORT_TEST_VICTIM";
const USER_VAR: &str = "TRANSPORT_TEST_OTHER_USER";
const SECRET_BYTES: usize = 64 << 10;
const SECRET: u8 = 0x5a;

/// Runs one of the processes below.
fn role(name: &str, var: &str, value: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("other_memory::{name}"), "--exact", "--nocapture"]).env(var, value);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Not a test of its own: the program that the client executes. It has a secret, and tells where.
#[test]
fn victim_process() {
    let Some(fds) = std::env::var(VICTIM_VAR).ok() else { return };
    let mut fds = fds.split(' ').map(|fd| {
        let path = format!("/proc/self/fd/{fd}");
        std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
    });
    let (mut address, mut done) = (fds.next().unwrap(), fds.next().unwrap());
    let secret = vec![SECRET; SECRET_BYTES];
    address.write_all(&(secret.as_ptr() as u64).to_ne_bytes()).unwrap();
    done.read_exact(&mut [0]).unwrap();
    let intact = std::hint::black_box(&secret).iter().all(|byte| *byte == SECRET);
    println!("{}", if intact { "victim intact" } else { "victim CHANGED" });
}

/// Not a test of its own: a client that clones itself and then executes the victim. The clone has
/// the connections, and asks the engine for the memory of the process that had made them.
#[test]
fn calling_process() {
    let Some(path) = std::env::var_os(CALL_VAR) else { return };
    let env = Env::real().unwrap();
    let net = net_to(&env, Path::new(&path));
    let (reads, writes) = env.block_on(async {
        let (reads, writes) = (net.dial().await, net.dial().await);
        net.echo(&reads, &pattern(1 << 20, 1)).await;
        net.echo(&writes, &pattern(1 << 20, 2)).await;
        (reads, writes)
    });
    let (address_out, address_in) = rustix::pipe::pipe().unwrap();
    let (done_out, done_in) = rustix::pipe::pipe().unwrap();
    // SAFETY: the child goes on with this thread alone, and nobody holds a lock that it needs.
    let child = unsafe { libc::fork() };
    if child != 0 {
        let mut victim = role("victim_process", VICTIM_VAR, Path::new(""));
        victim.env(VICTIM_VAR, format!("{} {}", address_in.as_raw_fd(), done_out.as_raw_fd()));
        victim.env_remove(CALL_VAR).stdout(Stdio::inherit());
        panic!("executing: {}", victim.exec());
    }
    let mut raw = [0; 8];
    let mut pipe = std::fs::File::from(address_out);
    pipe.read_exact(&mut raw).unwrap();
    let address = u64::from_ne_bytes(raw) as usize as *mut u8;
    // SAFETY: not sound, but only its address is used: it is sent to the engine as if it were ours.
    let there = unsafe { std::slice::from_raw_parts_mut(address, SECRET_BYTES) };
    let outcomes = env.block_on(async {
        let mut stolen = vec![0; SECRET_BYTES];
        let (parts, mut rooms) = ([&*there], [&mut stolen[..]]);
        let read = net.call(&reads, &[ECHO], &parts, &mut rooms, LONG).await;
        let mut body = vec![GIVE];
        body.extend_from_slice(&(SECRET_BYTES as u32).to_le_bytes());
        let written = net.call(&writes, &body, &[], &mut [there], LONG).await;
        (read.map(|_| stolen[0]), written.map(|_| ()))
    });
    let read = outcomes.0.map_err(|error| error.code);
    println!("read {}", if read == Err(Code::Closed) { "refused" } else { "DONE" });
    let written = outcomes.1.map_err(|error| error.code);
    println!("write {}", if written == Err(Code::Closed) { "refused" } else { "DONE" });
    std::fs::File::from(done_in).write_all(&[1]).unwrap();
    // SAFETY: ends this process at once; the test harness belongs to the other one.
    unsafe { libc::_exit(0) };
}

/// An engine of the superuser once copied from and to whatever program a client's process executed after it had
/// connected: of a set-uid program, too.
#[test]
fn a_program_executed_by_a_client_is_not_reached() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _server = ServerProcess::start(&path);
    let output = role("calling_process", CALL_VAR, &path).output().unwrap();
    let said = said(&output);
    for line in ["read refused", "write refused", "victim intact"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    // The engine goes on, with others by single copy.
    let env = Env::real().unwrap();
    let net = net_to(&env, &path);
    env.block_on(async { net.echo(&net.dial().await, &pattern(1 << 20, 3)).await });
    env.clear();
}

/// Not a test of its own: a client of another user.
#[test]
fn other_user_process() {
    let Some(path) = std::env::var_os(USER_VAR) else { return };
    let env = Env::real().unwrap();
    let net = net_to(&env, Path::new(&path));
    env.block_on(async {
        let conn = net.dial_with(b"").await.unwrap();
        println!("single copy {}", conn.hello().remote_bulk);
        for round in 0..20usize {
            net.echo(&conn, &pattern(round * 30_000, round as u8)).await;
        }
        println!("served");
    });
}

/// An engine without rights serves another user's program over the rings. One that still had the
/// right to reach every process reaches none but itself.
#[test]
fn another_users_client_is_served_without_touching_its_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _server = ServerProcess::start(&path);
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a client of another user needs the superuser");
        return;
    }
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let mut command = role("other_user_process", USER_VAR, &path);
    let output = match command.current_dir("/").uid(65534).gid(65534).output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIPPED: user 65534 cannot run this test's program: {error}");
            return;
        }
    };
    let said = said(&output);
    assert!(said.contains("single copy false") && said.contains("served"), "{said}");
}

/// A client that sends descriptors with its introduction is turned away, and they are closed. Bells
/// that clients gave once hung the engine: a full pipe waits for room at the first answer.
#[test]
fn descriptors_that_come_with_an_introduction_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let server = ServerProcess::start(&path);
    let fd_count = || std::fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count();
    let env = Env::real().unwrap();
    let net = net_to(&env, &path);
    let conn = env.block_on(net.dial());
    let before = fd_count();
    let hello = wire::hello::Hello {
        client: types::ClientId(1),
        service: wire::hello::Service::Target(types::TargetId(3)),
        nonce: [1; 32],
        job: "",
        pid: 0,
        memory_word_address: 0,
        memory_word: 0,
    };
    // What it proves does not matter: nobody looks.
    let body =
        wire::encode(&wire::hello::ProvenHello { hello: &wire::encode(&hello), proof: [0; 32] });
    let mut frame = wire::Header::new(wire::Kind::Hello, 0, &body, 0).encode().to_vec();
    frame.extend_from_slice(&body);
    let challenge_bytes =
        wire::HEADER_BYTES + wire::encode(&wire::hello::Challenge { nonce: [0; 32] }).len();
    for fds in every_kind() {
        let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let borrowed: Vec<_> = fds.iter().map(std::os::fd::AsFd::as_fd).collect();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&borrowed)));
        let parts = [std::io::IoSlice::new(&frame)];
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendmsg(&socket, &parts, &mut control, flags).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        let mut answer = Vec::new();
        // A reset is a hangup, too.
        if let Err(error) = socket.read_to_end(&mut answer) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        assert!(answer.len() <= challenge_bytes, "it is told nothing but the challenge");
        env.block_on(net.echo(&conn, b"still there"));
    }
    env.block_on(net.until(|| fd_count() == before));
    env.clear();
}

/// Descriptors of every type, some two and more at once.
fn every_kind() -> Vec<Vec<OwnedFd>> {
    use rustix::event::{EventfdFlags, eventfd};
    let file = || OwnedFd::from(tempfile::tempfile().unwrap());
    let (out, full) = rustix::pipe::pipe().unwrap();
    rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&full, &[0; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::empty()).unwrap();
    let bell = eventfd(0, EventfdFlags::empty()).unwrap();
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    vec![
        vec![memory, full],
        vec![file(), bell],
        vec![out],
        vec![OwnedFd::from(ours)],
        vec![OwnedFd::from(std::fs::File::open("/").unwrap())],
        vec![OwnedFd::from(std::fs::File::open("/dev/null").unwrap()), file(), file(), file()],
    ]
}
