//! What is asked of a store when files are read in this order or that, by one or by several.

use super::*;
use crate::manifest::{FILE_FORMAT, to_hex};
use crate::part::{encode_plain, sum};
use dfs::tier::TierRecord;
use futures_executor::block_on;
use futures_util::future::join;
use types::{ContId, Oid};
use wire::obj::Recx;

const MIB: usize = 1 << 20;
const PART: usize = 8 * MIB;

/// A directory with a copy of a file, and who reads it.
struct Copied {
    dir: tempfile::TempDir,
    source: Source,
    record: TierRecord,
    data: Vec<u8>,
}

impl Copied {
    /// A file of so many MiB. The parts from `moved` on have keys that cannot be guessed.
    fn of(mibs: usize, moved: usize) -> Copied {
        let dir = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..mibs * MIB).map(|at| (at / MIB * 7 + at % 251) as u8).collect();
        let parts: Vec<PartName> = data
            .chunks(PART)
            .enumerate()
            .map(|(at, bytes)| {
                let key = if at < moved { format!("f.{at:06}.part") } else { format!("kept{at}") };
                std::fs::write(dir.path().join(&key), encode_plain(bytes)).unwrap();
                let (bytes, sha256) = (bytes.len() as u64, to_hex(&sum(bytes)));
                PartName { key, bytes, sha256, encoding: None, key_id: None }
            })
            .collect();
        let (size, part_bytes) = (data.len() as u64, PART as u64);
        let manifest = FileManifest {
            format: FILE_FORMAT.into(),
            container: "c".into(),
            object: "o".into(),
            version: 1,
            size,
            part_bytes,
            parts,
        };
        let (raw, manifest_sum) = manifest.encode();
        std::fs::write(dir.path().join("f.json"), raw).unwrap();
        let url = format!("fs://{}", dir.path().display());
        let definition = serde_json::json!({ "url": url, "part_bytes": part_bytes });
        let definition: Definition = serde_json::from_value(definition).unwrap();
        let source = Source::new(Box::new(move |_| Ok(definition.clone())));
        source.set_ahead_bytes(16 << 20);
        let record = TierRecord {
            oid: Oid::default(),
            version: 1,
            size,
            part_bytes,
            upload: None,
            manifest_sum,
            tier: "cold".into(),
            manifest: "f.json".into(),
            synced: Vec::new(),
        };
        Copied { dir, source, record, data }
    }

    async fn read(&self, mib: usize) -> Result<CopyPiece> {
        let range = Recx { index: (mib * MIB) as u64, count: MIB as u64 };
        let ask = TierAsk { cont: ContId::default(), record: self.record.clone(), range };
        let piece = self.source.read_around(ask).await?;
        let from = piece.from as usize;
        assert!(from <= mib * MIB && (mib + 1) * MIB <= from + piece.bytes.len());
        Ok(piece)
    }

    /// Reads a MiB, and compares all that came.
    fn check(&self, mib: usize) {
        let piece = block_on(self.read(mib)).unwrap();
        let from = piece.from as usize;
        assert!(*piece.bytes == self.data[from..from + piece.bytes.len()], "MiB {mib}");
    }

    fn counts(&self) -> (u64, u64, u64, u64) {
        let counts = self.source.counts();
        (counts.misses, counts.miss_bytes >> 20, counts.hits, counts.ahead_bytes >> 20)
    }
}

#[test]
fn two_readers_of_a_chunk_share_its_way() {
    for moved in [0, 9] {
        let copied = Copied::of(16, moved);
        let (one, two) = block_on(join(copied.read(3), copied.read(3)));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(Arc::ptr_eq(&one.bytes, &two.bytes) && one.bytes.len() == MIB);
        assert!(*one.bytes == copied.data[3 * MIB..4 * MIB]);
        let counts = copied.source.counts();
        assert_eq!((counts.misses, counts.hits), (1, 1), "{counts:?}");
    }
}

#[test]
fn a_read_gets_its_range_and_one_that_goes_on_a_piece_and_what_is_behind_it() {
    let copied = Copied::of(40, 9);
    copied.check(0);
    assert_eq!(copied.counts(), (1, 1, 0, 0));
    copied.check(1);
    // The rest of its piece; and 16 MiB from the end of the read on, less what begins later and does not end there.
    assert_eq!(copied.counts(), (2, 4, 0, 12));
    for mib in 2..40 {
        copied.check(mib);
    }
    // Each byte once.
    let counts = copied.source.counts();
    assert_eq!((counts.misses, counts.ahead_bytes >> 20), (2, 36));
    assert_eq!(counts.ahead_used_bytes, counts.ahead_bytes);
    // Elsewhere, and in order without looking ahead: what is asked for.
    let copied = Copied::of(40, 9);
    for mib in [30, 5, 20] {
        copied.check(mib);
    }
    assert_eq!(copied.counts(), (3, 3, 0, 0));
    copied.source.set_ahead_bytes(0);
    (8..12).for_each(|mib| copied.check(mib));
    assert_eq!(copied.counts(), (7, 7, 0, 0));
}

#[test]
fn whole_parts_are_proved_by_their_sum_whatever_is_here_of_them() {
    let copied = Copied::of(16, 9);
    let part = copied.dir.path().join("f.000000.part");
    let whole = std::fs::read(&part).unwrap();
    let mut damaged = whole.clone();
    damaged[HEADER_BYTES + 5] ^= 1;
    std::fs::write(&part, &damaged).unwrap();
    // Who asks for a range knows its sum, and asks for the part then.
    let piece = block_on(copied.read(0)).unwrap();
    assert!(piece.bytes[5] != copied.data[5]);
    let read = || {
        let range = Recx { index: 0, count: PART as u64 };
        let ask = TierAsk { cont: ContId::default(), record: copied.record.clone(), range };
        block_on(copied.source.read(ask))
    };
    assert_eq!(read().unwrap_err().code, Code::Csum);
    // A range that is all of a part once was taken for one that had been compared.
    let all = Recx { index: 0, count: PART as u64 };
    let ask = TierAsk { cont: ContId::default(), record: copied.record.clone(), range: all };
    copied.source.drop_parts();
    assert_eq!(block_on(copied.source.read_around(ask)).err().map(|it| it.code), Some(Code::Csum));
    assert_eq!(read().unwrap_err().code, Code::Csum);
    std::fs::write(&part, &whole).unwrap();
    assert!(read().unwrap() == copied.data[..PART]);
    copied.check(0);
    // What is lost is an error, and there again when it is back.
    let copied = Copied::of(16, 9);
    let part = copied.dir.path().join("f.000001.part");
    std::fs::rename(&part, copied.dir.path().join("away")).unwrap();
    assert_eq!(block_on(copied.read(9)).unwrap_err().code, Code::NonExist);
    std::fs::rename(copied.dir.path().join("away"), &part).unwrap();
    copied.check(9);
}

/// What somebody else had read was handed to whoever named its key.
#[test]
fn a_key_without_its_sum_opens_nothing() {
    let copied = Copied::of(16, 9);
    let read = |record: TierRecord, index: usize| {
        let range = Recx { index: (index * MIB) as u64, count: MIB as u64 };
        let ask = TierAsk { cont: ContId::default(), record, range };
        block_on(copied.source.for_others().read_around(ask))
    };
    let mut of_none = copied.record.clone();
    of_none.manifest_sum[0] ^= 1;
    for is_read in [false, true] {
        if is_read {
            copied.check(3);
        }
        assert_eq!(read(of_none.clone(), 3).unwrap_err().code, Code::Csum, "read: {is_read}");
        for part_bytes in [PART / 2, PART * 2] {
            let other = TierRecord { part_bytes: part_bytes as u64, ..copied.record.clone() };
            assert_eq!(read(other, 3).unwrap_err().code, Code::Csum, "parts of {part_bytes}");
        }
    }
    copied.check(3);
}

/// Whoever waited for the first bytes of a file had waited for its manifest as well, though their checksum was known and where they are is, in most cases.
#[test]
fn the_first_bytes_wait_for_no_manifest() {
    let copied = Copied::of(16, 9);
    let manifest = copied.dir.path().join("f.json");
    std::fs::rename(&manifest, copied.dir.path().join("away")).unwrap();
    let of_others = || {
        let range = Recx { index: 0, count: MIB as u64 };
        let ask = TierAsk { cont: ContId::default(), record: copied.record.clone(), range };
        block_on(copied.source.for_others().read_around(ask)).err().map(|error| error.code)
    };
    assert_eq!(of_others(), Some(Code::NonExist));
    copied.check(3);
    assert_eq!(copied.counts(), (1, 1, 0, 0));
    // Who goes on needs it, and others do for what is here.
    assert_eq!(block_on(copied.read(4)).unwrap_err().code, Code::NonExist);
    assert_eq!(of_others(), Some(Code::NonExist));
    std::fs::rename(copied.dir.path().join("away"), &manifest).unwrap();
    copied.check(4);
    // Where the bytes are not where they were thought to be the manifest tells where they are.
    let copied = Copied::of(16, 0);
    copied.check(3);
    assert_eq!(copied.counts(), (1, 1, 0, 0));
}

#[test]
fn who_wants_all_of_a_file_has_the_most_fetched_ahead_at_once() {
    let copied = Copied::of(40, 9);
    copied.source.announce(&copied.record, 0);
    copied.check(0);
    assert_eq!(copied.counts(), (1, 4, 0, 12));
}

#[test]
fn pieces_end_at_multiples_of_their_size() {
    let part = 100..130;
    let ends: Vec<u64> = [100, 101, 109, 110, 125].map(|at| piece_end(at, &part, 10)).into();
    assert_eq!(ends, [110, 110, 110, 120, 130]);
    assert_eq!([piece_end(100, &part, 7), piece_end(129, &part, 7)], [107, 130]);
    assert_eq!(piece_end(100, &part, u64::MAX), 130);
}

#[test]
fn the_environment_says_how_much_and_in_what_pieces() {
    assert_eq!(sizes(""), (AHEAD_BYTES, PIECE_BYTES, None));
    assert_eq!(sizes("0"), (0, PIECE_BYTES, None));
    assert_eq!(sizes("128MiB, 1MiB"), (128 << 20, 1 << 20, None));
    assert_eq!(sizes("128MiB,1MiB, 16"), (128 << 20, 1 << 20, Some(16)));
    assert_eq!(sizes("nonsense,0,0"), (AHEAD_BYTES, PIECE_BYTES, None));
}
