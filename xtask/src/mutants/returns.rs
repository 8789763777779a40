//! Defects in what is believed of targets that come back, and of parts of transactions that they hold.

use super::{Edit, Mutant, Test, cluster};

const fn control(filter: &'static str) -> Test {
    Test { package: "control", program: "control", filter, env: &[] }
}

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "old-answers-are-news",
        what: "what a target said of what it held before a reset is noted after it",
        edits: &[Edit {
            path: "crates/control/src/service/stores.rs",
            from: "if durability != Durability::Memory && held.incarnation != *asked {\n",
            to: "if durability == Durability::Memory && held.incarnation != *asked {\n",
        }],
        found_by: control("cases_stores::what_was_said_before_a_reset_is_no_news_after_it"),
    },
    Mutant {
        name: "marks-go-unheard",
        what: "a member that comes back forgets what has no name, whether its leader has told of it or not",
        edits: &[Edit {
            path: "crates/engine/src/nameless.rs",
            from: "                untold.remove(&(cont, *unit));\n",
            to: "                untold.replace((cont, *unit));\n",
        }],
        found_by: cluster("failover::what_is_open_outlives_its_name_and_its_leader"),
    },
    Mutant {
        name: "images-of-held-keys",
        what: "a new leader gives others a key without what a part that it holds still is to change, which they may have seen decided",
        edits: &[Edit {
            path: "crates/engine/src/mend.rs",
            from: "            self.await_older_parts(ctx, to, cont, unit, dkey).await?;\n",
            to: "            drop(self.await_older_parts(ctx, to, cont, unit, dkey));\n",
        }],
        found_by: cluster(
            "suspects::what_one_of_three_saw_decided_is_not_taken_back_by_who_holds_the_part_still",
        ),
    },
    Mutant {
        name: "gone-and-trusted",
        what: "a target that is excluded before it has compared itself is believed to have what is done while it is out",
        edits: &[Edit {
            path: "crates/control/src/records.rs",
            from: "                if reason != Some(DownReason::Behind) =>\n",
            to: "                if reason == Some(DownReason::Silent) =>\n",
        }],
        found_by: control("cases_told::who_goes_before_it_has_compared_itself_left_then"),
    },
    Mutant {
        name: "frozen-with-orders-under-way",
        what: "a container is rolled back while what was ordered before is on its way to members",
        edits: &[Edit {
            path: "crates/engine/src/versions.rs",
            from: "!prepared.is_empty() || !ctx.streams.has_told(self.id, ordered);\n",
            to: "!prepared.is_empty() || ordered == u64::MAX;\n",
        }],
        found_by: cluster("snapshots::what_is_on_its_way_to_members_is_rolled_back_with_the_rest"),
    },
    Mutant {
        name: "each-goes-back-in-its-own-time",
        what: "each member rolls a container back at an epoch of its own",
        edits: &[Edit {
            path: "crates/engine/src/versions.rs",
            from: "epoch.filter(|_| has_all(unit))",
            to: "epoch.filter(|_| !has_all(unit))",
        }],
        found_by: cluster("snapshots::what_is_on_its_way_to_members_is_rolled_back_with_the_rest"),
    },
    Mutant {
        name: "whole-and-in-its-own-time",
        what: "a target that has told that it misses nothing rolls back at an epoch of its own",
        edits: &[Edit {
            path: "crates/engine/src/versions.rs",
            from: "(has_claimed && self.catches_up_with(&map, unit))",
            to: "(!has_claimed && has_claimed && self.catches_up_with(&map, unit))",
        }],
        found_by: cluster(
            "snapshots::who_has_told_that_it_misses_nothing_is_rolled_back_as_the_others_are",
        ),
    },
    Mutant {
        name: "gone-and-as-new-as-there",
        what: "a key that only snapshots see is as new as one that gave way there to what was removed later",
        edits: &[Edit {
            path: "crates/vos/src/index/install.rs",
            from: "None if past > Epoch::ZERO => Epoch(past.0 | GONE),\n",
            to: "None if past > Epoch::ZERO => Epoch(past.0 & !GONE),\n",
        }],
        found_by: cluster(
            "snapshots::what_is_removed_under_a_snapshot_while_a_member_is_away_stays_removed",
        ),
    },
    Mutant {
        name: "cells-go-back-in-time",
        what: "a rollback removes cells that came to be where they are after the snapshot",
        edits: &[Edit {
            path: "crates/vos/src/versions.rs",
            from: "for unit in units.into_iter().filter(|unit| !unit.is_cell()) {\n",
            to: "for unit in units {\n",
        }],
        found_by: cluster("coded::a_rollback_leaves_cells_that_have_moved"),
    },
    Mutant {
        name: "who-was-away-is-not-told",
        what: "a target that comes back follows before it has heard of snapshots that were made without it",
        edits: &[Edit {
            path: "crates/control/src/service/stores.rs",
            from: "        if !back.is_empty() {\n",
            to: "        if back.len() > pool.targets.len() {\n",
        }],
        found_by: control("cases_snaps::who_was_away_hears_of_snapshots_before_it_is_back"),
    },
    Mutant {
        name: "who-comes-back-is-passed-over",
        what: "a snapshot passes over a target that has been told of snapshots and is about to be in the map",
        edits: &[Edit {
            path: "crates/control/src/service/snaps.rs",
            from: "!is_spare || !is_away(target) || self.returning.has(pool.id, target.id)\n",
            to: "!is_spare || !is_away(target)\n",
        }],
        found_by: control(
            "cases_snaps::who_comes_back_while_a_snapshot_is_made_keeps_what_it_sees",
        ),
    },
    Mutant {
        name: "units-made-older",
        what: "what is known of a unit as a whole makes it older than what is suspected in it",
        edits: &[Edit {
            path: "crates/engine/src/follow.rs",
            from: "Ok(ctx.suspects.has_keys_of(cont, unit))",
            to: "Ok(false)",
        }],
        found_by: cluster("suspects::what_is_left_of_a_lost_leader_is_found_after_a_restart"),
    },
    Mutant {
        name: "old-parts-count-for-nothing",
        what: "parts that are committed under another leader are no reason to compare keys",
        edits: &[Edit {
            path: "crates/engine/src/old_parts.rs",
            from: "let is_old = self.parts.borrow_mut().remove(&tx);",
            to: "let is_old = self.parts.borrow_mut().remove(&tx) && false;",
        }],
        found_by: cluster("suspects::what_a_part_lies_over_is_found_after_a_restart"),
    },
    Mutant {
        name: "lost-ends-count-for-nothing",
        what: "who lost the end of its log counts as having left when it was missed",
        edits: &[Edit {
            path: "crates/control/src/service/lost_ends.rs",
            from: "= (kept_map_version.saturating_add(1), own.left);\n",
            to: "= (u32::MAX - kept_map_version, own.left);\n",
        }],
        found_by: control("cases_told::who_lost_the_end_of_its_log_left_when_what_it_has_was_done"),
    },
    Mutant {
        name: "ended-in-order-and-doubted",
        what: "what was stopped in order is not trusted in relaxed pools",
        edits: &[Edit {
            path: "crates/vos/src/lacking.rs",
            from: "        if self.writable().is_ok() {\n            self.end_of_log",
            to: "        if false {\n            self.end_of_log",
        }],
        found_by: cluster("ended::who_was_ended_in_order_has_all_whoever_is_not_back"),
    },
    Mutant {
        name: "moved-up-and-better",
        what: "who moved up for another one counts as having left that much later",
        edits: &[Edit {
            path: "crates/control/src/service/lost_ends.rs",
            from: "        self.moved.filter(|moved| moved.to == self.left)",
            to: "        self.moved.filter(|_| false)",
        }],
        found_by: control("cases_told::who_was_moved_up_has_no_more_than_before"),
    },
    Mutant {
        name: "two-left-at-once",
        what: "who lost the end of its log counts as having left with who did not",
        edits: &[Edit {
            path: "crates/control/src/service/lost_ends.rs",
            from: "        other.move_left(to);\n",
            to: "        other.move_left(other.left);\n",
        }],
        found_by: control("cases_told::who_lost_the_end_of_its_log_left_when_what_it_has_was_done"),
    },
    Mutant {
        name: "another-try-is-another-transaction",
        what: "a client tries a transaction with another id when a target says that it serves nothing",
        edits: &[Edit {
            path: "crates/client/src/batch.rs",
            from: "                    attempt.flags |= wire::header::FLAG_RETRY;\n                    self.cont.pool().0.state.refresh_soon(client);\n",
            to: "                    attempt.begin_anew(client);\n                    self.cont.pool().0.state.refresh_soon(client);\n",
        }],
        found_by: cluster(
            "in_doubt::what_was_committed_before_its_leader_lost_its_store_is_told_as_committed",
        ),
    },
];
