//! Bytes of every record, and what damage makes of them.

use super::*;

/// Every kind of record and change, with its bytes.
fn golden() -> Vec<(RecordDf<'static>, Vec<u8>)> {
    let (cont, unit) = (ContId(7), Unit { object: types::Oid { hi: 1, lo: 2 }, group: 3, cell: 4 });
    let tx = TxId { client: ClientId(3), seq: 4 };
    let origin = OriginDf { tx, of: None, reply: b"r" };
    let of_group = OriginDf { of: Some(unit), ..origin };
    let (dkey, akey): (&[u8], &[u8]) = (b"d", b"a");
    let runs = vec![RunDf { at: 8, bytes: 9 }];
    let records =
        |place| ChangeDf::Records { unit, dkey, akey, record_bytes: 1, index: 5, count: 2, place };
    let one = |change: ChangeDf<'static>| RecordDf::Apply {
        cont,
        epoch: Epoch(6),
        changes: vec![change],
        origin: None,
        orphans: vec![],
        sums: vec![],
    };
    let framed = |body: &[u8]| [&[7, 6, 1], body, &[0, 0, 0]].concat();
    let block_sums = BlockSumsDf { first: 3, kind: CsumKind::Crc32c, sums: &[1, 2, 3, 4] };
    let mut list = vec![
        (
            RecordDf::CreateCont { cont, sums: SumPolicy { kind: CsumKind::Xxh3, verify: true } },
            vec![0, 7, 3, 1],
        ),
        (RecordDf::DestroyCont { cont }, vec![1, 7]),
        (
            RecordDf::Apply {
                cont,
                epoch: Epoch(6),
                changes: vec![],
                origin: Some(origin),
                orphans: vec![OrphanChange::Add(unit), OrphanChange::Remove(unit)],
                sums: vec![block_sums],
            },
            vec![
                2, 7, 6, 0, 1, 3, 4, 0, 1, b'r', 2, 0, 1, 2, 3, 4, 1, 1, 2, 3, 4, 1, 3, 1, 4, 1, 2,
                3, 4,
            ],
        ),
        (
            RecordDf::Prepare {
                tx,
                coordinator: unit,
                cont,
                wire_version: 1,
                batch: b"b",
                pieces: vec![PieceDf::Inline(b"i"), PieceDf::Run(runs[0])],
                sums: vec![block_sums],
            },
            vec![
                3, 3, 4, 1, 2, 3, 4, 7, 1, 1, b'b', 2, 0, 1, b'i', 1, 8, 9, 1, 3, 1, 4, 1, 2, 3, 4,
            ],
        ),
        (
            RecordDf::Decide {
                tx,
                outcome: TxOutcome::Committed(Epoch(6)),
                origin: None,
                orphans: vec![],
            },
            vec![4, 3, 4, 0, 6, 0, 0],
        ),
        (
            RecordDf::Decision { tx, epoch: Epoch(6), participants: vec![unit], origin: None },
            vec![5, 3, 4, 6, 1, 1, 2, 3, 4, 0],
        ),
        (RecordDf::ForgetDecision { tx }, vec![6, 3, 4]),
        (RecordDf::Reply { origin: of_group }, vec![7, 3, 4, 1, 1, 2, 3, 4, 1, b'r']),
        (RecordDf::Orphan { cont, unit }, vec![8, 7, 1, 2, 3, 4]),
        (RecordDf::LastEpoch { epoch: Epoch(6) }, vec![9, 6]),
        (
            RecordDf::Part(PartDf {
                cont,
                unit,
                life: Epoch(9),
                is_first: true,
                changes: vec![(Epoch(6), ChangeDf::PunchObj { unit })],
                touches: vec![TouchDf::Akey(dkey, akey, Epoch(6)), TouchDf::Dkey(dkey, Epoch(6))],
                epochs: (Epoch(6), Epoch(5), Epoch(4)),
                facts: vec![FactsDf {
                    until: Epoch(5),
                    epoch: Epoch(3),
                    keys_epoch: Epoch(2),
                    bytes_used: 7,
                    dkey_count: 1,
                    counted_links: 2,
                }],
                past: vec![(Epoch(3), Epoch(5), ChangeDf::PunchObj { unit })],
            }),
            vec![
                10, 7, 1, 2, 3, 4, 9, 1, 1, 6, 4, 1, 2, 3, 4, 2, 0, 1, b'd', 1, b'a', 6, 1, 1,
                b'd', 6, 6, 5, 4, 1, 5, 3, 2, 7, 1, 2, 1, 3, 5, 4, 1, 2, 3, 4,
            ],
        ),
        (
            RecordDf::Versions {
                cont,
                versions: VersionsDf {
                    revision: 2,
                    snapshots: vec![Epoch(3), Epoch(4)],
                    held: true,
                    stage: StageDf::RollingBack(Epoch(3)),
                },
                unswept: true,
            },
            vec![11, 7, 2, 2, 3, 4, 1, 2, 3, 1],
        ),
        (
            RecordDf::Sweep {
                cont,
                unit,
                at: SweepAtDf { life: Epoch(9), in_past: true, after: Some(b"d") },
                count: 5,
            },
            vec![12, 7, 1, 2, 3, 4, 9, 1, 1, 1, b'd', 5],
        ),
        (
            RecordDf::RollBack { cont, unit, to: Epoch(3), epoch: Epoch(6), after: None, count: 5 },
            vec![13, 7, 1, 2, 3, 4, 3, 6, 0, 5],
        ),
        (RecordDf::ForgetOrphans { cont }, vec![14, 7]),
        (
            RecordDf::Join { cont, unit, dkey, akey, index: 5, count: 2, at: 8, copied: None },
            vec![15, 7, 1, 2, 3, 4, 1, b'd', 1, b'a', 5, 2, 8, 0],
        ),
        (
            RecordDf::SumRegion {
                region: RegionDf {
                    kind: CsumKind::Crc32c,
                    region: 9,
                    present: vec![1, 0].into(),
                    sums: vec![5, 6].into(),
                },
            },
            vec![16, 1, 9, 2, 1, 0, 2, 5, 6],
        ),
        (
            RecordDf::BadBlocks { blocks: vec![(7, BadMark { found_ns: 8, by_scrubber: true })] },
            vec![17, 1, 7, 8, 1],
        ),
        (
            RecordDf::Scrub {
                progress: ScrubProgress {
                    under_way: true,
                    next_block: 2,
                    bad_count: 3,
                    passes: 4,
                    begin_ns: 5,
                    end_ns: 6,
                    end_bad_count: 7,
                },
            },
            vec![18, 1, 2, 3, 4, 5, 6, 7],
        ),
        (RecordDf::Opener { client: ClientId(3), holds: true }, vec![19, 3, 1]),
        (
            RecordDf::Install(InstallDf {
                cont,
                unit,
                dkey,
                epoch: Epoch(6),
                changes: vec![(Epoch(6), ChangeDf::Single { unit, dkey, akey, value: b"v" })],
                touches: vec![TouchDf::Akey(dkey, akey, Epoch(6))],
                past: vec![(Epoch(3), Epoch(5), records(PlaceDf::Zero))],
                sums: vec![block_sums],
            }),
            [
                &[20, 7, 1, 2, 3, 4, 1, b'd', 6, 1, 6][..],
                b"\0\x01\x02\x03\x04\x01d\x01a\x01v",
                &[1, 0, 1, b'd', 1, b'a', 6, 1, 3, 5],
                b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\x02",
                &[1, 3, 1, 4, 1, 2, 3, 4],
            ]
            .concat(),
        ),
        (
            RecordDf::InstallFacts {
                cont,
                unit,
                epochs: (Epoch(6), Epoch(5), Epoch(4)),
                facts: vec![FactsDf {
                    until: Epoch(5),
                    epoch: Epoch(3),
                    keys_epoch: Epoch(2),
                    bytes_used: 7,
                    dkey_count: 1,
                    counted_links: 2,
                }],
            },
            vec![21, 7, 1, 2, 3, 4, 6, 5, 4, 1, 5, 3, 2, 7, 1, 2],
        ),
        (RecordDf::HoldsCopies, vec![22]),
        (RecordDf::Lacks { since: Some(Epoch(6)) }, vec![24, 1, 6]),
        (RecordDf::Lacks { since: None }, vec![24, 0]),
        (RecordDf::MovesSingles, vec![25]),
        (RecordDf::FollowsMap { version: 300 }, vec![33, 0xac, 2]),
        (
            RecordDf::Fold {
                cont,
                unit,
                dkey,
                akey,
                stripe: Stripe { first: 5, version: Epoch(6), cell_bytes: 300 },
                count: 9,
            },
            vec![26, 7, 1, 2, 3, 4, 1, b'd', 1, b'a', 5, 6, 0xac, 2, 9],
        ),
        (
            RecordDf::OpenerTrace {
                client: ClientId(3),
                process: Some(HostProcess { space: 4, pid: 5, began: 6 }),
                awaited_s: 7,
            },
            vec![27, 3, 1, 4, 5, 6, 7],
        ),
        (
            RecordDf::GiveUp {
                cont,
                place: LostPlaceDf {
                    what: LostWhatDf::Bucket { prefix: 64, depth: 3 },
                    is_open: true,
                },
            },
            vec![28, 7, 0, 64, 3, 1],
        ),
        (
            RecordDf::Lost {
                cont,
                place: LostPlaceDf {
                    what: LostWhatDf::Part { unit, start: b"d", end: None },
                    is_open: false,
                },
            },
            vec![29, 7, 1, 1, 2, 3, 4, 1, b'd', 0, 0],
        ),
        (RecordDf::CloseLost, vec![30]),
        (RecordDf::Reclaim { runs: vec![(3, 5)] }, vec![31, 1, 3, 5]),
        (RecordDf::CopiesSeen { bits: 12 }, vec![32, 12]),
    ];
    let changes: Vec<(ChangeDf<'static>, &[u8])> = vec![
        (ChangeDf::Single { unit, dkey, akey, value: b"v" }, b"\0\x01\x02\x03\x04\x01d\x01a\x01v"),
        (
            ChangeDf::SingleRuns { unit, dkey, akey, runs },
            b"\x01\x01\x02\x03\x04\x01d\x01a\x01\x08\x09",
        ),
        (records(PlaceDf::Inline(b"xy")), b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\0\x02xy"),
        (records(PlaceDf::Blocks(8)), b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\x01\x08"),
        (records(PlaceDf::Zero), b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\x02"),
        (
            records(PlaceDf::Coded(Stripe { first: 4, version: Epoch(6), cell_bytes: 3 })),
            b"\x02\x01\x02\x03\x04\x01d\x01a\x01\x05\x02\x03\x04\x06\x03",
        ),
        (
            ChangeDf::PunchRecords { unit, dkey, akey, index: 5, count: 2 },
            b"\x03\x01\x02\x03\x04\x01d\x01a\x05\x02",
        ),
        (ChangeDf::PunchObj { unit }, b"\x04\x01\x02\x03\x04"),
        (ChangeDf::PunchDkey { unit, dkey }, b"\x05\x01\x02\x03\x04\x01d"),
        (ChangeDf::PunchDkeysFrom { unit, from: 9 }, b"\x06\x01\x02\x03\x04\x09"),
        (ChangeDf::PunchAkey { unit, dkey, akey }, b"\x07\x01\x02\x03\x04\x01d\x01a"),
    ];
    for (change, bytes) in changes {
        list.push((one(change), [&[2][..], &framed(bytes)].concat()));
    }
    list
}

#[test]
fn golden_bytes_of_every_record() {
    // A change here is a change of format: bump RECORD_VERSION and keep reading the old one.
    for (record, want) in golden() {
        let mut raw = Vec::new();
        encode_into(&record, &mut raw);
        assert_eq!(raw[..4], (want.len() as u32).to_le_bytes(), "{record:?}");
        assert_eq!(raw[4..], want, "{record:?}");
        if let RecordDf::Apply { cont, epoch, changes, origin, orphans, sums } = &record {
            let (cont, epoch, origin, sums) = (*cont, *epoch, *origin, sums.clone());
            let apply = ApplyDf { cont, epoch, changes, origin, orphans, sums };
            let mut of_fields = Vec::new();
            encode_apply_into(&apply, &mut of_fields);
            assert_eq!(of_fields, raw, "{record:?}");
        }
        let mut rest = &raw[..];
        assert_eq!(decode_first(&mut rest).unwrap(), record);
        assert!(rest.is_empty());
    }
}

#[test]
fn damaged_records_are_errors_or_other_records_never_panics() {
    for (_, want) in golden() {
        let mut raw = (want.len() as u32).to_le_bytes().to_vec();
        raw.extend_from_slice(&want);
        for at in 0..raw.len() {
            for flip in [1, 0x10, 0x80, 0xff] {
                let mut damaged = raw.clone();
                damaged[at] ^= flip;
                // Twice: the second replay meets what the first left.
                crate::fuzz::record(&[&damaged[..], &raw, &damaged].concat());
            }
            crate::fuzz::record(&raw[..at]);
        }
    }
}
