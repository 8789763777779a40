//! What members of groups hold: compared with each other, from outside.

use client::{Client, Container};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Error, Oid, Result, TargetId, Unit};
use wire::control::{Name, OpenMode};
use wire::map::{PoolMap, TargetState};
use wire::member::{MemberAsk, MemberRequest};
use wire::obj::Request;

/// Pause between two looks at a map.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Times that members are compared again because the map has changed meanwhile.
const STALE_TRIES_MAX: u32 = 20;

/// The newest map of the pool `p`.
pub async fn newest_map(client: &Client) -> Result<Rc<PoolMap>> {
    newest_map_of(client, &Name::Label("p".into())).await
}

/// The newest map of a pool.
pub async fn newest_map_of(client: &Client, pool: &Name) -> Result<Rc<PoolMap>> {
    Ok(client.pool_open(pool, OpenMode::ReadWrite).await?.map())
}

/// The answer of a target to one request of somebody who is not known to it, but knows the secret that `client` knows.
pub async fn ask(
    client: &Client,
    map: &PoolMap,
    target: TargetId,
    request: &Request<'_>,
) -> Result<Vec<u8>> {
    ask_with_bulk(client, map, target, request, &[]).await
}

/// The same with bulk.
pub async fn ask_with_bulk(
    client: &Client,
    map: &PoolMap,
    target: TargetId,
    request: &Request<'_>,
    bulk: &[&[u8]],
) -> Result<Vec<u8>> {
    ask_flagged(client, map, target, request, bulk, (0, 0)).await
}

/// The answer of a target to a request of somebody who has this map, and asks it for what it follows.
pub async fn ask_as_member(
    client: &Client,
    map: &PoolMap,
    target: TargetId,
    request: &Request<'_>,
) -> Result<Vec<u8>> {
    let by = (wire::header::FLAG_MEMBER, map.version);
    ask_flagged(client, map, target, request, &[], by).await
}

async fn ask_flagged(
    client: &Client,
    map: &PoolMap,
    target: TargetId,
    request: &Request<'_>,
    bulk: &[&[u8]],
    (flags, map_version): (u8, u32),
) -> Result<Vec<u8>> {
    let engine = map.engine_of(target);
    let engine =
        engine.ok_or_else(|| Error::inval(format!("target {target} is not in the map")))?;
    let address = match engine.tcp.strip_prefix("sim:") {
        Some(name) => transport::Address::Sim(name.to_string()),
        None => transport::Address::Tcp(engine.tcp.clone()),
    };
    let dial = transport::Dial {
        client: types::ClientId(client.env().random_u64()),
        service: wire::hello::Service::Target(target),
        token: &client.options().system.token,
        job: "",
        timeout: Duration::from_secs(600),
    };
    let conn = transport::connect(client.env(), &address, &dial).await?;
    let call = transport::Call {
        kind: wire::Kind::Request,
        request_id: 1,
        flags,
        map_version,
        deadline: Duration::from_secs(600),
        body: &wire::encode(request),
        bulk_out: bulk,
        bulk_in: &mut [],
    };
    Ok(conn.call(call).await?.body)
}

/// The digest of what a target holds of a unit.
async fn digest(
    client: &Client,
    map: &PoolMap,
    target: TargetId,
    cont: ContId,
    unit: Unit,
) -> Result<u64> {
    let ask_for = MemberAsk::Digest { cont, unit };
    let (pool, map_version) = (map.pool, map.version);
    let (member, newest) = (target, types::Epoch::ZERO);
    let asked = MemberRequest { pool, map_version, member, newest, ask: ask_for };
    let answer = ask(client, map, target, &Request::Member(asked)).await?;
    wire::decode::<Result<u64>>(&answer)?
}

/// What is wrong when the members of some group of an object do not all hold the same.
pub async fn difference(client: &Client, cont: &Container, oid: Oid) -> Result<Option<String>> {
    let mut tries = 0;
    loop {
        match difference_now(client, cont, oid).await {
            // The map changes where an engine was away and nobody had noticed it before.
            Err(error) if error.code == Code::Stale && tries < STALE_TRIES_MAX => tries += 1,
            outcome => return outcome,
        }
        client.env().sleep(LOOK_PAUSE).await;
    }
}

async fn difference_now(client: &Client, cont: &Container, oid: Oid) -> Result<Option<String>> {
    let map = newest_map_of(client, &cont.pool().name()).await?;
    let layout = placement::layout(oid, &map)?;
    for group in 0..layout.group_count() {
        let unit = oid.unit(group as u32);
        let mut digests = Vec::new();
        for target in layout.members(group) {
            digests.push((*target, digest(client, &map, *target, cont.id(), unit).await?));
        }
        if digests.windows(2).any(|two| two[0].1 != two[1].1) {
            return Ok(Some(format!("members of unit {unit} differ: {digests:x?}")));
        }
    }
    Ok(None)
}

/// True when two targets hold the same of the first group of an object.
pub async fn are_same(
    client: &Client,
    map: &PoolMap,
    cont: &Container,
    oid: Oid,
    [one, other]: [TargetId; 2],
) -> Result<bool> {
    let unit = oid.unit(0);
    let one = digest(client, map, one, cont.id(), unit).await?;
    Ok(one == digest(client, map, other, cont.id(), unit).await?)
}

/// What is wrong when a target holds something of an object that it is no member of.
pub async fn leftover(client: &Client, cont: &Container, oid: Oid) -> Result<Option<String>> {
    let map = newest_map_of(client, &cont.pool().name()).await?;
    let layout = placement::layout(oid, &map)?;
    // The digest of nothing: no object has this number.
    let none = Oid { lo: u64::MAX, ..oid };
    for group in 0..layout.group_count() {
        let others = map.targets.iter().map(|target| target.id);
        for target in others.filter(|target| !layout.everyone(group).contains(target)) {
            let of = async |oid: Oid| {
                digest(client, &map, target, cont.id(), oid.unit(group as u32)).await
            };
            if of(oid).await? != of(none).await? {
                let unit = oid.unit(group as u32);
                return Ok(Some(format!("target {target} holds something of unit {unit}")));
            }
        }
    }
    Ok(None)
}

/// Waits until the map of the pool is as wanted; what it is, after two minutes of the world's clock.
pub async fn await_map(
    client: &Client,
    is_wanted: impl Fn(&PoolMap) -> bool,
) -> Result<Option<String>> {
    for _ in 0..600 {
        if is_wanted(&*newest_map(client).await?) {
            return Ok(None);
        }
        client.env().sleep(LOOK_PAUSE).await;
    }
    let map = newest_map(client).await?;
    let (targets, outs, next) = (&map.targets, &map.outs, &map.next);
    Ok(Some(format!("not so after two minutes: {targets:?}, out: {outs:?}, next: {next:?}")))
}

/// Waits until all targets of the pool are whole and in their places; what is not, after two minutes of the world's clock.
pub async fn await_whole(client: &Client) -> Result<Option<String>> {
    let is_whole = |map: &PoolMap| {
        map.targets.iter().all(|target| target.state == TargetState::Up)
            && map.outs.is_empty()
            && map.next.is_none()
    };
    await_map(client, is_whole).await
}
