//! Members of the coordinator's group: what each does for the transaction while it leads.

use crate::log::{Fate, Log, Record};
use crate::world::{
    Defect, EPOCHS_MIN, NOW, PAUSES, Rules, World, Wrong, fate_of, number_of, side_of,
};
use smallvec::SmallVec;
use twophase::{
    Action, Actions, Coordinator, DoubtAction, DoubtEvent, Event, Participant, Question,
    QuestionAction,
};
use types::{Code, Epoch};
use wire::obj::TxOutcome;

/// What was given up by [`World::give_up`] is never settled.
const GIVEN_UP: u8 = u8::MAX;
/// Where the group's own part is among the questions.
pub const OWN: usize = 2;

/// What a machine waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wait {
    Nothing,
    /// So many records are to be written.
    Log(u8),
    /// So many orders are to be settled, counted from the oldest that is not.
    Orders(u8),
    /// Followers are to write this down, beside the orders: those that have not got it, and those that have not said that it is written.
    Note {
        note: Record,
        unsent: u8,
        unwritten: u8,
    },
}

/// What [`Run::wait`] is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    Nothing,
    OwnPrepared,
    Logged,
    Settled,
    TookEffect,
}

/// A coordinator's machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    pub machine: Coordinator,
    pub wait: Wait,
    pub reason: Reason,
    /// The order with the decision, as [`Wait::Orders`].
    order: u8,
    /// Open calls, by bit of the part.
    pub asks: u8,
    pub tells: u8,
    /// What is told.
    pub fate: Option<Fate>,
}

/// A question that waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Asked {
    question: Question,
    pub wait: Wait,
}

/// A member of the group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    number: usize,
    pub is_up: bool,
    pub is_out: bool,
    /// Who leads, by the map that it knows.
    pub leads: usize,
    pub log: Log,
    pub runs: SmallVec<[Run; 2]>,
    /// Orders that not all followers have.
    pub orders: SmallVec<[Record; 6]>,
    /// Who follows, by bit.
    followers: u8,
    /// Orders that each follower has, and that are known to be written there.
    pub taken: [u8; 3],
    pub answered: [u8; 3],
    pub questions: [Option<Asked>; 3],
    /// Its own part is in doubt.
    pub doubt: Option<Participant>,
}

impl Member {
    pub fn new(number: usize, count: usize) -> Member {
        Member {
            number,
            is_up: true,
            is_out: false,
            leads: 0,
            log: Log::default(),
            runs: SmallVec::new(),
            orders: SmallVec::new(),
            followers: if number == 0 { (0b111 << 1) & ((1 << count) - 1) } else { 0 },
            taken: [0; 3],
            answered: [0; 3],
            questions: [None; 3],
            doubt: None,
        }
    }

    pub fn is_leading(&self) -> bool {
        self.is_up && self.leads == self.number
    }

    pub fn followers(&self) -> impl Iterator<Item = usize> + use<> {
        let followers = self.followers;
        (0..3).filter(move |at| followers & (1 << at) != 0)
    }

    pub fn is_pending(&self) -> bool {
        self.runs.iter().any(|run| run.machine.is_pending())
    }

    /// It leads, and has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.is_leading()
            && self.runs.is_empty()
            && self.log.decision().is_none()
            && !self.log.is_held()
            && self.doubt.is_none()
    }

    /// Forgets what is in memory only.
    pub fn stop(&mut self) {
        self.is_up = false;
        self.runs.clear();
        self.orders.clear();
        (self.taken, self.answered) = ([0; 3], [0; 3]);
        self.questions = [None; 3];
        self.doubt = None;
    }

    /// Sends an order; what to wait for.
    fn ship(&mut self, order: Record) -> u8 {
        if self.followers != 0 {
            self.orders.push(order);
        }
        self.orders.len() as u8
    }

    fn waits(&mut self) -> impl Iterator<Item = &mut u8> {
        let of_runs = self.runs.iter_mut().flat_map(|run| {
            let waits = match &mut run.wait {
                Wait::Orders(count) => Some(count),
                _ => None,
            };
            waits.into_iter().chain([&mut run.order])
        });
        let of_questions =
            self.questions.iter_mut().flatten().filter_map(|asked| match &mut asked.wait {
                Wait::Orders(count) => Some(count),
                _ => None,
            });
        of_runs.chain(of_questions)
    }

    /// Orders that all followers have are settled.
    pub fn settle(&mut self) {
        while !self.orders.is_empty() && self.followers().all(|at| self.answered[at] > 0) {
            self.orders.remove(0);
            for count in self.taken.iter_mut().chain(&mut self.answered) {
                *count = count.saturating_sub(1);
            }
            for count in self.waits().filter(|count| ![0, GIVEN_UP].contains(&**count)) {
                *count -= 1;
            }
        }
    }

    fn is_settled(&self, wait: Wait) -> Option<bool> {
        match wait {
            Wait::Nothing | Wait::Orders(0) => Some(true),
            Wait::Orders(GIVEN_UP) => Some(false),
            Wait::Log(len) if self.log.has_written(len) => Some(true),
            Wait::Log(_) if self.log.has_failed => Some(false),
            // Who is lost is not waited for.
            Wait::Note { unwritten, .. } if unwritten & self.followers == 0 => Some(true),
            Wait::Log(_) | Wait::Orders(_) | Wait::Note { .. } => None,
        }
    }

    /// Whether what a machine waits for has ended, and how.
    pub fn ended(&self, run: usize) -> Option<bool> {
        let run = self.runs.get(run).filter(|run| run.reason != Reason::Nothing)?;
        self.is_settled(run.wait)
    }

    /// A follower is to be told something for a question.
    pub fn is_to_tell(&self, question: usize, follower: usize) -> bool {
        let wait = self.questions[question].map(|asked| asked.wait);
        matches!(wait, Some(Wait::Note { unsent, .. }) if unsent & (1 << follower) != 0)
    }

    fn to_note(&self, note: Record) -> Wait {
        Wait::Note { note, unsent: self.followers, unwritten: self.followers }
    }

    pub fn has_ended(&self, question: usize) -> bool {
        self.questions[question].is_some_and(|asked| self.is_settled(asked.wait) == Some(true))
    }
}

impl World {
    /// The first member coordinates the transaction.
    pub fn begin(&mut self, rules: &Rules) -> Result<(), Wrong> {
        let mut todo = Actions::new();
        let machine = Coordinator::begin(1 + self.remotes.len(), PAUSES, &mut todo);
        self.run(rules, 0, machine, todo)
    }

    fn run(
        &mut self,
        rules: &Rules,
        at: usize,
        machine: Coordinator,
        todo: Actions,
    ) -> Result<(), Wrong> {
        let (wait, reason) = (Wait::Nothing, Reason::Nothing);
        let run = Run { machine, wait, reason, order: 0, asks: 0, tells: 0, fate: None };
        self.members[at].runs.push(run);
        self.carry_out(rules, at, self.members[at].runs.len() - 1, todo)
    }

    pub fn step(
        &mut self,
        rules: &Rules,
        at: usize,
        run: usize,
        event: Event,
    ) -> Result<(), Wrong> {
        let mut todo = Actions::new();
        self.members[at].runs[run].machine.step(event, &mut todo);
        self.carry_out(rules, at, run, todo)
    }

    fn carry_out(
        &mut self,
        rules: &Rules,
        at: usize,
        run: usize,
        mut todo: Actions,
    ) -> Result<(), Wrong> {
        while !todo.is_empty() {
            let action = todo.remove(0);
            if let Some(event) = self.do_one(rules, at, run, action)? {
                self.members[at].runs[run].machine.step(event, &mut todo);
                if event == Event::NotBegun && rules.has(Defect::NothingToldUnwritten) {
                    todo.retain(|action| !matches!(action, Action::Tell { .. }));
                }
            }
        }
        // What need not be waited for goes on in the same step.
        match self.members[at].ended(run) {
            Some(is_well) => self.resume(rules, at, run, is_well),
            None => Ok(()),
        }
    }

    fn do_one(
        &mut self,
        rules: &Rules,
        at: usize,
        run: usize,
        action: Action,
    ) -> Result<Option<Event>, Wrong> {
        let member = &mut self.members[at];
        let may_write = member.is_leading() && !member.log.has_failed;
        let is_first = member.runs[run].machine.is_pending();
        let event = match action {
            Action::Prepare { at: 0 } => {
                member.log.append(Record::Prepare);
                let order = member.ship(Record::Prepare);
                let run = &mut member.runs[run];
                (run.wait, run.reason) = (Wait::Orders(order), Reason::OwnPrepared);
                return Ok(None);
            }
            Action::Prepare { at: part } => {
                member.runs[run].asks |= 1 << part;
                self.remotes[part - 1].prepare = true;
                return Ok(None);
            }
            Action::Tick => Event::Ticked(Epoch(NOW as u64)),
            Action::WriteDecision { .. } if !may_write => Event::NotBegun,
            Action::WriteDecision { epoch } => {
                let epoch = epoch.0 as u8;
                member.log.append(Record::Decision(epoch));
                member.runs[run].order = member.ship(Record::Decision(epoch));
                self.epoch = Some(epoch);
                if EPOCHS_MIN[..=self.remotes.len()].iter().any(|min| epoch < *min) {
                    return Err("a decision's epoch is below a part's least");
                }
                Event::Begun
            }
            Action::RepeatDecision { .. } if !member.is_leading() => Event::NotBegun,
            Action::RepeatDecision { epoch } => {
                member.runs[run].order = member.ship(Record::Decision(epoch.0 as u8));
                Event::Begun
            }
            Action::AwaitLog if is_first && rules.has(Defect::ToldBeforeWritten) => Event::Logged,
            Action::AwaitLog if !is_first && rules.has(Defect::RepeatedBeforeWritten) => {
                Event::Logged
            }
            Action::AwaitLog => {
                let len = member.log.len();
                let run = &mut member.runs[run];
                (run.wait, run.reason) = (Wait::Log(len), Reason::Logged);
                return Ok(None);
            }
            Action::AwaitMembers if rules.has(Defect::ToldBeforeSettled) => Event::Settled,
            Action::AwaitMembers => {
                let run = &mut member.runs[run];
                (run.wait, run.reason) = (Wait::Orders(run.order), Reason::Settled);
                return Ok(None);
            }
            Action::TakeEffect { .. } if !may_write => Event::OwnPart { took_effect: false },
            Action::TakeEffect { epoch } => {
                self.decide_own(at, Fate::Committed(epoch.0 as u8))?;
                let member = &mut self.members[at];
                let wait = Wait::Orders(member.orders.len() as u8);
                let run = &mut member.runs[run];
                (run.wait, run.reason) = (wait, Reason::TookEffect);
                return Ok(None);
            }
            Action::Answer => {
                self.is_client_sure = true;
                self.check_client()?;
                return Ok(None);
            }
            Action::Refuse(_) => return Ok(None),
            Action::Tell { at: part, outcome, .. } => {
                let fate = fate_of(outcome).ok_or("a participant is told what is not decided")?;
                let run = &mut member.runs[run];
                run.tells |= 1 << part;
                run.fate = Some(fate);
                if part > 0 {
                    self.remotes[part - 1].decides[side_of(fate)] |= 1 << at;
                }
                return Ok(None);
            }
            Action::AskHere => {
                if at == 0 && rules.is_first_local && !rules.has(Defect::NobodyAsksHere) {
                    self.doubt(0)?;
                }
                return Ok(None);
            }
            Action::Forget => {
                if may_write {
                    self.check_forgetting(at)?;
                    let member = &mut self.members[at];
                    member.log.append(Record::Forget);
                    member.ship(Record::Forget);
                }
                return Ok(None);
            }
        };
        Ok(Some(event))
    }

    /// What a machine has waited for has come to an end.
    pub fn resume(
        &mut self,
        rules: &Rules,
        at: usize,
        run: usize,
        is_well: bool,
    ) -> Result<(), Wrong> {
        let of = &mut self.members[at].runs[run];
        let reason = std::mem::replace(&mut of.reason, Reason::Nothing);
        of.wait = Wait::Nothing;
        let epoch_min = Epoch(EPOCHS_MIN[0] as u64);
        let event = match (reason, is_well) {
            (Reason::Nothing, _) => return Ok(()),
            (Reason::OwnPrepared, true) => Event::Prepared { at: 0, epoch_min },
            (Reason::OwnPrepared, false) => Event::Refused { at: 0, code: Code::Unreach },
            (Reason::Logged, false) if rules.has(Defect::ToldAfterFailure) => Event::Logged,
            (Reason::Logged, true) => Event::Logged,
            (Reason::Logged, false) => Event::LogFailed,
            (Reason::Settled, true) => Event::Settled,
            (Reason::Settled, false) => Event::NotSettled,
            (Reason::TookEffect, took_effect) => Event::OwnPart { took_effect },
        };
        self.step(rules, at, run, event)
    }

    /// The group's own part, at who leads.
    pub fn decide_own(&mut self, at: usize, fate: Fate) -> Result<(), Wrong> {
        let member = &mut self.members[at];
        if !member.log.is_held() {
            return Ok(());
        }
        let before = member.log.fate();
        member.log.append(Record::Decide(fate));
        member.ship(Record::Decide(fate));
        self.note_fate(before, fate)
    }

    /// A follower carries out an order.
    pub fn take_order(&mut self, from: usize, at: usize) -> Result<(), Wrong> {
        let leader = &mut self.members[from];
        let order = leader.orders[leader.taken[at] as usize];
        leader.taken[at] += 1;
        let member = &mut self.members[at];
        member.leads = from;
        let (before, is_held) = (member.log.fate(), member.log.is_held());
        member.log.append(order);
        match order {
            Record::Decide(fate) if is_held => self.note_fate(before, fate),
            _ => Ok(()),
        }
    }

    /// A follower is told something for a question, beside the orders.
    pub fn take_note(&mut self, from: usize, at: usize, who: usize) {
        let asked = self.members[from].questions[who].as_mut();
        let Some(Wait::Note { note, unsent, .. }) = asked.map(|asked| &mut asked.wait) else {
            return;
        };
        *unsent &= !(1 << at);
        let note = *note;
        let member = &mut self.members[at];
        member.leads = from;
        member.log.append(note);
    }

    /// A follower answers what it has written of what it was told and ordered.
    pub fn answer_leader(&mut self, at: usize) {
        let follower = &self.members[at];
        let from = follower.leads;
        if from == at || !follower.is_up || !follower.log.is_written() {
            return;
        }
        let leader = &mut self.members[from];
        for asked in leader.questions.iter_mut().flatten() {
            if let Wait::Note { unsent, unwritten, .. } = &mut asked.wait {
                *unwritten &= !(1 << at) | *unsent;
            }
        }
        if leader.is_leading() && leader.answered[at] < leader.taken[at] {
            leader.answered[at] = leader.taken[at];
            leader.settle();
        }
    }

    /// After a restart or a change of the map: goes on with what is there.
    pub fn take_over(&mut self, rules: &Rules, at: usize) -> Result<(), Wrong> {
        if let Some(epoch) = self.members[at].log.decision() {
            let (mut todo, count) = (Actions::new(), 1 + self.remotes.len());
            let machine = Coordinator::found(count, Epoch(epoch as u64), PAUSES, &mut todo);
            self.run(rules, at, machine, todo)?;
        }
        let member = &mut self.members[at];
        if member.log.is_held() && member.doubt.is_none() && !rules.has(Defect::NobodyAsks) {
            let (participant, action) = Participant::in_doubt(PAUSES);
            member.doubt = Some(participant);
            self.carry_out_own_doubt(rules, at, action)?;
        }
        Ok(())
    }

    /// Ends the streams of a member, which may lead still. Then it takes up again what was not settled; of parts its
    /// followers get what they lack in another way (`crates/engine/src/suspects.rs`).
    pub fn give_up(&mut self, at: usize) {
        let member = &mut self.members[at];
        for count in member.waits().filter(|count| **count > 0) {
            *count = GIVEN_UP;
        }
        member.questions = [None; 3];
        let leads = member.is_leading();
        let is_kept =
            |order: &Record| leads && !matches!(order, Record::Decision(_) | Record::Forget);
        let kept = |count: u8| {
            member.orders[..count as usize].iter().filter(|order| is_kept(order)).count() as u8
        };
        let (taken, answered) = (member.taken.map(kept), member.answered.map(kept));
        (member.taken, member.answered) = (taken, answered);
        member.orders.retain(|order| is_kept(order));
        member.settle();
    }

    /// A member hears who leads now.
    pub fn learn(&mut self, rules: &Rules, at: usize) -> Result<(), Wrong> {
        let has_led = self.members[at].is_leading();
        let others = self.members.iter().enumerate();
        let others = others.filter(|(other, member)| *other > at && !member.is_out);
        let followers = others.fold(0, |bits, (other, _)| bits | (1 << other));
        let member = &mut self.members[at];
        member.leads = self.leader;
        if has_led {
            self.give_up(at);
            self.members[at].doubt = None;
        } else if self.leader == at {
            member.followers = followers;
            // What others lack of its own they get as it is here, and nothing of that is shown or acknowledged before they have it
            // (`crates/engine/src/suspects.rs`): as if it were decided again.
            if let Some(fate) = member.log.fate() {
                member.ship(Record::Decide(fate));
            }
            self.take_over(rules, at)?;
        }
        Ok(())
    }

    /// A follower is called down.
    pub fn lose_follower(&mut self, rules: &Rules, at: usize) -> Result<(), Wrong> {
        self.members[at].stop();
        self.members[at].is_out = true;
        let leader = self.leader;
        if self.members[leader].is_leading() {
            self.members[leader].followers &= !(1 << at);
            self.members[leader].settle();
            self.take_over(rules, leader)?;
        }
        Ok(())
    }

    /// Somebody asks a member for the outcome.
    pub fn ask(&mut self, rules: &Rules, at: usize, who: usize) -> Result<(), Wrong> {
        let member = &self.members[at];
        if !member.is_leading() || member.questions[who].is_some() {
            return Ok(());
        }
        let is_pending = member.is_pending() && !rules.has(Defect::AbortedWhilePending);
        let decision = member.log.decision().map(|epoch| Epoch(epoch as u64));
        self.answer(rules, at, who, Question::asked(is_pending, decision))
    }

    /// Goes on with a question, until it has to wait.
    pub fn answer(
        &mut self,
        rules: &Rules,
        at: usize,
        who: usize,
        mut question: Question,
    ) -> Result<(), Wrong> {
        loop {
            let member = &mut self.members[at];
            let wait = match question.step() {
                QuestionAction::HaveMembersForget if rules.has(Defect::MembersNotToldToForget) => {
                    Wait::Nothing
                }
                QuestionAction::HaveMembersForget => member.to_note(Record::Forget),
                QuestionAction::AwaitLog if rules.has(Defect::AnsweredBeforeWritten) => {
                    Wait::Nothing
                }
                QuestionAction::AwaitLog => Wait::Log(member.log.len()),
                QuestionAction::HaveMembersKnow if rules.has(Defect::MembersNotToldBefore) => {
                    Wait::Nothing
                }
                QuestionAction::HaveMembersKnow => match member.log.decision() {
                    Some(epoch) => member.to_note(Record::Decision(epoch)),
                    // All participants know.
                    None => Wait::Nothing,
                },
                QuestionAction::Answer(outcome) => {
                    member.questions[who] = None;
                    return self.tell(rules, at, who, outcome);
                }
            };
            if member.is_settled(wait) != Some(true) {
                member.questions[who] = Some(Asked { question, wait });
                return Ok(());
            }
        }
    }

    pub fn go_on_answering(&mut self, rules: &Rules, at: usize, who: usize) -> Result<(), Wrong> {
        match self.members[at].questions[who].take() {
            Some(asked) => self.answer(rules, at, who, asked.question),
            None => Ok(()),
        }
    }

    fn tell(
        &mut self,
        rules: &Rules,
        at: usize,
        who: usize,
        outcome: TxOutcome,
    ) -> Result<(), Wrong> {
        if who != OWN {
            self.remotes[who].answers |= 1 << number_of(outcome);
            return self.note_told(who, outcome);
        }
        let Some(participant) = &mut self.members[at].doubt else { return Ok(()) };
        let action = participant.step(DoubtEvent::Answered(outcome));
        // It asks itself: after the pause.
        if outcome == TxOutcome::Pending {
            return Ok(());
        }
        self.carry_out_own_doubt(rules, at, action)
    }

    pub fn carry_out_own_doubt(
        &mut self,
        rules: &Rules,
        at: usize,
        mut action: DoubtAction,
    ) -> Result<(), Wrong> {
        loop {
            let event = match action {
                DoubtAction::Look { .. } => {
                    let member = &self.members[at];
                    let (is_held, is_others) = (member.log.is_held(), !member.is_leading());
                    DoubtEvent::Looked { is_held, is_others }
                }
                DoubtAction::Ask => return self.ask(rules, at, OWN),
                DoubtAction::Decide(outcome) => match fate_of(outcome) {
                    Some(fate) if !self.members[at].log.has_failed => {
                        self.decide_own(at, fate)?;
                        DoubtEvent::Decided
                    }
                    _ => return Ok(()),
                },
                DoubtAction::End => {
                    self.members[at].doubt = None;
                    return Ok(());
                }
            };
            let Some(participant) = &mut self.members[at].doubt else { return Ok(()) };
            action = participant.step(event);
        }
    }
}
