//! A whole simulated engine as a hostile client finds it: a message whatever it is, to a target or the control service.
//!
//! Inputs: whom it is for (128 and more: the control service), how much bulk comes with it, the encoded message. Engines
//! outlive many inputs, so that what one leaves is there for the next; what needs several may not repeat from the last alone.

use crate::corpus;
use crate::target::Target;
use env::Rng;
use sim::hostile::Prey;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use types::Durability;

/// Messages that an engine gets before another takes its place.
const LIFE: u32 = 2000;
/// Beginning with this, a message is for the control service.
const CONTROL: u8 = 128;
/// Bytes of bulk that may come with a message.
const BULK_BYTES: [usize; 6] = [0, 1, 300, 4096, 4396, 70_000];

/// An engine and how many messages it has had. One that an input has broken, or that is there when the process ends, is left
/// as it is: taking it down could break more.
type Used = ManuallyDrop<(Prey, u32)>;

thread_local! {
    static PREY: Cell<Option<Used>> = const { Cell::new(None) };
}

pub fn all() -> Vec<Target> {
    // Beside the input there is an engine.
    vec![Target { name: "engine", run: engine, seeds, amplification_max: 256 << 20 }]
}

fn start() -> Prey {
    Prey::start(1, Durability::Wal).expect("a simulated engine starts")
}

fn engine(input: &[u8]) {
    let Some((&[whom, bulk], body)) = input.split_first_chunk::<2>() else { return };
    let mut used = match PREY.take() {
        Some(used) if used.1 < LIFE => used,
        worn => {
            drop(worn.map(ManuallyDrop::into_inner));
            ManuallyDrop::new((start(), 0))
        }
    };
    let (prey, count) = &mut *used;
    let sent = if whom >= CONTROL {
        prey.send_to_control(body)
    } else {
        let bytes = BULK_BYTES[usize::from(bulk) % BULK_BYTES.len()];
        prey.send_to_target(whom, body, &vec![7; bytes])
    };
    sent.expect("the engine listens");
    if count.is_multiple_of(100) {
        prey.work(u64::from(*count)).expect("others are served");
    }
    *count += 1;
    PREY.set(Some(used));
}

fn seeds() -> Vec<Vec<u8>> {
    let (prey, rng) = (start(), Rng::new(1));
    let mut seeds = Vec::new();
    for (number, sample) in corpus::messages(&["request."]).iter().enumerate() {
        let aimed = prey.aimed(sample, &rng).expect("samples are requests");
        seeds.extend(aimed.map(|body| [&[number as u8 % 2, number as u8], &body[..]].concat()));
    }
    let controls = corpus::messages(&["control."]);
    seeds.extend(controls.iter().map(|body| [&[CONTROL, 0], &body[..]].concat()));
    seeds
}
