//! The parameters of a modelled storage target, and their defaults.
//!
//! The defaults give the curve of Ohno, Hori and Ishikawa (figure 9 on the K computer): one
//! client does not fill the target, two do, and at sixteen about three quarters of the best
//! are left.

use serde::{Deserialize, Serialize};
use types::{Error, Result, size};

/// Least size of anything the model counts in bytes: a page, which is what the kernel hands over.
const PAGE_BYTES: u64 = 4096;
/// Most bytes the kernel may hand over in one request.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// One kind of modelled storage target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What the device moves while it does not seek, bytes per second.
    pub rate_bytes_per_s: u64,
    /// What the link of one client moves, bytes per second.
    pub client_bytes_per_s: u64,
    /// Cost of going on anywhere else than where the last run ended, nanoseconds.
    pub seek_ns: u64,
    /// Most bytes the kernel hands over in one request. A multiple of 4 KiB, at most 1 MiB.
    pub piece_bytes: u64,
    /// Merge window: most bytes that are served in one run.
    pub merge_bytes: u64,
    /// Bytes that one client may have on their way: accepted, but not yet on the device.
    pub window_bytes: u64,
    /// Bytes that fit in the queue of the target; only what is in the queue can be merged.
    pub queue_bytes: u64,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            rate_bytes_per_s: 200 << 20,
            client_bytes_per_s: 130 << 20,
            seek_ns: 800_000,
            piece_bytes: 128 << 10,
            merge_bytes: 2 << 20,
            window_bytes: 2 << 20,
            queue_bytes: 3 << 20,
        }
    }
}

impl Params {
    /// `Inval`, naming the parameter, when these make no device.
    pub fn check(&self) -> Result<()> {
        let rates = [("rate", self.rate_bytes_per_s), ("client-rate", self.client_bytes_per_s)];
        for (name, rate) in rates {
            if !(1 << 10..=1 << 40).contains(&rate) {
                return Err(Error::inval(format!("{name}: want 1 KiB/s to 1 TiB/s")));
            }
        }
        if self.seek_ns > 1_000_000_000 {
            return Err(Error::inval("seek-us: want at most a second"));
        }
        if !(PAGE_BYTES..=PIECE_BYTES_MAX).contains(&self.piece_bytes)
            || !self.piece_bytes.is_multiple_of(PAGE_BYTES)
        {
            return Err(Error::inval("piece: want a multiple of 4 KiB, at most 1 MiB"));
        }
        let sizes = [
            ("merge window", self.merge_bytes),
            ("client window", self.window_bytes),
            ("queue", self.queue_bytes),
        ];
        for (name, bytes) in sizes {
            if bytes < self.piece_bytes || bytes > 1 << 40 {
                return Err(Error::inval(format!("{name}: want at least a piece, at most 1 TiB")));
            }
        }
        Ok(())
    }

    /// The same device for requests `factor` times as large: with all sizes and the seek scaled
    /// alike, a scaled load has the same schedule, `factor` times as long.
    pub fn scaled(&self, factor: f64) -> Params {
        let pages = |bytes: u64| {
            let pages = (bytes as f64 * factor / PAGE_BYTES as f64).round() as u64;
            pages.max(1) * PAGE_BYTES
        };
        Params {
            seek_ns: (self.seek_ns as f64 * factor).round() as u64,
            piece_bytes: pages(self.piece_bytes).min(PIECE_BYTES_MAX),
            merge_bytes: pages(self.merge_bytes),
            window_bytes: pages(self.window_bytes),
            queue_bytes: pages(self.queue_bytes),
            ..*self
        }
    }

    /// All parameters on one line, for people.
    pub fn text(&self) -> String {
        format!(
            "{}/s, {}/s per client, seek {} us, pieces of {}, merge window {}, client window {}, queue {}",
            size::format(self.rate_bytes_per_s),
            size::format(self.client_bytes_per_s),
            self.seek_ns as f64 / 1e3,
            size::format(self.piece_bytes),
            size::format(self.merge_bytes),
            size::format(self.window_bytes),
            size::format(self.queue_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = Params::default();
        good.check().unwrap();
        for (params, word) in [
            (Params { rate_bytes_per_s: 0, ..good }, "rate"),
            (Params { client_bytes_per_s: 3, ..good }, "client-rate"),
            (Params { seek_ns: u64::MAX, ..good }, "seek"),
            (Params { piece_bytes: 5000, ..good }, "piece"),
            (Params { merge_bytes: 4096, ..good }, "merge"),
            (Params { window_bytes: 4096, ..good }, "client window"),
            (Params { queue_bytes: 0, ..good }, "queue"),
        ] {
            assert!(params.check().unwrap_err().to_string().contains(word), "{word}");
        }
    }

    #[test]
    fn scaling_keeps_proportions_and_never_reaches_zero() {
        let eighth = Params::default().scaled(0.125);
        assert_eq!(eighth.piece_bytes, 16 << 10);
        assert_eq!(eighth.queue_bytes, 384 << 10);
        assert_eq!(eighth.seek_ns, 100_000);
        eighth.check().unwrap();
        Params::default().scaled(1e-9).check().unwrap();
        Params::default().scaled(100.0).check().unwrap();
    }
}
