//! Defects of leases: a leader that was replaced shows what it has, or one that was not shows nothing.

use super::{Edit, Mutant, Test};

/// A test of simulated clusters.
const fn leases(filter: &'static str) -> Test {
    Test { package: "sim", program: "cluster", filter, env: &[] }
}

/// A test of the control service.
const fn control(filter: &'static str) -> Test {
    Test { package: "control", program: "control", filter, env: &[] }
}

const CUT_OFF: Test = Test {
    env: &[("AZEKURA_SIM_SEEDS", "4")],
    ..leases("leases::a_leader_that_is_cut_off_and_replaced_shows_nothing_old")
};
const WITHOUT_HOLDER: Test = leases("leases::reads_go_on_without_the_control_service");

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "no-lease",
        what: "a leader shows what it has whether or not that is granted",
        edits: &[Edit {
            path: "crates/engine/src/lead.rs",
            from: "        now < self.until.get()\n",
            to: "        now < self.until.get() || !self.until.get().is_zero()\n",
        }],
        found_by: CUT_OFF,
    },
    Mutant {
        name: "no-lease-among-seeds",
        what: "the same, found by whole clusters",
        edits: &[Edit {
            path: "crates/engine/src/lead.rs",
            from: "        now < self.until.get()\n",
            to: "        now < self.until.get() || !self.until.get().is_zero()\n",
        }],
        found_by: Test {
            package: "sim",
            program: "swarm",
            filter: "a_cluster_in_trouble_answers_as_one_copy_would",
            env: &[("AZEKURA_SWARM_SEEDS", "200")],
        },
    },
    Mutant {
        name: "no-wait-for-grants",
        what: "a map is committed though whoever loses a group by it may show it still",
        edits: &[Edit {
            path: "crates/control/src/service/grants.rs",
            from: "            over.await;\n",
            to: "",
        }],
        found_by: control("cases_leads::for_who_does_not_answer_it_is_waited"),
    },
    Mutant {
        name: "nobody-gives-back",
        what: "nobody who loses a group by a map is asked before it is committed, or waited for",
        edits: &[Edit {
            path: "crates/control/src/service/grants.rs",
            from: "        if until <= orders.now() {\n",
            to: "        if until <= until.max(orders.now()) {\n",
        }],
        found_by: CUT_OFF,
    },
    Mutant {
        name: "grants-without-margin",
        what: "who grants trusts its clock to run as that of whom it grants to",
        edits: &[Edit {
            path: "crates/control/src/service/grants.rs",
            from: "const MARGIN: Duration = Duration::from_millis(100);\n",
            to: "const MARGIN: Duration = Duration::ZERO;\n",
        }],
        found_by: CUT_OFF,
    },
    Mutant {
        name: "new-holder-does-not-wait",
        what: "a new holder of the control service takes it that nothing was granted before",
        edits: &[Edit {
            path: "crates/control/src/service/grants.rs",
            from: "        let of_earlier = begun + LEAD_TERM + MARGIN;\n",
            to: "        let of_earlier = begun;\n",
        }],
        found_by: leases("leases::a_new_holder_waits_for_what_the_one_before_has_granted"),
    },
    Mutant {
        name: "any-word-will-do",
        what: "those who follow give their word whatever map they have",
        edits: &[Edit {
            path: "crates/engine/src/mend.rs",
            from: "        if map_version < ctx.map_version() {\n",
            to: "        if map_version < ctx.map_version() && ask != MemberAsk::Follows {\n",
        }],
        found_by: leases("leases::a_word_is_of_the_newest_map"),
    },
    Mutant {
        name: "no-word-is-asked",
        what: "without a grant nothing is shown",
        edits: &[Edit {
            path: "crates/engine/src/lead.rs",
            from: "        match self.env.timeout(WORD_TIME_MAX, asked).await {\n",
            to: "        match self.env.timeout(Duration::ZERO, asked).await {\n",
        }],
        found_by: WITHOUT_HOLDER,
    },
    Mutant {
        name: "word-of-an-earlier-question",
        what: "a question that is under way when a reader comes serves that one, too",
        edits: &[Edit {
            path: "crates/engine/src/lead.rs",
            from: "            for waiting in waiting {\n",
            to: "            let late = ctx.lead.asked.borrow_mut().get_mut(&follower).map(std::mem::take);\n            for waiting in waiting.into_iter().chain(late.into_iter().flatten()) {\n",
        }],
        found_by: leases("leases::a_word_is_asked_for_after_the_look"),
    },
    Mutant {
        name: "nothing-is-given-back",
        what: "who loses a group shows what it has until its grant has run out",
        edits: &[Edit {
            path: "crates/engine/src/lead.rs",
            from: "        self.stated.set(0);\n        self.until.set(Duration::ZERO);\n",
            to: "        self.stated.set(0);\n",
        }],
        found_by: leases("leases::what_was_given_back_is_not_shown"),
    },
    Mutant {
        name: "given-back-and-granted",
        what: "an answer that comes late grants again what was given back",
        edits: &[Edit {
            path: "crates/engine/src/lead.rs",
            from: "        self.stated.set(0);\n        self.until.set(Duration::ZERO);\n",
            to: "        self.until.set(Duration::ZERO);\n",
        }],
        found_by: leases("leases::an_answer_that_comes_late_grants_nothing"),
    },
    Mutant {
        name: "granted-for-an-old-map",
        what: "a grant is given for a map after which somebody has lost a group",
        edits: &[Edit {
            path: "crates/control/src/service/grants.rs",
            from: "            told.is_some_and(|told| *version >= told.max(self.grants.least_of(*pool)))\n",
            to: "            told.is_some_and(|told| *version >= 1.min(told))\n",
        }],
        found_by: control("cases_leads::who_has_an_old_map_is_granted_nothing"),
    },
    Mutant {
        name: "unclear-commits-do-not-count",
        what: "a map whose commit has no answer is taken for one that was not committed",
        edits: &[Edit {
            path: "crates/control/src/service/grants.rs",
            from: "        withheld.may_be_committed = outcome != Ok(false);\n",
            to: "        withheld.may_be_committed = outcome == Ok(true);\n",
        }],
        found_by: control("cases_leads::what_may_have_been_committed_counts"),
    },
    Mutant {
        name: "who-comes-takes-nothing",
        what: "where somebody becomes whole nobody is taken to lose a group",
        edits: &[Edit {
            path: "crates/control/src/service/leads.rs",
            from: "    if move_places(then, now) || now.targets.iter().any(comes) {\n",
            to: "    if move_places(then, now) {\n",
        }],
        found_by: control("cases_leads::who_may_lose_a_group_is_asked"),
    },
    Mutant {
        name: "images-of-a-replaced-leader",
        what: "images of keys are taken from who leads by an older map",
        edits: &[Edit {
            path: "crates/engine/src/follow.rs",
            from: "                    let may = || self.may_lead(ctx, orders);\n",
            to: "                    let may = || Ok(());\n",
        }],
        found_by: leases("leases::a_replaced_leader_puts_back_no_key"),
    },
];
