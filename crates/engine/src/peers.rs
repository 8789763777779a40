//! Connections from one target (or the control thread) to other targets and engines.

use crate::link_speed::Links;
use env::Env;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared, WeakShared};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use transport::{Address, Answer, Call, Conn, Dial};
use types::map::HashMap;
use types::{ClientId, Code, Error, Result, TargetId};
use wire::Kind;
use wire::hello::Service;
use wire::map::{EngineInfo, PoolMap};

/// How long one engine waits for another before it reports the other as unreachable.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a machine may take to say that nobody listens there, or that somebody does.
const HEARD_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a connection attempt may take.
const DIAL_TIME_MAX: Duration = Duration::from_secs(3);

async fn dial(
    env: &Env,
    client: ClientId,
    token: &[u8],
    address: &Address,
    service: Service,
) -> Result<Conn> {
    let dial = Dial { client, service, token, job: "", timeout: DIAL_TIME_MAX };
    transport::connect(env, address, &dial).await
}

/// An attempt to connect. All who wait for it have what comes of it.
type Dialing = Shared<LocalBoxFuture<'static, Result<Conn>>>;

/// Connections to other targets, opened when first used.
pub struct Peers {
    env: Env,
    /// Our name as a caller.
    pub id: ClientId,
    host: String,
    token: Vec<u8>,
    conns: RefCell<HashMap<Service, Conn>>,
    /// One dial of a service at a time: a target ends our connection when another comes. One that nobody waits for any more is gone.
    dialing: RefCell<HashMap<Service, WeakShared<LocalBoxFuture<'static, Result<Conn>>>>>,
    next_request: Cell<u64>,
    /// How fast others are reached, where that is looked after.
    links: Option<Rc<Links>>,
}

impl Peers {
    /// A caller on host `host` that shows `token`.
    pub fn new(env: Env, host: String, token: Vec<u8>) -> Peers {
        let id = ClientId(env.random_u64());
        Peers {
            env,
            id,
            host,
            token,
            conns: RefCell::new(HashMap::default()),
            dialing: RefCell::new(HashMap::default()),
            next_request: Cell::new(1),
            links: None,
        }
    }

    /// The same, which tells how fast links are by what goes over them.
    pub fn watching(self, links: &Rc<Links>) -> Peers {
        Peers { links: Some(links.clone()), ..self }
    }

    /// Notes a transfer that began then and is over now.
    fn note(&self, engine: &EngineInfo, bytes: u64, begun: Duration) {
        if let Some(links) = &self.links {
            let taken = self.env.now().saturating_sub(begun);
            links.note(engine.rank, bytes, taken, self.env.wall_ns());
        }
    }

    /// The addresses worth trying for an engine, best first.
    fn addresses(&self, engine: &EngineInfo) -> Vec<Address> {
        if let Some(name) = engine.tcp.strip_prefix("sim:") {
            return vec![Address::Sim(name.to_string())];
        }
        let tcp = Address::Tcp(engine.tcp.clone());
        let is_usable = !engine.unix.is_empty();
        if is_usable && env::is_here(&engine.host, &self.host, Path::new(&engine.unix)) {
            vec![Address::Unix(engine.unix.clone().into()), tcp]
        } else {
            vec![tcp]
        }
    }

    async fn conn(&self, engine: &EngineInfo, service: Service) -> Result<Conn> {
        let known = || self.conns.borrow().get(&service).filter(|conn| !conn.is_broken()).cloned();
        if let Some(conn) = known() {
            return Ok(conn);
        }
        // Who comes while one is under way dials no other one: of many who dialed a silent engine one after the other some never had their turn.
        let under_way = self.dialing.borrow().get(&service).and_then(WeakShared::upgrade);
        let dialing = match under_way.filter(|dialing| dialing.peek().is_none()) {
            Some(dialing) => dialing,
            None => self.begin_to_dial(engine, service),
        };
        let dialed = dialing.await;
        if let Ok(conn) = &dialed {
            // Not over a later one.
            if known().is_none() {
                self.conns.borrow_mut().insert(service, conn.clone());
            }
        }
        dialed
    }

    fn begin_to_dial(&self, engine: &EngineInfo, service: Service) -> Dialing {
        let (env, client, token) = (self.env.clone(), self.id, self.token.clone());
        let (addresses, rank, tcp) = (self.addresses(engine), engine.rank, engine.tcp.clone());
        let dialing = async move {
            let mut last = Error::bare(Code::Unreach);
            for address in addresses {
                match dial(&env, client, &token, &address, service).await {
                    Ok(conn) => return Ok(conn),
                    Err(error) => last = error,
                }
            }
            let text = format!("engine {rank} at {tcp} cannot be reached: {last}");
            Err(Error::new(Code::Unreach, text))
        };
        let dialing = dialing.boxed_local().shared();
        self.dialing.borrow_mut().extend(dialing.downgrade().map(|weak| (service, weak)));
        dialing
    }

    /// Ends the connection to a target that is lost; who waits for an answer on it has none. A link that was cut, and is whole again, would otherwise be tried by
    /// the kernel for this connection when its next pause ends, seconds later, and all orders would wait for that.
    pub fn hang_up(&self, target: TargetId) {
        if let Some(conn) = self.conns.borrow_mut().remove(&Service::Target(target)) {
            conn.close();
        }
    }

    /// Connects to a service at an address.
    pub async fn dial(&self, address: &Address, service: Service) -> Result<Conn> {
        dial(&self.env, self.id, &self.token, address, service).await
    }

    /// A connection of its own to a service of an engine.
    pub async fn connect(&self, engine: &EngineInfo, service: Service) -> Result<Conn> {
        let mut last = Error::bare(Code::Unreach);
        for address in self.addresses(engine) {
            match self.dial(&address, service).await {
                Ok(conn) => return Ok(conn),
                Err(error) => last = error,
            }
        }
        Err(Error::new(
            Code::Unreach,
            format!("the engine at {} cannot be reached: {last}", engine.tcp),
        ))
    }

    /// Connections of their own to a service of whoever answers at an engine's addresses.
    pub async fn connect_all(&self, engine: &EngineInfo, service: Service) -> Vec<Conn> {
        let mut all = Vec::new();
        for address in self.addresses(engine) {
            all.extend(self.dial(&address, service).await.ok());
        }
        all
    }

    /// Sends a request to a target and waits for its answer. One try.
    pub async fn ask(
        &self,
        engine: &EngineInfo,
        target: TargetId,
        body: &[u8],
        bulk_out: &[&[u8]],
    ) -> Result<Answer> {
        self.ask_flagged(0, engine, target, body, bulk_out).await
    }

    /// The same with flags of [`wire::header`].
    pub async fn ask_flagged(
        &self,
        flags: u8,
        engine: &EngineInfo,
        target: TargetId,
        body: &[u8],
        bulk_out: &[&[u8]],
    ) -> Result<Answer> {
        self.ask_under(0, flags, engine, target, body, bulk_out).await
    }

    async fn ask_under(
        &self,
        map_version: u32,
        flags: u8,
        engine: &EngineInfo,
        target: TargetId,
        body: &[u8],
        bulk_out: &[&[u8]],
    ) -> Result<Answer> {
        let conn = self.conn(engine, Service::Target(target)).await?;
        let begun = self.env.now();
        let call = self.new_call(Kind::Request, body, bulk_out, ANSWER_TIME_MAX);
        let answer = conn.call(Call { map_version, flags, ..call }).await?;
        self.note(engine, bulk_out.iter().map(|part| part.len() as u64).sum(), begun);
        Ok(answer)
    }

    /// The same of something that a pool map has led to: who has a newer one refuses it.
    pub async fn ask_by(
        &self,
        map: &PoolMap,
        engine: &EngineInfo,
        target: TargetId,
        body: &[u8],
        bulk_out: &[&[u8]],
    ) -> Result<Answer> {
        self.ask_under(map.version, 0, engine, target, body, bulk_out).await
    }

    /// The same without bulk, with a limit to all of it.
    pub async fn ask_within(
        &self,
        engine: &EngineInfo,
        target: TargetId,
        body: &[u8],
        limit: Duration,
    ) -> Result<Answer> {
        let until = self.env.now() + limit;
        let late = || {
            Error::new(Code::TimedOut, format!("target {target} cannot be reached in {limit:?}"))
        };
        let dialed = self.env.timeout(limit, self.conn(engine, Service::Target(target))).await;
        let conn = dialed.ok_or_else(late)??;
        let left = until.saturating_sub(self.env.now());
        self.call_within(&conn, Kind::Request, body, &[], left).await
    }

    /// The same, with room for the bulk of the answer.
    pub async fn ask_with_bulk(
        &self,
        engine: &EngineInfo,
        target: TargetId,
        body: &[u8],
        bulk_out: &[&[u8]],
        bulk_in: &mut [&mut [u8]],
    ) -> Result<Answer> {
        let conn = self.conn(engine, Service::Target(target)).await?;
        let call = self.new_call(Kind::Request, body, bulk_out, ANSWER_TIME_MAX);
        let begun = self.env.now();
        let answer = conn.call(Call { bulk_in, ..call }).await?;
        let sent: usize = bulk_out.iter().map(|part| part.len()).sum();
        self.note(engine, (sent + answer.bulk_bytes) as u64, begun);
        Ok(answer)
    }

    /// Which start of an engine answers within this time; `None` when none does.
    pub async fn ping(&self, engine: &EngineInfo, limit: Duration) -> Option<u64> {
        let answers = async {
            for address in self.addresses(engine) {
                if let Some(start) = self.start_of(&address).await {
                    return Some(start);
                }
            }
            None
        };
        self.env.timeout(limit, answers).await?
    }

    /// The same at a TCP address.
    pub async fn ping_at(&self, tcp: &str) -> Option<u64> {
        self.start_of(&Address::Tcp(tcp.to_string())).await
    }

    /// True when the machine of an engine can be heard, whether or not the engine answers there.
    pub async fn hears(&self, engine: &EngineInfo) -> bool {
        for address in self.addresses(engine) {
            if transport::is_heard(&self.env, &address, HEARD_TIME_MAX).await {
                return true;
            }
        }
        false
    }

    /// True when the machine at an engine's address says that nobody listens there.
    pub async fn is_refused_at(&self, tcp: &str) -> bool {
        let address = match tcp.strip_prefix("sim:") {
            Some(name) => Address::Sim(name.to_string()),
            None => Address::Tcp(tcp.to_string()),
        };
        transport::is_refused(&self.env, &address, HEARD_TIME_MAX).await
    }

    async fn start_of(&self, address: &Address) -> Option<u64> {
        let conn = self.dial(address, Service::Control).await.ok()?;
        let start = conn.hello().incarnation;
        conn.close();
        Some(start)
    }

    /// Sends one message on a connection and waits for the answer.
    pub async fn call(
        &self,
        conn: &Conn,
        kind: Kind,
        body: &[u8],
        bulk_out: &[&[u8]],
    ) -> Result<Answer> {
        self.call_within(conn, kind, body, bulk_out, ANSWER_TIME_MAX).await
    }

    /// The same, with a limit to how long it waits.
    pub async fn call_within(
        &self,
        conn: &Conn,
        kind: Kind,
        body: &[u8],
        bulk_out: &[&[u8]],
        limit: Duration,
    ) -> Result<Answer> {
        conn.call(self.new_call(kind, body, bulk_out, limit)).await
    }

    fn new_call<'a>(
        &self,
        kind: Kind,
        body: &'a [u8],
        bulk_out: &'a [&'a [u8]],
        limit: Duration,
    ) -> Call<'a, 'a> {
        let request_id = self.next_request.get();
        self.next_request.set(request_id + 1);
        Call {
            kind,
            request_id,
            flags: 0,
            map_version: 0,
            deadline: limit,
            body,
            bulk_out,
            bulk_in: &mut [],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimWorld;
    use transport::Acceptor;
    use types::Rank;

    /// Each of those who waited dialed anew when the one before had failed, and the lock that they waited for is given to nobody in order: an engine that was
    /// stopped waited for ever for the turn of what it had to tell a silent one, while others dialed that without end.
    #[test]
    fn who_waits_for_a_dial_has_what_comes_of_it() {
        let world = SimWorld::new(1);
        let (env, silent) = (world.node("a"), world.node("b"));
        world.block_on(async {
            // Takes connections, and says nothing.
            let acceptor = Acceptor::bind(&silent, None, None).await.unwrap();
            silent.spawn(async move {
                let mut held = Vec::new();
                while let Ok(incomer) = acceptor.accept().await {
                    held.push(incomer);
                }
            });
            let engine = EngineInfo {
                rank: Rank(1),
                tcp: "sim:b".into(),
                unix: String::new(),
                host: String::new(),
                domain: Vec::new(),
            };
            let peers = Rc::new(Peers::new(env.clone(), "a".into(), Vec::new()));
            let service = Service::Target(TargetId(1));
            for _ in 0..3 {
                let (peers, engine) = (peers.clone(), engine.clone());
                env.spawn(async move { while peers.conn(&engine, service).await.is_err() {} });
            }
            for _ in 0..10 {
                // The others are first.
                env.sleep(Duration::from_millis(1)).await;
                let one = peers.conn(&engine, service);
                let told = env.timeout(2 * DIAL_TIME_MAX, one).await.map(|told| told.map(|_| ()));
                let error = told.expect("it never had its turn").unwrap_err();
                assert!(error.text.contains("no answer within 3s"), "{error}");
            }
        });
        world.clear();
    }
}
