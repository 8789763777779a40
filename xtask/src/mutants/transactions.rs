//! Mended defects of transactions, of retries and of what is shown when.

use super::{Edit, Mutant, SWARM, Test, cluster};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "refused-by-an-earlier-try",
        what: "a client that gives a try up takes the refusal of it for one of the next",
        edits: &[Edit {
            path: "crates/client/src/target.rs",
            from: "                self.give_up(used.take());\n                attempt.flags",
            to: "                attempt.flags",
        }],
        found_by: Test {
            package: "sim",
            program: "cluster",
            filter: "late::a_refusal_of_an_earlier_try_is_not_taken_for_one_of_the_next",
            env: &[],
        },
    },
    Mutant {
        name: "failed-decision",
        what: "a coordinator tells a decision that its log has failed to write",
        edits: &[Edit {
            path: "crates/engine/src/commit/coordinate.rs",
            from: "                Err(error) => self.failed(error, Event::LogFailed),\n",
            to: "                Err(_) => Event::Logged,\n",
        }],
        found_by: SWARM,
    },
    Mutant {
        name: "relaxed-transactions",
        what: "two-phase records of a relaxed pool are not written before the next step",
        edits: &[
            Edit {
                path: "crates/engine/src/commit/coordinate.rs",
                from: "match self.ctx.shard.written(self.lsn).await {",
                to: "match self.ctx.shard.durable(self.lsn).await {",
            },
            Edit {
                path: "crates/twophase/src/participant.rs",
                from: "            false => Firmness::Written,\n",
                to: "            false => Firmness::Promised,\n",
            },
            Edit {
                path: "crates/engine/src/commit/coordinate.rs",
                from: "step.firm(&ctx, Firmness::Written).await",
                to: "step.firm(&ctx, Firmness::Promised).await",
            },
            Edit {
                path: "crates/engine/src/admin.rs",
                from: "self.decide(pool, &ctx, tx, unit, outcome).await?.written(&ctx).await?;",
                to: "self.decide(pool, &ctx, tx, unit, outcome).await?.durable(&ctx).await?;",
            },
        ],
        found_by: SWARM,
    },
    Mutant {
        name: "late-first-try",
        what: "old sessions go on, and only what says that it is a retry is looked up",
        edits: &[
            Edit {
                path: "crates/engine/src/seats.rs",
                from: "        if let Some(earlier) = earlier {\n            earlier.end();\n        }\n",
                to: "        drop(earlier);\n",
            },
            Edit {
                path: "crates/engine/src/batch.rs",
                from: "        if summary.writes {\n            let tx = TxId { client, seq: header.request_id };\n",
                to: "        if header.flags & wire::header::FLAG_RETRY != 0 {\n            let tx = TxId { client, seq: header.request_id };\n",
            },
            Edit {
                path: "crates/engine/src/batch.rs",
                from: "        if ask.summary.writes && ask.ctx.shard.replayed(ask.tx())?.is_some() {\n",
                to: "        if false {\n",
            },
        ],
        found_by: SWARM,
    },
    Mutant {
        name: "answers-pushed-out",
        what: "a client has more updates in doubt than a target keeps answers",
        edits: &[Edit {
            path: "crates/client/src/in_doubt.rs",
            from: "        if doubts.len() >= self.most {\n",
            to: "        if doubts.len() >= usize::MAX {\n",
        }],
        found_by: SWARM,
    },
    Mutant {
        name: "shown-too-early",
        what: "reads show what is not on stable storage",
        edits: &[Edit {
            path: "crates/vos/src/settling.rs",
            from: "        self.config().durability == Durability::Wal\n",
            to: "        self.config().durability == Durability::Wal && false\n",
        }],
        found_by: SWARM,
    },
    Mutant {
        name: "prepared-and-unsuspected",
        what: "a member does not compare parts with a new leader when the lost one had it hold one that this leader may lack",
        edits: &[Edit {
            path: "crates/engine/src/suspects.rs",
            from: "            let unit = walk(&batch.ops).map(Op::unit).chain(checked).next();\n",
            to: "            let unit = walk(&batch.ops).map(Op::unit).chain(checked).next().filter(|_| false);\n",
        }],
        found_by: cluster("suspects::a_part_that_the_next_leader_never_had_is_not_held_for_ever"),
    },
    Mutant {
        name: "notes-behind-keys",
        what: "who catches up hears the notes of a leader only when the keys of those before it are compared, which a rollback waits for",
        edits: &[Edit {
            path: "crates/engine/src/catch_up.rs",
            from: "        }\n        for &other in &others {\n            if !placement::is_live(self.id, &map) {\n",
            to: "            if !placement::is_live(self.id, &map) {\n",
        }],
        found_by: cluster("suspects::a_part_that_the_next_leader_never_had_is_not_held_for_ever"),
    },
    Mutant {
        name: "parts-of-others-are-kept",
        what: "who has given a group away keeps a part of a transaction of it, which nobody tells it the end of",
        edits: &[Edit {
            path: "crates/engine/src/leftovers.rs",
            from: "        if !ctx.is_unsure()\n            && let Err(error) = self.drop_parts_of_others(ctx, &map)\n",
            to: "        if ctx.map_version() == 0\n            && let Err(error) = self.drop_parts_of_others(ctx, &map)\n",
        }],
        found_by: cluster("suspects::a_part_is_not_held_by_who_has_given_its_group_away"),
    },
    Mutant {
        name: "parts-that-come-to-nothing-name-nobody",
        what: "nobody asks how a transaction ended of which a part comes to nothing",
        edits: &[
            Edit {
                path: "crates/engine/src/commit/part.rs",
                from: "        let of_nothing = plan.freed_of_nothing.iter().copied();\n",
                to: "        let of_nothing = plan.freed_of_nothing.iter().copied().filter(|_| false);\n",
            },
            Edit {
                path: "crates/engine/src/commit/part.rs",
                from: "        if ops.is_empty() && checks.is_empty() {\n",
                to: "        if ops.is_empty() && !checks.is_empty() {\n",
            },
        ],
        found_by: cluster(
            "in_doubt::a_part_that_comes_to_nothing_is_decided_when_its_coordinator_ends",
        ),
    },
    Mutant {
        name: "written-behind-what-was-lost",
        what: "a log that has failed takes records again, in the place of those that it lost",
        edits: &[Edit {
            path: "crates/vos/src/log/wal.rs",
            from: "        if state.failed.is_some() {\n            // Nothing goes",
            to: "        if false {\n            // Nothing goes",
        }],
        found_by: cluster("failed_devices::what_was_there_before_a_log_failed_can_be_read"),
    },
];
