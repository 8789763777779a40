//! Targets of I/O coordination: what a coordinator and a client read from each other.

use crate::target::Target;
use coordinate::message::{
    CLIENT_FRAME_BYTES_MAX, ClientMessage, CoordinatorMessage, FRAME_BYTES_MAX, Hello, IoKind,
    Reason, Request, TargetList,
};

const AMPLIFICATION: usize = 64;

/// All targets of this module.
pub fn all() -> Vec<Target> {
    let target = |name, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>| Target {
        name,
        run,
        seeds,
        amplification_max: AMPLIFICATION,
    };
    vec![
        target("ioc-client-message", client_message, client_messages),
        target("ioc-coordinator-message", coordinator_message, coordinator_messages),
    ]
}

fn client_messages() -> Vec<Vec<u8>> {
    let targets = TargetList::new(&["ost0000", "ost0001"]).expect("plain names");
    let hello = Hello {
        token: b"token",
        group: "g",
        job: "j",
        host: "h",
        pid: 1,
        rank: None,
        weight: 1,
        priority: 0,
    };
    let request = Request { id: 1, kind: IoKind::Write, bytes: 2, targets: targets.as_targets() };
    let messages = [
        ClientMessage::Hello(hello),
        ClientMessage::Request(request),
        ClientMessage::Completion { id: 1, bytes: 2, io_us: 3 },
        ClientMessage::Cancel { id: 1 },
        ClientMessage::Stats,
    ];
    messages
        .iter()
        .map(|message| {
            let mut room = vec![0; CLIENT_FRAME_BYTES_MAX];
            let bytes = message.encode(&mut room).expect("a sample fits");
            room.truncate(bytes);
            room
        })
        .collect()
}

fn coordinator_messages() -> Vec<Vec<u8>> {
    let messages = [
        CoordinatorMessage::HelloAck { write_bytes_min: Some(8 << 20), read_bytes_min: None },
        CoordinatorMessage::Refused { reason: Reason::Token, text: "wrong token" },
        CoordinatorMessage::Ack { id: 1 },
        CoordinatorMessage::StatsPart { last: true, json: b"{}" },
    ];
    messages
        .iter()
        .map(|message| {
            let mut room = vec![0; FRAME_BYTES_MAX];
            let bytes = message.encode(&mut room).expect("a sample fits");
            room.truncate(bytes);
            room
        })
        .collect()
}

/// A message that decodes is encoded to the bytes it came from.
fn client_message(bytes: &[u8]) {
    if let Ok(Some((message, taken))) = ClientMessage::decode(bytes) {
        assert!(taken <= CLIENT_FRAME_BYTES_MAX);
        if let ClientMessage::Request(request) = message {
            assert_eq!(request.targets.names().count(), request.targets.len());
        }
        let mut room = [0; CLIENT_FRAME_BYTES_MAX];
        let written = message.encode(&mut room).expect("what was decoded can be encoded");
        assert_eq!(&room[..written], &bytes[..taken], "one message, two encodings");
    }
}

/// A refusal whose reason is of a later version comes back as "other"; all else unchanged.
fn coordinator_message(bytes: &[u8]) {
    if let Ok(Some((message, taken))) = CoordinatorMessage::decode(bytes) {
        let mut room = [0; FRAME_BYTES_MAX];
        let written = message.encode(&mut room).expect("what was decoded can be encoded");
        assert_eq!(written, taken);
        let again = CoordinatorMessage::decode(&room[..written]).expect("what we write decodes");
        assert_eq!(again, Some((message, taken)));
    }
}
