//! One suite over all kinds of connection: shared memory, TCP, simulated.

mod across;
mod net;
mod other_memory;
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
    data_are_told_of_while_they_come,
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
    a_request_that_is_given_up_is_answered_with_an_error,
    bulk_over_the_credit_waits_to_be_asked_for,
    who_gives_up_deferred_bulk_says_so,
    deferred_bulk_that_nobody_reads_stays_where_it_is,
    a_dying_server_fails_calls_that_wait_to_send,
    credits_and_data_out_of_order_cost_the_connection_only,
);
