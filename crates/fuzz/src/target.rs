//! The list of targets: each a decoder, its seeds and its memory allowance.

use crate::{
    capi_targets, coordinate_targets, corpus, engine_targets, fuse_targets, intercept_targets,
    placement_targets, tier_targets, upper_targets, vos_targets, wire_targets,
};
use types::{CsumKind, Durability, ObjClass, Oid};

/// Something to fuzz.
pub struct Target {
    /// Name on the command line.
    pub name: &'static str,
    /// Takes any bytes and returns; a panic is a failure.
    pub run: fn(&[u8]),
    /// Valid inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Most bytes held while it runs, per byte of input; see [`Target::allowed_bytes`].
    pub amplification_max: usize,
}

/// Allowance that does not depend on the input's length, bytes: error texts, small buffers.
const FIXED_BYTES: usize = 64 << 10;
/// Allowance per input byte of decoders whose result is about as large as its input.
const FLAT: usize = 64;

impl Target {
    /// Most bytes the target may hold at once for an input of this length.
    pub fn allowed_bytes(&self, input_bytes: usize) -> usize {
        FIXED_BYTES + self.amplification_max * input_bytes
    }
}

/// All targets that must pass.
pub fn all() -> Vec<Target> {
    let mut targets = wire_targets::all();
    targets.extend(placement_targets::all());
    targets.extend(vos_targets::all());
    targets.extend(upper_targets::all());
    targets.extend(tier_targets::all());
    targets.extend(coordinate_targets::all());
    targets.extend(capi_targets::all());
    targets.extend(fuse_targets::all());
    targets.extend(intercept_targets::all());
    targets.extend(engine_targets::all());
    targets.push(Target {
        name: "etcd-answer",
        run: control::fuzz::etcd_answer,
        seeds: control::fuzz::etcd_seeds,
        // An empty part of a transaction's answer is three bytes.
        amplification_max: 256,
    });
    targets.push(Target {
        name: "catalog-files",
        run: control::fuzz::catalog_files,
        seeds: control::fuzz::catalog_seeds,
        // An empty entry of three bytes is one of a map.
        amplification_max: 1024,
    });
    targets.push(Target {
        name: "event-log",
        run: event_log,
        seeds: event_log_seeds,
        amplification_max: FLAT,
    });
    let text = |name, run, seeds| Target { name, run, seeds, amplification_max: FLAT };
    targets.extend([
        text(
            "obj-class",
            obj_class as fn(&[u8]),
            (|| {
                let named = ObjClass::named();
                named.iter().map(|class| class.to_string().into_bytes()).collect()
            }) as fn() -> Vec<Vec<u8>>,
        ),
        text("size", size, || corpus::texts(&["4096", "4KiB", "1.5GiB", "2 TB", "15e", "0.1k"])),
        text("oid-text", oid_text, || corpus::texts(&["0d00010000000007.0000000000000055", "0.1"])),
        text("oid-bits", oid_bits, || vec![vec![0; 16], vec![255; 16]]),
        text("prop-names", prop_names, || {
            corpus::texts(&["wal", "relaxed", "memory", "crc32c", "sha256", "off", "xxh3"])
        }),
        text("admission", admission, || {
            corpus::texts(&["off", "auto", "16", "climate:4,array:7:2", "a:1"])
        }),
        text("labels-and-names", labels_and_names, || {
            corpus::texts(&["tank", "a.b-c:d_e", "67e55044-10b1-426f-9247-bb680e5fe0c8", "..", ""])
        }),
    ]);
    targets
}

/// Targets that must fail, one for each kind of failure the driver knows.
pub fn canaries() -> Vec<Target> {
    let seeds: fn() -> Vec<Vec<u8>> = || vec![vec![4, 0, 0, 0, 1, 2, 3, 4]];
    vec![
        Target { name: "canary-panic", run: canary_panic, seeds, amplification_max: FLAT },
        Target { name: "canary-memory", run: canary_memory, seeds, amplification_max: FLAT },
    ]
}

/// Length of what follows, as a careless decoder reads it.
fn careless_length(bytes: &[u8]) -> Option<usize> {
    let raw: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    Some(u32::from_le_bytes(raw) as usize)
}

/// Slices by a length it did not check.
fn canary_panic(bytes: &[u8]) {
    if let Some(length) = careless_length(bytes) {
        std::hint::black_box(&bytes[4..][..length]);
    }
}

/// Reserves by a length it did not check.
fn canary_memory(bytes: &[u8]) {
    if let Some(length) = careless_length(bytes) {
        let room: Vec<u8> = Vec::with_capacity(length.min(1 << 24));
        std::hint::black_box(room);
    }
}

fn obj_class(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(class) = text.parse::<ObjClass>() {
        // A name means one class, and a class has one name.
        assert_eq!(class.to_string(), text.to_ascii_uppercase());
        assert!(class.scheme.members() >= 1);
        assert_eq!(types::Scheme::from_code(class.scheme.code()), Some(class.scheme));
        assert_eq!(types::GroupCount::from_code(class.groups.code()), Some(class.groups));
    }
}

fn size(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(parsed) = types::size::parse(text) {
        let shown = types::size::format(parsed);
        let again = types::size::parse(&shown).expect("a formatted size parses");
        // Two digits are shown, so the error is below one part in a hundred.
        assert!(again.abs_diff(parsed) <= parsed / 100, "{parsed} became {again} by {shown}");
    }
}

fn oid_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(oid) = text.parse::<Oid>() {
        assert_eq!(oid.to_string().parse::<Oid>().expect("a shown object id parses"), oid);
    }
}

fn event_log(bytes: &[u8]) {
    let (events, _) = engine::event_log::read_lines(bytes);
    for event in events {
        let again = engine::event_log::line(&event);
        assert_eq!(engine::event_log::read_lines(again.as_bytes()), (vec![event], 0));
    }
}

fn event_log_seeds() -> Vec<Vec<u8>> {
    let event = |number: u64| wire::event::Event {
        number,
        time_ns: 1_700_000_000_000_000_000,
        count: 1,
        code: wire::event::EventCode::TargetDown.name().into(),
        engine: Some(types::Rank(1)),
        target: Some(types::TargetId(2)),
        pool: Some(types::PoolId(3)),
        object: "nvme0".into(),
        what: "gone".into(),
    };
    let one = engine::event_log::line(&event(1));
    let two = one.clone() + &engine::event_log::line(&event(2));
    // A sum that fits what a mutation makes is not found: these texts have none of the fields, or strange ones.
    let strange = |text: &str| format!("{:08x} {text}\n", wire::header::crc(text.as_bytes()));
    let strange =
        [strange("{}"), strange("[]"), strange("{\"number\":-1}"), strange("\"\\ud800\"")];
    let strange = strange.into_iter().map(String::into_bytes);
    [one.into_bytes(), two.into_bytes()].into_iter().chain(strange).collect()
}

fn admission(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(limit) = text.parse::<wire::admission::Limit>() {
        assert_eq!(limit.to_string().parse::<wire::admission::Limit>().expect("parses"), limit);
    }
    if let Ok(weights) = text.parse::<wire::admission::Weights>() {
        assert!(weights.of("x") >= 1);
        assert_eq!(
            weights.to_string().parse::<wire::admission::Weights>().expect("parses"),
            weights
        );
    }
}

fn oid_bits(bytes: &[u8]) {
    let Some(raw) = bytes.first_chunk::<16>() else { return };
    let oid = Oid::from_bytes(*raw);
    assert_eq!(oid.to_bytes(), *raw);
    let _ = (oid.obj_type(), oid.dkey_kind(), oid.placement_key(), oid.placement_epoch());
    if let Ok(class) = oid.class() {
        let again: ObjClass = class.to_string().parse().expect("the class of an id has a name");
        assert_eq!(again, class);
    }
}

fn prop_names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(value) = text.parse::<Durability>() {
        assert_eq!(value.to_string(), text.to_ascii_lowercase());
    }
    if let Ok(value) = text.parse::<CsumKind>() {
        assert_eq!(value.to_string(), text.to_ascii_lowercase());
    }
}

fn labels_and_names(bytes: &[u8]) {
    if types::limits::check_name(bytes).is_ok() {
        assert!(!bytes.is_empty() && !bytes.contains(&b'/') && !bytes.contains(&0));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let name = wire::control::Name::parse(text);
    if types::limits::check_label(text).is_ok() {
        // A label can never be taken for a UUID.
        assert_eq!(name, wire::control::Name::Label(text.to_string()));
    }
}
