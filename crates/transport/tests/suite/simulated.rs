//! What only a simulated network can show: repeatable faults.

use crate::net::*;
use env::SimWorld;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use transport::{Acceptor, Address, SimNet};
use types::Code;

fn start(world: &SimWorld) -> (Rc<Seen>, Rc<Net>) {
    let (client, server) = (world.node("client"), world.node("server"));
    let seen = Rc::<Seen>::default();
    let acceptor = server.block_on(Acceptor::bind(&server, None, None)).unwrap();
    server.spawn(serve_all(server.clone(), acceptor, seen.clone()));
    (seen, Net::new(NetKind::Sim, client, Address::Sim("server".into())))
}

fn chaos(seed: u64) -> (u64, u32) {
    let world = SimWorld::new(seed);
    let (_seen, net) = start(&world);
    let network = SimNet::of(&world);
    network.set_break_ppm(20_000);
    let done = Rc::new(Cell::new(0));
    for number in 0..5usize {
        let (net, done) = (net.clone(), done.clone());
        net.env.clone().spawn(async move {
            for round in 0..20u8 {
                loop {
                    let Ok(conn) = net.dial_with(b"").await else { continue };
                    let data = pattern(number * 3000, round);
                    let outcome =
                        net.call(&conn, &[ECHO], &[&data], &mut [&mut vec![0; 20_000]], LONG).await;
                    match outcome {
                        Ok(_) => break,
                        Err(error) => assert_eq!(error.code, Code::Closed, "{error}"),
                    }
                }
                done.set(done.get() + 1);
            }
        });
    }
    world.run_for(Duration::from_secs(60));
    let outcome = (world.trace_hash(), done.get());
    world.clear();
    outcome
}

#[test]
fn broken_connections_are_retried_to_the_end_and_runs_repeat() {
    for seed in 0..5 {
        let first = chaos(seed);
        assert_eq!(first.1, 100);
        assert_eq!(first, chaos(seed));
    }
    assert_ne!(chaos(1).0, chaos(2).0);
}

#[test]
fn a_cut_delays_and_a_kill_ends() {
    let world = SimWorld::new(9);
    let (_seen, net) = start(&world);
    let network = SimNet::of(&world);
    world.block_on(async {
        let conn = net.dial().await;
        net.echo(&conn, b"before").await;
        network.cut("server", "client");
        let short = Duration::from_millis(100);
        let outcome = net.call(&conn, &[ECHO], &[], &mut [], short).await;
        assert_eq!(outcome.unwrap_err().code, Code::TimedOut);
        network.heal("client", "server");
        net.echo(&conn, b"after").await;
        network.break_connections("client", "server");
        let outcome = net.call(&conn, &[ECHO], &[], &mut [], LONG).await;
        assert_eq!(outcome.unwrap_err().code, Code::Closed);
        let conn = net.dial().await;
        net.echo(&conn, b"again").await;
        world.kill("server");
        let outcome = net.call(&conn, &[ECHO], &[], &mut [], LONG).await;
        assert_eq!(outcome.unwrap_err().code, Code::Closed);
        assert_eq!(net.dial_with(b"").await.err().unwrap().code, Code::Unreach);
    });
    // The node comes back and serves again.
    let (_seen, net) = start(&world);
    world.block_on(async { net.echo(&net.dial().await, b"back").await });
    world.clear();
}

/// However little may be on its way at a time, everything arrives.
#[test]
fn a_narrow_connection_takes_all_in_small_pieces() {
    for bytes in [7, 1000] {
        let world = SimWorld::new(bytes as u64);
        let (_seen, net) = start(&world);
        SimNet::of(&world).set_flight_bytes_max(bytes);
        world.block_on(async {
            let conn = net.dial().await;
            net.echo(&conn, &pattern(20_000, 3)).await;
            net.echo(&conn, b"after").await;
        });
        world.clear();
    }
}

/// A message came when the clock of its sender said so: later by as much as that had gained, and at once where it had lost as much as messages travel.
#[test]
fn messages_travel_by_no_clock_of_a_node() {
    for (client_ppm, server_ppm) in [(10_000, -10_000), (-10_000, 10_000)] {
        let world = SimWorld::new(3);
        let (_seen, net) = start(&world);
        let delay = Duration::from_millis(20);
        SimNet::of(&world).set_delay(delay, delay);
        world.set_monotonic_gain("client", client_ppm);
        world.set_monotonic_gain("server", server_ppm);
        world.block_on(async {
            let conn = net.dial().await;
            net.env.sleep(Duration::from_secs(100)).await;
            let begun = world.now();
            net.echo(&conn, b"there and back").await;
            let took = world.now() - begun;
            // Who waits for it does so by its own clock.
            assert!(took >= 2 * delay && took < 2 * delay + Duration::from_millis(2), "{took:?}");
        });
        world.clear();
    }
}
