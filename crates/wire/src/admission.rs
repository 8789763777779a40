//! Admission of bulk transfers at a target: settings of a pool, and what a target reports.
//!
//! At most so many bulk writes, and so many bulk reads, of a pool are at work at a target at a
//! time; others wait at their clients (the I/O request coordination of
//! Ohno, Hori and Ishikawa). Requests that move fewer than [`BULK_BYTES_MIN`] bytes are never held.

use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use types::{Error, Result, limits};

/// Least bytes of a bulk transfer; the data of smaller ones travels inside the message.
pub const BULK_BYTES_MIN: usize = 16 << 10;
/// Largest fixed [`Limit`].
pub const LIMIT_MAX: u16 = 1024;
/// Largest weight of a job.
pub const WEIGHT_MAX: u16 = 1000;
/// Most jobs that can be given a weight.
pub const WEIGHT_COUNT_MAX: usize = 256;

/// How many transfers of one direction may be at work at a target at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub enum Limit {
    /// Any number; nothing is held.
    #[default]
    Off,
    /// The number at which the target moves most bytes, found by trying.
    Auto,
    /// 1 to [`LIMIT_MAX`].
    Fixed(u16),
}

impl Serialize for Limit {
    /// As text where people read it, else as derived.
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            return to.collect_str(self);
        }
        match self {
            Limit::Off => to.serialize_unit_variant("Limit", 0, "Off"),
            Limit::Auto => to.serialize_unit_variant("Limit", 1, "Auto"),
            Limit::Fixed(number) => to.serialize_newtype_variant("Limit", 2, "Fixed", number),
        }
    }
}

impl FromStr for Limit {
    type Err = Error;
    fn from_str(text: &str) -> Result<Limit> {
        match text {
            "off" => return Ok(Limit::Off),
            "auto" => return Ok(Limit::Auto),
            _ => {}
        }
        let number = text.parse().ok().filter(|number| (1..=LIMIT_MAX).contains(number));
        number.map(Limit::Fixed).ok_or_else(|| {
            Error::inval(format!("'{text}' is no limit; give off, auto or 1 to {LIMIT_MAX}"))
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Off => f.write_str("off"),
            Limit::Auto => f.write_str("auto"),
            Limit::Fixed(number) => number.fmt(f),
        }
    }
}

/// Shares of jobs: a job of weight 2 gets twice the bytes of one of weight 1. Jobs that are not
/// named weigh 1. As text: `climate:4,test:1`; empty for none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weights(pub Vec<(String, u16)>);

impl Weights {
    /// Weight of a job, at least 1.
    pub fn of(&self, job: &str) -> u16 {
        let named = self.0.iter().find(|(name, _)| name == job);
        named.map_or(1, |(_, weight)| (*weight).max(1))
    }
}

impl FromStr for Weights {
    type Err = Error;
    fn from_str(text: &str) -> Result<Weights> {
        let mut all: Vec<(String, u16)> = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let wrong = || {
                Error::inval(format!(
                    "'{part}' is no weight of a job; give JOB:WEIGHT,… with weights 1 to {WEIGHT_MAX}"
                ))
            };
            // Job names may hold colons; weights do not.
            let (job, weight) = part.rsplit_once(':').ok_or_else(wrong)?;
            let weight: u16 = weight.parse().map_err(|_| wrong())?;
            if job.is_empty()
                || job.len() > limits::LABEL_BYTES_MAX
                || !(1..=WEIGHT_MAX).contains(&weight)
            {
                return Err(wrong());
            }
            if all.iter().any(|(known, _)| known == job) {
                return Err(Error::inval(format!("job '{job}' is given two weights")));
            }
            all.push((job.to_string(), weight));
        }
        if all.len() > WEIGHT_COUNT_MAX {
            return Err(Error::inval(format!(
                "{} jobs are given weights; at most {WEIGHT_COUNT_MAX} can be",
                all.len()
            )));
        }
        Ok(Weights(all))
    }
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (job, weight)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{job}:{weight}")?;
        }
        Ok(())
    }
}

/// What a pool wants of each of its targets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Admission {
    /// Grows with every change; a target keeps the newest.
    pub version: u64,
    /// Bulk writes at work.
    pub max_writers: Limit,
    /// Bulk reads at work.
    pub max_readers: Limit,
    pub weights: Weights,
}

/// What one job was given at a target, in one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobStat {
    /// Its name; empty for clients that gave none.
    pub job: String,
    /// Transfers waiting now.
    pub waiting: u64,
    /// Transfers let in so far.
    pub granted: u64,
    /// Bytes of those let in.
    pub bytes: u64,
    /// Time they waited, microseconds in all.
    pub wait_us: u64,
}

/// One direction of admission at a target, since the engine's start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GateStat {
    /// What the pool wants.
    pub limit: Limit,
    /// The number in force now; 0 when off.
    pub limit_now: u32,
    /// Transfers at work now.
    pub at_work: u32,
    /// Most that were at work at a time.
    pub at_work_max: u32,
    /// Transfers waiting now.
    pub waiting: u64,
    /// Transfers let in.
    pub granted: u64,
    /// Of these, had to wait.
    pub held: u64,
    /// Of these, parts of transactions let in over the limit after a short wait.
    pub forced: u64,
    /// Left without being let in: gone, out of time, or the engine stopped.
    pub left: u64,
    /// Slots taken back because the client did not move its data.
    pub lapsed: u64,
    /// Bytes let in.
    pub bytes: u64,
    /// Time transfers waited, microseconds in all.
    pub wait_us: u64,
    /// The longest wait, microseconds.
    pub wait_us_max: u64,
    /// By job, the one with most bytes first; at most 64.
    pub jobs: Vec<JobStat>,
}

/// Answer to [`crate::obj::Request::AdmissionStat`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AdmissionStat {
    /// Version of the settings in force; 0: the defaults.
    pub version: u64,
    pub writers: GateStat,
    pub readers: GateStat,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_weights_parse_and_print() {
        for text in ["off", "auto", "1", "1024"] {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
        for bad in ["", "0", "1025", "-1", "Off", "4 "] {
            assert!(bad.parse::<Limit>().is_err(), "{bad}");
        }
        for text in ["", "a:1", "climate:4,array:7:2"] {
            assert_eq!(text.parse::<Weights>().unwrap().to_string(), text);
        }
        for bad in ["a", "a:0", "a:1001", ":1", "a:1,a:2", "a:x"] {
            assert!(bad.parse::<Weights>().is_err(), "{bad}");
        }
        let weights: Weights = "a:3".parse().unwrap();
        assert_eq!((weights.of("a"), weights.of("b")), (3, 1));
    }
}
