//! The service is cut off at every step of every request, and starts again.

use crate::fake::{System, create_cont, create_pool, destroy_cont, destroy_pool, label};
use futures_executor::block_on;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use wire::control::ControlRequest as R;

/// A life: each request relies on those before it.
fn life() -> Vec<R> {
    vec![
        create_pool("tank"),
        create_cont("tank", "home"),
        create_cont("tank", "work"),
        R::SetProps {
            subject: wire::control::Subject::Cont(label("tank"), label("work")),
            props: [("label".to_string(), "play".to_string())].into(),
        },
        destroy_cont("tank", "home", false),
        destroy_pool("tank", true),
        create_pool("tank"),
    ]
}

fn recover(system: System) -> System {
    let system = system.restarted();
    assert_eq!(block_on(system.service.resume(&*system.targets)).unwrap(), []);
    system.assert_in_step();
    system
}

/// What a user does after an outage: asks again for what may not have happened.
fn go_on(system: &System) {
    if system.pools().is_empty() {
        system.pool("tank");
    }
    system.run(create_cont("tank", "after")).unwrap();
    system.assert_in_step();
}

#[test]
fn the_catalog_breaks_at_every_commit() {
    for last_lands in [false, true] {
        let mut commits = 0;
        loop {
            commits += 1;
            let system = System::new(2).restarted_with(last_lands);
            system.commits_left.set(Some(commits));
            let ended = life().into_iter().all(|request| system.run(request).is_ok());
            system.commits_left.set(None);
            go_on(&recover(system));
            if ended {
                break;
            }
        }
        assert!(commits > 10, "only {commits} commits");
    }
}

#[test]
fn the_targets_fall_silent_at_every_order() {
    let mut order_count = 0;
    loop {
        let system = System::new(2);
        system.targets.orders_left.set(Some(order_count));
        let ended = life().into_iter().all(|request| system.run(request).is_ok());
        go_on(&recover(system));
        if ended {
            break;
        }
        order_count += 1;
    }
    assert!(order_count > 20, "only {order_count} orders");
}

#[test]
fn the_caller_gives_up_at_every_wait() {
    // The engine should not do this, but a crash does the same to a request.
    for seed in 0..3 {
        for step in 0.. {
            let mut polls_left = step;
            let system = System::empty(Some(seed));
            system.join(0).unwrap();
            system.join(1).unwrap();
            let mut ended = true;
            for request in life() {
                let mut asked = pin!(system.ask(request));
                let mut context = Context::from_waker(Waker::noop());
                ended = loop {
                    if polls_left == 0 {
                        break false;
                    }
                    polls_left -= 1;
                    if let Poll::Ready(reply) = asked.as_mut().poll(&mut context) {
                        reply.unwrap();
                        break true;
                    }
                };
                if !ended {
                    break;
                }
            }
            go_on(&recover(system));
            if ended {
                assert!(step > 50, "only {step} waits");
                break;
            }
        }
    }
}

#[test]
fn a_live_service_can_clean_up_what_a_dropped_request_left() {
    let system = System::empty(Some(1));
    system.join(0).unwrap();
    {
        let mut asked = pin!(system.ask(create_pool("tank")));
        let mut context = Context::from_waker(Waker::noop());
        while system.targets.order_count.get() == 0 {
            assert!(asked.as_mut().poll(&mut context).is_pending());
        }
    }
    assert_eq!(system.fails(create_pool("tank"), "already"), types::Code::Exist);
    system.run(destroy_pool("tank", false)).unwrap();
    system.pool("tank");
    system.assert_in_step();
}
