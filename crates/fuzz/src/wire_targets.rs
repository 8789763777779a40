//! Targets for frames, messages and links.

use crate::corpus;
use crate::target::Target;
use types::Error;
use wire::admission::AdmissionStat;
use wire::cache::CacheStat;
use wire::control::{ControlReply, ControlRequest};
use wire::hello::{Challenge, Hello, HelloReply, ProvenHello, RemoteRange};
use wire::link::{LINK_BYTES, Link};
use wire::lock::LockReply;
use wire::map::PoolMap;
use wire::obj::{
    AdminReply, Batch, BatchReply, Notice, ObjectList, OpReply, PoolShardStat, Prepared, Request,
    TxOutcome, TxReply,
};
use wire::scrub::ScrubStat;
use wire::stale::NewerMap;
use wire::store::{PageWait, StoreStat};
use wire::{HEADER_BYTES, Header};

/// A list element that takes one byte on the wire may take this many in memory, twice over
/// while a list grows.
const LIST_AMPLIFICATION: usize = 2 * std::mem::size_of::<OpReply<'static>>();

macro_rules! messages {
    ($($tag:ident = $name:literal: $message:ty, $($prefix:literal),+;)+) => {
        $(
            struct $tag;
            impl $tag {
                /// A decoded message must survive a round trip unchanged.
                fn check(bytes: &[u8]) {
                    let Ok(first) = wire::decode::<$message>(bytes) else { return };
                    let encoded = wire::encode(&first);
                    let second = wire::decode::<$message>(&encoded)
                        .expect("what was encoded here decodes here");
                    assert_eq!(first, second, "a message changed on its way");
                    assert_eq!(encoded, wire::encode(&second), "one message, two encodings");
                }
            }
        )+
        /// All targets of the `wire` crate.
        pub fn all() -> Vec<Target> {
            let mut targets = vec![
                Target {
                    name: "header",
                    run: header,
                    seeds: || corpus::messages(&["header"]),
                    amplification_max: 64,
                },
                Target {
                    name: "link",
                    run: link,
                    seeds: || corpus::messages(&["link"]),
                    amplification_max: 64,
                },
                Target {
                    name: "refusal",
                    run: refusal,
                    seeds: || corpus::messages(&["refusal"]),
                    amplification_max: LIST_AMPLIFICATION,
                },
                Target {
                    name: "nested",
                    run: nested,
                    seeds: || corpus::messages(&["request.commit", "request.prepare", "tx_reply"]),
                    amplification_max: LIST_AMPLIFICATION,
                },
            ];
            $(targets.push(Target {
                name: $name,
                run: $tag::check,
                seeds: || corpus::messages(&[$($prefix),+]),
                amplification_max: LIST_AMPLIFICATION,
            });)+
            targets
        }
    };
}

messages! {
    ChallengeTag = "challenge": Challenge, "challenge";
    ProvenHelloTag = "proven-hello": ProvenHello<'_>, "proven_hello";
    HelloTag = "hello": Hello<'_>, "hello.";
    HelloReplyTag = "hello-reply": Result<HelloReply, Error>, "hello_reply";
    RangeTag = "remote-range": RemoteRange, "remote_range";
    RequestTag = "request": Request<'_>, "request";
    NoticeTag = "notice": Notice, "notice";
    ControlTag = "control": ControlRequest, "control.";
    ControlReplyTag = "control-reply": Result<ControlReply, Error>, "control_reply";
    BatchReplyTag = "batch-reply": BatchReply<'_>, "batch_reply";
    ReplyTag = "reply": Result<BatchReply<'_>, Error>, "batch_reply", "control_reply.error";
    TxReplyTag = "tx-reply": TxReply<'_>, "tx_reply";
    PreparedTag = "prepared": Prepared<'_>, "prepared";
    OutcomeTag = "outcome": Result<TxOutcome, Error>, "outcome";
    PoolShardStatTag = "shard-stat": Result<PoolShardStat, Error>, "shard_stat";
    ObjectListTag = "object-list": Result<ObjectList, Error>, "object_list";
    LockReplyTag = "lock-reply": Result<LockReply, Error>, "lock_reply";
    ScrubStatTag = "scrub-stat": Result<ScrubStat, Error>, "scrub_stat";
    CacheStatTag = "cache-stat": Result<CacheStat, Error>, "cache_stat";
    AdmissionStatTag = "admission-stat": Result<AdmissionStat, Error>, "admission_stat";
    PageWaitTag = "page-wait": Result<Option<PageWait>, Error>, "page_wait";
    StoreStatTag = "store-stat": Result<StoreStat, Error>, "store_stat";
    AdminReplyTag = "admin-reply": Result<AdminReply, Error>, "admin_reply";
}

/// The header as it comes, and with its checksum made right, so that what lies behind the
/// checksum is reached too.
fn header(bytes: &[u8]) {
    let Some(raw) = bytes.first_chunk::<HEADER_BYTES>() else { return };
    let mut fixed = *raw;
    let sum = wire::header::crc(&raw[..HEADER_BYTES - 4]);
    fixed[HEADER_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    for raw in [*raw, fixed] {
        if let Ok(header) = Header::decode(&raw) {
            assert_eq!(header.encode(), raw, "a header has one encoding");
            let _ = header.check_body(bytes);
        }
    }
}

fn link(bytes: &[u8]) {
    let Some(link) = Link::decode(bytes) else { return };
    let mut value = bytes.to_vec();
    link.encode_into(&mut value);
    assert_eq!(Link::decode(&value), Some(link));
    assert_eq!(value[LINK_BYTES..], bytes[LINK_BYTES..], "bytes behind a link are the owner's");
}

/// Refusals with maps, led on from a map that they may be for.
fn refusal(bytes: &[u8]) {
    let Ok((error, newer)) = wire::stale::decode_refusal(bytes) else { return };
    let encoded = wire::stale::encode_refusal(&error, newer.as_ref());
    let again = wire::stale::decode_refusal(&encoded).expect("what was encoded here decodes here");
    assert_eq!(again, (error, newer.clone()), "a refusal changed on its way");
    let Some(newer) = newer else { return };
    let (pool, version) = match &newer {
        NewerMap::Whole(map) => (map.pool, map.version.saturating_sub(1)),
        NewerMap::Changes(changes) => match changes.first() {
            Some(first) => (first.pool, first.from),
            None => return,
        },
    };
    let known = PoolMap {
        pool,
        version,
        engines: Vec::new(),
        targets: Vec::new(),
        placements: Vec::new(),
        outs: Vec::new(),
        next: None,
        balanced: 0,
        next_balanced: 0,
        passed: Vec::new(),
        next_passed: Vec::new(),
    };
    if let Some(map) = newer.from_known(&known) {
        assert!(map.pool == pool && map.version > version, "no way to a newer map");
    }
}

/// Messages inside messages, as a coordinator meets them.
fn nested(bytes: &[u8]) {
    match wire::decode::<Request<'_>>(bytes) {
        Ok(Request::Commit { parts, .. }) => {
            for (_, part, _) in parts {
                let Ok(batch) = wire::decode::<Batch<'_>>(part) else { continue };
                for op in &batch.ops {
                    let _ = (op.oid(), op.footprint());
                }
            }
        }
        Ok(Request::Batch(batch) | Request::Prepare { batch, .. }) => {
            let encoded = wire::encode(&batch);
            assert_eq!(wire::decode::<Batch<'_>>(&encoded).expect("decodes"), batch);
        }
        _ => {}
    }
    if let Ok(reply) = wire::decode::<TxReply<'_>>(bytes) {
        for part in reply.parts {
            let _ = wire::decode::<BatchReply<'_>>(part);
        }
    }
}
