//! Targets of the cold tier: what a file's entry says of its copy, stubs, and what comes back from an object store.

use crate::target::Target;
use dfs::tier::{Slowdown, Stub, TierAsk, TierNotice, TierRecord, Uses, agent};
use tier::manifest::{
    EntryKind, FILE_FORMAT, FileManifest, PartName, TREE_FORMAT, TreeEntry, TreeHead, decode_tree,
    encode_tree,
};
use tier::{Definition, Key, Policy, Shown, part, s2_chunks};
use types::{ContId, Epoch, Oid};
use wire::obj::Recx;

/// Parsed JSON is wider than its text; errors hold a copy of it.
const AMPLIFICATION: usize = 256;

/// All targets of this module.
pub fn all() -> Vec<Target> {
    let target = |name, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>| Target {
        name,
        run,
        seeds,
        amplification_max: AMPLIFICATION,
    };
    vec![
        target("tier-record", record, || vec![record_seed()]),
        target("s2-header", s2_header, || vec![s2_chunks::encode_header(&[[7; 32], [9; 32]])]),
        target("s2-chunk", s2_chunk, || {
            vec![[&s2_chunks::chunk_head(b"some bytes").0[..], b"some bytes"].concat()]
        }),
        target("tier-ask", ask, || vec![ask_seed()]),
        target("tier-ask-some", ask_some, || vec![ask_seed()]),
        target("tier-sync-ask", sync_ask, || vec![sync_seed()]),
        target("tier-stub", stub, || vec![Stub::of(b"chunk").encode().to_vec()]),
        target("tier-part", tier_part, part_seeds),
        target("tier-manifest", manifest, || vec![manifest_seed()]),
        target("tier-notice", notice, || vec![b"\x01cold".to_vec(), vec![7; 12]]),
        target("tier-uses", uses, || vec![Uses::default().encode().to_vec()]),
        target("tier-policy", policy, || {
            vec![
                b"keep path=*.idx\nevict unused=30d uses=1..2/8w size=1..2k\nfill high=9% low=8%\ncache max=5%"
                    .to_vec(),
            ]
        }),
        target("tier-tree", tree, || vec![tree_seed()]),
        target("tier-definition", definition, || {
            vec![br#"{"url":"s3://b/p","region":"r","part_bytes":8388608}"#.to_vec()]
        }),
    ]
}

fn record_seed() -> Vec<u8> {
    let record = TierRecord {
        oid: Oid { hi: 1, lo: 2 },
        version: 1,
        size: 10,
        part_bytes: 4,
        upload: None,
        manifest_sum: [3; 32],
        tier: "cold".into(),
        manifest: "key".into(),
        synced: vec![Epoch(7)],
    };
    record.encode().expect("short names")
}

fn ask_seed() -> Vec<u8> {
    let record = TierRecord::decode(&record_seed()).expect("our own");
    let range = Recx { index: 4, count: 4 };
    let ask = TierAsk { cont: ContId::default(), record, range };
    // Without magic and length.
    agent::encode_ask(&ask).expect("short names").split_off(8)
}

fn ask(bytes: &[u8]) {
    if let Ok(ask) = agent::decode_ask(bytes) {
        let again = agent::encode_ask(&ask).expect("what was read is short enough").split_off(8);
        let again = agent::decode_ask(&again).expect("what we write can be read");
        assert_eq!((again.cont, again.range, again.record), (ask.cont, ask.range, ask.record));
    }
}

fn ask_some(bytes: &[u8]) {
    if let Ok(ask) = agent::decode_ask_some(bytes) {
        let again = agent::encode_ask_some(&ask).expect("what was read is short enough");
        let again = agent::decode_ask_some(&again[8..]).expect("what we write can be read");
        assert_eq!((again.cont, again.range, again.record), (ask.cont, ask.range, ask.record));
    }
}

fn record(bytes: &[u8]) {
    if let Ok(record) = TierRecord::decode(bytes) {
        let again = TierRecord::decode(&record.encode().expect("what was read is short enough"));
        assert_eq!(again.expect("what we write can be read"), record);
    }
}

fn stub(bytes: &[u8]) {
    if let Some(stub) = Stub::decode(bytes) {
        assert_eq!(stub.encode(), bytes);
    }
}

fn notice(bytes: &[u8]) {
    if let Some(notice) = TierNotice::decode(bytes) {
        assert_eq!(TierNotice::decode(&notice.encode()), Some(notice));
    }
    if let Some(slow) = Slowdown::decode(bytes) {
        assert_eq!(slow.encode(), bytes);
    }
}

fn sync_seed() -> Vec<u8> {
    let (dir, oid) = (Oid { hi: 1, lo: 2 }, Oid { hi: 3, lo: 4 });
    let ask = agent::SyncAsk { pool: [1; 16], cont: [2; 16], dir, name: b"a".to_vec(), oid };
    agent::encode_sync(&ask)[8..].to_vec()
}

fn sync_ask(bytes: &[u8]) {
    if let Ok(ask) = agent::decode_sync(bytes) {
        let again = agent::decode_sync(&agent::encode_sync(&ask)[8..]);
        assert_eq!(again.expect("our own bytes"), ask);
    }
}

/// What is understood is what would be kept.
fn uses(bytes: &[u8]) {
    if let Ok(uses) = Uses::decode(bytes) {
        assert_eq!(uses.encode(), bytes);
        assert!(uses.count(20_000, 64) <= 64);
    }
}

/// What is shown of a policy is that policy.
fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(policy) = text.parse::<Policy>() {
        assert_eq!(policy.to_string().parse::<Policy>().expect("our own text"), policy);
    }
}

/// Key of encrypted seeds.
fn part_key() -> Key {
    Key::new([7; 32])
}

fn part_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for level in [None, Some(3)] {
        for key in [None, Some(part_key())] {
            let coding = part::Coding { level, key };
            let made = part::encode(&[b'a'; 200], &coding, "k".into());
            seeds.push(made.expect("there is randomness").0);
        }
    }
    seeds.push(part::encode_plain(b""));
    seeds
}

/// Bytes that are taken for a part's are those that its sum is of, if it tells that of the file's bytes.
fn tier_part(bytes: &[u8]) {
    let Ok(header) = part::Header::decode(bytes) else { return };
    // What is said to unfold to more is allowed, and more than the driver lets a decoder take.
    if header.bytes > 64 * bytes.len() as u64 {
        return;
    }
    let sum: String = bytes[32..64].iter().map(|byte| format!("{byte:02x}")).collect();
    let encoding = header.encoding.word().map(str::to_string);
    let (key, key_id) = ("k".to_string(), None);
    let name = PartName { key, bytes: header.bytes, sha256: sum, encoding, key_id };
    if let Ok(plain) = part::decode(bytes.to_vec(), &name, Some(&part_key())) {
        assert_eq!(plain.len() as u64, name.bytes);
        let is_told = !header.encoding.is_encrypted;
        assert!(!is_told || part::sum(&plain) == name.sum().expect("hex of 32 bytes"));
    }
}

fn manifest_seed() -> Vec<u8> {
    let (sha256, encoding, key_id) = ("ab".repeat(32), None, None);
    let parts = vec![PartName { key: "k".into(), bytes: 3, sha256, encoding, key_id }];
    let (format, container, object) = (FILE_FORMAT.into(), "c".into(), "o".into());
    let manifest =
        FileManifest { format, container, object, version: 1, size: 3, part_bytes: 8, parts };
    manifest.encode().0
}

fn manifest(bytes: &[u8]) {
    if let Ok(manifest) = FileManifest::decode(bytes, None) {
        let (raw, sum) = manifest.encode();
        assert_eq!(FileManifest::decode(&raw, Some(&sum)).expect("our own bytes"), manifest);
        assert_eq!(manifest.parts.iter().map(|part| part.bytes).sum::<u64>(), manifest.size);
    }
}

fn tree_seed() -> Vec<u8> {
    let (format, container, label) = (TREE_FORMAT.into(), "c".into(), "home".into());
    let head = TreeHead { format, container, label, made_ns: 1, directory: None };
    let entry = TreeEntry {
        path: "/".into(),
        kind: EntryKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime_ns: 0,
        target: None,
        object: None,
        xattrs: Default::default(),
        size: None,
        manifest: None,
        manifest_sha256: None,
    };
    encode_tree(&head, &[entry])
}

fn tree(bytes: &[u8]) {
    if let Ok((head, entries)) = decode_tree(bytes) {
        if let Ok(shown) = Shown::new(&entries) {
            assert!(shown.node_count() + shown.missing() <= entries.len() as u64);
        }
        let again = decode_tree(&encode_tree(&head, &entries)).expect("our own bytes");
        assert_eq!(again, (head, entries));
    }
}

fn definition(bytes: &[u8]) {
    if let Ok(definition) = Definition::decode(bytes) {
        assert_eq!(Definition::decode(&definition.encode()).expect("our own bytes"), definition);
    }
}

/// A header that decodes is written as it was read.
fn s2_header(bytes: &[u8]) {
    if let Ok(sums) = s2_chunks::decode_header(bytes) {
        assert_eq!(s2_chunks::encode_header(&sums), bytes);
    }
}

/// So is a chunk; with the checksum that it has itself, for fuzzing finds no other.
fn s2_chunk(bytes: &[u8]) {
    let Some(sum) = bytes.first_chunk() else { return };
    if let Ok(data) = s2_chunks::decode_chunk(bytes, sum) {
        assert_eq!([&s2_chunks::chunk_head(data).0[..], data].concat(), bytes);
    }
}
