//! Who holds the control service: this engine, another one, or nobody for the moment; and how a request
//! gets there from any engine.
//!
//! An engine that does not hold it passes requests on, and while it changes hands waits with them. What has
//! been passed on and got no answer is passed on again if a second run does no harm; else the
//! caller is told that the outcome is not known.
//!
//! A caller's pool and container handles belong to its connection; a passing engine opens one
//! connection upstream for each of its callers, so they end together there, too. An engine that is
//! asked as the holder and is not passes nothing on, so that nothing goes in circles.

use crate::control_host::{ControlHost, held_service, is_passing};
use crate::given::{Given, Giver};
use crate::tokens::not_for_clients;
use control::{ElectionNews, Service, SessionId};
use futures_channel::mpsc::UnboundedReceiver;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use transport::{Address, Conn, Incoming};
use types::{Code, Error, Result};
use wire::Kind;
use wire::control::{ControlReply, ControlRequest};
use wire::event::{EventCode, Happened};
use wire::hello::Service as WireService;
use wire::map::EngineInfo;

/// How long a request waits for the control service to have a holder again, at most: some terms of
/// the lease.
const FOLLOW_TIME_MAX: Duration = Duration::from_secs(40);
/// How long an engine that has given the control service up lets others try to take it: they look each second, and
/// etcd may be slow.
const GIVEN_UP_TIME: Duration = Duration::from_secs(5);
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);
/// How long the holder may take to give its office back when its engine stops.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// An engine's part in the control service.
#[derive(Clone)]
pub(crate) enum Role {
    /// It is here.
    Holder(Rc<Service>),
    /// It is where one of these engines says.
    Member(Rc<[Address]>),
    /// It is elected, and another engine has it; `None` while it is not known which.
    Follower(Option<EngineInfo>),
}

/// A caller's connection, as far as requests are passed on for it.
pub(crate) struct Seat {
    /// The caller is an engine that takes this one for the holder.
    is_passed_on: bool,
    /// It showed the secret of engines and administrators.
    is_admin: bool,
    /// The connection upstream, and to whom if it is the holder.
    upstream: RefCell<Option<(Option<EngineInfo>, Conn)>>,
    given: Rc<Given>,
}

impl Seat {
    pub fn new(is_passed_on: bool, is_admin: bool) -> Seat {
        Seat { is_passed_on, is_admin, upstream: RefCell::default(), given: Rc::default() }
    }

    /// Handles that the caller was given on its connection.
    pub fn given(&self) -> &Rc<Given> {
        &self.given
    }

    /// What comes on its connection from now on answers nothing.
    pub fn hang_up(&self) {
        self.upstream.take();
    }

    /// Notes what the answer to a request that was passed on by `conn` has given, or taken. It need not be the connection upstream any more.
    fn note_passed_on(
        &self,
        request: &ControlRequest,
        body: &[u8],
        (to, conn): (Option<&EngineInfo>, &Conn),
    ) {
        if body.first() == Some(&TAG_OK) {
            self.given.note(request, || Giver::Upstream(to.cloned(), conn.ending()));
        }
    }

    /// Keeps a connection upstream, unless another request of the caller's has made one meanwhile: handles that were given on that would
    /// end with it. The one that is kept.
    fn keep_upstream(&self, to: Option<&EngineInfo>, conn: Conn) -> Conn {
        if let Some(open) = self.open_upstream(to) {
            return open;
        }
        self.upstream.replace(Some((to.cloned(), conn.clone())));
        conn
    }

    fn open_upstream(&self, to: Option<&EngineInfo>) -> Option<Conn> {
        let upstream = self.upstream.borrow();
        let open = upstream.as_ref().filter(|(of, conn)| of.as_ref() == to && !conn.is_broken());
        open.map(|(_, conn)| conn.clone())
    }
}

/// What an encoded answer begins with.
const TAG_OK: u8 = 0;
const TAG_ERR: u8 = 1;

/// How one try to answer went.
enum Step {
    /// The encoded answer.
    Answer(Vec<u8>),
    /// Nothing was done, or nothing that doing it again would harm.
    Again(Error),
    Failed(Error),
}

fn nobody() -> Error {
    Error::new(Code::Unreach, "no engine holds the control service at the moment; try again")
}

fn not_known(error: &Error) -> Error {
    Error::new(
        Code::TimedOut,
        format!(
            "the engine that held the control service has gone ({error}); whether the request was \
             carried out is not known: look before asking again"
        ),
    )
}

impl ControlHost {
    pub(crate) fn role(&self) -> Role {
        self.standing.role()
    }

    /// How often the catalog was asked from here; `None` while the control service is elsewhere.
    pub(crate) fn catalog_call_count(&self) -> Option<u64> {
        self.standing.held().map(|service| service.catalog_call_count())
    }

    /// True while this is the service that the engine holds.
    pub(crate) fn holds(&self, service: &Rc<Service>) -> bool {
        self.standing.held().is_some_and(|held| Rc::ptr_eq(&held, service))
    }

    /// Takes the control service over when this engine is elected, and lets go of it when another is.
    pub(crate) async fn follow_election(
        self: Rc<Self>,
        mut heard: UnboundedReceiver<ElectionNews>,
    ) {
        while let Some(news) = heard.next().await {
            match news {
                ElectionNews::Elected(catalog) => {
                    // One that has moved elsewhere is served by nobody, and one of another system not from here: whoever
                    // asks is told.
                    let look = async || {
                        control::check_open(&catalog).await?;
                        control::check_system(&catalog, self.home.system()).await?;
                        self.copy.is_not_newer_than(&catalog).await
                    };
                    let mut looked = look().await;
                    while looked.as_ref().is_err_and(is_passing) {
                        // timer: others are asked again: of what they do nobody tells.
                        self.env.sleep(FOLLOW_PAUSE).await;
                        looked = look().await;
                    }
                    if let Err(error) = looked {
                        tracing::error!("catalog: {error}");
                        // One that was lost is one that is away: what is in copies is told, and who waits for it asks again. An engine that
                        // starts may look in the wrong place.
                        let is_lost = self.is_introduced()
                            && control::is_lost(&catalog, self.home.system()).await;
                        let code = if is_lost { Code::Unreach } else { error.code };
                        if control::check_open(&catalog).await.is_ok() {
                            // Those whose it is must be able to lead.
                            self.leave().await;
                        }
                        self.note_away(Error { code, ..error });
                        self.standing.set_role(Role::Follower(None));
                        continue;
                    }
                    tracing::info!("this engine holds the control service now");
                    let service = held_service(&self.env, Box::new(catalog), &self.events);
                    let service = Rc::new(service);
                    self.note_back();
                    let what = "this engine holds the control service now";
                    self.events.note(Happened::new(EventCode::ServiceTaken, what));
                    self.standing.set_role(Role::Holder(service.clone()));
                    if self.is_introduced() {
                        self.env.spawn(self.clone().hold_office(service));
                    }
                }
                ElectionNews::Lost => {
                    let what = match self.standing.has_given_up() {
                        true => {
                            "this engine has given the control service up for others to take it"
                        }
                        false => "another engine has taken the control service over",
                    };
                    tracing::warn!("{what}");
                    self.events.note(Happened::new(EventCode::ServiceLost, what));
                    self.standing.set_role(Role::Follower(None));
                }
                ElectionNews::Follow(leader) => {
                    let at = leader.as_ref().map_or("an unknown address", |leader| &leader.tcp);
                    tracing::info!("the engine at {at} holds the control service");
                    self.standing.forget_giving_up();
                    self.note_back();
                    self.standing.set_role(Role::Follower(leader));
                }
                ElectionNews::Away(error) => {
                    tracing::warn!("catalog: {error}");
                    // Others may not have been able to take what was given up.
                    self.standing.forget_giving_up();
                    self.note_away(error);
                }
            }
        }
    }

    /// The catalog cannot be looked at.
    pub(crate) fn note_away(&self, error: Error) {
        let what = format!("catalog: {error}");
        if self.standing.note_away(error) {
            self.events.note(Happened::new(EventCode::CatalogAway, what));
        }
    }

    pub(crate) fn note_back(&self) {
        if self.standing.note_back() {
            let what = "the catalog can be reached again";
            self.events.note(Happened::new(EventCode::CatalogBack, what));
        }
    }

    /// Gives the control service up for others to take it; false where it cannot be elsewhere.
    pub(crate) fn give_up(&self, service: &Service) -> bool {
        self.standing.give_up(service.term(), GIVEN_UP_TIME)
    }

    /// Gives the control service back, so that another engine can take it over at once.
    pub(crate) async fn leave(&self) {
        let Some(mut candidate) = self.standing.withdraw() else { return };
        if self.env.timeout(LEAVE_TIME_MAX, candidate.leave()).await.is_none() {
            tracing::warn!("catalog: etcd does not answer; others wait for the lease to end");
        }
        self.standing.set_role(Role::Follower(None));
    }

    /// Asks whoever holds the control service. One try.
    pub(crate) async fn ask_holder(
        self: &Rc<Self>,
        request: &ControlRequest,
    ) -> Result<ControlReply> {
        let conn = match self.role() {
            Role::Holder(service) => {
                return self.handle(&service, SessionId(0), request.clone()).await;
            }
            Role::Member(addresses) => self.dial_any(&addresses).await?,
            Role::Follower(Some(leader)) => {
                self.standing.ask(leader.rank, self.env.now());
                let conn = self.peers.connect(&leader, WireService::Leader).await?;
                self.standing.answered();
                conn
            }
            Role::Follower(None) => return Err(self.standing.away().unwrap_or_else(nobody)),
        };
        let body = wire::encode(request);
        let answer = self.peers.call(&conn, Kind::Control, &body, &[]).await?;
        wire::decode::<Result<ControlReply>>(&answer.body)?
    }

    /// The same over the connection of a seat, which stays.
    pub(crate) async fn ask_from_seat(
        self: &Rc<Self>,
        seat: &Seat,
        request: &ControlRequest,
        limit: Duration,
    ) -> Result<ControlReply> {
        let body = wire::encode(request);
        match self.respond_once(SessionId(0), seat, request, &body, limit).await {
            Step::Answer(body) => wire::decode::<Result<ControlReply>>(&body)?,
            Step::Again(error) | Step::Failed(error) => Err(error),
        }
    }

    async fn dial_any(&self, addresses: &[Address]) -> Result<Conn> {
        let mut last = Error::new(Code::Unreach, "no engine to join is given");
        for address in addresses {
            match self.peers.dial(address, WireService::Control).await {
                Ok(conn) => return Ok(conn),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The encoded answer to a request.
    pub(crate) async fn respond(
        self: &Rc<Self>,
        session: SessionId,
        seat: &Seat,
        incoming: &Incoming,
    ) -> Result<Vec<u8>> {
        let kind = incoming.header.kind;
        if kind != Kind::Control {
            let text = format!("the control service does not serve {kind:?}");
            return Err(Error::new(Code::Proto, text));
        }
        let request = wire::decode::<ControlRequest>(&incoming.body)?;
        if request.is_for_admins() && !seat.is_admin {
            return Err(not_for_clients());
        }
        if request == ControlRequest::EngineQuery {
            return Ok(wire::encode(&Ok::<_, Error>(ControlReply::Engine(self.state()))));
        }
        if let ControlRequest::EngineStop { with_all } = request {
            self.stop(with_all);
            return Ok(wire::encode(&Ok::<_, Error>(ControlReply::Done)));
        }
        if let ControlRequest::EngineJobs { target, with_clients } = request {
            let jobs = self.jobs_at(target, with_clients).await?;
            return Ok(wire::encode(&Ok::<_, Error>(ControlReply::Jobs(jobs))));
        }
        if let ControlRequest::EngineEvents { after, since_ns } = request {
            let events = self.events.told(after, since_ns);
            return Ok(wire::encode(&Ok::<_, Error>(ControlReply::Events(events))));
        }
        if let ControlRequest::EngineMaps { known } = request {
            let maps = self.newer_maps(known).await;
            return Ok(wire::encode(&Ok::<_, Error>(maps)));
        }
        if let ControlRequest::EngineRefuses { tcp } = request {
            let is_refused = self.peers.is_refused_at(&tcp).await;
            return Ok(wire::encode(&Ok::<_, Error>(ControlReply::Refused(is_refused))));
        }
        if let Some(body) = self.close_in_copy(session, &request).await {
            seat.given.note(&request, || Giver::Copy);
            return Ok(body);
        }
        let limit = Duration::from_millis(incoming.header.deadline_ms.into());
        let deadline = self.env.now() + limit;
        let give_up = self.env.now() + limit.min(FOLLOW_TIME_MAX);
        loop {
            let left = deadline.saturating_sub(self.env.now());
            let error = match self.respond_once(session, seat, &request, &incoming.body, left).await
            {
                Step::Answer(body) => return Ok(body),
                Step::Failed(error) => error,
                Step::Again(_) if self.env.now() + FOLLOW_PAUSE < give_up => {
                    // timer: others are asked again: of what they do nobody tells.
                    self.env.sleep(FOLLOW_PAUSE).await;
                    continue;
                }
                Step::Again(error) => error,
            };
            return self.answer_from_copy(session, seat, &request, &error).await.ok_or(error);
        }
    }

    async fn respond_once(
        self: &Rc<Self>,
        session: SessionId,
        seat: &Seat,
        request: &ControlRequest,
        body: &[u8],
        left: Duration,
    ) -> Step {
        match self.role() {
            Role::Holder(service) => {
                // One that is silent is like one that is away: nobody waits for it where the copy tells.
                if let Some(silent) = self.standing.away().filter(|_| self.standing.is_elected())
                    && let Some(body) = self.answer_from_copy(session, seat, request, &silent).await
                {
                    return Step::Answer(body);
                }
                let reply = self.handle(&service, session, request.clone()).await;
                match reply {
                    Err(error) if !self.holds(&service) => match request.is_repeatable() {
                        true => Step::Again(error),
                        false => Step::Failed(not_known(&error)),
                    },
                    Err(error) => Step::Failed(error),
                    Ok(reply) => {
                        seat.given.note(request, || Giver::Here(service));
                        Step::Answer(wire::encode(&Ok::<_, Error>(reply)))
                    }
                }
            }
            Role::Member(addresses) => match self.pass_on(seat, &addresses, body, left).await {
                Ok((body, conn)) => {
                    seat.note_passed_on(request, &body, (None, &conn));
                    Step::Answer(body)
                }
                Err(error) => match self.answer_from_copy(session, seat, request, &error).await {
                    Some(body) => Step::Answer(body),
                    // What only looks waits for the holder to be back; what makes something fails at once.
                    None if request.is_brief() && error.code != Code::Inval => Step::Again(error),
                    None => Step::Failed(error),
                },
            },
            Role::Follower(_) if seat.is_passed_on => Step::Failed(not_holder()),
            Role::Follower(None) => self.unless_away(nobody()),
            Role::Follower(Some(leader)) => self.follow(seat, &leader, request, body, left).await,
        }
    }

    /// What was not answered may be in a moment; not while nobody can be elected.
    fn unless_away(&self, error: Error) -> Step {
        match self.standing.away() {
            Some(away) => Step::Failed(away),
            None => Step::Again(error),
        }
    }

    /// Passes a request on to one of the engines that this one joined.
    async fn pass_on(
        &self,
        seat: &Seat,
        addresses: &[Address],
        body: &[u8],
        left: Duration,
    ) -> Result<(Vec<u8>, Conn)> {
        let conn = match seat.open_upstream(None) {
            Some(conn) => conn,
            None => {
                let conn = self.dial_any(addresses).await?;
                seat.keep_upstream(None, conn)
            }
        };
        let answer = self.peers.call_within(&conn, Kind::Control, body, &[], left).await?;
        Ok((answer.body, conn))
    }

    /// Passes a request on to the holder of the control service.
    async fn follow(
        &self,
        seat: &Seat,
        leader: &EngineInfo,
        request: &ControlRequest,
        body: &[u8],
        left: Duration,
    ) -> Step {
        let conn = match seat.open_upstream(Some(leader)) {
            Some(conn) => conn,
            None => match self.peers.connect(leader, WireService::Leader).await {
                Ok(conn) => seat.keep_upstream(Some(leader), conn),
                Err(error) => return self.unless_away(error),
            },
        };
        let call = pin!(self.peers.call_within(&conn, Kind::Control, body, &[], left));
        let replaced = pin!(self.is_replaced(leader));
        let error = match select(call, replaced).await {
            Either::Left((Ok(answer), _)) => match is_of_no_holder(&answer.body) {
                false => {
                    seat.note_passed_on(request, &answer.body, (Some(leader), &conn));
                    return Step::Answer(answer.body);
                }
                // It has started again, and does not know who holds it either.
                true => {
                    seat.upstream.replace(None);
                    return self.unless_away(nobody());
                }
            },
            Either::Left((Err(error), _)) => error,
            Either::Right(_) => Error::new(Code::Closed, "another engine has taken over"),
        };
        seat.upstream.replace(None);
        match request.is_repeatable() {
            true => self.unless_away(error),
            false => Step::Failed(not_known(&error)),
        }
    }

    /// Ends when the engine is in another role than such a one.
    pub(crate) async fn until_role_not(&self, is_such: impl Fn(&Role) -> bool) {
        self.standing.until_not(is_such).await;
    }

    /// Ends when another engine than this is known to hold the control service.
    async fn is_replaced(&self, leader: &EngineInfo) {
        let is_held = |role: &Role| matches!(role, Role::Follower(Some(held)) if held == leader);
        self.standing.until_not(is_held).await;
    }
}

/// What the engine that was asked says if it does not hold the control service.
fn not_holder() -> Error {
    Error::new(Code::Stale, "this engine does not hold the control service")
}

/// True of that. The holder answers with the same code where the request is of an older map: that is an answer.
fn is_of_no_holder(body: &[u8]) -> bool {
    body.first() == Some(&TAG_ERR)
        && matches!(wire::decode::<Result<ControlReply>>(body), Ok(Err(error)) if error == not_holder())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine was started again and told under a map that had just been replaced that it had caught up. The engine that it asked passed that on for ten seconds, and the pool was at risk so long.
    #[test]
    fn an_answer_about_a_map_is_the_holders() {
        let told = |error: Error| is_of_no_holder(&wire::encode(&Err::<ControlReply, _>(error)));
        assert!(told(not_holder()));
        assert!(!told(Error::new(Code::Stale, "pool 1 has map 26, not 25 any more")));
        assert!(!is_of_no_holder(&wire::encode(&Ok::<_, Error>(ControlReply::Done))));
    }
}
