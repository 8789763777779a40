//! Targets of I/O coordination: what a coordinator and a client read from each other, and what the
//! preload library reads from the system, from files' attributes and from its settings.

use crate::corpus;
use crate::target::Target;
use coordinate::figure::{Choice, processes};
use coordinate::message::{
    CLIENT_FRAME_BYTES_MAX, ClientMessage, CoordinatorMessage, FRAME_BYTES_MAX, Hello, IoKind,
    Reason, Request, TargetList,
};
use coordinate::rules::settings::{Settings, Surroundings};
use coordinate::rules::{azekura, glob, lustre, mount};
use coordinate::server::ServerConfig;
use types::metrics::{Asked, look};

const AMPLIFICATION: usize = 64;
/// A parsed configuration holds a tree of its tables beside the result.
const CONFIG_AMPLIFICATION: usize = 256;

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
        target("ioc-lustre-layout", lustre_layout, lustre_layouts),
        target("ioc-azekura-targets", azekura_targets, || {
            vec![b"tank/3,tank/7".to_vec(), b"a".to_vec(), b",".to_vec()]
        }),
        target("ioc-mount-table", mount_table, mount_tables),
        target("ioc-glob", glob, || vec![b"/a/**/b*[!x-z]?\0/a/b/c/bcd".to_vec()]),
        Target {
            name: "ioc-settings",
            run: settings,
            seeds: settings_files,
            amplification_max: CONFIG_AMPLIFICATION,
        },
        target("ioc-trace", trace, traces),
        target("ioc-http", http, || {
            corpus::texts(&["GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD / HTTP/1.0\n\n"])
        }),
        Target {
            name: "ioc-coordinator-config",
            run: coordinator_config,
            seeds: || {
                corpus::texts(&[
                    "listen = ['unix:/a', 'tcp:h:1']\nmax_writers = 'auto:8'\nhold_max = '5min'\n",
                    "[[group]]\nname = 'g'\n[[group.target]]\npattern = 'a*'\nmax_readers = 2\n",
                    "[[job]]\npattern = '*'\nweight = 3\n[[target]]\npattern = 'b'\n",
                ])
            },
            amplification_max: CONFIG_AMPLIFICATION,
        },
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
        ClientMessage::Ping,
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
        CoordinatorMessage::Pong,
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

fn lustre_layouts() -> Vec<Vec<u8>> {
    let plain = lustre::sample::plain(1, &[3, 70_000], false);
    let pooled = lustre::sample::plain(1, &[5], true);
    let on_mdt = lustre::sample::plain(0x100, &[], false);
    let composite =
        lustre::sample::composite(&[(0x10, on_mdt), (0x10, plain.clone()), (0, pooled.clone())]);
    vec![plain, pooled, composite]
}

/// There are never more stripes than the bytes have room for.
fn lustre_layout(bytes: &[u8]) {
    let mut stripes = 0;
    let known = lustre::osts(bytes, |_| {
        stripes += 1;
        true
    });
    assert_eq!(known, stripes > 0);
    assert!(stripes * 24 <= bytes.len());
}

fn azekura_targets(bytes: &[u8]) {
    let mut names = 0;
    let known = azekura::targets(bytes, |name| {
        names += 1;
        assert!(!name.is_empty() && name.is_ascii());
    });
    assert_eq!(known, names > 0);
}

fn mount_tables() -> Vec<Vec<u8>> {
    let table = "22 1 254:0 / / rw shared:1 - ext4 /dev/root rw\n\
                 35 22 0:60 /sub /s\\040x rw - lustre 10.0.0.1@tcp:/lfs2/sub rw\n";
    vec![table.into(), b"pos:\t0\nflags:\t0100002\nmnt_id:\t22\n".to_vec()]
}

/// However the table arrives, the same mount is found.
fn mount_table(bytes: &[u8]) {
    let _ = mount::id_in_fdinfo(bytes);
    let look = |piece: usize| {
        let mut rest = bytes;
        let mut buffer = [0; 256];
        let found = mount::find(22, &mut buffer, |room| {
            let length = rest.len().min(room.len()).min(piece);
            let (now, later) = rest.split_at(length);
            room[..length].copy_from_slice(now);
            rest = later;
            length
        });
        found.map(|mount| {
            let _ = mount.lustre_name();
            mount.point.as_bytes().to_vec()
        })
    };
    assert_eq!(look(usize::MAX), look(7));
}

/// Pattern and text, with a zero between. A text without special bytes is a pattern of itself.
fn glob(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (pattern, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let _ = glob::matches(pattern, text);
    assert!(glob::matches(b"**", text));
    if !text.iter().any(|byte| b"*?[\\".contains(byte)) {
        assert!(glob::matches(text, text));
    }
}

fn settings_files() -> Vec<Vec<u8>> {
    let whole = "coordinator = \"tcp:[::1]:7431\"\nmin_size = \"1MiB\"\nreads = true\n\
                 timeout = \"500ms\"\nweight = 3\n[[rule]]\npath = \"/x/**\"\ntarget = \"hash:4:a\"\n\
                 [[coordinators]]\nhosts = [\"n*\"]\nranks = \"0-3,8-\"\naddresses = [\"unix:/a\"]\n\
                 by = \"host\"\nblock = 2\ngroup = \"z{}\"\n";
    vec![whole.into(), b"coordinator = \"unix:/run/a\"\n".to_vec()]
}

/// Settings are refused or fit into messages.
fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let loaded = Settings::load(&Surroundings {
        variable: &|name| (name == "PMI_RANK").then(|| "3".to_string()),
        read: &|_| Ok(Some(text.to_string())),
        host: "node12",
        user: 7,
        privileged: true,
    });
    if let Ok(Some(settings)) = loaded {
        let hello = Hello {
            token: b"",
            group: &settings.group,
            job: &settings.job,
            host: &settings.host,
            pid: 1,
            rank: settings.rank,
            weight: settings.weight,
            priority: settings.priority,
        };
        let mut room = [0; CLIENT_FRAME_BYTES_MAX];
        ClientMessage::Hello(hello).encode(&mut room).expect("settings fit into messages");
    }
}

fn traces() -> Vec<Vec<u8>> {
    let line = r#"{"what":"completed","time_us":9,"group":"","job":"j","host":"h","pid":1,"rank":2,"client":3,
        "id":4,"kind":"write","bytes":5,"targets":["a"],"wait_us":6,"held_us":7,"io_us":8}"#;
    let line = line.replace(char::is_whitespace, "") + "\n";
    vec![line.repeat(2).into_bytes(), line.into_bytes()]
}

/// Whatever numbers a trace holds, processes come in order.
fn trace(bytes: &[u8]) {
    if let Ok(found) = processes(bytes, &Choice::default()) {
        assert!(found.is_sorted_by_key(|process| process.end_us));
    }
}

/// An answer once given does not change by what comes after a whole request.
fn http(bytes: &[u8]) {
    let asked = look(bytes);
    if asked != Asked::Incomplete {
        let more: Vec<u8> = bytes.iter().chain(b"x").copied().collect();
        assert_eq!(look(&more), asked);
    }
}

/// A configuration that is accepted has groups of different names.
fn coordinator_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(config) = ServerConfig::parse(text) {
        let groups = config.groups().expect("it was checked");
        assert!(!groups.is_empty());
    }
}
