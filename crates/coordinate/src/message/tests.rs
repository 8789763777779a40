//! Round trips, the frozen bytes, and frames that must be refused.

use super::*;
use proptest::prelude::*;

fn encoded(message: &ClientMessage<'_>) -> Vec<u8> {
    let mut room = [0; CLIENT_FRAME_BYTES_MAX];
    let bytes = message.encode(&mut room).unwrap();
    room[..bytes].to_vec()
}

fn answer(message: &CoordinatorMessage<'_>) -> Vec<u8> {
    let mut room = vec![0; FRAME_BYTES_MAX];
    let bytes = message.encode(&mut room).unwrap();
    room.truncate(bytes);
    room
}

fn hello() -> Hello<'static> {
    Hello {
        token: b"secret",
        group: "z7",
        job: "4711",
        host: "node12",
        pid: 99,
        rank: Some(3),
        weight: 2,
        priority: 1,
    }
}

/// The bytes of version 1. A change here needs a new [`VERSION`].
#[test]
fn version_1_stays_as_it_is() {
    let list = TargetList::new(&["ost0", "ost1"]).unwrap();
    let request = Request { id: 7, kind: IoKind::Read, bytes: 513, targets: list.as_targets() };
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let golden = [
        (
            encoded(&ClientMessage::Hello(hello())),
            "2a00000001000000415a494f0100010002000000630000000300000006736563726574027a370434373131066e6f64653132",
        ),
        (
            encoded(&ClientMessage::Request(request)),
            "1c00000002000000070000000000000001020000000000000102046f737430046f737431",
        ),
        (
            encoded(&ClientMessage::Completion { id: 1, bytes: 2, io_us: 3 }),
            "1800000003000000010000000000000002000000000000000300000000000000",
        ),
        (encoded(&ClientMessage::Cancel { id: 258 }), "08000000040000000201000000000000"),
        (encoded(&ClientMessage::Stats), "0000000005000000"),
        (encoded(&ClientMessage::Ping), "0000000006000000"),
        (answer(&CoordinatorMessage::Pong), "0000000085000000"),
        (
            answer(&CoordinatorMessage::HelloAck {
                write_bytes_min: Some(9),
                read_bytes_min: None,
            }),
            "180000008100000001000000000000000900000000000000ffffffffffffffff",
        ),
        (
            answer(&CoordinatorMessage::Refused { reason: Reason::Token, text: "no" }),
            "05000000820000000200026e6f",
        ),
        (answer(&CoordinatorMessage::Ack { id: 5 }), "08000000830000000500000000000000"),
        (
            answer(&CoordinatorMessage::StatsPart { last: true, json: b"{}" }),
            "0300000084000000017b7d",
        ),
    ];
    for (bytes, expected) in golden {
        assert_eq!(hex(bytes), expected);
    }
}

#[test]
fn a_client_of_another_version_is_told_so() {
    let mut bytes = encoded(&ClientMessage::Hello(hello()));
    bytes[HEADER_BYTES + 4] = 2;
    assert_eq!(ClientMessage::decode(&bytes), Err(DecodeError::Version { theirs: 2 }));
    // Whatever a later version appends.
    bytes.extend([7; 100]);
    bytes[0] += 100;
    assert_eq!(ClientMessage::decode(&bytes), Err(DecodeError::Version { theirs: 2 }));
}

#[test]
fn strangers_and_impossible_lengths_are_refused_by_the_header_alone() {
    for stranger in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-OpenSSH", &[0xff; 8], &[0; 8]] {
        assert_eq!(ClientMessage::decode(stranger), Err(DecodeError::NotAFrame));
    }
    for (kind, bytes) in [(1, 2041_u32), (2, 19), (2, 4115), (3, 25), (4, 9), (5, 1), (1, u32::MAX)]
    {
        let mut header = [0; 8];
        header[..4].copy_from_slice(&bytes.to_le_bytes());
        header[4] = kind;
        assert_eq!(ClientMessage::decode(&header), Err(DecodeError::Length { kind, bytes }));
    }
    // What a coordinator sends is not for a coordinator.
    let ack = answer(&CoordinatorMessage::Ack { id: 1 });
    assert_eq!(ClientMessage::decode(&ack), Err(DecodeError::NotAFrame));
    assert!(CoordinatorMessage::decode(&encoded(&ClientMessage::Stats)).is_err());
}

#[test]
fn every_frame_a_client_may_send_fits_its_bound() {
    let long = "n".repeat(NAME_BYTES_MAX);
    let token = [1; NAME_BYTES_MAX];
    let hello = Hello { token: &token, group: &long, job: &long, host: &long, ..hello() };
    assert!(encoded(&ClientMessage::Hello(hello)).len() <= HELLO_FRAME_BYTES_MAX);
    let list = TargetList::new(&[&long; TARGETS_MAX]).unwrap();
    let request = Request { id: 1, kind: IoKind::Write, bytes: 1, targets: list.as_targets() };
    let bytes = encoded(&ClientMessage::Request(request));
    let (back, taken) = ClientMessage::decode(&bytes).unwrap().unwrap();
    assert_eq!((back, taken), (ClientMessage::Request(request), bytes.len()));
}

#[test]
fn what_cannot_be_decoded_is_not_encoded() {
    let mut room = [0; 64];
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    for (names, error) in [
        (&[][..], EncodeError::TargetCount),
        (&["a"; TARGETS_MAX + 1], EncodeError::TargetCount),
        (&[""], EncodeError::Name),
        (&["a\nb"], EncodeError::Name),
        (&[&long], EncodeError::Name),
    ] {
        assert_eq!(TargetList::new(names), Err(error));
    }
    let hello_0 = ClientMessage::Hello(Hello { weight: 0, ..hello() });
    assert_eq!(hello_0.encode(&mut room), Err(EncodeError::Number));
    assert_eq!(ClientMessage::Cancel { id: 1 }.encode(&mut room[..15]), Err(EncodeError::Room));
    assert_eq!(ClientMessage::Stats.encode(&mut room[..7]), Err(EncodeError::Room));
}

#[test]
fn a_long_refusal_is_cut_between_characters() {
    let text = "é".repeat(200);
    let bytes = answer(&CoordinatorMessage::Refused { reason: Reason::Group, text: &text });
    let Some((CoordinatorMessage::Refused { text, .. }, _)) =
        CoordinatorMessage::decode(&bytes).unwrap()
    else {
        panic!("no refusal")
    };
    assert_eq!(text, "é".repeat(127));
}

fn name(least: usize) -> impl Strategy<Value = String> {
    proptest::string::string_regex(&format!("[ -~é]{{{least},40}}")).unwrap()
}

proptest! {
    #[test]
    fn hellos_survive(
        token: Vec<u8>, names in [name(0), name(0), name(0)], pid: u32,
        rank in proptest::option::of(0..u32::MAX), weight in 1..=u16::MAX, priority: u8,
    ) {
        let [group, job, host] = &names;
        let token = &token[..token.len().min(NAME_BYTES_MAX)];
        let hello = ClientMessage::Hello(
            Hello { token, group, job, host, pid, rank, weight, priority });
        let bytes = encoded(&hello);
        prop_assert_eq!(ClientMessage::decode(&bytes).unwrap().unwrap(), (hello, bytes.len()));
    }

    #[test]
    fn requests_survive_and_wait_for_their_last_byte(
        id: u64, read: bool, bytes: u64, names in prop::collection::vec(name(1), 1..=TARGETS_MAX),
    ) {
        let list = TargetList::new(&names).unwrap();
        prop_assert!(list.as_targets().names().eq(names.iter().map(String::as_str)));
        let kind = if read { IoKind::Read } else { IoKind::Write };
        let request = ClientMessage::Request(
            Request { id, kind, bytes, targets: list.as_targets() });
        let mut sent = encoded(&request);
        for cut in 0..sent.len() {
            prop_assert_eq!(ClientMessage::decode(&sent[..cut]), Ok(None));
        }
        let whole = sent.len();
        sent.extend([0xff; 20]);
        prop_assert_eq!(ClientMessage::decode(&sent).unwrap().unwrap(), (request, whole));
    }

    #[test]
    fn a_damaged_byte_is_refused_or_gives_another_message(at in 0..28_usize, to: u8) {
        let list = TargetList::new(&["ost0", "ost1"]).unwrap();
        let request = Request { id: 7, kind: IoKind::Write, bytes: 5, targets: list.as_targets() };
        let good = encoded(&ClientMessage::Request(request));
        let mut bad = good.clone();
        bad[at] = to;
        if let Ok(Some((message, taken))) = ClientMessage::decode(&bad) {
            prop_assert_eq!(encoded(&message), &bad[..taken], "one message, one encoding");
        }
    }
}
