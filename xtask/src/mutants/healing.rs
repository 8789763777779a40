//! Defects of healing: what catches up, moves, gives way, is put right, and who leads meanwhile.
//!
//! Some were mended; others are such as whoever works there may make.

use super::{Edit, Mutant, Test, cluster};

/// A test of the control service.
const fn control(filter: &'static str) -> Test {
    Test { package: "control", program: "control", filter, env: &[] }
}

/// A test of stores.
const fn shard(filter: &'static str) -> Test {
    Test { package: "vos", program: "shard", filter, env: &[] }
}

/// Engines of the real program are upgraded.
const UPGRADE: Test = Test {
    package: "cli",
    program: "upgrade",
    filter: "engines_are_upgraded_one_by_one_under_work",
    env: &[],
};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "answers-without-deeds",
        what: "an answer stays when a leader takes back what it is about, as long as other things are not settled",
        edits: &[Edit {
            path: "crates/engine/src/suspects.rs",
            from: "            if !is_same && is_lost() {\n",
            to: "            if !is_same && is_lost() && self.has_stopped() {\n",
        }],
        found_by: Test {
            env: &[("AZEKURA_SIM_SEED", "289")],
            ..cluster("replicas::acknowledged_updates_of_copies_survive_engines_that_die")
        },
    },
    Mutant {
        name: "inherits-nothing",
        what: "who leads a group since a moment ago frees what was removed at once, as if it knew who has it open",
        edits: &[Edit {
            path: "crates/engine/src/inherited.rs",
            from: "|| leader_by(unit, before) == Some(target)\n",
            to: "|| leader_by(unit, before).is_some()\n",
        }],
        found_by: cluster("inherited::who_led_a_group_all_along_waits_for_nobody"),
    },
    Mutant {
        name: "folded-past-joiners",
        what: "what is folded while targets move gives no cells to those who said that they have all",
        edits: &[Edit {
            path: "crates/engine/src/fold.rs",
            from: "members.iter().copied().enumerate().chain(joiners);\n",
            to: "members.iter().copied().enumerate().chain(joiners.take(0));\n",
        }],
        found_by: cluster(
            "cell_moves::stripes_that_are_coded_while_targets_move_have_all_their_cells",
        ),
    },
    Mutant {
        name: "coded-past-joiners",
        what: "clients that code stripes while targets move give no cells to those who said that they have all",
        edits: &[Edit {
            path: "crates/client/src/cells.rs",
            from: "members.chain(joiners).map(",
            to: "members.chain(joiners.take(0)).map(",
        }],
        found_by: cluster(
            "cell_moves::stripes_that_are_coded_while_targets_move_have_all_their_cells",
        ),
    },
    Mutant {
        name: "coded-only-with-room",
        what: "who waits for room for cells that it comes to have keeps all others from coding stripes",
        edits: &[Edit {
            path: "crates/engine/src/cells.rs",
            from: "                    && ctx.joining.note_missed_cell(ctx, self.env.now()) =>\n",
            to: "                    && ctx.joining.note_missed_cell(ctx, self.env.now())\n                    && self.has_stopped() =>\n",
        }],
        found_by: cluster("full_spares::stripes_are_coded_while_one_that_came_back_waits_for_room"),
    },
    Mutant {
        name: "places-changed-unseen",
        what: "a member of a group with a code that comes to another place of it gets none of the cells that it is to have there",
        edits: &[Edit {
            path: "crates/placement/src/spare.rs",
            from: "                    true => members[at] == *target,\n",
            to: "                    true => members[at] == *target || members.contains(target),\n",
        }],
        found_by: Test {
            package: "placement",
            program: "spares",
            filter: "who_has_a_place_of_cells_had_it_before_or_joined_there",
            env: &[],
        },
    },
    Mutant {
        name: "told-again-alone",
        what: "a leader tells again what it did before it was opened again, though it may be the only one to have it",
        edits: &[Edit {
            path: "crates/engine/src/commit.rs",
            from: "        Box::pin(self.share_before_telling(ctx, &told, until)).await?;\n",
            to: "        if self.has_stopped() {\n            Box::pin(self.share_before_telling(ctx, &told, until)).await?;\n        }\n",
        }],
        found_by: cluster("kept_answers::what_is_told_again_after_all_were_killed_is_with_others"),
    },
    Mutant {
        name: "alone-and-shown",
        what: "a leader that was not whole shows what those may lack who lead after it",
        edits: &[Edit {
            path: "crates/engine/src/takeover.rs",
            from: "        if !ctx.alike.are_all() {\n            let of_ops",
            to: "        if batch.writes && !ctx.alike.are_all() {\n            let of_ops",
        }],
        found_by: cluster("shown_alone::what_a_leader_shows_after_all_were_killed_is_with_others"),
    },
    Mutant {
        name: "alone-and-told",
        what: "a leader that was not whole tells by conditions of changes what those may lack who lead after it",
        edits: &[Edit {
            path: "crates/engine/src/takeover.rs",
            from: "        if !ctx.alike.are_all() {\n            let of_ops",
            to: "        if !batch.writes && !ctx.alike.are_all() {\n            let of_ops",
        }],
        found_by: cluster("shown_alone::what_a_leader_shows_after_all_were_killed_is_with_others"),
    },
    Mutant {
        name: "answers-before-deeds",
        what: "who catches up gets the answers of leaders before what they are about",
        edits: &[Edit {
            path: "crates/engine/src/catch_up.rs",
            from: "            for cont in ctx.shard.conts() {\n                differ",
            to: "            self.answers_unknown_to(ctx, &map, other, false, &is_lacking).await?;\n            for cont in ctx.shard.conts() {\n                differ",
        }],
        found_by: cluster("kept_answers::answers_come_after_what_they_are_about"),
    },
    Mutant {
        name: "undone-and-told",
        what: "a member that forgets a decision which its leader never had goes on telling that the transaction is done",
        edits: &[Edit {
            path: "crates/engine/src/commit/doubt.rs",
            from: "            None => ctx.shard.undo_decision(tx)?,\n",
            to: "            None => ctx.shard.forget_decision(tx)?,\n",
        }],
        found_by: cluster("kept_answers::an_answer_about_a_decision_goes_with_it"),
    },
    Mutant {
        name: "taken-back-and-told",
        what: "who compares everything keeps the answers to what its leader's images take back until all is compared",
        edits: &[Edit {
            path: "crates/engine/src/suspects.rs",
            from: "            about.extend(undone.into_iter().filter(is_undone));\n",
            to: "            about.extend(undone.into_iter().filter(is_undone).take(0));\n",
        }],
        found_by: cluster(
            "kept_answers::answers_go_with_what_is_taken_back_while_others_are_compared",
        ),
    },
    Mutant {
        name: "part-ends-unasked",
        what: "who holds a part that its leader does not have is not trusted any more, whatever the coordinator would say",
        edits: &[
            Edit {
                path: "crates/engine/src/commit/over.rs",
                from: "        let told = self.env.timeout(WORD_TIME_MAX, asked).await;\n",
                to: "        drop(asked);\n        let told: Option<Result<TxOutcome>> = None;\n",
            },
            Edit {
                path: "crates/engine/src/commit/over.rs",
                from: "const WORD_TIME_MAX: Duration = Duration::from_secs(5);\n",
                to: "const WORD_TIME_MAX: Duration = Duration::ZERO;\n",
            },
        ],
        found_by: cluster("kept_answers::a_part_that_a_lost_leader_never_had_holds_nobody_up"),
    },
    Mutant {
        name: "word-behind-orders",
        what: "who coordinates tells nobody how a transaction ends before all have what it has ordered, and who asks does none of that before it is told",
        edits: &[Edit {
            path: "crates/engine/src/commit/doubt.rs",
            from: "        let Some(group) = group else { return Ok(()) };\n        let map = ctx.map()?;\n",
            to: "        let Some(group) = group else { return Ok(()) };\n        ctx.streams.wait_for(ctx.streams.last()).await?;\n        let map = ctx.map()?;\n",
        }],
        found_by: cluster(
            "kept_answers::a_leader_that_is_asked_about_a_part_does_not_wait_for_who_asks",
        ),
    },
    Mutant {
        name: "decided-and-not-told-again",
        what: "a new leader that its lost one has had decide a part alone gives others the key, and they keep the part",
        edits: &[Edit {
            path: "crates/engine/src/suspects.rs",
            from: "                unit.into_iter().for_each(|unit| note((NO_CONT, unit, decided.clone())));\n",
            to: "                let _ = (unit, decided);\n",
        }],
        found_by: cluster("suspects::a_part_that_was_decided_elsewhere_does_not_take_effect_later"),
    },
    Mutant {
        name: "decided-and-unsaid",
        what: "a new leader gives the others nothing of a part that its lost leader had it decide alone",
        edits: &[Edit {
            path: "crates/engine/src/suspects.rs",
            from: "            if let Some((cont, part)) = ctx.shard.prepared_batch(*tx) {\n",
            to: "            if let Some((cont, part)) = ctx.shard.prepared_batch(*tx).filter(|_| number == u64::MAX) {\n",
        }],
        found_by: cluster("suspects::a_part_that_one_of_three_saw_decided_is_with_all"),
    },
    Mutant {
        name: "joiners-wait-for-no-part",
        what: "who joins a group is refused keys while parts hold them, and begins anew for ever where they are written all the time",
        edits: &[Edit {
            path: "crates/engine/src/mend.rs",
            from: "        let waits = !to.followers.iter().any(|member| has_all_of(*member, &map, unit));\n",
            to: "        let waits = !to.followers.iter().any(|member| has_all_of(*member, &map, unit) || placement::is_live(*member, &map));\n",
        }],
        found_by: cluster("suspects::a_part_is_not_held_by_who_has_given_its_group_away"),
    },
    Mutant {
        name: "spread-and-unsaid",
        what: "a member that has got a key from a leader which was lost before others had it does not know that they lack it",
        edits: &[Edit {
            path: "crates/engine/src/suspects.rs",
            from: "            note((*cont, *unit, What::Dkey(dkey.to_vec())));\n        }\n        Order::InstallFacts",
            to: "            let _ = (cont, unit, dkey);\n        }\n        Order::InstallFacts",
        }],
        found_by: cluster("suspects::what_a_leader_spreads_when_it_is_lost_is_spread_by_the_next"),
    },
    Mutant {
        name: "lost-units-are-listed",
        what: "one with damaged pages lists units of which a page is lost, and nobody gets what it has beside them",
        edits: &[Edit {
            path: "crates/engine/src/mend.rs",
            from: "                units.units.retain(|of| !ctx.shard.lacks_page_of(cont, of.unit, None));\n",
            to: "",
        }],
        found_by: cluster(
            "lost_pages::who_left_earlier_leads_when_what_was_in_damaged_pages_is_given_up",
        ),
    },
    Mutant {
        name: "two-are-two-while-they-move",
        what: "what a group of two was told last is not compared when a third has come to lead it",
        edits: &[Edit {
            path: "crates/engine/src/suspects.rs",
            from: "            if place.1.object.class().is_ok_and(|class| class.scheme.copies() > 1) {\n",
            to: "            if place.1.object.class().is_ok_and(|class| class.scheme.copies() > 2) {\n",
        }],
        found_by: cluster("suspects::who_comes_to_lead_by_a_move_has_nothing_alone"),
    },
    Mutant {
        name: "passed-by-and-nothing-left",
        what: "who leads in place of one that is passed by waits for nobody's locks",
        edits: &[Edit {
            path: "crates/engine/src/follow.rs",
            from: "is_lost(target) || is_passed(target)",
            to: "is_lost(target) || is_passed(target) && self.has_stopped()",
        }],
        found_by: cluster("lost_pages::a_lock_is_kept_where_one_with_damaged_pages_is_passed_by"),
    },
    Mutant {
        name: "moves-forgotten-by-holders",
        what: "a new holder of the control service gives up what moves, as it does not know since when who was lost is away",
        edits: &[Edit {
            path: "crates/control/src/service/moves.rs",
            from: "out.target == target.id && !out.is_drained)\n",
            to: "out.target == target.id && !out.is_drained && out.is_drained)\n",
        }],
        found_by: control("cases_aims::what_moves_goes_on_under_another_holder"),
    },
    Mutant {
        name: "moves-not-due",
        what: "a pool is at rest between a wish and its plan",
        edits: &[Edit {
            path: "crates/control/src/service/pool.rs",
            from: "            is_move_due: self.is_move_due(pool),\n",
            to: "            is_move_due: false,\n",
        }],
        found_by: cluster("rebuild::what_was_asked_for_is_waited_for_before_it_is_planned"),
    },
    Mutant {
        name: "doubted-and-trusted",
        what: "who drops a part that others have decided is still taken for one that has all, and leads",
        edits: &[Edit {
            path: "crates/engine/src/commit/over.rs",
            from: "            let outcome = match is_trusted(self, map) {\n",
            to: "            let outcome = match is_trusted(self, map) && self.has_stopped() {\n",
        }],
        found_by: cluster(
            "in_doubt::a_part_that_others_have_decided_is_not_dropped_by_who_may_lead",
        ),
    },
    Mutant {
        name: "let-go-and-at-it",
        what: "a part of a pool that is let go of is caught up with for ever",
        edits: &[Edit {
            path: "crates/engine/src/target.rs",
            from: "        self.is_draining() || !self.pools.serves(ctx)\n",
            to: "        let _ = ctx;\n        self.is_draining()\n",
        }],
        found_by: cluster("let_go::nobody_catches_up_with_a_pool_that_is_destroyed"),
    },
    Mutant {
        name: "moves-never-wait",
        what: "what moves takes all of the time, whatever clients want",
        edits: &[Edit {
            path: "crates/engine/src/give_way.rs",
            from: "        self.wait_in_line(line, share, until, || self.has_clients()).await\n",
            to: "        self.wait_in_line(line, share, until, || false).await\n",
        }],
        found_by: cluster("cell_moves::cells_that_move_give_way_to_clients"),
    },
    Mutant {
        name: "last-copies-wait-as-others",
        what: "what one copy is left of has no more of the time than what two are left of",
        edits: &[Edit {
            path: "crates/engine/src/give_way.rs",
            from: "    if is_last { (2 * share).min(100) } else { share }\n",
            to: "    if is_last { share.min(100) } else { share }\n",
        }],
        found_by: cluster("give_way::lost_copies_give_way_to_clients"),
    },
    Mutant {
        name: "cells-go-to-who-has-them",
        what: "whoever has a cell is taken for the one that comes to have it, and gives it at full speed",
        edits: &[Edit {
            path: "crates/engine/src/cells.rs",
            from: "CellAsk::Get { at, bytes } if joins(&ctx, from, unit)? => {",
            to: "CellAsk::Get { at, bytes } if joins(&ctx, self.id, unit)? => {",
        }],
        found_by: cluster("cell_moves::cells_that_move_give_way_to_clients"),
    },
    Mutant {
        name: "old-cells-wait-for-the-audit",
        what: "nobody tells which cells have lost their names",
        edits: &[Edit {
            path: "crates/engine/src/unnamed.rs",
            from: "if !ctx.shard.has_unnamed() || ctx.unnamed",
            to: "if ctx.shard.has_unnamed() || ctx.unnamed",
        }],
        found_by: cluster("unnamed::room_of_what_is_gone_is_there_in_seconds"),
    },
    Mutant {
        name: "stripes-of-a-snapshot-stay",
        what: "nobody tells of stripes that only a destroyed snapshot named",
        edits: &[Edit {
            path: "crates/vos/src/versions.rs",
            from: "self.unnamed.note(cont, unit, Dkeys::All);",
            to: "let _ = (&self.unnamed, Dkeys::All);",
        }],
        found_by: cluster("unnamed::what_only_a_snapshot_named_goes_with_it"),
    },
    Mutant {
        name: "late-words-drop-cells",
        what: "cells that were kept once more are dropped by a word from before",
        edits: &[Edit {
            path: "crates/engine/src/unnamed.rs",
            from: "(was_named && kept_at <= until) ||",
            to: "(was_named && until <= now) ||",
        }],
        found_by: cluster("unnamed::late_words_and_words_of_others_drop_nothing"),
    },
    Mutant {
        name: "cells-of-writers-are-dropped",
        what: "what a client may be about to have named is taken for what has lost its name",
        edits: &[Edit {
            path: "crates/engine/src/unnamed.rs",
            from: "!is_coined(stripe.version) || once_named",
            to: "stripe.cell_bytes > 0 || once_named",
        }],
        found_by: cluster("unnamed::late_words_and_words_of_others_drop_nothing"),
    },
    Mutant {
        name: "shared-room-counts-twice",
        what: "a target goes on counting all of a directory as its own when others come to share it",
        edits: &[Edit {
            path: "crates/engine/src/growth.rs",
            from: "            let _ = self.inboxes[number].1.unbounded_send(Order::ShareDevices(counts));\n",
            to: "            let _: (usize, Vec<u32>) = (number, counts);\n",
        }],
        found_by: Test {
            env: &[("AZEKURA_SIM_SEED", "2")],
            ..cluster("growing::an_engine_gets_a_target_and_data_come_to_it")
        },
    },
    Mutant {
        name: "places-open-early",
        what: "targets are members before they have what they are to have",
        edits: &[Edit {
            path: "crates/control/src/service/told.rs",
            from: "        .all(|target| target.state == TargetState::Up && target.joined == pool.map_version)\n",
            to: "        .all(|target| target.state == TargetState::Up && target.joined <= pool.map_version)\n",
        }],
        found_by: cluster("growing::an_engine_gets_a_target_and_data_come_to_it"),
    },
    Mutant {
        name: "last-copies-go-by-number",
        what: "what one copy is left of does not go before the rest",
        edits: &[Edit {
            path: "crates/engine/src/catch_up.rs",
            from: "        differ.sort_unstable_by_key(|of| (of.copies_left, of.used_s, of.cont, of.unit));\n",
            to: "        differ.sort_unstable_by_key(|of| (of.used_s, of.cont, of.unit));\n",
        }],
        found_by: cluster("full_spares::what_has_one_copy_left_goes_first"),
    },
    Mutant {
        name: "used-moves-first",
        what: "what moves goes by number, whoever uses it",
        edits: &[Edit {
            path: "crates/engine/src/catch_up.rs",
            from: "        let used_s = |listed: ListedUnit| if is_move { listed.used_s() } else { 0 };\n",
            to: "        let used_s = |listed: ListedUnit| if is_move { 0 } else { listed.used_s() };\n",
        }],
        found_by: cluster("oldest_first::what_is_used_moves_last"),
    },
    Mutant {
        name: "full-spares-say-nothing",
        what: "a target without room for what it is to take over does not tell the control service",
        edits: &[Edit {
            path: "crates/engine/src/catch_up.rs",
            from: "                        Code::NoSpace => target.tell_that_it_is_full(pool, &ctx).await,\n",
            to: "",
        }],
        found_by: cluster("full_spares::the_next_one_stands_in_where_one_is_full"),
    },
    Mutant {
        name: "drained-keeps-some",
        what: "a drain is over though the target goes on having what nobody else could be given",
        edits: &[Edit {
            path: "crates/engine/src/catch_up.rs",
            from: "        if kept > 0 {\n",
            to: "        if kept > 0 && map.next.is_none() {\n",
        }],
        found_by: cluster("full_spares::a_drain_waits_where_there_are_too_few_others"),
    },
    Mutant {
        name: "own-places-wait",
        what: "a target that was away gets what it is to take over before it counts as whole",
        edits: &[Edit {
            path: "crates/engine/src/group.rs",
            from: "            false => self.is_member(map, unit),\n        }",
            to: "            false => !self.is_strange(map, unit),\n        }",
        }],
        found_by: cluster("full_spares::who_comes_back_while_a_drain_waits_for_room_is_whole_soon"),
    },
    Mutant {
        name: "leftovers-stay-while-it-waits",
        what: "who had no room for what it was to take over keeps what it got of it",
        edits: &[Edit {
            path: "crates/engine/src/leftovers.rs",
            from: "        (map.next.is_none() || is_passed)\n",
            to: "        map.next.is_none()\n            && !is_passed\n",
        }],
        found_by: cluster("full_spares::a_drain_without_room_waits_for_it"),
    },
    Mutant {
        name: "cells-are-dropped-as-copies",
        what: "of a group with a code its copies tell who holds cells",
        edits: &[Edit {
            path: "crates/engine/src/leftovers.rs",
            from: "                true => self.is_strange_cell(map, unit),\n",
            to: "                true => self.is_strange(map, unit),\n",
        }],
        found_by: cluster("coded::drained_engines_hold_no_cells_that_others_lack"),
    },
    Mutant {
        name: "changes-before-settled",
        what: "a new leader changes what a follower may have otherwise of a lost one",
        edits: &[Edit {
            path: "crates/engine/src/takeover.rs",
            from: "        let mut whole = group.followers.iter().filter(|member| placement::is_live(**member, &map));\n",
            to: "        let mut whole = group.followers.iter().filter(|member| !placement::is_live(**member, &map));\n",
        }],
        found_by: cluster("mending::what_a_second_leader_never_got_does_not_come_up_under_its_own"),
    },
    Mutant {
        name: "other-data-are-trusted",
        what: "a leader with damage takes a member's data though they tell of other changes",
        edits: &[Edit {
            path: "crates/engine/src/damage.rs",
            from: "        if !has_same {\n",
            to: "        if !has_same && !is_same() {\n",
        }],
        found_by: cluster("mending::a_member_has_what_a_damaged_new_leader_never_got"),
    },
    Mutant {
        name: "joined-is-enough",
        what: "a leader with suspicions of a key takes a member's data that may hide another change",
        edits: &[Edit {
            path: "crates/engine/src/damage.rs",
            from: "            true => Closeness::Written,\n",
            to: "            true => Closeness::Joined,\n",
        }],
        found_by: cluster("mending::a_member_has_what_a_damaged_new_leader_never_got"),
    },
    Mutant {
        name: "older-data-are-installed",
        what: "a leader with damage takes a member's data though an order has changed the key since",
        edits: &[
            Edit {
                path: "crates/engine/src/damage.rs",
                from: "        let is_same = || ctx.map_version() == map.version && !watch.has_changed(cont, read());\n",
                to: "        let is_same = || ctx.map_version() == map.version || !watch.has_changed(cont, read());\n",
            },
            Edit {
                path: "crates/vos/src/image.rs",
                from: "            Some(object) if epoch == image.epoch && is_same() => Ok(object.timeline()),\n",
                to: "            Some(object) if epoch >= image.epoch && is_same() => Ok(object.timeline()),\n",
            },
        ],
        found_by: cluster("mending::what_is_written_while_a_key_is_put_right_stays"),
    },
    Mutant {
        name: "given-up-keys-are-the-same",
        what: "a key for which others were to lead is compared by epochs as any other",
        edits: &[Edit {
            path: "crates/engine/src/damage.rs",
            from: "        ctx.mending.given_up.borrow_mut().insert(given_up);\n",
            to: "        drop::<KeyName>(given_up);\n",
        }],
        found_by: cluster("healing::a_damaged_key_for_which_others_lead_is_taken_from_them"),
    },
    Mutant {
        name: "unreadable-is-an-error",
        what: "what a device does not give is an error to readers, though others have it",
        edits: &[Edit {
            path: "crates/engine/src/damage.rs",
            from: "        if error.code != Code::Io {\n",
            to: "        if error.code != Code::Csum {\n",
        }],
        found_by: cluster("mending::what_a_device_does_not_give_comes_from_others"),
    },
    Mutant {
        name: "one-width-is-enough",
        what: "what was in damaged pages counts as found where groups of some width have somebody whole",
        edits: &[Edit {
            path: "crates/engine/src/lost_pages.rs",
            from: "        if (2..=limits::COPIES_MAX).filter(may_be_here).any(has_nobody_whole) {\n",
            to: "        if (2..=limits::COPIES_MAX).filter(may_be_here).all(has_nobody_whole) {\n",
        }],
        found_by: cluster("lost_pages::who_left_later_does_not_wait_for_what_a_damaged_one_lacks"),
    },
    Mutant {
        name: "untold-units-are-asked-for",
        what: "a target asks a leader with damaged pages for units that this cannot tell",
        edits: &[Edit {
            path: "crates/engine/src/catch_up.rs",
            from: "                if listed.is_none() && ctx.joining.untold_by() == Some(leader) {\n",
            to: "                if listed.is_none() && ctx.joining.untold_by() != Some(leader) {\n",
        }],
        found_by: cluster(
            "lost_pages::who_left_earlier_leads_when_what_was_in_damaged_pages_is_given_up",
        ),
    },
    Mutant {
        name: "passed-by-for-nobody",
        what: "one with damaged pages is passed by though of some objects nobody else is there",
        edits: &[Edit {
            path: "crates/control/src/service/stores.rs",
            from: "                (target.state, target.reason) = (TargetState::Down, Some(DownReason::Lost));\n",
            to: "                (target.state, target.reason) = (TargetState::Down, Some(DownReason::Behind));\n",
        }],
        found_by: control(
            "cases_stores::others_lead_before_one_with_damaged_pages_once_that_is_given_up",
        ),
    },
    Mutant {
        name: "givers-are-not-asked",
        what: "a drain is over before the target that is drained has said that it keeps nothing",
        edits: &[Edit {
            path: "crates/control/src/service/told.rs",
            from: "out.target == id && out.is_drained && !pool.outs.contains(out))\n    };\n    if !pool",
            to: "out.target == id && out.is_drained && pool.outs.contains(out))\n    };\n    if !pool",
        }],
        found_by: control("cases_aims::a_drained_target_says_itself_that_it_keeps_nothing"),
    },
    Mutant {
        name: "older-words-count",
        what: "what a target says of itself under an older map counts under the newest",
        edits: &[Edit {
            path: "crates/control/src/service/told.rs",
            from: "            if pool.record.map_version != map_version {\n                let newest",
            to: "            if pool.record.map_version < map_version {\n                let newest",
        }],
        found_by: control(
            "cases_members::the_targets_of_a_silent_engine_are_down_until_it_is_back",
        ),
    },
    Mutant {
        name: "who-left-later-is-not-awaited",
        what: "a target is whole though one that left later, and may know more, is away",
        edits: &[Edit {
            path: "crates/control/src/service/told.rs",
            from: "                ) && other.left > left\n",
            to: "                ) && other.left < left\n",
        }],
        found_by: control("cases_told::who_left_earlier_is_not_whole_while_who_left_later_is_away"),
    },
    Mutant {
        name: "stopped-moves-go-on",
        what: "what has begun to move goes on when an administrator stops it",
        edits: &[Edit {
            path: "crates/control/src/service/moves.rs",
            from: "    if pool.is_rebuild_stopped {\n",
            to: "    if pool.is_rebuild_stopped && pool.next.is_none() {\n",
        }],
        found_by: control(
            "cases_aims::copies_are_not_drained_onto_one_engine_and_stopped_moves_stay_stopped",
        ),
    },
    Mutant {
        name: "drained-comes-back-early",
        what: "a target that was drained comes back while one is missing that may have what it gave away",
        edits: &[Edit {
            path: "crates/control/src/service/moves.rs",
            from: "|| target.aim == TargetAim::Exclude || misses_any;\n",
            to: "|| target.aim == TargetAim::Exclude && misses_any;\n",
        }],
        found_by: control("cases_aims::a_drained_target_gives_what_it_has_while_it_is_up"),
    },
    Mutant {
        name: "spares-of-before",
        what: "who was replaced before an extension, and is drained after it, has the spares of before",
        edits: &[Edit {
            path: "crates/control/src/service/moves.rs",
            from: "            OutDf { epoch, is_drained, ..before }\n",
            to: "            OutDf { is_drained, ..before }\n",
        }],
        found_by: control(
            "cases_aims::a_drain_of_who_was_replaced_before_an_extension_begins_once",
        ),
    },
    Mutant {
        name: "room-again-is-nothing",
        what: "those that had no room to stand in are not tried again when they have some",
        edits: &[Edit {
            path: "crates/control/src/service/moves.rs",
            from: "            && (pool.tries_spares_again || out.epoch < epoch)\n",
            to: "            && out.epoch < epoch\n",
        }],
        found_by: cluster("room::what_a_full_pool_loses_is_made_anew_when_there_is_room"),
    },
    Mutant {
        name: "next-to-nothing-is-room",
        what: "a target that had no room is tried again as soon as it holds a little less",
        edits: &[Edit {
            path: "crates/control/src/service/room.rs",
            from: "now.used + kept_when_joining(pool.shard_bytes()) <= *then,\n",
            to: "now.used.min(pool.shard_bytes()) <= *then,\n",
        }],
        found_by: control("cases_room::who_had_no_room_is_tried_again_when_there_is_some"),
    },
    Mutant {
        name: "lack-is-told-each-time",
        what: "people are told at each look that a balance has no room",
        edits: &[Edit {
            path: "crates/control/src/service/room.rs",
            from: "        if self.room.told_shares.borrow_mut().insert(pool.id, epoch) != Some(epoch) {\n",
            to: "        if self.room.told_shares.borrow_mut().get(&pool.id) != Some(&epoch) {\n",
        }],
        found_by: control("cases_room::a_balance_without_room_does_not_begin"),
    },
    Mutant {
        name: "one-copy-needs-no-room",
        what: "nobody looks for room for what a drained target holds where nothing has copies",
        edits: &[Edit {
            path: "crates/control/src/service/room.rs",
            from: "        gone.retain(|id| has_copies || gives(*id));\n",
            to: "        gone.retain(|id| has_copies && gives(*id));\n",
        }],
        found_by: control("cases_room::what_has_no_copies_needs_room_when_it_is_drained"),
    },
    Mutant {
        name: "memory-has-all",
        what: "a target of a pool in memory that was opened again is trusted with all that anybody was told of",
        edits: &[Edit {
            path: "crates/control/src/service/stores.rs",
            from: "durability == Durability::Wal || *kept_map_version == ALL_IS_HERE;\n",
            to: "durability != Durability::Relaxed || *kept_map_version == ALL_IS_HERE;\n",
        }],
        found_by: control(
            "cases_told::who_was_opened_again_is_trusted_as_far_as_its_pool_promises",
        ),
    },
    Mutant {
        name: "other-messages-are-waited-for",
        what: "an upgrade does not end when an engine was started with a program of another wire version",
        edits: &[Edit {
            path: "crates/cli/src/system/upgrade.rs",
            from: "            && error.code == Code::Version\n        {\n            let text = format!(\n                \"it was",
            to: "            && error.code == Code::Proto\n        {\n            let text = format!(\n                \"it was",
        }],
        found_by: UPGRADE,
    },
    Mutant {
        name: "bytes-are-not-compared",
        what: "members with other bytes in extents that are equally new tell of the same changes",
        edits: &[Edit {
            path: "crates/vos/src/likeness.rs",
            from: "        if newest(here) != newest(there) || !have_same_data(here, there) {\n",
            to: "        if newest(here) != newest(there) {\n",
        }],
        found_by: shard("likeness::what_one_has_alone_shows_under_what_both_have"),
    },
    Mutant {
        name: "newest-does-not-count",
        what: "members that have written the same bytes at other times tell of the same changes",
        edits: &[Edit {
            path: "crates/vos/src/likeness.rs",
            from: "let newest = |all: &[Told<'_>]| all.iter().map(|told| told.created).max();\n",
            to: "let newest = |all: &[Told<'_>]| all.iter().map(|told| told.destroyed).max();\n",
        }],
        found_by: shard("likeness::what_one_wrote_again_alone_shows_though_its_bytes_are_the_same"),
    },
    Mutant {
        name: "pieces-have-one-end",
        what: "members with the same changes in extents that end elsewhere differ",
        edits: &[Edit {
            path: "crates/vos/src/likeness.rs",
            from: "            && self.end == next.start\n",
            to: "            && self.start == next.start\n",
        }],
        found_by: shard("likeness::extents_that_are_cut_elsewhere_tell_the_same"),
    },
    Mutant {
        name: "only-the-whole-are-asked",
        what: "a damaged key of the only member left is not filled with what those have who are behind",
        edits: &[Edit {
            path: "crates/engine/src/damage.rs",
            from: "            None if self.complete_key(ctx, &map, spot).await? => Ok(()),\n",
            to: "            None if !placement::is_live(self.id, &map) && self.complete_key(ctx, &map, spot).await? => Ok(()),\n",
        }],
        found_by: cluster("mending::who_is_behind_fills_what_is_damaged_with_the_only_one_left"),
    },
    Mutant {
        name: "any-bytes-fill",
        what: "what fills damaged data is not compared with the sums of what was there",
        edits: &[Edit {
            path: "crates/vos/src/completing.rs",
            from: "is_what_was_here(core, part, &bytes).then_some(bytes)?\n",
            to: "(is_what_was_here(core, part, &bytes) || at < u64::MAX).then_some(bytes)?\n",
        }],
        found_by: shard("completing::what_nobody_else_has_is_not_made_up"),
    },
    Mutant {
        name: "told-once",
        what: "a target that was reset, and did not hear that it is to serve, is told when its engine is started again",
        edits: &[Edit {
            path: "crates/engine/src/watch.rs",
            from: "            for rank in service.take_untold() {\n",
            to: "            for rank in service.take_untold().into_iter().filter(|_| up == 0) {\n",
        }],
        found_by: cluster("stores::a_reset_target_is_told_until_it_has_heard"),
    },
    Mutant {
        name: "freed-once",
        what: "a file that lost its name while its engine was away is freed by nobody",
        edits: &[Edit {
            path: "crates/dfs/src/entry.rs",
            from: "            Err(error) if may_pass(&error) => {}\n            outcome => return outcome,\n",
            to: "            Err(error) if may_pass(&error) && oid.is_nil() => {}\n            outcome => return outcome,\n",
        }],
        found_by: cluster("names::a_file_whose_engine_is_away_when_its_name_goes_is_freed_later"),
    },
    Mutant {
        name: "leaderless-groups-are-passed-over",
        what: "what is removed is not removed from a group that nobody leads at the moment",
        edits: &[Edit {
            path: "crates/engine/src/links.rs",
            from: "                if layout.members(group).iter().any(holds) {\n",
            to: "                if layout.members(group).iter().all(|of| !holds(of)) {\n",
        }],
        found_by: cluster("failover::what_is_removed_while_a_group_is_away_goes_from_it_later"),
    },
    Mutant {
        name: "two-suspect-nothing",
        what: "of two members one shows what a leader that was lost, and came back, may not have, and does not give it to it first",
        edits: &[Edit {
            path: "crates/engine/src/suspects.rs",
            from: "            if place.1.object.class().is_ok_and(|class| class.scheme.copies() > 1) {\n",
            to: "            if place.1.object.class().is_ok_and(|class| class.scheme.copies() > 2) {\n",
        }],
        found_by: cluster(
            "shown_alone::what_a_leader_left_the_other_of_two_is_with_it_when_it_is_back",
        ),
    },
];
