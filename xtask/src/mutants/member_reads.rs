//! Defects of reads by members: one shows what others do not, or do not show any more.

use super::{Edit, Mutant, cluster};

const PATH: &str = "crates/engine/src/member_reads.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "nothing-is-dirty",
        what: "a member shows what it has by orders that others may not have",
        edits: &[Edit {
            path: PATH,
            from: "let Some(dirty) = ctx.followed.dirty_of(leader).filter(|dirty| is_seen(dirty)) else {\n",
            to: "let Some(dirty) = ctx.followed.dirty_of(leader).filter(|dirty| is_seen(dirty) && false) else {\n",
        }],
        found_by: cluster("member_reads::what_not_all_members_have_is_not_shown"),
    },
    Mutant {
        name: "members-show-without-a-grant",
        what: "a member shows what it has though it may have been left out",
        edits: &[Edit {
            path: PATH,
            from: "        } else if !self.is_lead_granted(ctx) {\n",
            to: "        } else if !self.is_lead_granted(ctx) && ctx.is_unsure() {\n",
        }],
        found_by: cluster("member_reads::a_member_that_is_cut_off_and_left_out_shows_nothing_old"),
    },
    Mutant {
        name: "members-behind-show",
        what: "a member shows what it has while it lacks what others have changed",
        edits: &[Edit {
            path: PATH,
            from: "        let text = if ctx.is_unsure() || !placement::is_live(self.id, map) {\n",
            to: "        let text = if ctx.is_unsure() && placement::is_live(self.id, map) {\n",
        }],
        found_by: cluster("member_reads::a_member_that_is_behind_shows_nothing"),
    },
    Mutant {
        name: "alone-and-shown-by-members",
        what: "a member shows what those may lack who lead after it",
        edits: &[Edit {
            path: PATH,
            from: "        } else if !ctx.alike.are_all() {\n",
            to: "        } else if !ctx.alike.are_all() && ctx.is_unsure() {\n",
        }],
        found_by: cluster("shown_alone::what_a_member_shows_after_all_were_killed_is_with_others"),
    },
    Mutant {
        name: "members-show-under-parts",
        what: "a member shows what a part of a transaction holds",
        edits: &[Edit {
            path: PATH,
            from: "        if ctx.shard.is_held(cont, summary) {\n",
            to: "        if ctx.shard.is_held(cont, summary) && summary.writes {\n",
        }],
        found_by: cluster("member_reads::what_a_part_of_a_transaction_holds_is_not_shown"),
    },
    Mutant {
        name: "nobody-asks-how-far-orders-are",
        what: "what a leader ordered last stays dirty until it orders something else",
        edits: &[Edit {
            path: PATH,
            from: "        self.stream.get() == stream\n",
            to: "        self.stream.get() == stream && stream == 0\n",
        }],
        found_by: cluster("member_reads::a_member_answers_while_its_leader_does_not"),
    },
    Mutant {
        name: "suspects-are-shown",
        what: "a member shows what it has of a lost leader before the next one has settled it",
        edits: &[Edit {
            path: PATH,
            from: "        } else if !ctx.suspects.is_empty() {\n",
            to: "        } else if !ctx.suspects.is_empty() && ctx.is_unsure() {\n",
        }],
        found_by: cluster("member_reads::what_one_member_has_of_a_lost_leader_is_not_shown"),
    },
    Mutant {
        name: "leaders-do-not-count-themselves",
        what: "a leader says that all have an order that it has not written itself",
        edits: &[Edit {
            path: "crates/engine/src/streams.rs",
            from: "        self.safe.look(self.settled(), shard.shown_lsn(), shard.last_lsn())\n",
            to: "        self.safe.look(self.settled(), shard.last_lsn(), shard.last_lsn())\n",
        }],
        found_by: cluster("member_reads::what_the_leader_has_not_written_is_not_shown"),
    },
    Mutant {
        name: "installed-and-not-suspected",
        what: "a leader that is lost while it gives others what it alone has leaves members that differ and do not know it",
        edits: &[Edit {
            path: "crates/engine/src/suspects.rs",
            from: "        Order::Install { cont, unit, dkey, .. } => {\n            note((*cont, *unit, What::Dkey(dkey.to_vec())));\n",
            to: "        Order::Install { .. } => {\n",
        }],
        found_by: cluster("member_reads::what_a_lost_leader_gave_to_some_is_not_shown"),
    },
    Mutant {
        name: "members-tell-of-no-use",
        what: "what is read from members that follow looks unused, and moves first when a pool is balanced",
        edits: &[Edit {
            path: "crates/engine/src/catch_up.rs",
            from: "        self.add_use_at_members(ctx, &map, &mut differ).await;\n",
            to: "        self.add_use_at_members(ctx, &map, &mut differ[..0]).await;\n",
        }],
        found_by: cluster("oldest_first::what_is_used_at_members_moves_last"),
    },
    Mutant {
        name: "pages-by-leaders-only",
        what: "members are not asked for pages of directories",
        edits: &[Edit {
            path: "crates/dfs/src/dir.rs",
            from: "            batch.may_ask_members();\n",
            to: "",
        }],
        found_by: cluster("member_pages::a_member_lists_a_directory_while_its_leader_does_not"),
    },
    Mutant {
        name: "sizes-are-never-dirty",
        what: "a member shows with a name the size of a file that others may not have written",
        edits: &[Edit {
            path: PATH,
            from: "            self.require_clean(ctx, leader, |dirty| dirty.has_any_of(cont, unit))?;\n",
            to: "            self.require_clean(ctx, leader, |dirty| dirty.has_any_of(cont, unit) && false)?;\n",
        }],
        found_by: cluster("member_pages::what_not_all_members_have_is_in_no_page"),
    },
    Mutant {
        name: "snapshots-are-there-at-once",
        what: "a snapshot is there before all members have what it shows",
        edits: &[Edit {
            path: "crates/engine/src/versions.rs",
            from: "        if is_new {\n            self.have_members_settle(&ctx, ordered).await?;\n",
            to: "        if is_new && ordered == u64::MAX {\n            self.have_members_settle(&ctx, ordered).await?;\n",
        }],
        found_by: cluster("member_reads::the_present_is_no_older_at_a_member_than_a_snapshot"),
    },
];
