//! One sample of every message and of every variant inside one.
//!
//! Invariant: values are fixed for ever; a new variant gets a new sample at the end. Field values
//! differ from each other, so that two swapped fields change the bytes.

mod control;
mod obj;
pub mod ops;
mod seen;

use seen::{Looking, Seen};
use std::cell::RefCell;
use std::collections::BTreeMap;
use types::{ClientId, Code, Oid, TargetId};
use wire::header::{FLAG_REMOTE_BULK, FLAG_RETRY};
use wire::hello::{Challenge, Hello, HelloReply, ProvenHello, RemoteRange, Service};
use wire::link::{LINK_BYTES, Link, LinkKind};
use wire::{HEADER_BYTES, Header, Kind};

/// Where samples go: bytes for the golden file, or golden bytes to decode and compare.
pub trait Visitor {
    fn message<T>(&mut self, name: &str, message: T)
    where
        T: serde::Serialize + Decoded + PartialEq + std::fmt::Debug;
    /// Takes bytes that no serializer made, and the check of their decoding.
    fn raw(&mut self, name: &str, bytes: Vec<u8>, check: &dyn Fn(&[u8]));
}

/// Messages that can be decoded from bytes of any lifetime and compared with themselves.
pub trait Decoded {
    /// Decodes `bytes` and asserts that the message equals `self`.
    fn assert_decodes(&self, name: &str, bytes: &[u8]);
    /// Decodes `bytes` and notes what is in them.
    fn look(bytes: &[u8], seen: &RefCell<Seen>);
}

macro_rules! decoded {
    (owned: $($owned:ty),+; borrowed: $($borrowed:ident),+) => {
        $(impl Decoded for $owned {
            fn assert_decodes(&self, name: &str, bytes: &[u8]) {
                let back: $owned = wire::decode(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(&back, self, "{name}");
            }

            fn look(bytes: &[u8], seen: &RefCell<Seen>) {
                let mut decoder = postcard::Deserializer::from_bytes(bytes);
                let place = stringify!($owned).to_string();
                let looking = Looking { inner: &mut decoder, seen, place };
                let back = <$owned as serde::Deserialize>::deserialize(looking);
                back.map(|_| ()).expect("a sample decodes");
            }
        })+
        $(impl Decoded for $borrowed<'_> {
            fn assert_decodes(&self, name: &str, bytes: &[u8]) {
                let back: $borrowed<'_> =
                    wire::decode(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(&back, self, "{name}");
            }

            fn look(bytes: &[u8], seen: &RefCell<Seen>) {
                let mut decoder = postcard::Deserializer::from_bytes(bytes);
                let place = stringify!($borrowed).to_string();
                let looking = Looking { inner: &mut decoder, seen, place };
                let back = <$borrowed<'_> as serde::Deserialize>::deserialize(looking);
                back.map(|_| ()).expect("a sample decodes");
            }
        })+
    };
}

use wire::admission::AdmissionStat;
use wire::cache::CacheStat;
use wire::cell::StripeList;
use wire::control::{ControlReply, ControlRequest};
use wire::lock::LockReply;
use wire::map::PoolMap;
use wire::member::{KeyList, Notes, SettledOrders, UnitList};
use wire::obj::{
    AdminReply, BatchReply, Notice, ObjectList, PoolShardStat, Prepared, Request, TxId, TxOutcome,
    TxReply,
};
use wire::order::{Order, OrdersDone};
use wire::scrub::ScrubStat;
use wire::stale::{NewerMap, decode_refusal, encode_refusal};
use wire::store::{PageWait, StoreStat};
type Reply<T> = Result<T, types::Error>;
decoded!(
    owned: RemoteRange, Challenge, ControlRequest, Reply<HelloReply>, Reply<ControlReply>, Notice,
        Reply<TxOutcome>, Reply<PoolShardStat>, Reply<ObjectList>, Reply<AdmissionStat>, Reply<StoreStat>, Reply<AdminReply>,
        Reply<LockReply>, Reply<Option<PageWait>>,
        Reply<()>, Reply<ScrubStat>, Reply<CacheStat>, OrdersDone, SettledOrders, UnitList, KeyList, Notes, StripeList, Reply<u64>, Reply<PoolMap>,
        Vec<TxId>, Vec<Code>, NewerMap;
    borrowed: Hello, ProvenHello, Request, BatchReply, TxReply, Prepared, Order
);

fn visit(visitor: &mut impl Visitor) {
    headers(visitor);
    links(visitor);
    hellos(visitor);
    control::visit(visitor);
    obj::visit(visitor);
    refusals(visitor);
    visitor.message("codes", codes());
}

/// All codes of errors.
fn codes() -> Vec<Code> {
    use Code::*;
    vec![
        NonExist,
        Exist,
        Inval,
        NoSpace,
        NoPerm,
        Busy,
        Stale,
        TimedOut,
        Unreach,
        TxRestart,
        NotSupported,
        Io,
        KeyTooBig,
        RecordTooBig,
        NotEmpty,
        Proto,
        Version,
        Csum,
        Closed,
        NotDir,
        IsDir,
        NameTooLong,
        TooManyLinks,
        CrossDevice,
        Access,
        FileTooBig,
        ReadOnly,
        NoAttr,
        Range,
        Canceled,
        BadHandle,
        LinkMax,
        Redundancy,
        NoMem,
        WouldBlock,
        Deadlock,
        NoLocks,
        NoData,
        Moved,
    ]
}

/// Refusals for an old map, with the way to a newer one.
fn refusals(visitor: &mut impl Visitor) {
    let (before, mut after) = (control::map(), control::map());
    after.version += 1;
    after.targets[0].since = after.version;
    let change = before.change_to(&after).expect("nothing has left");
    for (name, newer) in [
        ("changes", Some(NewerMap::Changes(vec![change]))),
        ("whole", Some(NewerMap::Whole(after))),
        ("bare", None),
    ] {
        let error = types::Error::new(types::Code::Stale, "an old map");
        let body = encode_refusal(&error, newer.as_ref());
        if let Some(newer) = &newer {
            visitor.message(&format!("newer_map.{name}"), newer.clone());
        }
        visitor.raw(&format!("refusal.{name}"), body, &move |bytes| {
            let expected = (error.clone(), newer.clone());
            assert_eq!(decode_refusal(bytes).expect("a golden refusal decodes"), expected);
        });
    }
}

fn headers(visitor: &mut impl Visitor) {
    use Kind::*;
    let kinds = [
        Hello,
        HelloReply,
        Request,
        Reply,
        Notice,
        Control,
        ControlReply,
        Ping,
        Pong,
        Go,
        Data,
        Cancel,
        Challenge,
    ];
    for kind in kinds {
        let header = Header {
            kind,
            flags: FLAG_RETRY | FLAG_REMOTE_BULK,
            request_id: 0x0102_0304_0506_0708,
            map_version: 0x1112_1314,
            deadline_ms: 30_000,
            body_bytes: 0x21_2223,
            bulk_bytes: 0x13_1415,
            body_crc: wire::header::crc(b"123456789"),
        };
        let name = format!("header.{}", format!("{kind:?}").to_lowercase());
        visitor.raw(&name, header.encode().to_vec(), &move |bytes| {
            let raw: &[u8; HEADER_BYTES] = bytes.try_into().expect("a header has 40 bytes");
            assert_eq!(Header::decode(raw).expect("a golden header decodes"), header);
        });
    }
}

fn links(visitor: &mut impl Visitor) {
    for (name, kind, protected, counted) in [
        ("link.array", LinkKind::Array, false, false),
        ("link.none", LinkKind::None, true, false),
        ("link.counted", LinkKind::None, true, true),
    ] {
        let oid = Oid { hi: 0x0102_0304_0506_0708, lo: 0x1112_1314_1516_1718 };
        let link = Link { kind, protected, counted, oid };
        let mut value = [0; LINK_BYTES];
        link.encode_into(&mut value);
        visitor.raw(name, value.to_vec(), &move |bytes| {
            assert_eq!(Link::decode(bytes), Some(link));
        });
    }
}

fn hellos(visitor: &mut impl Visitor) {
    let hello = |service| Hello {
        client: ClientId(0x1111_2222_3333_4444),
        service,
        nonce: [0x31; 32],
        job: "job-7",
        pid: 4242,
        memory_word_address: 0x7fff_0000_1000,
        memory_word: 0x5555_6666,
    };
    visitor.message("hello.control", hello(Service::Control));
    visitor.message("hello.leader", hello(Service::Leader));
    visitor.message("hello.target", hello(Service::Target(TargetId(3))));
    let nonce = std::array::from_fn(|at| at as u8);
    visitor.message("challenge", Challenge { nonce });
    let encoded = wire::encode(&hello(Service::Control));
    let proof = wire::proof::of_caller(b"secret", &nonce, &encoded);
    visitor.message("proven_hello", ProvenHello { hello: &encoded, proof });
    let proof = wire::proof::of_engine(b"secret", &nonce, &encoded);
    let reply =
        HelloReply { incarnation: 9, remote_bulk: true, engine_version: "0.1.0".into(), proof };
    visitor.message("hello_reply.ok", Reply::Ok(reply));
    let refused = types::Error::new(types::Code::Version, "upgrade the older");
    visitor.message("hello_reply.error", Reply::<HelloReply>::Err(refused));
    visitor.message("remote_range", RemoteRange { address: 0x7fff_0000_2000, bytes: 65_536 });
}

/// What is in all samples.
pub fn seen() -> Seen {
    struct Looker(RefCell<Seen>);
    impl Visitor for Looker {
        fn message<T>(&mut self, _: &str, message: T)
        where
            T: serde::Serialize + Decoded + PartialEq + std::fmt::Debug,
        {
            T::look(&wire::encode(&message), &self.0);
        }
        // What is in these no serializer reads, or it is in a message of its own as well.
        fn raw(&mut self, _: &str, _: Vec<u8>, _: &dyn Fn(&[u8])) {}
    }
    let mut looker = Looker(RefCell::default());
    visit(&mut looker);
    looker.0.into_inner()
}

/// All samples, encoded.
pub fn encoded() -> BTreeMap<String, Vec<u8>> {
    struct Encoder(BTreeMap<String, Vec<u8>>);
    impl Encoder {
        fn add(&mut self, name: &str, bytes: Vec<u8>) {
            assert!(self.0.insert(name.into(), bytes).is_none(), "two samples named {name}");
        }
    }
    impl Visitor for Encoder {
        fn message<T>(&mut self, name: &str, message: T)
        where
            T: serde::Serialize + Decoded + PartialEq + std::fmt::Debug,
        {
            let encoded = wire::encode(&message);
            assert_eq!(wire::encoded_bytes(&message), encoded.len(), "{name}");
            self.add(name, encoded);
        }
        fn raw(&mut self, name: &str, bytes: Vec<u8>, _: &dyn Fn(&[u8])) {
            self.add(name, bytes);
        }
    }
    let mut encoder = Encoder(BTreeMap::new());
    visit(&mut encoder);
    encoder.0
}

/// Decodes golden bytes and compares each with its sample.
pub fn check_decodes(golden: &BTreeMap<String, Vec<u8>>) {
    struct Checker<'a>(&'a BTreeMap<String, Vec<u8>>, usize);
    impl Checker<'_> {
        fn bytes(&mut self, name: &str) -> &[u8] {
            self.1 += 1;
            self.0.get(name).unwrap_or_else(|| panic!("no golden bytes of {name}"))
        }
    }
    impl Visitor for Checker<'_> {
        fn message<T>(&mut self, name: &str, message: T)
        where
            T: serde::Serialize + Decoded + PartialEq + std::fmt::Debug,
        {
            message.assert_decodes(name, self.bytes(name));
        }
        fn raw(&mut self, name: &str, _: Vec<u8>, check: &dyn Fn(&[u8])) {
            check(self.bytes(name));
        }
    }
    let mut checker = Checker(golden, 0);
    visit(&mut checker);
    assert_eq!(checker.1, golden.len(), "golden bytes without a sample");
}
