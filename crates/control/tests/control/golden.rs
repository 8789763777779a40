//! Bytes of everything durable. A change here is a change of format: bump the version of
//! the records and keep reading the old ones.

use crate::fake::System;
use control::{
    AdmissionDf, BalanceDf, CacheDf, Catalog, ContDf, ContPropsDf, EngineDf, MemberDf, OidsDf,
    OutDf, PassedDf, PlacementDf, PoolDf, RollbackDf, RollbackStageDf, ScrubDf, SnapDf, SnapsDf,
    StageDf, SystemDf, TargetDf, TimesDf,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use types::{
    Code, ContId, ContLayout, CsumKind, Durability, Epoch, ObjClass, PlacementRule, PoolId, Rank,
    TargetId,
};
use uuid::Uuid;
use wire::control::ControlRequest;
use wire::control::{MemberState, TargetAim};
use wire::map::{DownReason, TargetState};

#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(record: T, golden: &str) {
    assert_eq!(serde_json::to_string(&record).unwrap(), golden);
    assert_eq!(serde_json::from_str::<T>(golden).unwrap(), record);
}

#[test]
fn records_are_frozen() {
    let uuid = Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8);
    check(
        SystemDf {
            version: 1,
            uuid,
            pool_next: 2,
            target_next: 16,
            rank_next: 3,
            members_version: 4,
        },
        r#"{"version":1,"uuid":"67e55044-10b1-426f-9247-bb680e5fe0c8","pool_next":2,"target_next":16,"rank_next":3,"members_version":4}"#,
    );
    check(
        EngineDf {
            version: 1,
            rank: Rank(1),
            tcp: "h:1".into(),
            unix: "/s".into(),
            host: "b".into(),
            domain: vec!["r".into(), "n".into()],
            targets: vec![TargetId(4), TargetId(5)],
            member: MemberDf {
                state: MemberState::Excluded,
                why: "w".into(),
                since: 3,
                changed_ns: 9,
                drains: false,
            },
        },
        r#"{"version":1,"rank":1,"tcp":"h:1","unix":"/s","host":"b","domain":["r","n"],"targets":[4,5],"member":{"state":"excluded","why":"w","since":3,"changed_ns":9}}"#,
    );
    check(
        MemberDf { drains: true, ..MemberDf::default() },
        r#"{"state":"up","why":"","since":0,"changed_ns":0,"drains":true}"#,
    );
    let target = |id, state| TargetDf {
        id: TargetId(id),
        rank: Rank(0),
        state,
        since: id,
        reason: (state == TargetState::Down).then_some(DownReason::Lost),
        left: 2 * id,
        moved: None,
        incarnation: 5,
        joined: 4,
        aim: TargetAim::Serve,
    };
    check(
        PoolDf {
            version: 1,
            id: PoolId(1),
            uuid,
            label: "tank".into(),
            stage: StageDf::Ready,
            durability: Durability::Relaxed,
            placement: PlacementRule::Score,
            shard_scm_bytes: 4096,
            shard_nvme_bytes: 8192,
            cont_next: 3,
            map_version: 7,
            targets: vec![
                target(0, TargetState::Up),
                target(1, TargetState::Down),
                target(2, TargetState::DownOut),
                target(3, TargetState::Drain),
                target(4, TargetState::New),
            ],
            placements: vec![PlacementDf { epoch: 0, weights: vec![(TargetId(0), 65_536)] }],
            outs: vec![OutDf { target: TargetId(1), round: 3, epoch: 0, is_drained: false }],
            is_rebuild_stopped: true,
            next: Some(vec![OutDf { target: TargetId(2), round: 5, epoch: 1, is_drained: true }]),
            passed: vec![PassedDf { round: 3, target: TargetId(5) }],
            next_passed: vec![PassedDf { round: 5, target: TargetId(6) }],
            tries_spares_again: true,
            balanced: 2,
            next_balanced: 3,
            balance_wanted: 4,
            balance: BalanceDf {
                is_auto: true,
                threshold_percent: 16,
                interval_s: 601,
                drain_slow_after_s: 602,
                is_stopped: false,
            },
            scrub: ScrubDf { revision: 3, rate: 4096, heal_share: 31 },
            cache: CacheDf { revision: 4, bytes_max: 8192, object_bytes_max: 2048 },
        },
        r#"{"version":1,"id":1,"uuid":"67e55044-10b1-426f-9247-bb680e5fe0c8","label":"tank","stage":"ready","durability":"relaxed","placement":"score","shard_scm_bytes":4096,"shard_nvme_bytes":8192,"cont_next":3,"map_version":7,"targets":[{"id":0,"rank":0,"state":"up","since":0,"reason":null,"left":0,"incarnation":5,"joined":4,"aim":"serve"},{"id":1,"rank":0,"state":"down","since":1,"reason":"lost","left":2,"incarnation":5,"joined":4,"aim":"serve"},{"id":2,"rank":0,"state":"downout","since":2,"reason":null,"left":4,"incarnation":5,"joined":4,"aim":"serve"},{"id":3,"rank":0,"state":"drain","since":3,"reason":null,"left":6,"incarnation":5,"joined":4,"aim":"serve"},{"id":4,"rank":0,"state":"new","since":4,"reason":null,"left":8,"incarnation":5,"joined":4,"aim":"serve"}],"placements":[{"epoch":0,"weights":[[0,65536]]}],"outs":[{"target":1,"round":3,"epoch":0,"is_drained":false}],"is_rebuild_stopped":true,"next":[{"target":2,"round":5,"epoch":1,"is_drained":true}],"passed":[{"round":3,"target":5}],"next_passed":[{"round":5,"target":6}],"tries_spares_again":true,"balanced":2,"next_balanced":3,"balance_wanted":4,"balance":{"is_auto":true,"threshold_percent":16,"interval_s":601,"drain_slow_after_s":602},"scrub":{"revision":3,"rate":4096,"heal_share":31},"cache":{"revision":4,"bytes_max":8192,"object_bytes_max":2048}}"#,
    );
    check(
        ContDf {
            version: 1,
            id: ContId(2),
            uuid,
            label: "home".into(),
            stage: StageDf::Creating,
            props: ContPropsDf {
                layout: ContLayout::Posix,
                oclass: ObjClass::S1,
                dir_oclass: ObjClass::SX,
                file_oclass: "RP_2G4".parse().unwrap(),
                chunk_bytes: 1 << 20,
                rd_fac: 0,
                csum: CsumKind::Crc64,
                server_verify: true,
                cell_bytes: 1 << 18,
            },
            created_ns: u64::MAX,
            placement_epoch: 3,
        },
        r#"{"version":1,"id":2,"uuid":"67e55044-10b1-426f-9247-bb680e5fe0c8","label":"home","stage":"creating","props":{"layout":"posix","oclass":"S1","dir_oclass":"SX","file_oclass":"RP_2G4","chunk_bytes":1048576,"rd_fac":0,"csum":"crc64","server_verify":true,"cell_bytes":262144},"created_ns":18446744073709551615,"placement_epoch":3}"#,
    );
    check(
        AdmissionDf {
            version: 1,
            revision: 9,
            max_writers: "4".into(),
            max_readers: "auto".into(),
            weights: "a:2".into(),
        },
        r#"{"version":1,"revision":9,"max_writers":"4","max_readers":"auto","weights":"a:2"}"#,
    );
    check(
        TimesDf { version: 1, opened_ns: 5, changed_ns: 6 },
        r#"{"version":1,"opened_ns":5,"changed_ns":6}"#,
    );
    let rolling = |stage, epoch| Some(RollbackDf { to: Epoch(6), stage, epoch });
    for (rollback, text) in [
        (None, "null"),
        (rolling(RollbackStageDf::Freezing, None), r#"{"to":6,"stage":"freezing"}"#),
        (rolling(RollbackStageDf::Rolling, None), r#"{"to":6,"stage":"rolling"}"#),
        (
            rolling(RollbackStageDf::Rolling, Some(Epoch(9))),
            r#"{"to":6,"stage":"rolling","epoch":9}"#,
        ),
    ] {
        let snap = SnapDf { epoch: Epoch(6), name: "monday".into(), created_ns: 5 };
        let snapshots = vec![snap];
        let begin = r#"{"version":1,"revision":9,"snapshots":[{"epoch":6,"name":"monday","created_ns":5}],"making":true,"rollback":"#;
        check(
            SnapsDf { version: 1, revision: 9, snapshots, making: true, rollback },
            &format!("{begin}{text}}}"),
        );
    }
    check(OidsDf { version: 1, next: u64::MAX }, r#"{"version":1,"next":18446744073709551615}"#);
    assert_eq!(serde_json::to_string(&StageDf::Destroying).unwrap(), r#""destroying""#);
}

#[test]
fn keys_are_frozen() {
    let system = System::new(1);
    let pool = system.pool("tank");
    let cont = system.cont("tank", "home");
    let attrs = [("a/b".to_string(), Some(vec![1, 2]))];
    let subject = wire::control::Subject::Pool(crate::fake::label("tank"));
    system.run(ControlRequest::SetAttrs { subject, attrs: attrs.clone().into() }).unwrap();
    let subject =
        wire::control::Subject::Cont(crate::fake::label("tank"), crate::fake::label("home"));
    system.run(ControlRequest::SetAttrs { subject, attrs: attrs.into() }).unwrap();
    let entries = futures_executor::block_on(system.catalog.list("")).unwrap();
    let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
    let expected = [
        "attr/cont/00000001/0000000000000001/a/b".to_string(),
        "attr/pool/00000001/a/b".to_string(),
        "cont-label/00000001/home".to_string(),
        format!("cont-uuid/00000001/{}", cont.uuid),
        "cont/00000001/0000000000000001".to_string(),
        "engine/00000000-0000-0000-0000-0000000003e8".to_string(),
        "oids/00000001/0000000000000001".to_string(),
        "pool-label/tank".to_string(),
        format!("pool-uuid/{}", pool.uuid),
        "pool/00000001".to_string(),
        "system".to_string(),
    ];
    assert_eq!(keys, expected);
    assert_eq!(entries[0].1.bytes, [1, 2]);
    assert_eq!(entries[2].1.bytes, b"1");
}

#[test]
fn records_of_a_newer_version_are_refused_and_corrupt_ones_named() {
    for (bytes, code, words) in [
        (&br#"{"version":3,"uuid":17}"#[..], Code::Version, "layout 3"),
        (br#"{"version":1}"#, Code::Io, "'system' is corrupt"),
        (b"\xff", Code::Io, "'system' is corrupt"),
    ] {
        let system = System::empty(None);
        let change = control::Change::Put("system".into(), bytes.to_vec());
        assert!(futures_executor::block_on(system.catalog.commit(&[], &[change])).unwrap());
        assert_eq!(system.fails(ControlRequest::SystemQuery, words), code);
    }
}

/// A pool of a catalog written before targets had incarnations: they are learnt at the next start.
#[test]
fn a_pool_without_incarnations_is_understood() {
    let text = r#"{"version":1,"id":1,"uuid":"67e55044-10b1-426f-9247-bb680e5fe0c8","label":"tank","stage":"ready","durability":"wal","shard_scm_bytes":4096,"shard_nvme_bytes":8192,"cont_next":3,"map_version":7,"targets":[{"id":0,"rank":0,"state":"up"}],"placements":[]}"#;
    let pool: PoolDf = serde_json::from_str(text).unwrap();
    assert_eq!(pool.targets[0].incarnation, 0);
}
