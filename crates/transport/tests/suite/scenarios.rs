//! What every kind of connection must do.

use crate::net::*;
use futures_util::future::{join_all, poll_fn};
use futures_util::poll;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use transport::{Arrivals, Call, Conn};
use types::Code;
use wire::Kind;
use wire::header::FLAG_DEFERRED_BULK;

pub async fn small_echoes(net: Rc<Net>) {
    let conn = net.dial().await;
    // Far more than fits the rings, so that they wrap.
    for number in 0..3000usize {
        net.echo(&conn, &pattern(number % 700, number as u8)).await;
    }
    let server = net.seen.conns.borrow()[0].clone();
    assert_eq!((server.client().0, server.job()), (7, "job"));
}

pub async fn bulk_of_many_sizes_both_ways(net: Rc<Net>) {
    let conn = net.dial().await;
    for bytes in [0, 1, 4095, 16_383, 16_384, 100_001, 1 << 20, (4 << 20) + 7, 32 << 20] {
        net.echo(&conn, &pattern(bytes, 3)).await;
        net.give(&conn, bytes).await;
    }
    // So many pieces that they go through the stream on every transport.
    let data = pattern(1 << 20, 5);
    let parts: Vec<&[u8]> = data.chunks(512).collect();
    let mut back = vec![0; data.len()];
    let mut rooms: Vec<&mut [u8]> = back.chunks_mut(500).collect();
    net.call(&conn, &[ECHO], &parts, &mut rooms, LONG).await.unwrap();
    assert!(back == data);
}

/// What was told of the data of answers: voids and beginnings, and how much had come each time.
#[derive(Default)]
struct Told {
    voids: Cell<u32>,
    begun: Cell<u32>,
    arrived: RefCell<Vec<usize>>,
}

impl Arrivals for Told {
    fn void(&self) {
        self.voids.set(self.voids.get() + 1);
        self.arrived.borrow_mut().clear();
    }

    fn begin(&self, body: &[u8]) {
        assert_eq!(body, b"given");
        self.begun.set(self.begun.get() + 1);
    }

    fn arrived(&self, rooms: &[&mut [u8]], bytes: usize) {
        let all: Vec<u8> = rooms.iter().flat_map(|room| room.iter().copied()).collect();
        assert!(all[..bytes] == pattern(all.len(), 9)[..bytes], "{bytes} bytes are not all there");
        self.arrived.borrow_mut().push(bytes);
    }
}

/// Of what is large, and comes through the stream, who asked is told bit by bit; never of the end, with which the call ends.
pub async fn data_are_told_of_while_they_come(net: Rc<Net>) {
    let conn = net.dial().await;
    let told = Told::default();
    for (round, bytes) in [4 << 20, 100_000, (4 << 20) + 5].into_iter().enumerate() {
        let body = [&[GIVE][..], &(bytes as u32).to_le_bytes()].concat();
        let mut room = vec![0; bytes];
        let (first, rest) = room.split_at_mut(bytes / 3);
        let call = Call {
            kind: Kind::Request,
            request_id: net.next_request(),
            flags: 0,
            map_version: 5,
            deadline: LONG,
            body: &body,
            bulk_out: &[],
            bulk_in: &mut [first, rest],
        };
        conn.call_telling(call, Some(&told)).await.unwrap();
        assert!(room == pattern(bytes, 9));
        assert_eq!(told.voids.get(), round as u32 + 1);
        let arrived = told.arrived.borrow();
        assert!(arrived.is_sorted() && arrived.iter().all(|count| *count < bytes), "{arrived:?}");
        let is_told = net.kind != NetKind::Shm && bytes > 1 << 20;
        assert_eq!(!arrived.is_empty(), is_told, "{bytes} bytes: {arrived:?}");
    }
    let begun = if net.kind == NetKind::Shm { 0 } else { 2 };
    assert_eq!(told.begun.get(), begun, "what is small is not told of");
}

pub async fn many_concurrent_calls(net: Rc<Net>) {
    let conn = net.dial().await;
    let other = net.dial().await;
    let calls = (0..300usize).map(|number| {
        let (net, conn) = (net.clone(), if number % 3 == 0 { &other } else { &conn });
        async move {
            let bytes = [3, 900, 20_000, 70_000][number % 4];
            for round in 0..3 {
                net.echo(conn, &pattern(bytes + number, round)).await;
                net.give(conn, bytes / 2).await;
            }
        }
    });
    join_all(calls).await;
}

pub async fn a_deadline_fails_the_call_and_not_the_connection(net: Rc<Net>) {
    let conn = net.dial().await;
    let mut room = vec![0; 50_000];
    for bulk in [0, 50_000] {
        let data = pattern(bulk, 1);
        let short = Duration::from_millis(20);
        let outcome = net.call(&conn, &[SILENCE], &[&data], &mut [&mut room], short).await;
        assert_eq!(outcome.unwrap_err().code, Code::TimedOut);
    }
    let outcome = net.call(&conn, &[SILENCE], &[], &mut [], Duration::ZERO).await;
    assert_eq!(outcome.unwrap_err().code, Code::TimedOut);
    net.echo(&conn, &pattern(100_000, 1)).await;
    assert!(!conn.is_broken());
}

async fn silent_call(net: Rc<Net>, conn: Conn, bytes: usize) -> Code {
    let data = pattern(bytes, 1);
    let outcome = net.call(&conn, &[SILENCE], &[&data], &mut [], LONG).await;
    outcome.unwrap_err().code
}

pub async fn a_dying_server_fails_pending_calls(net: Rc<Net>) {
    let conn = net.dial().await;
    let calls = (0..10).map(|number| silent_call(net.clone(), conn.clone(), number * 5000));
    let hang_up = async {
        net.env.sleep(Duration::from_millis(5)).await;
        net.call(&conn, &[HANG_UP], &[], &mut [], LONG).await.unwrap_err().code
    };
    let (codes, code) = futures_util::join!(join_all(calls), hang_up);
    assert_eq!(codes, [Code::Closed; 10]);
    assert_eq!(code, Code::Closed);
    assert!(conn.is_broken());
    let after = net.call(&conn, &[ECHO], &[], &mut [], LONG).await;
    assert_eq!(after.unwrap_err().code, Code::Closed);
    assert_eq!(conn.notify(Kind::Notice, b"x").unwrap_err().code, Code::Closed);
    // The engine still serves others.
    net.echo(&net.dial().await, b"hello").await;
}

pub async fn a_server_sees_its_client_go(net: Rc<Net>) {
    let conn = net.dial().await;
    let kept = conn.clone();
    net.echo(&conn, b"hello").await;
    drop(conn);
    net.echo(&kept, b"still there").await;
    assert_eq!(net.seen.conns_ended.get(), 0);
    drop(kept);
    net.until(|| net.seen.conns_ended.get() == 1).await;
    let closed = net.dial().await;
    closed.close();
    net.until(|| net.seen.conns_ended.get() == 2).await;
}

pub async fn garbage_harms_nobody_else(net: Rc<Net>) {
    let good = net.dial().await;
    if let transport::Address::Tcp(address) = &net.address {
        crate::across::send_garbage(std::net::TcpStream::connect(address).unwrap());
    }
    if let transport::Address::Unix(path) = &net.address {
        crate::across::send_garbage(std::os::unix::net::UnixStream::connect(path).unwrap());
    }
    // A frame that only an engine may send.
    let bad = net.dial().await;
    let before = net.seen.conns_ended.get();
    bad.notify(Kind::HelloReply, b"I am the engine").unwrap();
    net.until(|| net.seen.conns_ended.get() == before + 1).await;
    let outcome = net.call(&bad, &[ECHO], &[], &mut [], LONG).await;
    assert_eq!(outcome.unwrap_err().code, Code::Closed);
    net.echo(&good, &pattern(1000, 1)).await;
}

pub async fn a_cancelled_call_leaves_the_stream_in_order(net: Rc<Net>) {
    let conn = net.dial().await;
    for round in 0..60u32 {
        // Many pieces: the bulk is in the stream. Few: it is in the client's memory.
        let piece = if round % 2 == 0 { 512 } else { 1 << 20 };
        let data = pattern(1 << 20, round as u8);
        let parts: Vec<&[u8]> = data.chunks(piece).collect();
        let mut room = vec![0; 1 << 20];
        let mut rooms: Vec<&mut [u8]> = room.chunks_mut(piece).collect();
        {
            let mut call = pin!(net.call(&conn, &[ECHO], &parts, &mut rooms, LONG));
            for _ in 0..round {
                if poll!(&mut call).is_ready() {
                    break;
                }
                net.env.yield_now().await;
                if round % 3 == 0 {
                    net.env.sleep(Duration::from_micros(20)).await;
                }
            }
        }
        // Nobody writes to the buffer any more.
        room.fill(1);
        net.echo(&conn, &pattern(3000, round as u8)).await;
        assert!(room.iter().all(|&byte| byte == 1));
    }
}

pub async fn a_slow_reader_is_waited_for(net: Rc<Net>) {
    let conn = net.dial().await;
    let mut room = vec![0; 8 << 20];
    let mut body = vec![GIVE];
    body.extend_from_slice(&(8u32 << 20).to_le_bytes());
    let mut rooms: Vec<&mut [u8]> = room.chunks_mut(4096).collect();
    {
        let mut call = pin!(net.call(&conn, &body, &[], &mut rooms, LONG));
        // Ask, then look away while the answer fills the stream and stays there.
        assert!(poll!(&mut call).is_pending());
        net.env.sleep(Duration::from_millis(20)).await;
        let other = net.dial().await;
        net.echo(&other, b"others are served meanwhile").await;
        assert_eq!(call.await.unwrap().bulk_bytes, 8 << 20);
    }
    assert!(room == pattern(8 << 20, 9));
}

pub async fn notices_arrive_in_order(net: Rc<Net>) {
    let conn = net.dial().await;
    let mut sent = Vec::new();
    for number in 0..500usize {
        // More at once than the stream holds.
        let text = pattern(1 + number % 2000, number as u8);
        conn.notify(Kind::Notice, &text).unwrap();
        sent.extend(text);
    }
    let answer = net.call(&conn, &[NOTICES], &[], &mut [], LONG).await.unwrap();
    assert!(answer.body == sent);
}

pub async fn unread_bulk_is_thrown_away(net: Rc<Net>) {
    let conn = net.dial().await;
    for bytes in [10, 10_000, 3 << 20] {
        let data = pattern(bytes, 1);
        let parts: Vec<&[u8]> = data.chunks(1000).collect();
        let answer = net.call(&conn, &[IGNORE], &parts, &mut [], LONG).await.unwrap();
        assert_eq!(answer.body, bytes.to_string().as_bytes());
        net.echo(&conn, &pattern(100, 2)).await;
    }
}

pub async fn refusals_are_told(net: Rc<Net>) {
    let error = net.dial_with(WRONG_TOKEN).await.err().unwrap();
    assert_eq!(error.code, Code::NoPerm);
    assert!(error.to_string().contains("the token is wrong"), "{error}");
}

pub async fn answers_larger_than_the_room_are_errors(net: Rc<Net>) {
    let conn = net.dial().await;
    for (asked, room_bytes) in [(1000u32, 10), (100_000, 10), (100_000, 50_000)] {
        let mut body = vec![GIVE];
        body.extend_from_slice(&asked.to_le_bytes());
        let mut room = vec![0; room_bytes];
        let outcome = net.call(&conn, &body, &[], &mut [&mut room], LONG).await;
        // Where the engine knows the room, it gives the answer up; else the rest is dropped here.
        let outcome = outcome.and_then(|answer| wire::decode::<types::Result<()>>(&answer.body)?);
        let code = outcome.unwrap_err().code;
        assert!(code == Code::Proto || code == Code::Closed, "{code:?}");
        net.echo(&conn, b"and on it goes").await;
    }
}

pub async fn a_request_id_in_flight_is_refused(net: Rc<Net>) {
    let conn = net.dial().await;
    let call = |deadline| {
        let conn = conn.clone();
        async move {
            let call = Call {
                kind: Kind::Request,
                request_id: 77,
                flags: 0,
                map_version: 0,
                deadline,
                body: &[SILENCE],
                bulk_out: &[],
                bulk_in: &mut [],
            };
            conn.call(call).await.unwrap_err().code
        }
    };
    let mut first = pin!(call(Duration::from_millis(30)));
    poll_fn(|cx| {
        assert!(first.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    assert_eq!(call(LONG).await, Code::Inval);
    assert_eq!(first.await, Code::TimedOut);
    assert_eq!(call(Duration::from_millis(1)).await, Code::TimedOut);
}

pub async fn pings_are_answered(net: Rc<Net>) {
    let conn = net.dial().await;
    let call = Call {
        kind: Kind::Ping,
        request_id: 1,
        flags: 0,
        map_version: 0,
        deadline: LONG,
        body: &[],
        bulk_out: &[],
        bulk_in: &mut [],
    };
    assert!(conn.call(call).await.unwrap().body.is_empty());
}

pub async fn bulk_over_the_credit_waits_to_be_asked_for(net: Rc<Net>) {
    let conn = net.dial().await;
    let sizes = [10, 16_383, 16_384, 200_000, (1 << 20) + 3];
    // The server's echo drops the credit again, so each round begins with it.
    for (credit, deferred) in [(Some(0), true), (Some(2), true), (None, false)] {
        let before = net.seen.deferred_count.get();
        net.credit(&conn, credit).await;
        let calls = (0..4).flat_map(|round| sizes.map(|bytes| (bytes, round)));
        let calls = calls.map(|(bytes, round)| {
            let (net, conn) = (net.clone(), conn.clone());
            async move { net.echo(&conn, &pattern(bytes, round)).await }
        });
        join_all(calls).await;
        let count = net.seen.deferred_count.get() - before;
        // On one host the engine fetches the data itself.
        let expected = deferred && net.kind != NetKind::Shm;
        assert_eq!(count > 0, expected, "{credit:?}: {count}");
        if expected && credit == Some(2) {
            assert!(count <= 10, "two were sent at once: {count}");
        }
    }
}

pub async fn who_gives_up_deferred_bulk_says_so(net: Rc<Net>) {
    if net.kind == NetKind::Shm {
        return;
    }
    let conn = net.dial().await;
    net.credit(&conn, Some(0)).await;
    let data = pattern(100_000, 1);
    {
        let parts = [&data[..]];
        let mut call = pin!(net.call(&conn, &[WATCH], &parts, &mut [], LONG));
        while net.seen.watching.get() == 0 {
            assert!(poll!(&mut call).is_pending());
            net.env.sleep(Duration::from_micros(100)).await;
        }
        assert_eq!(net.seen.abandoned.get(), 0);
    }
    net.until(|| net.seen.abandoned.get() == 1).await;
    // A deadline is a way of giving up, too.
    let short = Duration::from_millis(20);
    let outcome = net.call(&conn, &[WATCH], &[&data], &mut [], short).await;
    assert_eq!(outcome.unwrap_err().code, Code::TimedOut);
    net.until(|| net.seen.abandoned.get() == 2).await;
    net.echo(&conn, &data).await;
    // And so is the end of the connection.
    net.credit(&conn, Some(0)).await;
    let hang_up = async {
        net.until(|| net.seen.watching.get() == 3).await;
        conn.close();
    };
    let parts = [&data[..]];
    let outcome = net.call(&conn, &[WATCH], &parts, &mut [], LONG);
    let (outcome, ()) = futures_util::future::join(outcome, hang_up).await;
    assert_eq!(outcome.unwrap_err().code, Code::Closed);
    net.until(|| net.seen.abandoned.get() == 3).await;
}

pub async fn deferred_bulk_that_nobody_reads_stays_where_it_is(net: Rc<Net>) {
    let conn = net.dial().await;
    for bytes in [20_000, 1 << 20] {
        net.credit(&conn, Some(0)).await;
        let data = pattern(bytes, 1);
        let answer = net.call(&conn, &[IGNORE], &[&data], &mut [], LONG).await.unwrap();
        assert_eq!(answer.body, bytes.to_string().into_bytes());
        net.echo(&conn, &data).await;
    }
}

pub async fn a_dying_server_fails_calls_that_wait_to_send(net: Rc<Net>) {
    if net.kind == NetKind::Shm {
        return;
    }
    let conn = net.dial().await;
    net.credit(&conn, Some(0)).await;
    let data = pattern(100_000, 1);
    let calls = (0..5).map(|_| async {
        let outcome = net.call(&conn, &[WATCH], &[&data], &mut [], LONG).await;
        assert_eq!(outcome.unwrap_err().code, Code::Closed);
    });
    let hang_up = async {
        net.until(|| net.seen.watching.get() == 5).await;
        let server = net.seen.conns.borrow()[0].clone();
        server.close();
    };
    futures_util::future::join(join_all(calls), hang_up).await;
    net.until(|| net.seen.abandoned.get() == 5).await;
}

pub async fn credits_and_data_out_of_order_cost_the_connection_only(net: Rc<Net>) {
    let healthy = net.dial().await;
    let conn = net.dial().await;
    // Nobody waits for these: they are let pass.
    conn.notify(Kind::Data, b"").unwrap();
    conn.notify(Kind::Cancel, b"").unwrap();
    conn.notify(Kind::Cancel, b"not expected").unwrap();
    net.echo(&conn, &pattern(50_000, 1)).await;
    for (kind, body) in [(Kind::Data, &b"x"[..]), (Kind::Go, b"")] {
        let conn = net.dial().await;
        conn.notify(kind, body).unwrap();
        let outcome = net.call(&conn, &[SILENCE], &[], &mut [], LONG).await;
        assert_eq!(outcome.unwrap_err().code, Code::Closed, "{kind:?}");
    }
    for (kind, flags) in [(Kind::Request, FLAG_DEFERRED_BULK), (Kind::Control, FLAG_DEFERRED_BULK)]
    {
        let conn = net.dial().await;
        let call = Call {
            kind,
            request_id: net.next_request(),
            flags,
            map_version: 0,
            deadline: LONG,
            body: &[ECHO],
            bulk_out: &[],
            bulk_in: &mut [],
        };
        assert_eq!(conn.call(call).await.unwrap_err().code, Code::Closed, "{kind:?}");
    }
    net.echo(&healthy, &pattern(50_000, 1)).await;
}

pub async fn a_request_that_is_given_up_is_answered_with_an_error(net: Rc<Net>) {
    let conn = net.dial().await;
    for bytes in [0, 10, 100_000] {
        let data = pattern(bytes, 1);
        let answer = net.call(&conn, &[GIVE_UP], &[&data], &mut [], LONG).await.unwrap();
        let error = wire::decode::<Result<(), types::Error>>(&answer.body).unwrap().unwrap_err();
        assert_eq!(error.code, Code::Closed);
        net.echo(&conn, &data).await;
    }
}
