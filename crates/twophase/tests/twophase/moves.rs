//! What can happen next in the small world, and what comes of it.

use crate::log::{Fate, Record};
use crate::member::{Member, OWN, Run};
use crate::world::{Defect, EPOCHS_MIN, Remote, Rules, World, Wrong};
use twophase::{DoubtAction, DoubtEvent, Event, Participant, Told};
use types::{Code, Epoch};
use wire::obj::TxOutcome;

/// One step. Participants, members, and which of a participant's messages it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// A participant gets what was sent to it, or a reply comes.
    Prepare(usize),
    RefusePart(usize),
    Prepared(usize),
    Decide {
        at: usize,
        from: usize,
        side: usize,
    },
    Ack {
        at: usize,
        to: usize,
    },
    Doubt(usize),
    Ask {
        at: usize,
        to: usize,
    },
    Answer {
        at: usize,
        number: usize,
    },
    /// A call whose message or reply is lost comes to an end.
    EndPrepare(usize),
    EndTell {
        from: usize,
        run: usize,
        at: usize,
    },
    EndAsk(usize),
    WriteRemote(usize),
    WriteMember(usize),
    TakeOrder {
        from: usize,
        at: usize,
    },
    TakeNote {
        from: usize,
        at: usize,
        who: usize,
    },
    Resume {
        at: usize,
        run: usize,
        is_well: bool,
    },
    GoOnAnswering {
        at: usize,
        who: usize,
    },
    TellOwn {
        from: usize,
        run: usize,
    },
    DoubtOwn(usize),
    Learn(usize),
    OpenRemote {
        at: usize,
        left: u8,
    },
    OpenMember {
        at: usize,
        left: u8,
    },
    /// Whose log has failed is stopped by somebody.
    StopFailed(usize),
    Trouble(Trouble),
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    LosePrepare(usize),
    LosePrepared(usize),
    LoseDecide {
        at: usize,
        from: usize,
        side: usize,
    },
    LoseAck {
        at: usize,
        to: usize,
    },
    LoseAsk(usize),
    LoseAnswer {
        at: usize,
        number: usize,
    },
    /// A message comes now and once more.
    TwicePrepare(usize),
    TwiceDecide {
        at: usize,
        from: usize,
        side: usize,
    },
    TwiceAsk {
        at: usize,
        to: usize,
    },
    /// A call ends for its caller, and what was sent is still on its way.
    LatePrepare(usize),
    /// A participant crashes, and with it perhaps what it has said.
    CrashRemote {
        at: usize,
        loses: bool,
    },
    /// The leader crashes; who follows leads.
    CrashLeader,
    /// The leader is cut off: others lead, and it does not know.
    ReplaceLeader,
    LoseFollower(usize),
    /// The leader's log writes nothing more.
    FailLog,
    /// The leader ends its streams, for another group's leaders have changed, and leads this one still.
    GiveUp,
}

impl World {
    /// All that can happen.
    pub fn moves(&self, rules: &Rules, moves: &mut Vec<Move>) {
        for at in 0..self.remotes.len() {
            self.moves_of_remote(rules, at, moves);
        }
        for at in 0..self.members.len() {
            self.moves_of_member(at, moves);
        }
        if self.faults_left == 0 {
            return;
        }
        let leader = &self.members[self.leader];
        if leader.is_up {
            moves.push(Move::Trouble(Trouble::CrashLeader));
            if self.next_leader().is_some() {
                moves.push(Move::Trouble(Trouble::ReplaceLeader));
            }
            if !leader.log.has_failed {
                moves.push(Move::Trouble(Trouble::FailLog));
            }
            if !leader.orders.is_empty() {
                moves.push(Move::Trouble(Trouble::GiveUp));
            }
        }
        for (at, member) in self.members.iter().enumerate() {
            if at > self.leader && !member.is_out {
                moves.push(Move::Trouble(Trouble::LoseFollower(at)));
            }
        }
    }

    fn moves_of_remote(&self, rules: &Rules, at: usize, moves: &mut Vec<Move>) {
        let remote = &self.remotes[at];
        let is_local = rules.is_first_local && at == 0;
        let can_fail = self.faults_left > 0 && !is_local;
        let coordinator = self.members[0].runs.first();
        let is_asked = coordinator.is_some_and(|run| run.asks & (2 << at) != 0);
        let is_on_its_way = remote.prepare || remote.prepared.is_some() || remote.owes_prepared;
        let mut may = |trouble: Trouble| {
            if can_fail {
                moves.push(Move::Trouble(trouble));
            }
        };
        if remote.prepare {
            may(Trouble::LosePrepare(at));
            may(Trouble::TwicePrepare(at));
        }
        if is_asked && is_on_its_way {
            may(Trouble::LatePrepare(at));
        }
        if remote.prepared.is_some() {
            may(Trouble::LosePrepared(at));
        }
        if remote.is_up {
            may(Trouble::CrashRemote { at, loses: false });
            if remote.acks != 0 || remote.prepared.is_some() {
                may(Trouble::CrashRemote { at, loses: true });
            }
        }
        for other in 0..self.members.len() {
            for side in (0..2).filter(|side| remote.decides[*side] & (1 << other) != 0) {
                may(Trouble::LoseDecide { at, from: other, side });
                may(Trouble::TwiceDecide { at, from: other, side });
            }
            if remote.acks & (1 << other) != 0 {
                may(Trouble::LoseAck { at, to: other });
            }
        }
        if remote.ask {
            may(Trouble::LoseAsk(at));
            for to in (0..self.members.len()).filter(|to| self.members[*to].is_leading()) {
                may(Trouble::TwiceAsk { at, to });
            }
        }
        let answers = (0..3).filter(|number| remote.answers & (1 << number) != 0);
        answers.clone().for_each(|number| may(Trouble::LoseAnswer { at, number }));
        moves.extend(answers.map(|number| Move::Answer { at, number }));
        if remote.prepare {
            moves.push(Move::Prepare(at));
            if remote.is_up && !remote.log.is_held() {
                moves.push(Move::RefusePart(at));
            }
        }
        if remote.prepared.is_some() {
            moves.push(Move::Prepared(at));
        }
        if remote.may_doubt && !is_local {
            moves.push(Move::Doubt(at));
        }
        let mut has_question = false;
        for (other, member) in self.members.iter().enumerate() {
            for side in (0..2).filter(|side| remote.decides[*side] & (1 << other) != 0) {
                moves.push(Move::Decide { at, from: other, side });
            }
            if remote.acks & (1 << other) != 0 {
                moves.push(Move::Ack { at, to: other });
            }
            if remote.ask {
                moves.push(Move::Ask { at, to: other });
            }
            has_question |= member.is_up && member.questions[at].is_some();
        }
        if remote.is_asking && !remote.ask && remote.answers == 0 && !has_question {
            moves.push(Move::EndAsk(at));
        }
        if remote.is_up && !remote.log.is_written() {
            moves.push(Move::WriteRemote(at));
        }
        if !remote.is_up {
            moves.extend(remote.log.left_by_crash().map(|left| Move::OpenRemote { at, left }));
        }
        if is_asked && !is_on_its_way {
            moves.push(Move::EndPrepare(at));
        }
    }

    fn moves_of_member(&self, at: usize, moves: &mut Vec<Move>) {
        let member = &self.members[at];
        if !member.is_up {
            if at == self.leader {
                moves.extend(member.log.left_by_crash().map(|left| Move::OpenMember { at, left }));
            }
            return;
        }
        match member.log.has_failed {
            true => moves.push(Move::StopFailed(at)),
            false if member.log.is_written() => {}
            false => moves.push(Move::WriteMember(at)),
        }
        if member.leads != self.leader {
            moves.push(Move::Learn(at));
        }
        for (from, leader) in self.members.iter().enumerate() {
            if !leader.is_leading() || !leader.followers().any(|follower| follower == at) {
                continue;
            }
            let is_newest = member.leads <= from;
            if is_newest && (leader.taken[at] as usize) < leader.orders.len() {
                moves.push(Move::TakeOrder { from, at });
            }
            let asked = (0..3).filter(|who| is_newest && leader.is_to_tell(*who, at));
            moves.extend(asked.map(|who| Move::TakeNote { from, at, who }));
        }
        for (run, of) in member.runs.iter().enumerate() {
            if let Some(is_well) = member.ended(run) {
                moves.push(Move::Resume { at, run, is_well });
            }
            if of.tells & 1 != 0 {
                moves.push(Move::TellOwn { from: at, run });
            }
            for (remote, with) in self.remotes.iter().enumerate() {
                let sent = with.decides[0] | with.decides[1] | with.owes_acks | with.acks;
                if of.tells & (2 << remote) != 0 && sent & (1 << at) == 0 {
                    moves.push(Move::EndTell { from: at, run, at: remote });
                }
            }
        }
        moves.extend(
            (0..3).filter(|who| member.has_ended(*who)).map(|who| Move::GoOnAnswering { at, who }),
        );
        if member.doubt.is_some() && member.questions[OWN].is_none() {
            moves.push(Move::DoubtOwn(at));
        }
    }

    /// Who leads when the leader is replaced.
    fn next_leader(&self) -> Option<usize> {
        let mut later = self.members.iter().enumerate().skip(self.leader + 1);
        later.find(|(_, member)| !member.is_out).map(|(at, _)| at)
    }

    /// What comes of a move.
    pub fn after(&self, rules: &Rules, next: Move) -> Result<World, Wrong> {
        let mut world = self.clone();
        world.make(rules, next)?;
        world.tidy(rules);
        Ok(world)
    }

    /// Participants and followers say what they owe as soon as it is written. What can have no effect any more is left out: states that
    /// differ in nothing else are one.
    fn tidy(&mut self, rules: &Rules) {
        for member in &mut self.members {
            member.runs.retain(|run| !run.machine.is_over());
        }
        for at in 0..self.members.len() {
            self.answer_leader(at);
        }
        for (at, remote) in self.remotes.iter_mut().enumerate() {
            let may_say = |defect| remote.log.is_written() || rules.has(defect);
            if remote.owes_prepared && may_say(Defect::PreparedBeforeWritten) {
                remote.owes_prepared = false;
                remote.prepared = Some(true);
                remote.may_doubt = true;
            }
            if may_say(Defect::AcknowledgedBeforeWritten) {
                remote.acks |= std::mem::take(&mut remote.owes_acks);
            }
            let has_call = |bits: fn(&Run) -> u8, member: &Member| {
                member.runs.iter().any(|run| bits(run) & (2 << at) != 0)
            };
            for (from, member) in self.members.iter().enumerate() {
                if !has_call(|run| run.tells, member) {
                    remote.acks &= !(1 << from);
                    remote.owes_acks &= !(1 << from);
                }
            }
            if !has_call(|run| run.asks, &self.members[0]) {
                remote.prepared = None;
            }
            if !remote.is_asking {
                remote.answers = 0;
            }
            remote.may_doubt &= remote.log.is_held();
        }
    }

    fn make(&mut self, rules: &Rules, next: Move) -> Result<(), Wrong> {
        match next {
            Move::Prepare(at) => self.prepare(at),
            Move::RefusePart(at) => {
                let remote = &mut self.remotes[at];
                (remote.prepare, remote.prepared) = (false, Some(false));
            }
            Move::Prepared(at) => {
                let is_held = self.remotes[at].prepared.take() == Some(true);
                let epoch_min = Epoch(EPOCHS_MIN[at + 1] as u64);
                return self.end_prepare(rules, at, |part| match is_held {
                    true => Event::Prepared { at: part, epoch_min },
                    false => Event::Refused { at: part, code: Code::TxRestart },
                });
            }
            Move::EndPrepare(at) => {
                return self.end_prepare(rules, at, |part| Event::Refused {
                    at: part,
                    code: Code::Unreach,
                });
            }
            Move::Decide { at, from, side } => {
                self.remotes[at].decides[side] &= !(1 << from);
                return self.decide(at, from, side);
            }
            Move::Ack { at, to } => {
                self.remotes[at].acks &= !(1 << to);
                for run in 0..self.members[to].runs.len() {
                    if self.end_call(to, run, at + 1) {
                        self.step(rules, to, run, Event::Acknowledged { at: at + 1 })?;
                    }
                }
            }
            Move::EndTell { from, run, at } => {
                self.end_call(from, run, at + 1);
                let event = not_acknowledged(rules, at + 1);
                return self.step(rules, from, run, event);
            }
            Move::Doubt(at) => {
                self.remotes[at].may_doubt = false;
                return self.doubt(at);
            }
            Move::Ask { at, to } => {
                self.remotes[at].ask = false;
                return self.ask(rules, to, at);
            }
            Move::Answer { at, number } => {
                self.remotes[at].answers &= !(1 << number);
                let outcome = self.outcome(number);
                if self.remotes[at].is_up && std::mem::take(&mut self.remotes[at].is_asking) {
                    return self.step_doubt(at, DoubtEvent::Answered(outcome));
                }
            }
            Move::EndAsk(at) => {
                self.remotes[at].is_asking = false;
                return self.step_doubt(at, DoubtEvent::Unanswered);
            }
            Move::WriteRemote(at) => self.remotes[at].log.write(),
            Move::WriteMember(at) => self.members[at].log.write(),
            Move::TakeOrder { from, at } => return self.take_order(from, at),
            Move::TakeNote { from, at, who } => self.take_note(from, at, who),
            Move::Resume { at, run, is_well } => return self.resume(rules, at, run, is_well),
            Move::GoOnAnswering { at, who } => return self.go_on_answering(rules, at, who),
            Move::TellOwn { from, run } => return self.tell_own(rules, from, run),
            Move::DoubtOwn(at) => {
                let after = std::time::Duration::ZERO;
                return self.carry_out_own_doubt(rules, at, DoubtAction::Look { after });
            }
            Move::Learn(at) => return self.learn(rules, at),
            Move::OpenRemote { at, left } => {
                let remote = &mut self.remotes[at];
                remote.log.open_again(left);
                remote.is_up = true;
                if remote.log.is_held() && !rules.has(Defect::NobodyAsks) {
                    return self.doubt(at);
                }
            }
            Move::OpenMember { at, left } => {
                let member = &mut self.members[at];
                member.log.open_again(left);
                (member.is_up, member.leads) = (true, at);
                return self.take_over(rules, at);
            }
            Move::StopFailed(at) => return self.stop(rules, at),
            Move::Trouble(trouble) => {
                self.faults_left -= 1;
                return self.trouble(rules, trouble);
            }
        }
        Ok(())
    }

    fn trouble(&mut self, rules: &Rules, trouble: Trouble) -> Result<(), Wrong> {
        match trouble {
            Trouble::LosePrepare(at) => self.remotes[at].prepare = false,
            Trouble::LosePrepared(at) => self.remotes[at].prepared = None,
            Trouble::LoseDecide { at, from, side } => {
                self.remotes[at].decides[side] &= !(1 << from);
            }
            Trouble::LoseAck { at, to } => self.remotes[at].acks &= !(1 << to),
            Trouble::LoseAsk(at) => self.remotes[at].ask = false,
            Trouble::LoseAnswer { at, number } => self.remotes[at].answers &= !(1 << number),
            Trouble::TwicePrepare(at) => {
                self.prepare(at);
                self.remotes[at].prepare = true;
            }
            Trouble::TwiceDecide { at, from, side } => return self.decide(at, from, side),
            Trouble::TwiceAsk { at, to } => return self.ask(rules, to, at),
            Trouble::LatePrepare(at) => {
                return self.end_prepare(rules, at, |part| Event::Refused {
                    at: part,
                    code: Code::Unreach,
                });
            }
            Trouble::CrashRemote { at, loses } => {
                let remote = &mut self.remotes[at];
                if loses {
                    (remote.acks, remote.prepared) = (0, None);
                }
                remote.is_up = false;
                remote.doubt = None;
                (remote.is_asking, remote.may_doubt) = (false, false);
                (remote.owes_prepared, remote.owes_acks) = (false, 0);
            }
            Trouble::CrashLeader => return self.stop(rules, self.leader),
            Trouble::ReplaceLeader => self.replace_leader(),
            Trouble::LoseFollower(at) => return self.lose_follower(rules, at),
            Trouble::FailLog => self.members[self.leader].log.has_failed = true,
            Trouble::GiveUp => {
                let leader = self.leader;
                self.give_up(leader);
                return self.take_over(rules, leader);
            }
        }
        Ok(())
    }

    /// Who follows leads, if anybody does.
    fn replace_leader(&mut self) {
        if let Some(next) = self.next_leader() {
            self.members[self.leader].is_out = true;
            self.leader = next;
        }
    }

    /// A member ends. Leading alone, it comes back.
    fn stop(&mut self, rules: &Rules, at: usize) -> Result<(), Wrong> {
        self.members[at].stop();
        if at == self.leader {
            self.replace_leader();
        }
        if at == 0 && rules.is_first_local {
            // What is between them is in one memory, and a part that is held is asked for after the restart.
            let log = std::mem::take(&mut self.remotes[0].log);
            self.remotes[0] = Remote { is_up: true, log, ..Remote::default() };
            return self.doubt(0);
        }
        Ok(())
    }

    fn prepare(&mut self, at: usize) {
        let remote = &mut self.remotes[at];
        remote.prepare = false;
        if remote.is_up {
            remote.log.append(Record::Prepare);
            remote.owes_prepared = true;
        }
    }

    /// A participant is told.
    fn decide(&mut self, at: usize, from: usize, side: usize) -> Result<(), Wrong> {
        if !self.remotes[at].is_up {
            return Ok(());
        }
        let (outcome, fate) = match (side, self.epoch) {
            (0, Some(epoch)) => (TxOutcome::Committed(Epoch(epoch as u64)), Fate::Committed(epoch)),
            _ => (TxOutcome::Aborted, Fate::Aborted),
        };
        match Participant::told(outcome, self.remotes[at].log.is_held(), false) {
            Told::Decide => self.decide_remote(at, fate)?,
            Told::Await => {}
            Told::Refuse => return Ok(()),
        }
        self.remotes[at].owes_acks |= 1 << from;
        Ok(())
    }

    fn end_prepare(
        &mut self,
        rules: &Rules,
        at: usize,
        event: impl Fn(usize) -> Event,
    ) -> Result<(), Wrong> {
        let Some(run) = self.members[0].runs.first_mut() else { return Ok(()) };
        let bit = 2 << at;
        if run.asks & bit == 0 {
            return Ok(());
        }
        run.asks &= !bit;
        self.step(rules, 0, 0, event(at + 1))
    }

    /// Closes a call to tell a part; false when none was open.
    fn end_call(&mut self, from: usize, run: usize, part: usize) -> bool {
        let Some(run) = self.members[from].runs.get_mut(run) else { return false };
        let was_open = run.tells & (1 << part) != 0;
        run.tells &= !(1 << part);
        was_open
    }

    /// The group's own part is told like others: who leads by the map of who tells decides it, and acknowledges it in time.
    fn tell_own(&mut self, rules: &Rules, from: usize, run: usize) -> Result<(), Wrong> {
        let to = self.members[from].leads;
        let Some(fate) = self.members[from].runs[run].fate else { return Ok(()) };
        let member = &self.members[to];
        let is_lost = !member.is_leading() || member.log.has_failed;
        if is_lost {
            // A commit is told again; nothing has changed by then.
            if fate == Fate::Aborted {
                self.end_call(from, run, 0);
                let event = Event::NotAcknowledged { at: 0, is_stopping: false };
                return self.step(rules, from, run, event);
            }
            return Ok(());
        }
        if member.log.is_held() {
            return self.decide_own(to, fate);
        }
        if member.log.is_written() && member.orders.is_empty() {
            self.end_call(from, run, 0);
            return self.step(rules, from, run, Event::Acknowledged { at: 0 });
        }
        Ok(())
    }
}

/// A participant has not answered.
fn not_acknowledged(rules: &Rules, at: usize) -> Event {
    match rules.defect {
        Some(Defect::ForgottenTooEarly) => Event::Acknowledged { at },
        Some(Defect::ToldOnce) => Event::NotAcknowledged { at, is_stopping: true },
        _ => Event::NotAcknowledged { at, is_stopping: false },
    }
}
