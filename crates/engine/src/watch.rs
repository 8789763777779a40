//! The holder of the control service looks whether the other engines are there.
//!
//! Each is asked every second. One that has given no answer for a while, twice at least, is down (a question that this engine asked
//! the holder before it, and got no answer to, counts); with `failover` its
//! targets are down in all pool maps, too. When it answers again, its targets are asked what they hold. For those that stay away
//! others come to stand in.
//! Its silence is counted from its last answer, or from when it got the state that it has: one that has come back by its own word begins anew.
//! Where the machine of an engine says that nobody listens there, its process is gone: two fifths of that time are enough, if another engine
//! that answers is told the same. An engine that is slow, or stands still, still listens, and one that is cut off says nothing. One that
//! starts listens before it joins, and one that stops in good order says so first.
//! An engine that is slow is down for a moment, which does no harm. But a holder that hears nobody may be the one that is cut off:
//! with all others down nobody would lead what only they have. One that hears less than half of the engines that are up, itself included,
//! calls none down. It gives the control service up for one that hears more; only when nobody takes it are the others down. Where it
//! cannot be elsewhere, as the catalog is here, it waits, and says so. A machine that answers for an engine that has died is heard.

use crate::control_host::{ControlHost, Orders};
use control::Service;
use futures_util::future::{join, join_all, select_ok};
use std::rc::Rc;
use std::time::Duration;
use types::map::{HashMap, HashSet};
use types::{Code, Error, Rank, Result, TargetId};
use wire::Kind;
use wire::control::{ControlReply, ControlRequest, MemberState};
use wire::event::{EventCode, Happened};
use wire::hello::Service as WireService;
use wire::map::EngineInfo;

/// Pause between two looks.
const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// How often the times of containers go to the catalog.
const TIMES_PAUSE: Duration = Duration::from_secs(30);
/// How often pools are looked at whose shares follow what their targets are worth.
const FOLLOW_PAUSE: Duration = Duration::from_secs(20);
/// A single look that fails says as much about who looks: it may have stood still meanwhile.
const LOOKS_MIN: u32 = 2;
/// How long an engine may take to answer a look: two looks fit into the time after which it is down, within these.
const LOOK_TIME_MIN: Duration = Duration::from_secs(1);
const LOOK_TIME_MAX: Duration = Duration::from_secs(3);
/// How long another engine may take to say whether it is refused, too.
const WITNESS_TIME_MAX: Duration = Duration::from_secs(1);

/// What is known of engines that give no answer.
#[derive(Default)]
struct Watch {
    /// Since when each gives none, and how often it was asked.
    silent: HashMap<Rank, (Duration, u32)>,
    /// The same of those of them whose machines said each time since that nobody listens there.
    refused: HashMap<Rank, (Duration, u32)>,
    /// Since which change of the members each has its state, as it was seen last.
    since: HashMap<Rank, u32>,
    /// Engines that were down and are being told what they hold.
    returning: HashSet<Rank>,
    /// Engines that had stopped, and have stayed away.
    gone: HashSet<Rank>,
    /// Too few were heard when one was to be called down, and that has been said.
    is_deaf: bool,
    /// Engines that give no answer, which could not be noted, and that has been said.
    cannot_note: HashSet<Rank>,
}

/// One that has given no answer for so long that it is down.
struct Overdue {
    rank: Rank,
    state: MemberState,
    silent: Duration,
    /// Nobody listens where it was.
    is_refused: bool,
}

/// What one look at an engine showed.
struct Look<'a> {
    engine: &'a EngineInfo,
    state: MemberState,
    begun: Duration,
    /// Which start of it answers.
    answers: Option<u64>,
    /// Its machine is heard; `None` where it was not asked.
    is_heard: Option<bool>,
    /// Its machine says that nobody listens there.
    is_refused: bool,
}

/// For how long nobody listens where an engine was until it is down; at least two looks, as ever.
fn gone_after(down_after: Duration) -> Duration {
    down_after * 2 / 5
}

/// More of the engines that are up are silent than not.
fn are_too_many(silent: usize, up: usize) -> bool {
    2 * silent > up
}

impl Watch {
    /// Notes since when an engine has the state that it is seen in. It may have been down, and be back by its own word or an
    /// administrator's, before it was looked at: what was silent then says nothing of it now.
    fn see(&mut self, rank: Rank, state: MemberState, since: u32) {
        let was = self.since.insert(rank, since);
        if counts(state) && was.is_some_and(|was| was != since) {
            self.silent.remove(&rank);
            self.refused.remove(&rank);
        }
    }

    /// Notes whether its machine said that nobody listens there when it was asked at `begun`: for how long that is so, if its process is
    /// gone as far as can be seen from here.
    fn weigh_refusal(
        &mut self,
        rank: Rank,
        is_refused: bool,
        begun: Duration,
        now: Duration,
        down_after: Duration,
    ) -> Option<Duration> {
        if !is_refused {
            self.refused.remove(&rank);
            return None;
        }
        let (since, looks) = self.refused.entry(rank).or_insert((begun, 0));
        *looks += 1;
        let gone = now.saturating_sub(*since);
        (gone >= gone_after(down_after) && *looks >= LOOKS_MIN).then_some(gone)
    }

    /// Notes that one gave no answer when it was asked at `begun`: for how long that is so, if it is down after that.
    fn weigh(
        &mut self,
        rank: Rank,
        begun: Duration,
        now: Duration,
        down_after: Duration,
    ) -> Option<Duration> {
        self.returning.remove(&rank);
        let (since, looks) = self.silent.entry(rank).or_insert((begun, 0));
        *looks += 1;
        let silent = now.saturating_sub(*since);
        (silent >= down_after && *looks >= LOOKS_MIN).then_some(silent)
    }
}

/// What answers for one of two engines may be the other one: a former engine's address is another one's by now.
fn are_at_one_place(one: &EngineInfo, other: &EngineInfo) -> bool {
    let by_socket = !one.unix.is_empty() && one.host == other.host && one.unix == other.unix;
    by_socket || one.tcp == other.tcp
}

/// What engines are to be counted for whether enough are heard.
fn counts(state: MemberState) -> bool {
    matches!(state, MemberState::Up | MemberState::Joining)
}

impl ControlHost {
    /// Has shares of pools follow what their targets are worth, as long as the control service is here.
    pub(crate) async fn follow_worth(self: Rc<Self>, service: Rc<Service>) {
        while self.holds(&service) {
            // timer: shares follow what is measured in intervals.
            self.env.sleep(FOLLOW_PAUSE).await;
            let orders = Orders { host: self.clone(), service: service.clone() };
            if let Err(error) = service.follow_worth(self.env.now(), &orders).await {
                tracing::warn!("looking whether shares of targets are to change: {error}");
            }
            if let Err(error) = service.drain_slow(self.env.now(), &orders).await {
                tracing::warn!("looking which targets have become slow: {error}");
            }
            if let Err(error) = service.retry_spares(&orders).await {
                tracing::warn!("looking whether targets have room again: {error}");
            }
        }
    }

    /// Keeps up to date which engines answer, and the catalog what containers were used.
    pub(crate) async fn watch_engines(self: &Rc<Self>, service: &Rc<Service>) {
        let mut watch = Watch::default();
        let mut pause = WATCH_PAUSE;
        if let Some((rank, since)) = self.unheard_holder() {
            watch.silent.insert(rank, (since, 1));
            // Whoever lost its leader waits.
            pause = Duration::ZERO;
        }
        let mut save_at = self.env.now() + TIMES_PAUSE;
        while self.holds(service) {
            // timer: a look at all engines in intervals.
            self.env.sleep(std::mem::replace(&mut pause, WATCH_PAUSE)).await;
            if self.env.now() >= save_at {
                self.save_times().await;
                save_at = self.env.now() + TIMES_PAUSE;
            }
            let members = match service.members().await {
                Ok(members) => members,
                Err(error) => {
                    tracing::warn!("reading the engines from the catalog: {error}");
                    continue;
                }
            };
            for (engine, _, state, since) in &members {
                watch.see(engine.rank, *state, *since);
            }
            let others = members.iter().filter(|(engine, ..)| engine.rank != self.rank());
            let looks = others.map(|(engine, targets, state, _)| {
                let was_silent = watch.silent.contains_key(&engine.rank);
                let is_other = |(other, ..): &&(EngineInfo, _, _, _)| other.rank != engine.rank;
                let mut others = members.iter().filter(is_other);
                let is_shared = others.any(|(other, ..)| are_at_one_place(engine, other));
                let known_by = targets.first().filter(|_| is_shared).copied();
                self.look_at((engine, known_by), *state, was_silent)
            });
            // This engine is up, too.
            let (mut up, mut silent, mut overdue) = (1, Vec::new(), Vec::new());
            let looks = join_all(looks).await;
            for &Look { engine, state, begun, answers, is_heard, is_refused } in &looks {
                let (rank, now) = (engine.rank, self.env.now());
                self.note_liveness(rank, answers.is_some());
                up += usize::from(counts(state));
                match answers {
                    Some(start) => {
                        self.note_start(rank, start);
                        watch.silent.remove(&rank);
                        watch.refused.remove(&rank);
                        watch.gone.remove(&rank);
                        self.welcome(service, &mut watch, rank, state);
                    }
                    None => {
                        silent.extend(counts(state).then_some((engine, is_heard)));
                        let down_after = self.down_after;
                        let told = watch.weigh_refusal(rank, is_refused, begun, now, down_after);
                        if let Some(silent) = watch.weigh(rank, begun, now, down_after) {
                            overdue.push(Overdue { rank, state, silent, is_refused });
                        } else if let Some(silent) = told.filter(|_| counts(state))
                            && self.is_gone_for_others(engine, &looks).await
                        {
                            overdue.push(Overdue { rank, state, silent, is_refused });
                        }
                    }
                }
            }
            if !are_too_many(silent.len(), up) {
                self.note_hearing(&mut watch);
            } else if overdue.iter().any(|overdue| counts(overdue.state)) {
                let silent = silent.len() - self.heard_of(&silent).await;
                if !are_too_many(silent, up) {
                    self.note_hearing(&mut watch);
                } else if !self.standing.has_given_up() {
                    if self.note_deaf(service, &mut watch, up - silent, up) {
                        return;
                    }
                    // Those that stopped have said so.
                    overdue.retain(|overdue| !counts(overdue.state));
                }
            }
            for overdue in overdue {
                // Others were asked, which takes a moment: one that was started again meanwhile has joined, and is not to be called down after that.
                let look = looks.iter().find(|look| look.engine.rank == overdue.rank);
                if let Some(look) = look.filter(|_| overdue.is_refused)
                    && self.peers.ping(look.engine, self.look_time()).await.is_some()
                {
                    continue;
                }
                self.call_down(service, &mut watch, overdue).await;
            }
            for rank in service.take_untold() {
                let answers = |look: &Look<'_>| look.engine.rank == rank && look.answers.is_some();
                if rank == self.rank() || looks.iter().any(answers) {
                    let orders = Orders { host: self.clone(), service: service.clone() };
                    self.env.spawn(self.clone().tell_pools(rank, orders));
                } else {
                    service.note_untold(rank);
                }
            }
            let (orders, after) =
                (Orders { host: self.clone(), service: service.clone() }, self.rebuild_after);
            if let Err(error) = service.stand_in(self.env.now(), after, &orders).await {
                tracing::warn!("looking who is to stand in for lost targets: {error}");
            }
        }
    }

    /// One that answers, and may have been down.
    fn welcome(
        self: &Rc<Self>,
        service: &Rc<Service>,
        watch: &mut Watch,
        rank: Rank,
        state: MemberState,
    ) {
        if !state.is_to_be_told() {
            watch.returning.remove(&rank);
        } else if watch.returning.insert(rank) {
            let orders = Orders { host: self.clone(), service: service.clone() };
            self.env.spawn(self.clone().tell_pools(rank, orders));
        }
    }

    /// One look at an engine, and at its machine beside it where the look before was in vain. `known_by`: who answers there may be
    /// another engine, which does not have this target.
    async fn look_at<'a>(
        &self,
        (engine, known_by): (&'a EngineInfo, Option<TargetId>),
        state: MemberState,
        was_silent: bool,
    ) -> Look<'a> {
        let begun = self.env.now();
        let limit = self.look_time();
        let is_heard = async {
            match was_silent && counts(state) {
                true => Some(self.peers.hears(engine).await),
                false => None,
            }
        };
        let asked = async {
            let mut answers = self.peers.ping(engine, limit).await;
            if let (Some(_), Some(target)) = (answers, known_by)
                && self.is_another(engine, target, limit).await
            {
                answers = None;
            }
            // Whoever is refused is told so at once.
            let may_be_refused = answers.is_none() && self.env.now() < begun + limit;
            (answers, may_be_refused && self.peers.is_refused_at(&engine.tcp).await)
        };
        let ((answers, is_refused), is_heard) = join(asked, is_heard).await;
        Look { engine, state, begun, answers, is_heard, is_refused }
    }

    /// True when another engine that answers is told, too, that nobody listens where this one was; also when there is none to be asked,
    /// because nobody listens where any other one was.
    async fn is_gone_for_others(&self, engine: &EngineInfo, looks: &[Look<'_>]) -> bool {
        let others = looks.iter().filter(|look| {
            let is_other = look.engine.rank != engine.rank;
            is_other && counts(look.state) && !look.is_refused
        });
        let others: Vec<&Look<'_>> = others.collect();
        let asked = others.iter().filter(|look| look.answers.is_some()).map(|witness| {
            Box::pin(async move {
                match self.is_refused_there(witness.engine, engine).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Error::bare(Code::Exist)),
                    Err(error) => Err(error),
                }
            })
        });
        let asked: Vec<_> = asked.collect();
        if asked.is_empty() {
            return others.is_empty();
        }
        let rank = engine.rank;
        match self.env.timeout(WITNESS_TIME_MAX, select_ok(asked)).await {
            Some(Ok(_)) => true,
            Some(Err(error)) => {
                tracing::debug!("engine {rank} refuses connections, and to nobody else: {error}");
                false
            }
            None => false,
        }
    }

    /// Asks a witness whether it is refused at another engine's address.
    async fn is_refused_there(&self, witness: &EngineInfo, engine: &EngineInfo) -> Result<bool> {
        let body = wire::encode(&ControlRequest::EngineRefuses { tcp: engine.tcp.clone() });
        let conn = self.peers.connect(witness, WireService::Control).await?;
        let limit = WITNESS_TIME_MAX;
        let answer = self.peers.call_within(&conn, Kind::Control, &body, &[], limit).await;
        conn.close();
        match wire::decode::<Result<ControlReply>>(&answer?.body)?? {
            ControlReply::Refused(is_refused) => Ok(is_refused),
            _ => Err(Error::new(Code::Proto, "an answer to another question")),
        }
    }

    /// True when who answers where an engine is says that it does not have this target of it.
    async fn is_another(&self, engine: &EngineInfo, target: TargetId, limit: Duration) -> bool {
        let body = wire::encode(&ControlRequest::EngineJobs { target, with_clients: false });
        let asked = async {
            let mut is_another = false;
            for conn in self.peers.connect_all(engine, WireService::Control).await {
                let answer = self.peers.call_within(&conn, Kind::Control, &body, &[], limit).await;
                conn.close();
                let reply = answer.and_then(|answer| {
                    wire::decode::<Result<ControlReply>>(&answer.body).flatten()
                });
                match reply {
                    Err(error) if error.code == Code::NonExist => is_another = true,
                    _ => return false,
                }
            }
            is_another
        };
        self.env.timeout(limit, asked).await.unwrap_or(false)
    }

    fn look_time(&self) -> Duration {
        (self.down_after.saturating_sub(WATCH_PAUSE) / 2).clamp(LOOK_TIME_MIN, LOOK_TIME_MAX)
    }

    /// The engine that held the control service before this one, and since when it has given this one no answer, if that is
    /// as long as a look.
    fn unheard_holder(&self) -> Option<(Rank, Duration)> {
        let (rank, since) = self.standing.answered()?;
        (self.env.now().saturating_sub(since) >= self.look_time()).then_some((rank, since))
    }

    /// How many machines of silent engines are heard.
    async fn heard_of(&self, silent: &[(&EngineInfo, Option<bool>)]) -> usize {
        let heard = silent.iter().map(async |(engine, is_heard)| match is_heard {
            Some(is_heard) => *is_heard,
            None => self.peers.hears(engine).await,
        });
        join_all(heard).await.into_iter().filter(|is_heard| *is_heard).count()
    }

    /// It hears only so many of the engines that are up. True when it has given the control service up.
    fn note_deaf(&self, service: &Service, watch: &mut Watch, heard: usize, up: usize) -> bool {
        let gives_up = self.give_up(service);
        if !watch.is_deaf {
            let then = match gives_up {
                true => "it gives the control service up for one that hears more",
                false => "none is called down until it hears more of them, or they are excluded",
            };
            let what = format!(
                "{heard} of the {up} engines that are up are heard, this one included: {then}"
            );
            tracing::warn!("{what}");
            self.events.note(Happened::new(EventCode::ServiceDeaf, what));
            watch.is_deaf = true;
        }
        gives_up
    }

    /// It hears enough of the others.
    fn note_hearing(&self, watch: &mut Watch) {
        self.standing.forget_giving_up();
        if std::mem::take(&mut watch.is_deaf) {
            let what = "enough of the other engines are heard again";
            self.events.note(Happened::new(EventCode::ServiceHears, what));
        }
    }

    /// One that has given no answer for long is down.
    async fn call_down(
        self: &Rc<Self>,
        service: &Rc<Service>,
        watch: &mut Watch,
        Overdue { rank, state, silent, is_refused }: Overdue,
    ) {
        let orders = Orders { host: self.clone(), service: service.clone() };
        if state == MemberState::Stopped && self.fails_over && !watch.gone.contains(&rank) {
            match service.engine_stays_away(rank, &orders).await {
                Ok(()) => drop(watch.gone.insert(rank)),
                Err(error) => {
                    tracing::warn!("engine {rank} stays away, and that cannot be noted: {error}");
                }
            }
        }
        if !matches!(state, MemberState::Up | MemberState::Joining) {
            return;
        }
        let cause = if is_refused { ", nobody listens there" } else { "" };
        let why = format!("no answer for {} s{cause}", silent.as_secs());
        if let Err(error) = service.engine_is_silent(rank, &why, self.fails_over, &orders).await {
            let what = format!("engine {rank} gives no answer, and that cannot be noted: {error}");
            tracing::warn!("{what}");
            // Nobody stands in for it as long as that is so, and nothing else tells: the catalog may answer, and take no changes.
            if watch.cannot_note.insert(rank) {
                self.events.note(Happened::new(EventCode::CatalogAway, what));
            }
            return;
        }
        if !std::mem::take(&mut watch.cannot_note).is_empty() {
            let what = "engines that give no answer are noted again";
            self.events.note(Happened::new(EventCode::CatalogBack, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: Rank = Rank(1);
    const DOWN_AFTER: Duration = Duration::from_secs(5);

    /// One look a second at an engine that gives no answer, from one time to another: when it is called down first.
    fn down_at(watch: &mut Watch, from_s: u64, to_s: u64) -> Option<u64> {
        (from_s..to_s).find(|at| {
            let begun = Duration::from_secs(*at);
            watch.weigh(AWAY, begun, begun + LOOK_TIME_MIN, DOWN_AFTER).is_some()
        })
    }

    #[test]
    fn an_engine_is_down_after_its_time_and_two_looks() {
        let mut watch = Watch::default();
        watch.see(AWAY, MemberState::Up, 3);
        assert_eq!(down_at(&mut watch, 10, 20), Some(14));
        let long = Duration::from_secs(60);
        assert_eq!(
            Watch::default().weigh(AWAY, Duration::ZERO, long, DOWN_AFTER),
            None,
            "whoever looks may have stood still"
        );
        // What a new holder has noticed before it became one counts.
        let mut watch = Watch::default();
        watch.silent.insert(AWAY, (Duration::from_secs(6), 1));
        watch.see(AWAY, MemberState::Up, 3);
        assert_eq!(down_at(&mut watch, 10, 20), Some(10));
    }

    /// A process that is gone is missed after two fifths of the time; one that stands still is not.
    #[test]
    fn an_engine_whose_machine_refuses_for_it_is_gone_earlier() {
        let weigh = |watch: &mut Watch, at: u64, is_refused| {
            let begun = Duration::from_secs(at);
            watch
                .weigh_refusal(AWAY, is_refused, begun, begun, DOWN_AFTER)
                .map(|gone| gone.as_secs())
        };
        let mut watch = Watch::default();
        assert_eq!([10, 11, 12].map(|at| weigh(&mut watch, at, true)), [None, None, Some(2)]);
        // Somebody has listened in between, or nothing was heard.
        assert_eq!(weigh(&mut watch, 13, false), None);
        assert_eq!([14, 15, 16].map(|at| weigh(&mut watch, at, true)), [None, None, Some(2)]);
        // It was back.
        watch.see(AWAY, MemberState::Up, 3);
        watch.see(AWAY, MemberState::Joining, 4);
        assert_eq!(weigh(&mut watch, 17, true), None);
        let mut late = Watch::default();
        let begun = Duration::from_secs(10);
        let gone = late.weigh_refusal(AWAY, true, begun, begun + DOWN_AFTER, DOWN_AFTER);
        assert_eq!(gone, None, "whoever looks may have stood still");
    }

    /// It was down, told the control service itself that it is back, and stopped again before it was looked at: it was called down by
    /// the first look, for a silence that had ended.
    #[test]
    fn the_silence_of_an_engine_begins_anew_when_it_is_back() {
        for between in [None, Some((MemberState::Down, 4))] {
            let mut watch = Watch::default();
            watch.see(AWAY, MemberState::Up, 3);
            assert_eq!(down_at(&mut watch, 10, 20), Some(14));
            // Seen in between or not.
            if let Some((state, since)) = between {
                watch.see(AWAY, state, since);
                assert_eq!(down_at(&mut watch, 15, 16), Some(15), "it goes on being silent");
            }
            watch.see(AWAY, MemberState::Up, 5);
            assert_eq!(down_at(&mut watch, 16, 30), Some(20));
        }
        // While nothing becomes of it, it goes on.
        let mut watch = Watch::default();
        for at in 10..14 {
            watch.see(AWAY, MemberState::Joining, 7);
            assert_eq!(down_at(&mut watch, at, at + 1), None);
        }
        watch.see(AWAY, MemberState::Joining, 7);
        assert_eq!(down_at(&mut watch, 14, 15), Some(14));
    }
}
