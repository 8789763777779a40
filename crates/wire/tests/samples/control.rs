//! Samples of the control service's messages.

use super::{Reply, Visitor};
use std::collections::BTreeMap;
use types::{
    Code, ContId, ContLayout, ContProps, CsumKind, Durability, Epoch, Error, PoolId, Rank, TargetId,
};
use uuid::Uuid;
use wire::control::{
    ContAsk, ContInfo, ControlReply, ControlRequest, EngineState, Evict, JoinInfo, Member,
    MemberState, Name, OpenMode, PoolInfo, SnapInfo, SnapName, Subject, SystemInfo, TargetAim,
    TargetShare,
};
use wire::map::{
    DownReason, EngineInfo, OutTarget, PassedSpare, PlacementSet, PoolMap, TargetInfo, TargetState,
};

fn uuid(nth: u8) -> Uuid {
    Uuid::from_bytes([nth; 16])
}

fn label(text: &str) -> Name {
    Name::Label(text.into())
}

fn engine() -> EngineInfo {
    EngineInfo {
        rank: Rank(2),
        tcp: "10.0.0.3:7500".into(),
        unix: "run/engine.sock".into(),
        host: "boot-id".into(),
        domain: vec!["rack1".into(), "node7".into()],
    }
}

/// A map with a target in every state.
pub fn map() -> PoolMap {
    use TargetState::*;
    let targets = [Up, Down, DownOut, Drain, New].into_iter().zip(4..);
    PoolMap {
        pool: PoolId(5),
        version: 6,
        engines: vec![engine()],
        targets: targets
            .map(|(state, id)| TargetInfo {
                id: TargetId(id),
                rank: Rank(2),
                state,
                since: id / 2,
                reason: (state == Down).then_some(DownReason::Silent),
                left: id / 3,
                incarnation: 7 + u64::from(id),
            })
            .collect(),
        placements: vec![PlacementSet {
            epoch: 1,
            weights: vec![(TargetId(4), 65_536), (TargetId(8), 32_768)],
        }],
        outs: vec![OutTarget { target: TargetId(6), round: 4, epoch: 1, is_drained: false }],
        next: Some(vec![OutTarget { target: TargetId(7), round: 5, epoch: 0, is_drained: true }]),
        balanced: 1,
        next_balanced: 2,
        passed: vec![PassedSpare { round: 4, target: TargetId(4) }],
        next_passed: vec![PassedSpare { round: 5, target: TargetId(4) }],
    }
}

/// A map with targets that are down for every reason.
fn map_of_reasons() -> PoolMap {
    use DownReason::*;
    let target = |(id, reason)| TargetInfo {
        id: TargetId(id),
        rank: Rank(2),
        state: TargetState::Down,
        since: 1,
        reason: Some(reason),
        left: 2,
        incarnation: 3,
    };
    let reasons = [Silent, Stopped, Behind, Lost, Excluded];
    PoolMap { targets: (4..).zip(reasons).map(target).collect(), ..map() }
}

fn props() -> ContProps {
    ContProps {
        layout: ContLayout::Posix,
        oclass: "RP_2G1".parse().expect("a class"),
        dir_oclass: "S1".parse().expect("a class"),
        file_oclass: "EC_4P2GX".parse().expect("a class"),
        chunk_bytes: 1 << 18,
        rd_fac: 1,
        csum: CsumKind::Crc64,
        server_verify: true,
        cell_bytes: 1 << 18,
    }
}

fn pool(durability: Durability) -> PoolInfo {
    PoolInfo {
        id: PoolId(5),
        uuid: uuid(1),
        label: "tank".into(),
        durability,
        placement: types::PlacementRule::Score,
        scm_bytes: 1 << 26,
        nvme_bytes: 1 << 30,
        cont_count: 3,
        handle_count: 4,
        map: map(),
        aims: vec![(TargetId(6), TargetAim::Exclude)],
        is_rebuild_stopped: true,
        balance_wanted: 3,
        is_move_due: true,
    }
}

fn cont() -> ContInfo {
    ContInfo {
        id: ContId(7),
        uuid: uuid(2),
        label: "home".into(),
        props: props(),
        handle_count: 8,
        created_ns: 1_700_000_000_000_000_009,
        placement_epoch: 2,
        opened_ns: 1_700_000_000_000_000_012,
        changed_ns: 1_700_000_000_000_000_013,
        snapshot_count: 2,
        snapshot_last: Epoch(6),
    }
}

fn snap() -> SnapInfo {
    SnapInfo { epoch: Epoch(6), name: "monday".into(), created_ns: 5 }
}

fn target_jobs() -> wire::job::TargetJobs {
    let mut waits_us = types::Histogram::default();
    waits_us.record(7);
    let job = wire::job::JobFigures {
        job: "4711".into(),
        client_count: 2,
        op_count: 3,
        failed_count: 1,
        in_bytes: 4,
        out_bytes: 5,
        time_us: 6,
        waits_us,
        seen_ns: 8,
    };
    let client = wire::job::ClientFigures {
        client: types::ClientId(9),
        job: "4712".into(),
        host: "10.0.0.7".into(),
        pid: 10,
        op_count: 11,
        in_bytes: 12,
        out_bytes: 13,
        wait_us: 14,
        seen_ns: 15,
    };
    wire::job::TargetJobs { jobs: vec![job], clients: vec![client], clients_left_out: 16 }
}

fn event() -> wire::event::Event {
    wire::event::Event {
        number: 19,
        time_ns: 20,
        count: 21,
        code: "target-down".into(),
        engine: Some(Rank(2)),
        target: Some(TargetId(3)),
        pool: Some(PoolId(5)),
        object: "nvme0".into(),
        what: "it is gone".into(),
    }
}

pub fn visit(visitor: &mut impl Visitor) {
    requests(visitor);
    replies(visitor);
}

fn requests(visitor: &mut impl Visitor) {
    use ControlRequest::*;
    let mut request = |name: &str, message| visitor.message(&format!("control.{name}"), message);
    let join =
        |system| JoinInfo { engine: uuid(3), info: engine(), target_count: 4, start: 5, system };
    request("join", Join(join(Some(uuid(8)))));
    request("join_new", Join(join(None)));
    request("system_query", SystemQuery);
    request("engine_query", EngineQuery);
    request(
        "target_measure",
        TargetMeasure { target: TargetId(3), ask: Some(super::obj::measure_ask()) },
    );
    request("engine_stop", EngineStop { with_all: true });
    request("leave", Leave { engine: uuid(3), start: 5, fails_over: true });
    let pool = Name::Label("tank".into());
    request(
        "pool_aim",
        PoolAim { pool: pool.clone(), targets: vec![TargetId(3)], aim: TargetAim::Drain },
    );
    request("pool_extend", PoolExtend { pool: pool.clone(), targets: vec![TargetId(9)] });
    request("pool_rebuild", PoolRebuild { pool: pool.clone(), runs: false });
    request("pool_balance", PoolBalance { pool: pool.clone() });
    request("pool_reweigh", PoolReweigh { pool: pool.clone(), is_trial: true });
    request("pool_reset_target", PoolResetTarget { pool, target: TargetId(3) });
    let why = "a bad fan".to_string();
    request("system_exclude", SystemExclude { rank: Rank(2), why });
    let joined = TargetJoined { pool: PoolId(5), target: TargetId(3), map_version: 7 };
    request("target_joined", joined);
    let caught_up = TargetCaughtUp { pool: PoolId(5), target: TargetId(3), map_version: 7 };
    request("target_caught_up", caught_up);
    let full = TargetFull { pool: PoolId(5), target: TargetId(3), map_version: 7 };
    request("target_full", full);
    let lacks = TargetLacks { pool: PoolId(5), target: TargetId(3), map_version: 7 };
    request("target_lacks", lacks);
    let damaged = TargetDamaged { pool: PoolId(5), target: TargetId(3), map_version: 7 };
    request("target_damaged", damaged);
    let failed = TargetFailed { pool: PoolId(5), target: TargetId(3), map_version: 7 };
    request("target_failed", failed);
    request("system_clear_exclude", SystemClearExclude { rank: Rank(2) });
    request("system_drain", SystemDrain { rank: Rank(2), drains: true });
    request("catalog_copy", CatalogCopy { generation: 9, after: "pool/1".into() });
    for durability in [Durability::Wal, Durability::Relaxed, Durability::Memory] {
        request(
            &format!("pool_create.{durability}"),
            PoolCreate {
                label: "tank".into(),
                bytes: 10 << 30,
                scm_percent: 6,
                durability,
                placement: types::PlacementRule::Capacity,
                targets: vec![TargetId(1), TargetId(2)],
            },
        );
    }
    request("pool_list", PoolList);
    request("pool_query", PoolQuery(Name::Uuid(uuid(4))));
    request("pool_destroy", PoolDestroy { pool: label("tank"), force: true });
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite, OpenMode::Exclusive] {
        let open = PoolOpen { pool: label("tank"), mode };
        request(&format!("pool_open.{}", format!("{mode:?}").to_lowercase()), open);
    }
    request("pool_close", PoolClose { handle: 11 });
    request("pool_map", PoolMap(PoolId(5)));
    request(
        "cont_create",
        ContCreate {
            pool: label("tank"),
            label: "home".into(),
            uuid: uuid(5),
            props: props(),
            attrs: BTreeMap::from([("owner".to_string(), b"alice".to_vec())]),
        },
    );
    request("cont_list", ContList(label("tank")));
    request("cont_query", ContQuery(label("tank"), label("home")));
    request("cont_destroy", ContDestroy { pool: label("tank"), cont: label("home"), force: false });
    for evict in [Evict::Nobody, Evict::User, Evict::All] {
        let mode = OpenMode::ReadWrite;
        let ask = ContAsk { mode, evict, user: 1000, leaves_times: evict == Evict::Nobody };
        request(
            &format!("cont_open.{}", format!("{evict:?}").to_lowercase()),
            ContOpen { pool: label("tank"), cont: label("home"), ask },
        );
    }
    request("cont_close", ContClose { handle: 12 });
    request("alloc_oids", AllocOids { pool: PoolId(5), cont: ContId(7), count: 1000 });
    request(
        "set_props",
        SetProps {
            subject: Subject::Cont(label("tank"), label("home")),
            props: BTreeMap::from([("chunk_bytes".to_string(), "1MiB".to_string())]),
        },
    );
    request(
        "set_attrs",
        SetAttrs {
            subject: Subject::Pool(label("tank")),
            attrs: BTreeMap::from([
                ("a".to_string(), Some(b"1".to_vec())),
                ("b".to_string(), None),
            ]),
        },
    );
    request("get_attrs", GetAttrs { subject: Subject::Pool(label("tank")) });
    request("get_system_attrs", GetAttrs { subject: Subject::System });
    request("get_props", GetProps { subject: Subject::Pool(label("tank")) });
    let (pool, cont) = (label("tank"), label("home"));
    let name = "monday".to_string();
    request("snap_create", SnapCreate { pool: pool.clone(), cont: cont.clone(), name });
    request("snap_list", SnapList(pool.clone(), cont.clone()));
    for (name, snap) in
        [("epoch", SnapName::Epoch(Epoch(6))), ("name", SnapName::Name("monday".into()))]
    {
        let (pool, cont) = (pool.clone(), cont.clone());
        request(&format!("snap_destroy.{name}"), SnapDestroy { pool, cont, snap });
    }
    request("engine_jobs", EngineJobs { target: TargetId(3), with_clients: true });
    request("engine_maps", EngineMaps { known: vec![(PoolId(5), 24), (PoolId(6), 25)] });
    request("engine_refuses", EngineRefuses { tcp: "h1:7710".into() });
    let (targets, known) = (vec![TargetId(3), TargetId(8)], vec![(PoolId(5), 24), (PoolId(6), 25)]);
    request("lead_grant", LeadGrant { targets, known });
    request("engine_events", EngineEvents { after: 17, since_ns: 18 });
    let serve = |aim| PoolAim { pool: label("tank"), targets: Vec::new(), aim };
    request("pool_aim.serve", serve(TargetAim::Serve));
    request("pool_aim.exclude", serve(TargetAim::Exclude));
    for (name, placement) in
        [("equal", types::PlacementRule::Equal), ("score", types::PlacementRule::Score)]
    {
        let (durability, targets) = (Durability::Wal, Vec::new());
        let (label, bytes, scm_percent) = ("tank".into(), 10 << 30, 6);
        let create = PoolCreate { label, bytes, scm_percent, durability, placement, targets };
        request(&format!("pool_create.{name}"), create);
    }
    request("rollback", Rollback { pool, cont, snap: SnapName::Epoch(Epoch(6)), force: true });
}

fn replies(visitor: &mut impl Visitor) {
    use ControlReply::*;
    let mut reply =
        |name: &str, message| visitor.message(&format!("control_reply.{name}"), Reply::Ok(message));
    reply("done", Done);
    let (message_bytes, message_bytes_max) = (4096, 1 << 30);
    reply("engine", Engine(EngineState { message_bytes, message_bytes_max, is_exposed: true }));
    let measures = Some(super::obj::measures());
    reply(
        "standing",
        Standing(wire::measure::Standing {
            free_bytes: 16,
            measures,
            used_bytes: 17,
            network: Some(super::obj::network()),
            clients: None,
        }),
    );
    let shares = vec![TargetShare { target: TargetId(8), now: 65_536, then: 19 }];
    reply("reweighed", Reweighed(wire::control::Reweighed { is_news: true, shares }));
    reply("maps", Maps(vec![map()]));
    reply("refused", Refused(true));
    reply("granted", Granted(vec![PoolId(5), PoolId(300)]));
    reply("jobs", Jobs(target_jobs()));
    reply("events", Events(wire::event::Events { events: vec![event()], newest: 23 }));
    reply("joined", Joined { rank: Rank(2), targets: vec![TargetId(8)], system: uuid(6) });
    let joining = Member {
        rank: Rank(3),
        state: MemberState::Joining,
        why: "started".into(),
        since: 6,
        changed_ns: 10,
        drains: false,
    };
    reply(
        "system.joining",
        System(SystemInfo {
            uuid: uuid(7),
            version: "0.2.0".into(),
            engines: Vec::new(),
            members: vec![joining],
            members_version: 7,
            pool_count: 2,
            leader: None,
        }),
    );
    reply(
        "system",
        System(SystemInfo {
            uuid: uuid(6),
            version: "0.1.0".into(),
            engines: vec![(engine(), vec![TargetId(8), TargetId(9)], true)],
            members: vec![Member {
                rank: Rank(2),
                state: MemberState::Down,
                why: "no answer".into(),
                since: 4,
                changed_ns: 9,
                drains: true,
            }],
            members_version: 5,
            pool_count: 1,
            leader: Some(Rank(2)),
        }),
    );
    let states = [
        MemberState::Up,
        MemberState::Down,
        MemberState::Stopped,
        MemberState::Excluded,
        MemberState::Joining,
    ];
    let member = |(rank, state)| {
        let why = String::new();
        Member { rank: Rank(rank), state, why, since: 4, changed_ns: 9, drains: false }
    };
    reply(
        "system.states",
        System(SystemInfo {
            uuid: uuid(6),
            version: "0.1.0".into(),
            engines: Vec::new(),
            members: (1..).zip(states).map(member).collect(),
            members_version: 5,
            pool_count: 1,
            leader: None,
        }),
    );
    reply("pool", Pool(pool(Durability::Wal)));
    reply("pools", Pools(vec![pool(Durability::Relaxed), pool(Durability::Memory)]));
    reply("pool_opened", PoolOpened { handle: 13, pool: pool(Durability::Wal) });
    reply("map", Map(map()));
    reply("map.reasons", Map(map_of_reasons()));
    let entries = vec![("pool/1".to_string(), b"{}".to_vec())];
    reply("catalog_copy", CatalogCopy { generation: 9, entries, is_complete: true });
    reply("cont", Cont(cont()));
    let plain = ContProps { layout: ContLayout::Plain, ..props() };
    reply("cont.plain", Cont(ContInfo { props: plain, ..cont() }));
    reply("conts", Conts(vec![cont()]));
    reply("cont_opened", ContOpened { handle: 14, pool: PoolId(5), cont: cont() });
    reply("oids", Oids(15));
    reply("attrs", Attrs(BTreeMap::from([("a".to_string(), b"1".to_vec())])));
    let props = [("ioc_max_writers".to_string(), "4".to_string())];
    reply("props", Props(props.into()));
    reply("snap", Snap(snap()));
    reply("snaps", Snaps { snaps: vec![snap()], rolling_back: Some(Epoch(6)) });
    for code in [Code::NonExist, Code::Busy, Code::NoMem] {
        let error = Reply::<ControlReply>::Err(Error::new(code, "what to do"));
        visitor.message(&format!("control_reply.error.{}", code as u16), error);
    }
}
