//! The pace of a disk that moves no more than so many bytes a second: one that others use, too, or that stands for a slower one.
//!
//! Reads and writes take their turn on one clock, as on a device that does one thing at a time; what was not used of a second is not
//! saved up for the next.

use env::Env;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// When the device is done with all that it was given.
pub(crate) struct Pace {
    env: Env,
    bytes_per_s: u64,
    busy_until: Cell<Duration>,
}

impl Pace {
    pub(crate) fn new(env: &Env, bytes_per_s: u64) -> Rc<Pace> {
        let busy_until = Cell::new(Duration::ZERO);
        Rc::new(Pace { env: env.clone(), bytes_per_s: bytes_per_s.max(1), busy_until })
    }

    /// Ends when the device has moved so many bytes more.
    pub(crate) async fn moved(self: Rc<Self>, bytes: usize) {
        let ns = bytes as u128 * 1_000_000_000 / self.bytes_per_s as u128;
        let took = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let until = self.busy_until.get().max(self.env.now()).saturating_add(took);
        self.busy_until.set(until);
        // timer: the pace itself.
        self.env.sleep(until.saturating_sub(self.env.now())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::traffic::{Meter, metered};
    use env::{AlignedBuf, OpenOptions, SimWorld};
    use futures_util::future::join_all;
    use std::path::Path;

    #[test]
    fn bytes_take_their_time_and_arrive() {
        let world = SimWorld::new(1);
        let env = world.node("n");
        world.block_on(async {
            let pace = Some(Pace::new(&env, 1 << 20));
            let disk = metered(env.disk(), &Meter::new(&env), pace);
            let options = OpenOptions { create: true, ..OpenOptions::default() };
            let file = disk.open(Path::new("/f"), options).await.unwrap();
            let begun = env.now();
            let mut data = AlignedBuf::zeroed(64 << 10);
            data.fill(7);
            // Four at once take as long as four one after the other.
            let all = (0..4).map(|at| file.write_at(at * (64 << 10), AlignedBuf::copy_of(&data)));
            for (_, result) in join_all(all).await {
                result.unwrap();
            }
            let took = env.now() - begun;
            assert!(
                took >= Duration::from_millis(250) && took < Duration::from_millis(260),
                "{took:?}"
            );
            let begun = env.now();
            let (got, result) = file.read_at(64 << 10, AlignedBuf::zeroed(128 << 10)).await;
            assert_eq!(result.unwrap(), 128 << 10);
            assert!(got.iter().all(|byte| *byte == 7));
            assert!(env.now() - begun >= Duration::from_millis(125));
            // A pause is not saved up.
            env.sleep(Duration::from_secs(10)).await;
            let begun = env.now();
            file.write_at(0, AlignedBuf::zeroed(64 << 10)).await.1.unwrap();
            assert!(env.now() - begun >= Duration::from_millis(62));
        });
    }
}
