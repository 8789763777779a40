//! The scrubber of a target: settings of a pool, and what a target reports of damaged data.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use types::{ContId, Error, Result, Unit, size};

/// Rate of pools that never set one, bytes per second.
pub const RATE_DEFAULT: u64 = 16 << 20;
/// Most places of damage in a report.
pub const PLACE_COUNT_MAX: usize = 16;

/// How fast a target reads its data to compare them with their sums, when it has nothing else to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScrubRate(
    /// Bytes per second; 0: not at all.
    pub u64,
);

impl Default for ScrubRate {
    fn default() -> ScrubRate {
        ScrubRate(RATE_DEFAULT)
    }
}

impl fmt::Display for ScrubRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("off"),
            // Exact, so that it reads back as the same.
            bytes => {
                let (unit, shift) = [("GiB", 30), ("MiB", 20), ("KiB", 10)]
                    .into_iter()
                    .find(|(_, shift)| bytes.is_multiple_of(1 << shift))
                    .unwrap_or(("B", 0));
                write!(f, "{}{unit}/s", bytes >> shift)
            }
        }
    }
}

impl FromStr for ScrubRate {
    type Err = Error;
    fn from_str(text: &str) -> Result<ScrubRate> {
        if text == "off" {
            return Ok(ScrubRate(0));
        }
        let rate = text.strip_suffix("/s").map(size::parse);
        rate.and_then(Result::ok).filter(|bytes| *bytes > 0).map(ScrubRate).ok_or_else(|| {
            Error::inval(format!("'{text}' is no rate; give off or SIZE/s, such as 64MiB/s"))
        })
    }
}

/// What part of its time a leader gives to moves, while clients want something of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HealShare(
    /// Percent, 1 to 100; 100: moves do not wait.
    pub u8,
);

impl Default for HealShare {
    fn default() -> HealShare {
        HealShare(5)
    }
}

/// What a pool wants of what its targets do in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Scrub {
    /// Grows with every change; a target keeps the newest.
    pub version: u64,
    /// Rate of the scrubber of each target.
    pub rate: ScrubRate,
    pub heal_share: HealShare,
}

/// Who found damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FoundBy {
    /// A reader, or the target on its behalf.
    Reader,
    Scrubber,
}

/// Where damaged data lie.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BadPlace {
    /// When it was found, nanoseconds since 1970.
    pub found_ns: u64,
    pub found_by: FoundBy,
    /// Byte offset of the block in the target's data area.
    pub device_offset: u64,
    /// Whose it is; `None`: nobody's any more, or not found yet.
    pub holder: Option<BadHolder>,
}

/// Whose damaged data are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BadHolder {
    pub cont: ContId,
    pub unit: Unit,
    #[serde(with = "serde_bytes")]
    pub dkey: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub akey: Vec<u8>,
    /// First damaged byte of the value: of a single value, or of the array under this dkey.
    pub offset: u64,
    /// Bytes of the value that cannot be read.
    pub bytes: u64,
}

/// Answer to [`crate::obj::Request::ScrubStat`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubStat {
    /// Version of the settings in force; 0: the defaults.
    pub version: u64,
    /// Rate in force.
    pub rate: ScrubRate,
    /// Bytes of data with sums.
    pub summed_bytes: u64,
    /// Bytes that are known to be damaged now; they are refused to readers.
    pub bad_bytes: u64,
    /// Times damage was found, since the engine's start.
    pub found_count: u64,
    /// Keys with damaged data that were put right from other members of their groups, since the engine's start.
    pub mended_count: u64,
    /// Full passes since the pool was made.
    pub passes: u64,
    /// When the last full pass ended, nanoseconds since 1970; 0: there was none.
    pub pass_end_ns: u64,
    /// Damaged blocks that the last full pass met.
    pub pass_bad_count: u64,
    /// Bytes the pass under way has checked; 0 when none is.
    pub checked_bytes: u64,
    /// Bytes it has still to check, about; 0 when none is under way.
    pub left_bytes: u64,
    /// Damage known now, the newest first; at most [`PLACE_COUNT_MAX`].
    pub places: Vec<BadPlace>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_and_print() {
        for (text, bytes) in
            [("off", 0), ("64MiB/s", 64 << 20), ("1GiB/s", 1 << 30), ("1500B/s", 1500)]
        {
            let rate: ScrubRate = text.parse().unwrap();
            assert_eq!((rate.0, rate.to_string().as_str()), (bytes, text));
        }
        for bad in ["", "0", "0/s", "16MiB", "x/s", "Off", "-1/s"] {
            assert!(bad.parse::<ScrubRate>().is_err(), "{bad}");
        }
    }
}
