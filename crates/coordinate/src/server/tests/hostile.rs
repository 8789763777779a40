//! Strangers, garbage, those who dawdle, and those who do not listen.

use super::*;

#[test]
fn garbage_is_refused_and_changes_nothing() {
    let site = Site::with_tcp();
    let mut client = site.client("j");
    client.ask(1, IoKind::Write, &["a"]);
    assert_eq!(client.receive(), Some(Received::Ack(1)));
    let before = site.wait_for("quiet", |now| now.server.strangers == 0);
    let garbage: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        &[0; 64],
        &[0xff; 4096],
        // A frame of 4 GiB.
        &[0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0],
        // A hello of another protocol.
        &[8, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 1, 0, 0, 0],
        // A completion and a cancellation before hello, of somebody else's request.
        &[
            24, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0,
        ],
        &[8, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    ];
    for bytes in garbage {
        for mut stranger in [site.connect(), Raw::tcp(&site.tcp())] {
            stranger.stream.write_all(bytes).unwrap();
            assert_eq!(stranger.refused(), Reason::Protocol, "{bytes:?}");
            assert_eq!(stranger.receive(), None);
        }
    }
    let mut newer = site.connect();
    let mut bytes = Vec::new();
    bytes.extend([14, 0, 0, 0, 1, 0, 0, 0]);
    bytes.extend(b"AZIO\x02\x00 and more");
    bytes.truncate(22);
    newer.stream.write_all(&bytes).unwrap();
    assert_eq!(newer.refused(), Reason::Version);
    let after = site.snapshot();
    assert_eq!(after.server.refused_protocol, 16);
    assert_eq!(after.server.refused_version, 1);
    assert_eq!(after.groups[0].queue.targets, before.groups[0].queue.targets);
    assert_eq!(after.groups[0].queue.strays, 0);
    client.complete(1);
    client.ask(2, IoKind::Write, &["a"]);
    assert_eq!(client.receive(), Some(Received::Ack(2)));
}

#[test]
fn a_client_that_breaks_the_rules_loses_only_its_own() {
    let site = Site::start(|config, _| config.max_writers = Some(Limit::Fixed(1)));
    let mut good = site.client("j");
    for misuse in 0..4 {
        let mut bad = site.client("j");
        bad.ask(1, IoKind::Write, &["a"]);
        assert_eq!(bad.receive(), Some(Received::Ack(1)));
        good.ask(misuse, IoKind::Write, &["a"]);
        match misuse {
            0 => bad.ask(1, IoKind::Write, &["b"]),
            1 => bad.send(&hello(b"", "", "j")),
            2 => bad.stream.write_all(b"garbage and more garbage").unwrap(),
            _ => (0..300).for_each(|id| bad.ask(id + 9, IoKind::Read, &["a"])),
        }
        let refused = loop {
            match bad.receive() {
                Some(Received::Ack(_)) => {}
                Some(Received::Refused(reason, _)) => break reason,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused, Reason::Protocol);
        assert_eq!(good.receive(), Some(Received::Ack(misuse)), "the slot has come free");
        good.complete(misuse);
        site.wait_for("all is given back", |now| now.groups[0].queue.active == 0);
    }
}

#[test]
fn dawdlers_are_cut_off_and_hold_up_nobody() {
    let site = Site::start(|config, _| {
        config.patience.hello = Duration::from_millis(200);
        config.patience.frame = Duration::from_millis(200);
    });
    // One says nothing, one says the half of hello, one the half of a request.
    let mut silent = site.connect();
    let mut slow = site.connect();
    slow.stream.write_all(&[42, 0, 0, 0, 1, 0, 0, 0, b'A']).unwrap();
    let mut late = site.client("j");
    late.ask(1, IoKind::Write, &["a"]);
    late.stream.write_all(&[28, 0, 0, 0, 2, 0, 0, 0, 9, 9]).unwrap();
    let mut patient = site.client("j");
    patient.ask(1, IoKind::Write, &["a"]);
    assert_eq!(patient.receive(), Some(Received::Ack(1)));
    assert_eq!(silent.receive(), None);
    assert_eq!(slow.receive(), None);
    assert_eq!(late.receive(), Some(Received::Ack(1)));
    assert_eq!(late.receive(), None);
    // One that is silent between frames may be so.
    patient.send(&ClientMessage::Ping);
    assert_eq!(patient.receive(), Some(Received::Pong));
    let after = site.wait_for("the late one's slot is back", |now| now.groups[0].queue.active == 1);
    assert_eq!(after.server.timed_out, 3);
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_a_frame() {
    let site = Site::start(|_, _| {});
    let mut client = site.connect();
    let mut room = [0; CLIENT_FRAME_BYTES_MAX];
    let mut sent = hello(b"", "", "j").encode(&mut room).unwrap();
    let list = TargetList::new(&["a"]).unwrap();
    let targets = list.as_targets();
    let request = Request { id: 3, kind: IoKind::Write, bytes: 1, targets };
    sent += ClientMessage::Request(request).encode(&mut room[sent..]).unwrap();
    for byte in &room[..sent] {
        client.stream.write_all(&[*byte]).unwrap();
    }
    assert!(matches!(client.receive(), Some(Received::Welcome(..))));
    assert_eq!(client.receive(), Some(Received::Ack(3)));
}

#[test]
fn one_that_does_not_listen_is_not_read_and_then_cut_off() {
    let site = Site::start(|config, _| config.patience.stall = Duration::from_millis(300));
    let stream = UnixStream::connect(site.path()).unwrap();
    let mut deaf = Raw::unix(stream.try_clone().unwrap());
    deaf.send(&hello(b"", "", "j"));
    deaf.ask(1, IoKind::Write, &["a"]);
    // Answers are larger than questions, so both directions fill up, and the coordinator keeps
    // no more than it must.
    stream.set_nonblocking(true).unwrap();
    let mut room = [0; CLIENT_FRAME_BYTES_MAX];
    let bytes = ClientMessage::Stats.encode(&mut room).unwrap();
    let begin = std::time::Instant::now();
    // Until nothing more fits, or the coordinator was faster than we and has closed it.
    while (&stream).write_all(&room[..bytes]).is_ok() {
        assert!(begin.elapsed() < WATCHDOG, "it takes questions without end");
    }
    let mut other = site.client("j");
    other.ask(1, IoKind::Write, &["a"]);
    assert_eq!(other.receive(), Some(Received::Ack(1)));
    let after = site.wait_for("it is cut off", |now| now.server.timed_out == 1);
    assert_eq!(after.groups[0].queue.active, 1);
}

#[test]
fn strangers_are_limited_and_the_oldest_go_first() {
    let site = Site::start(|_, _| {});
    let first = site.connect();
    let mut crowd: Vec<UnixStream> = Vec::new();
    for _ in 0..STRANGERS_MAX + 50 {
        crowd.push(UnixStream::connect(site.path()).unwrap());
    }
    let mut first = first;
    assert_eq!(first.receive(), None);
    let mut client = site.client("j");
    client.ask(1, IoKind::Write, &["a"]);
    assert_eq!(client.receive(), Some(Received::Ack(1)));
    assert!(site.snapshot().server.strangers <= STRANGERS_MAX);
}

#[test]
fn more_clients_than_allowed_are_told_so() {
    let site = Site::start(|config, _| config.clients_max = Some(2));
    let first = site.client("j");
    let _second = site.client("j");
    let mut third = site.connect();
    third.send(&hello(b"", "", "j"));
    assert_eq!(third.refused(), Reason::Full);
    drop(first);
    // The place comes free when its end is seen.
    let begin = std::time::Instant::now();
    loop {
        let mut fourth = site.connect();
        fourth.send(&hello(b"", "", "j"));
        if matches!(fourth.receive(), Some(Received::Welcome(..))) {
            break;
        }
        assert!(begin.elapsed() < WATCHDOG);
    }
}
