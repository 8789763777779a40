//! Defects of clients: of those whose group is led by another one than when they began to ask, and of mounts that ask ahead; and of what devices are given
//! to write.

use super::{Edit, Mutant, Test, cluster};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "handles-that-are-lost",
        what: "a handle that ended with its connection is not asked for again",
        edits: &[Edit {
            path: "crates/client/src/held.rs",
            from: "            match self.reopen().await {\n",
            to: "            if !self.handle.is_released.get() {\n                return;\n            }\n            match self.reopen().await {\n",
        }],
        found_by: cluster("users::who_has_a_container_open_is_known_after_a_restart"),
    },
    Mutant {
        name: "callers-that-are-not-hung-up-on",
        what: "an engine leaves its callers in the belief that the control service knows their handles",
        edits: &[Edit {
            path: "crates/engine/src/control_host.rs",
            from: "                Either::Right(_) => break,\n            };\n            match received {\n",
            to: "                Either::Right(_) => std::future::pending().await,\n            };\n            match received {\n",
        }],
        found_by: cluster("users::who_has_a_container_open_is_known_after_a_restart"),
    },
    Mutant {
        name: "one-connection-for-each-of-two",
        what: "an engine makes two connections to the holder of the control service for a caller, and drops one with its handle",
        edits: &[Edit {
            path: "crates/engine/src/office.rs",
            from: "        if let Some(open) = self.open_upstream(to) {\n            return open;\n        }\n        self.upstream",
            to: "        self.upstream",
        }],
        found_by: cluster("users::who_has_a_container_open_is_known_after_a_restart"),
    },
    Mutant {
        name: "room-of-who-led",
        what: "who asks for room waits for the one who led when he began",
        edits: &[Edit {
            path: "crates/client/src/leader.rs",
            from: "            if !is_alone() {\n                attempt.route(version);\n",
            to: "            if ask.may_take_long {\n                attempt.route(version);\n",
        }],
        found_by: cluster("failover::who_asks_for_room_asks_the_next_leader"),
    },
    Mutant {
        name: "given-back-where-it-was",
        what: "a lock that another client of the process has taken to the next leader is given back at the one before",
        edits: &[Edit {
            path: "crates/client/src/leader.rs",
            from: "        while state.map_version() < ask.since && !attempt.is_over(client) {\n",
            to: "        while state.map_version() > ask.since && attempt.is_over(client) {\n",
        }],
        found_by: cluster("failover::a_lock_is_given_back_where_another_client_has_taken_it"),
    },
    Mutant {
        name: "a-try-is-all",
        what: "a leader whose time for one try is over ends the caller's patience",
        edits: &[Edit {
            path: "crates/client/src/target.rs",
            from: "                            Code::TimedOut if attempt.try_time.is_some() => {\n",
            to: "                            Code::TimedOut if attempt.try_time.is_none() => {\n",
        }],
        found_by: cluster("in_doubt::who_meets_a_doubt_that_lasts_longer_than_a_try_waits_on"),
    },
    Mutant {
        name: "everything-at-once",
        what: "devices are given all that there is to write",
        edits: &[Edit {
            path: "crates/vos/src/write_queue.rs",
            from: "        limit == 0 || self.under_way == 0",
            to: "        limit != 1 || self.under_way == 0",
        }],
        found_by: Test {
            package: "vos",
            program: "shard",
            filter: "writes::small_writes_do_not_wait_for_all_large_ones_before_them",
            env: &[],
        },
    },
    Mutant {
        name: "elsewhere-left-out",
        what: "nothing is told ahead of files that are elsewhere than their entries",
        edits: &[Edit {
            path: "crates/dfs/src/many.rs",
            from: "        if !elsewhere.is_empty() {\n",
            to: "        if elsewhere.len() > 4096 {\n",
        }],
        found_by: Test {
            package: "fuse",
            program: "mounts",
            filter: "ahead::numbered_files_that_are_elsewhere_are_asked_for_together_too",
            env: &[],
        },
    },
    Mutant {
        name: "told-as-it-was-ahead",
        what: "a mount tells what it has asked for ahead of a file that it has written since",
        edits: &[Edit {
            path: "crates/fuse/src/fs/ahead.rs",
            from: "        && table.unchanged_since(",
            to: "        && table.get(0).is_none() | table.unchanged_since(",
        }],
        found_by: Test {
            package: "fuse",
            program: "mounts",
            filter: "ahead::what_this_mount_does_is_seen_whoever_looked_ahead",
            env: &[],
        },
    },
    Mutant {
        name: "parts-are-joined-again",
        what: "a batch that comes again, by another map, is asked for in fewer parts than before",
        edits: &[Edit {
            path: "crates/client/src/route.rs",
            from: "            (known.leader, known.was, &known.members) == (part.leader, part.was, &part.members)\n",
            to: "            (known.leader, &known.members) == (part.leader, &part.members) || known.was > part.was + 99\n",
        }],
        found_by: cluster("divided::an_answer_is_that_of_the_parts_that_were_asked_for_first"),
    },
    Mutant {
        name: "answers-of-one-part-unread",
        what: "a batch that comes again in several parts does not know the answer to it when it was one",
        edits: &[Edit {
            path: "crates/client/src/route.rs",
            from: "        let whole = self.0.first().filter(|form| form.part_count == 1);\n",
            to: "        let whole = self.0.first().filter(|form| form.part_count == 99);\n",
        }],
        found_by: cluster("divided::an_answer_is_that_of_the_parts_that_were_asked_for_first"),
    },
    Mutant {
        name: "room-is-not-waited-for",
        what: "who writes a coded file anew right after one was removed is told that there is no room",
        edits: &[Edit {
            path: "crates/client/src/array.rs",
            from: "            Err(error) if error.code == Code::NoSpace && self.oid.cells().is_some() => {\n",
            to: "            Err(error) if error.code == Code::NoSpace && self.oid.cells().is_none() => {\n",
        }],
        found_by: cluster("unnamed::who_writes_anew_at_once_waits_for_the_room"),
    },
    Mutant {
        name: "lost-names-told-late",
        what: "cells of what was removed are dropped half a second later",
        edits: &[Edit {
            path: "crates/engine/src/unnamed.rs",
            from: "const DELAY: Duration = Duration::from_millis(100);\n",
            to: "const DELAY: Duration = Duration::from_millis(500);\n",
        }],
        found_by: cluster("unnamed::room_is_back_before_the_next_file_is_written"),
    },
    Mutant {
        name: "called-down-though-started",
        what: "an engine that has joined again while its grants ran out is called down",
        edits: &[Edit {
            path: "crates/control/src/service/members.rs",
            from: "        change.unless_started = true;\n",
            to: "        change.unless_started = false;\n",
        }],
        found_by: Test {
            package: "control",
            program: "control",
            filter: "leads::an_engine_that_has_been_started_again_is_not_called_down",
            env: &[],
        },
    },
];
