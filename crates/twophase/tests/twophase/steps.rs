//! Single rules of the machines: which error wins, epochs, pauses, what is told how often, what a participant heeds.

use std::time::Duration;
use twophase::{
    Action, Actions, Coordinator, DoubtAction, DoubtEvent, Event, Firmness, Participant, Pauses,
    Question, QuestionAction, Refusal, Told,
};
use types::{Code, Epoch};
use wire::obj::TxOutcome;

const PAUSES: Pauses = Pauses { min: Duration::from_millis(5), max: Duration::from_millis(30) };
const NOW: Duration = Duration::ZERO;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn begin(part_count: usize) -> Coordinator {
    let mut actions = Actions::new();
    let machine = Coordinator::begin(part_count, PAUSES, &mut actions);
    let all: Actions = (0..part_count).map(|at| Action::Prepare { at }).collect();
    assert_eq!(actions, all);
    machine
}

fn step(machine: &mut Coordinator, event: Event) -> Actions {
    let mut actions = Actions::new();
    machine.step(event, &mut actions);
    actions
}

fn steps(machine: &mut Coordinator, events: &[Event]) -> Actions {
    let mut actions = Actions::new();
    events.iter().for_each(|event| machine.step(*event, &mut actions));
    actions
}

fn tell(at: usize, outcome: TxOutcome, after: Duration) -> Action {
    Action::Tell { at, outcome, after }
}

/// What a machine with two parts says when they are held, up to a decision at epoch 9.
fn decided() -> Coordinator {
    let mut machine = begin(2);
    let held = |at: usize| Event::Prepared { at, epoch_min: Epoch(9 - at as u64) };
    steps(&mut machine, &[held(0), held(1), Event::Ticked(Epoch(4)), Event::Begun]);
    machine
}

fn committed() -> Coordinator {
    let mut machine = decided();
    let events = [Event::Logged, Event::Settled, Event::OwnPart { took_effect: true }];
    steps(&mut machine, &events);
    machine
}

#[test]
fn what_is_wrong_says_more_than_a_lost_conflict_and_that_more_than_a_condition() {
    let refused = |codes: &[Code]| {
        let mut machine = begin(codes.len());
        let events: Vec<Event> =
            codes.iter().enumerate().map(|(at, code)| Event::Refused { at, code: *code }).collect();
        match steps(&mut machine, &events)[0] {
            Action::Refuse(Refusal::Part(at)) => at,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&[Code::TxRestart, Code::Exist, Code::NoSpace]), 2);
    // What does not hold here may be so because of what has changed there.
    assert_eq!(refused(&[Code::NonExist, Code::TxRestart, Code::Exist]), 1);
    assert_eq!(refused(&[Code::NonExist, Code::Exist]), 0);
    assert_eq!(refused(&[Code::Exist, Code::TxRestart, Code::NoSpace]), 2);
    assert_eq!(refused(&[Code::TxRestart, Code::TxRestart, Code::Unreach]), 2);
    assert_eq!(refused(&[Code::TxRestart]), 0);
}

#[test]
fn one_refused_part_drops_all_and_each_is_told_once() {
    let mut machine = begin(2);
    assert!(step(&mut machine, Event::Refused { at: 1, code: Code::Exist }).is_empty());
    // Said twice, it is one part still.
    assert!(step(&mut machine, Event::Refused { at: 1, code: Code::Exist }).is_empty());
    assert!(machine.is_pending());
    let actions = step(&mut machine, Event::Prepared { at: 0, epoch_min: Epoch(3) });
    let aborted = |at| tell(at, TxOutcome::Aborted, NOW);
    let all = [Action::Refuse(Refusal::Part(1)), aborted(0), aborted(1)];
    assert_eq!(actions[..], all);
    assert!(!machine.is_pending());
    let unheard = |at| Event::NotAcknowledged { at, is_stopping: false };
    assert!(steps(&mut machine, &[unheard(0), Event::Acknowledged { at: 1 }]).is_empty());
    assert!(machine.is_over());
}

#[test]
fn the_epoch_is_not_below_that_of_any_part_nor_of_the_clock() {
    for (now, epoch) in [(4, 9), (12, 12)] {
        let mut machine = begin(2);
        let held = |at, epoch| Event::Prepared { at, epoch_min: Epoch(epoch) };
        assert_eq!(steps(&mut machine, &[held(1, 9), held(0, 7)])[..], [Action::Tick]);
        let actions = step(&mut machine, Event::Ticked(Epoch(now)));
        assert_eq!(actions[..], [Action::WriteDecision { epoch: Epoch(epoch) }]);
    }
}

#[test]
fn the_client_is_answered_when_the_decision_stands_and_our_part_took_effect() {
    for took_effect in [true, false] {
        let mut machine = decided();
        assert!(machine.is_pending());
        assert_eq!(step(&mut machine, Event::Logged)[..], [Action::AwaitMembers]);
        let actions = step(&mut machine, Event::Settled);
        assert_eq!(actions[..], [Action::TakeEffect { epoch: Epoch(9) }]);
        assert!(!machine.is_pending());
        let told = |at| tell(at, TxOutcome::Committed(Epoch(9)), NOW);
        let actions = step(&mut machine, Event::OwnPart { took_effect });
        assert_eq!(actions[..], [Action::Answer, told(0), told(1)]);
    }
}

#[test]
fn what_a_failed_log_holds_nobody_is_told() {
    let mut machine = decided();
    let actions = step(&mut machine, Event::LogFailed);
    assert_eq!(actions[..], [Action::Refuse(Refusal::Decision)]);
    assert!(machine.is_pending() && !machine.is_over());
    assert!(steps(&mut machine, &[Event::Logged, Event::Settled]).is_empty());
}

/// Participants elsewhere ask when they hear nothing. A part that the coordinator's own target holds, of another group, waited for ever when
/// the coordinator's group had got another leader before the decision was written, or before all members had it.
#[test]
fn a_decision_that_is_not_begun_is_an_abort_that_all_are_told() {
    let mut machine = begin(2);
    let held = |at| Event::Prepared { at, epoch_min: Epoch(3) };
    steps(&mut machine, &[held(0), held(1), Event::Ticked(Epoch(4))]);
    let aborted = |at| tell(at, TxOutcome::Aborted, NOW);
    let actions = step(&mut machine, Event::NotBegun);
    assert_eq!(actions[..], [Action::Refuse(Refusal::Decision), aborted(0), aborted(1)]);
    assert!(!machine.is_pending());
}

#[test]
fn leaders_that_change_make_it_a_decision_that_was_found() {
    let mut machine = decided();
    step(&mut machine, Event::Logged);
    let actions = step(&mut machine, Event::NotSettled);
    let epoch = Epoch(9);
    let all = [Action::RepeatDecision { epoch }, Action::Refuse(Refusal::Decision)];
    assert_eq!(actions[..], all);
    assert!(!machine.is_pending());
    let mut others_lead = machine.clone();
    assert_eq!(step(&mut others_lead, Event::NotBegun)[..], [Action::AskHere]);
    assert!(others_lead.is_over());
    assert_eq!(step(&mut machine, Event::Begun)[..], [Action::AwaitLog]);
    let mut failing = machine.clone();
    assert!(step(&mut failing, Event::LogFailed).is_empty() && failing.is_over());
    assert_eq!(step(&mut machine, Event::Logged)[..], [Action::AwaitMembers]);
    let mut others_lead = machine.clone();
    assert_eq!(step(&mut others_lead, Event::NotSettled)[..], [Action::AskHere]);
    let told = |at| tell(at, TxOutcome::Committed(epoch), NOW);
    assert_eq!(step(&mut machine, Event::Settled)[..], [told(0), told(1)]);
}

#[test]
fn a_commit_is_told_until_it_is_acknowledged_with_growing_pauses() {
    let mut machine = committed();
    let outcome = TxOutcome::Committed(Epoch(9));
    let unheard = |at| Event::NotAcknowledged { at, is_stopping: false };
    for (at, pause) in [(0, 5), (0, 10), (1, 5), (0, 20), (0, 30), (0, 30), (1, 10)] {
        assert_eq!(step(&mut machine, unheard(at))[..], [tell(at, outcome, ms(pause))]);
    }
    assert!(step(&mut machine, Event::Acknowledged { at: 0 }).is_empty());
    // One that has answered says nothing more.
    assert!(steps(&mut machine, &[Event::Acknowledged { at: 0 }, unheard(0)]).is_empty());
    assert_eq!(step(&mut machine, Event::Acknowledged { at: 1 })[..], [Action::Forget]);
    assert!(machine.is_over());
}

#[test]
fn a_decision_is_kept_when_the_engine_stops_before_all_know() {
    let mut machine = committed();
    let stopping = Event::NotAcknowledged { at: 0, is_stopping: true };
    let events = [stopping, Event::Acknowledged { at: 0 }, Event::Acknowledged { at: 1 }];
    assert!(steps(&mut machine, &events).is_empty());
    assert!(machine.is_over());
}

#[test]
fn a_part_in_doubt_asks_until_it_is_decided_or_the_matter_of_others() {
    let (mut participant, first) = Participant::in_doubt(PAUSES);
    assert_eq!(first, DoubtAction::Look { after: NOW });
    let held = DoubtEvent::Looked { is_held: true, is_others: false };
    let unclear = [
        DoubtEvent::Unanswered,
        DoubtEvent::Answered(TxOutcome::Pending),
        DoubtEvent::NotDecided,
        DoubtEvent::Unanswered,
    ];
    for (event, pause) in unclear.into_iter().zip([5, 10, 20, 30]) {
        assert_eq!(participant.step(held), DoubtAction::Ask);
        assert_eq!(participant.step(event), DoubtAction::Look { after: ms(pause) });
    }
    for outcome in [TxOutcome::Aborted, TxOutcome::Committed(Epoch(2))] {
        assert_eq!(participant.step(DoubtEvent::Answered(outcome)), DoubtAction::Decide(outcome));
    }
    for (is_held, is_others) in [(false, false), (true, true)] {
        let looked = DoubtEvent::Looked { is_held, is_others };
        assert_eq!(participant.step(looked), DoubtAction::End);
    }
    assert_eq!(participant.step(DoubtEvent::Decided), DoubtAction::End);
}

#[test]
fn a_participant_acknowledges_what_none_of_its_group_can_ask_for() {
    let commit = TxOutcome::Committed(Epoch(2));
    for is_member_away in [false, true] {
        assert_eq!(Participant::told(commit, true, is_member_away), Told::Decide);
        assert_eq!(Participant::told(TxOutcome::Aborted, true, is_member_away), Told::Decide);
        assert_eq!(Participant::told(TxOutcome::Aborted, false, is_member_away), Told::Await);
    }
    assert_eq!(Participant::told(commit, false, false), Told::Await);
    assert_eq!(Participant::told(commit, false, true), Told::Refuse);
    assert_eq!(Participant::held(true), Firmness::Promised);
    assert_eq!(Participant::held(false), Firmness::Written);
}

#[test]
fn what_is_told_who_asks_stands() {
    let all = |mut question: Question, count: usize| -> Vec<QuestionAction> {
        (0..count).map(|_| question.step()).collect()
    };
    let epoch = Epoch(2);
    use QuestionAction::{Answer, AwaitLog, HaveMembersForget, HaveMembersKnow};
    let committed = all(Question::asked(false, Some(epoch)), 3);
    assert_eq!(committed, [AwaitLog, HaveMembersKnow, Answer(TxOutcome::Committed(epoch))]);
    let unknown = all(Question::asked(false, None), 2);
    assert_eq!(unknown, [HaveMembersForget, Answer(TxOutcome::Aborted)]);
    // Also of one that is known already, and may not last.
    for decision in [None, Some(epoch)] {
        let pending = all(Question::asked(true, decision), 1);
        assert_eq!(pending, [Answer(TxOutcome::Pending)]);
    }
}
