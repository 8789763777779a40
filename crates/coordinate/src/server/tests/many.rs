//! More than a thousand clients at a time.

use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;

const CLIENTS: usize = 1200;

#[test]
fn over_a_thousand_clients_go_two_by_two() {
    let site = Site::start(|_, _| {});
    let mut clients: Vec<UnixStream> = Vec::new();
    // Silent ends for the places of those who have gone.
    let mut silent: Vec<UnixStream> = Vec::new();
    let list = TargetList::new(&["ost0"]).unwrap();
    for at in 0..CLIENTS {
        let stream = UnixStream::connect(site.path()).unwrap();
        let mut room = [0; CLIENT_FRAME_BYTES_MAX];
        let job = format!("job{}", at % 7);
        let mut sent = hello(b"", "", &job).encode(&mut room).unwrap();
        let targets = list.as_targets();
        let request = Request { id: at as u64, kind: IoKind::Write, bytes: 1, targets };
        sent += ClientMessage::Request(request).encode(&mut room[sent..]).unwrap();
        (&stream).write_all(&room[..sent]).unwrap();
        clients.push(stream);
    }
    site.wait_for("all have asked", |now| {
        now.groups[0].queue.waiting + now.groups[0].queue.active == CLIENTS
    });
    let mut inputs: Vec<Vec<u8>> = vec![Vec::new(); CLIENTS];
    let mut inside: Vec<usize> = Vec::new();
    let mut done: HashSet<usize> = HashSet::new();
    while done.len() < CLIENTS {
        let mut fds: Vec<PollFd<'_>> =
            clients.iter().map(|client| PollFd::new(client, PollFlags::IN)).collect();
        // While somebody is in, nothing new may come before it goes.
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, (!inside.is_empty()).then_some(&at_once)).unwrap();
        let ready: Vec<usize> = (0..CLIENTS).filter(|at| !fds[*at].revents().is_empty()).collect();
        drop(fds);
        for at in ready {
            let mut room = [0; 256];
            let bytes = clients[at].read(&mut room).unwrap();
            assert!(bytes > 0, "client {at} was cut off");
            inputs[at].extend_from_slice(&room[..bytes]);
            while let Some((message, taken)) = CoordinatorMessage::decode(&inputs[at]).unwrap() {
                if let CoordinatorMessage::Ack { id } = message {
                    assert_eq!(id, at as u64);
                    inside.push(at);
                }
                inputs[at].drain(..taken);
            }
        }
        assert!(inside.len() <= 2, "{} are in", inside.len());
        // Some say they are done, some just go.
        if inside.is_empty() {
            continue;
        }
        let at = inside.remove(0);
        assert!(done.insert(at), "client {at} was let in twice");
        if at.is_multiple_of(3) {
            let (nobody, other) = UnixStream::pair().unwrap();
            silent.push(other);
            clients[at] = nobody;
        } else {
            let message = ClientMessage::Completion { id: at as u64, bytes: 1, io_us: 1 };
            let mut room = [0; CLIENT_FRAME_BYTES_MAX];
            let bytes = message.encode(&mut room).unwrap();
            (&clients[at]).write_all(&room[..bytes]).unwrap();
        }
    }
    let after = site.wait_for("nobody is left", |now| now.groups[0].queue.active == 0);
    assert_eq!(after.groups[0].queue.targets[0].write.totals.granted, CLIENTS as u64);
    assert_eq!(after.groups[0].queue.jobs.len(), 8, "seven jobs, and the one that looks");
}
