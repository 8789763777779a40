//! One suite over all kinds of connection: shared memory, TCP, simulated.

mod across;
mod net;
mod scenarios;
mod simulated;

macro_rules! on_every_kind {
    ($($name:ident),* $(,)?) => {
        mod shm { $(#[test] fn $name() { crate::net::run(crate::net::NetKind::Shm, crate::scenarios::$name) })* }
        mod tcp { $(#[test] fn $name() { crate::net::run(crate::net::NetKind::Tcp, crate::scenarios::$name) })* }
        mod sim { $(#[test] fn $name() { crate::net::run(crate::net::NetKind::Sim, crate::scenarios::$name) })* }
    };
}

on_every_kind!(
    small_echoes,
    bulk_of_many_sizes_both_ways,
    many_concurrent_calls,
    a_deadline_fails_the_call_and_not_the_connection,
    a_dying_server_fails_pending_calls,
    a_server_sees_its_client_go,
    garbage_harms_nobody_else,
    a_cancelled_call_leaves_the_stream_in_order,
    a_slow_reader_is_waited_for,
    notices_arrive_in_order,
    unread_bulk_is_thrown_away,
    refusals_are_told,
    answers_larger_than_the_room_are_errors,
    a_request_id_in_flight_is_refused,
    pings_are_answered,
);
