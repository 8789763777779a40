//! Entry points for fuzzing: everything that decodes bytes from a device. None may panic.

use types::{ContId, Epoch, ObjClass, ObjType, Oid, Unit};

use crate::contents::Contents;
use crate::index::Effects;
use crate::index::object::Object;
use crate::index::slot::{NewValue, Single};
use crate::index::snapshot::{encode_object, encode_range};
use crate::index::versions::Versions;
use crate::log::sectors::{self, Expected, Next};
use crate::log::table_ref::PlaceDf;
use crate::pages::{self, PageIdDf};
use crate::record::{ChangeDf, FactsDf, InstallDf, PlaceDf as PlaceOf, RecordDf, TouchDf};
use crate::space::Space;
use crate::sums::SumPolicy;
use crate::table::{ContDf, GarbageDf, LargeDf, PageDf, TableDf};

/// A unit of an object with hashed dkeys.
const UNIT: Unit = Unit { object: Oid { hi: 1, lo: 2 }, group: 3, cell: 4 };

/// A batch of the log, replayed into an empty state.
pub fn wal_batch(bytes: &[u8]) {
    let Ok(Some((header, _))) = crate::log::batch::BatchHeader::decode(bytes) else { return };
    let expected = Expected {
        shard: &header.shard,
        sequence: header.sequence,
        chain: header.chain,
        lsn: header.first_lsn.0,
    };
    let mut raw = bytes.to_vec();
    if let Ok(Next::Batch { header, records: at, .. }) = sectors::next(&mut raw, 0, expected) {
        records(&raw[at], header.record_count);
    }
    let _ = sectors::later_batch(bytes, 0, &header.shard, 0);
}

/// The records of one batch, without its checksums, replayed into an empty state.
pub fn record(bytes: &[u8]) {
    records(bytes, 64);
}

/// The superblock of a store.
pub fn superblock(bytes: &[u8]) {
    let _ = crate::volume::tier::decode_superblock(bytes);
}

/// The settings of a shard.
pub fn shard_settings(bytes: &[u8]) {
    let _ = crate::store::decode_shard(bytes);
}

/// What was measured of a target's devices.
pub fn measures(bytes: &[u8]) {
    let _ = crate::measure::decode(bytes);
}

/// The head of a log.
pub fn log_head(bytes: &[u8]) {
    let _ = crate::log::wal::decode_head(bytes);
}

/// The table of a raw device.
pub fn volume_table(bytes: &[u8]) {
    let _ = crate::volume::decode_table(bytes);
}

/// An image of a dkey, or facts of a unit, from another member.
pub fn dkey_image(bytes: &[u8]) {
    crate::image_df::fuzz(bytes);
}

/// Images of a dkey to start from.
pub fn image_seeds() -> Vec<Vec<u8>> {
    crate::image_df::fuzz_seeds()
}

/// The records that make a container with a snapshot and install a dkey in it, to start from.
pub fn install_seed() -> Vec<Vec<u8>> {
    let (cont, unit, dkey, akey) = (ContId(7), UNIT, &b"dkey"[..], &b"a"[..]);
    let versions = Versions { snapshots: vec![Epoch(6)], ..Versions::default() };
    let single = |value| ChangeDf::Single { unit, dkey, akey, value };
    let (record_bytes, index, count, place) = (1, 3, 5000, PlaceOf::Blocks(8192));
    let array = ChangeDf::Records { unit, dkey, akey: b"b", record_bytes, index, count, place };
    let facts = FactsDf {
        until: Epoch(8),
        epoch: Epoch(5),
        keys_epoch: Epoch(5),
        bytes_used: 3,
        dkey_count: 1,
        counted_links: 1,
    };
    let records = [
        RecordDf::CreateCont { cont, sums: SumPolicy::OFF },
        RecordDf::Versions { cont, versions: versions.durable(), unswept: false },
        RecordDf::Install(InstallDf {
            cont,
            unit,
            dkey,
            epoch: Epoch(9),
            changes: vec![(Epoch(8), single(b"new")), (Epoch(9), array)],
            touches: vec![TouchDf::Akey(dkey, b"b", Epoch(9))],
            past: vec![(Epoch(5), Epoch(8), single(b"old"))],
            sums: Vec::new(),
        }),
        RecordDf::InstallFacts {
            cont,
            unit,
            epochs: (Epoch(9), Epoch(5), Epoch(5)),
            facts: vec![facts],
        },
    ];
    records.iter().map(wire::encode).collect()
}

/// An image of a page, and what a bucket's records make of an object.
pub fn index_page(bytes: &[u8]) {
    if let Ok((_, body)) = pages::decode(&[0; 16], bytes) {
        page_records(body);
    }
    page_records(bytes);
}

/// The table of a checkpoint, restored.
pub fn page_table(bytes: &[u8]) {
    if let Ok(table) = crate::table::decode_table(bytes) {
        let _ = crate::table::restore(&table, &mut |_| Ok(()));
    }
}

/// The list of free blocks in a table.
pub fn free_blocks(bytes: &[u8]) {
    if let Ok(space) = Space::decode(bytes) {
        let _ = Space::decode(&space.encode());
    }
}

fn page_records(mut body: &[u8]) {
    while let Ok(record) = crate::record::decode_first(&mut body) {
        if let crate::record::RecordDf::Part(part) = record {
            let mut object = Object::new(part.unit.dkey_kind());
            let _ = object.absorb(part.unit, &part);
        }
    }
}

fn records(mut body: &[u8], count: u32) {
    let mut state = Contents::default();
    // Small: a claim costs as many blocks as it covers.
    let mut space = Space::new(64 << 20);
    for _ in 0..count {
        let Ok(record) = crate::record::decode_first(&mut body) else { return };
        if state.replay(record, &mut space).is_err() {
            return;
        }
    }
}

/// An image of a page to start from, and its body alone.
pub fn page_seeds() -> Vec<Vec<u8>> {
    let mut body = Vec::new();
    let integers = Oid::generate(0, 3, ObjType::ArrayByte, ObjClass::S1, 0);
    for unit in [UNIT, integers.first_unit()] {
        let mut object = Object::new(unit.dkey_kind());
        for (n, akey) in [&b""[..], b"a"].into_iter().enumerate() {
            let value = NewValue::Single(Single::Inline(b"value"));
            let key = (n as u64).to_le_bytes();
            object.set(&key, akey, value, Epoch(n as u64 + 5), &mut Effects::default());
        }
        encode_range(ContId(7), unit, &object, b"", None, &mut body);
    }
    let id = PageIdDf::Bucket { cont: ContId(7), prefix: 0, depth: 0 };
    let image = pages::encode(&[0; 16], &id, &body).map(|image| image.to_vec());
    vec![image.unwrap_or_default(), body, past_seed()]
}

/// The body of a page of a past: a value that a snapshot sees, and a life before.
fn past_seed() -> Vec<u8> {
    let unit = UNIT;
    let versions = Versions { snapshots: vec![Epoch(6), Epoch(9)], ..Versions::default() };
    let mut effects = Effects { versions: Some(versions.into()), ..Effects::default() };
    let mut object = Object::new(unit.dkey_kind());
    for (epoch, ends) in [(5, false), (7, true), (8, false), (10, false)] {
        object.note(Epoch(epoch), &mut effects);
        let value = NewValue::Single(Single::Inline(b"value"));
        object.set(b"dkey", b"a", value, Epoch(epoch), &mut effects);
        if ends {
            object.end_life(Epoch(epoch), &mut effects);
        }
    }
    let mut body = Vec::new();
    encode_object(ContId(7), unit, &object, false, &mut body);
    body
}

/// A table to start from: a container with two buckets and a large object, garbage, records.
pub fn table_seeds() -> Vec<Vec<u8>> {
    let place = |at: u64| PlaceDf { runs: vec![(at, 1)], bytes: 100, crc: 7 };
    let page = |at: u64| PageDf {
        counts: (1, 1, 0, 1, 5, 300),
        has_blocks: at == 1,
        place: (at > 0).then(|| place(at)),
    };
    let empty = PageDf::default();
    let unit = UNIT;
    let start = |bytes: &[u8]| serde_bytes::ByteBuf::from(bytes.to_vec());
    let starts = vec![start(b""), start(&[0, 0, 0, 0, 0, 0, 0, 9])];
    let large = vec![LargeDf { unit, epochs: (Epoch(5), Epoch(4), Epoch(3)), starts }];
    let buckets = vec![(1, 0), (1, 1 << 63)];
    let (records, record_count) = Contents::default().encode_rest();
    // The index has two blocks on loan.
    let mut space = Space::new(1 << 20);
    space.take(8192).expect("it is empty");
    let table = TableDf {
        conts: vec![ContDf {
            cont: ContId(7),
            sums: SumPolicy::OFF,
            buckets,
            large,
            versions: Versions::default().durable(),
            unswept: false,
            pasts: vec![unit],
        }],
        pages: vec![page(1), empty.clone(), page(2), page(3), empty],
        garbage: vec![GarbageDf::Bucket { cont: ContId(8), prefix: 0, depth: 0, place: place(4) }],
        records,
        record_count,
        space: space.encode(),
        sections: vec![(1, start(&[1, 0, 2]))],
    };
    vec![wire::encode(&table), wire::encode(&TableDf::default())]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn the_seeds_are_what_they_should_be() {
        let pages = super::page_seeds();
        let (_, body) = crate::pages::decode(&[0; 16], &pages[0]).unwrap();
        assert_eq!(body, pages[1]);
        let table = crate::table::decode_table(&super::table_seeds()[0]).unwrap();
        crate::table::restore(&table, &mut |_| Ok(())).unwrap();
    }

    #[test]
    fn the_install_to_start_from_is_installed() {
        let mut state = super::Contents::default();
        let mut space = super::Space::new(1 << 20);
        let log = super::install_seed();
        for raw in &log {
            state.replay(wire::decode(raw).unwrap(), &mut space).unwrap();
        }
        assert_eq!((state.index.dkey_count, space.free_bytes()), (1, (1 << 20) - 8192));
        let cont = &state.index.conts[&super::ContId(7)];
        for (at, dkeys) in [(4, 0), (6, 1)] {
            let object = cont.object_at(super::UNIT, super::Epoch(at));
            assert_eq!(object.map_or(0, |object| object.facts().dkey_count), dkeys);
        }
    }

    #[test]
    fn golden_bytes_of_a_table() {
        // A change here is a change of format: bump PAGE_VERSION.
        let raw = super::table_seeds().remove(0);
        let buckets = b"\x02\x01\0\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01";
        let large = b"\x01\x01\x02\x03\x04\x05\x04\x03\x02\0\x08\0\0\0\0\0\0\0\x09";
        let (versions, unswept, pasts) = (b"\0\0\0\0", b"\0", b"\x01\x01\x02\x03\x04");
        let page = b"\x05\x01\x01\0\x01\x05\xac\x02\x01\x01\x01\x01\x01\x64\x07\0\0\0\0\0\0\0";
        let parts: [&[u8]; 7] = [b"\x01\x07\0\0", buckets, large, versions, unswept, pasts, page];
        let start = parts.concat();
        assert_eq!(&raw[..start.len()], start);
        // One section, of kind 1: one run on loan, from block 0, 2 blocks.
        assert!(raw.ends_with(b"\x01\x01\x03\x01\0\x02"));
    }

    #[test]
    fn golden_bytes_of_a_past() {
        // A change here is a change of format: bump PAGE_VERSION.
        let raw = super::past_seed();
        let value: &[u8] = b"\0\0\0\0\0\x04dkey\x01a\x05value";
        let parts: [&[u8]; 9] = [
            // The life that ended at 7: a value of 7, the numbers of the time from 5 to 7, and
            // the value of that time.
            b"\x3c\0\0\0\x0a\x07\x01\x02\x03\x04\x07\x01\x01\x07",
            value,
            b"\0\x07\x05\x05\x01\x07\x05\x05\0\x01\0\x01\x05\x07",
            value,
            // What came after, without its present.
            b"\x32\0\0\0\x0a\x07\x01\x02\x03\x04",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0\0",
            b"\x0a\x08\x08\x01\x0a\x08\x08\0\x01\0",
            b"\x01\x08\x0a",
            value,
        ];
        assert_eq!(raw, parts.concat());
        // It comes back as what it was.
        let mut body = &raw[..];
        let mut object = super::Object::new(super::UNIT.dkey_kind());
        while !body.is_empty() {
            let record = crate::record::decode_first(&mut body).unwrap();
            let crate::record::RecordDf::Part(part) = record else { panic!("{record:?}") };
            object.absorb(part.unit, &part).unwrap();
        }
        assert_eq!(object.past.as_ref().map(|past| past.lives.len()), Some(1));
        let mut again = Vec::new();
        let unit = super::UNIT;
        super::encode_object(super::ContId(7), unit, &object, false, &mut again);
        assert_eq!(again, raw);
    }

    #[test]
    fn golden_bytes_of_free_blocks() {
        // A change here is a change of format: bump PAGE_VERSION.
        let mut space = crate::space::Space::new(16 * 4096);
        let first = space.take(3 * 4096).unwrap();
        let second = space.take(4096).unwrap();
        space.take(2 * 4096).unwrap();
        space.claim(first).unwrap();
        space.give_back(second);
        let raw = space.encode();
        // 16 blocks; free are 1 after 3 used ones, then 10 after 2; blocks 0, 1 and 2 are shared by 2.
        assert_eq!(raw, [16, 2, 3, 1, 2, 10, 3, 0, 2, 1, 2, 1, 2]);
        assert_eq!(crate::space::Space::decode(&raw).unwrap().encode(), raw);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            super::wal_batch(&bytes);
            super::record(&bytes);
            super::superblock(&bytes);
            super::shard_settings(&bytes);
            super::log_head(&bytes);
            super::volume_table(&bytes);
            super::dkey_image(&bytes);
            super::index_page(&bytes);
            super::page_table(&bytes);
            super::free_blocks(&bytes);
        }
    }
}
