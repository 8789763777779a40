//! What jobs and clients do at a target, and how long they wait there.
//!
//! Counted are batches and transactions, as they are answered. A *wait* is time in which a request could not go on because
//! of others: until admission let its data in, until there was room for its answer, until a transaction that held one of its
//! keys was decided, until earlier appends to the same file were through. The device, the log and other members of
//! a group are not waited for in this sense: that is the work.

use serde::{Deserialize, Serialize};
use types::{ClientId, Histogram};

/// Name under which jobs are counted together of which there are too many.
pub const OTHER_JOBS: &str = "(others)";

/// Jobs that numbers of one connection may stand for at a time: 1 to this.
pub const NAMED_JOBS_MAX: usize = 255;

/// What a job did at a target since the engine's start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobFigures {
    /// Its name; empty for clients that gave none.
    pub job: String,
    /// Clients of it that are connected now and have asked for something.
    pub client_count: u64,
    /// Batches and transactions, failed ones included.
    pub op_count: u64,
    /// Of these, answered with an error, or not at all.
    pub failed_count: u64,
    /// Data that came with them.
    pub in_bytes: u64,
    /// Data of their answers.
    pub out_bytes: u64,
    /// From their arrival until their answers had left, microseconds in all.
    pub time_us: u64,
    /// Waits of those that had to wait, microseconds; all others waited for 0.
    pub waits_us: Histogram,
    /// When the last was answered, nanoseconds since 1970; 0: none was.
    pub seen_ns: u64,
}

impl JobFigures {
    /// Adds what the same job did elsewhere. Clients are not added: they may be the same.
    pub fn add(&mut self, other: &JobFigures) {
        self.client_count = self.client_count.max(other.client_count);
        self.op_count = self.op_count.saturating_add(other.op_count);
        self.failed_count = self.failed_count.saturating_add(other.failed_count);
        self.in_bytes = self.in_bytes.saturating_add(other.in_bytes);
        self.out_bytes = self.out_bytes.saturating_add(other.out_bytes);
        self.time_us = self.time_us.saturating_add(other.time_us);
        self.waits_us.add(&other.waits_us);
        self.seen_ns = self.seen_ns.max(other.seen_ns);
    }

    /// Mean wait of all operations, microseconds; 0 without any.
    pub fn wait_us_mean(&self) -> u64 {
        self.waits_us.sum.checked_div(self.op_count).unwrap_or(0)
    }

    /// A wait that `per_mille` of a thousand operations do not exceed, microseconds; at most 25 % too high.
    pub fn wait_us_percentile(&self, per_mille: u64) -> u64 {
        let all = self.op_count.max(self.waits_us.count);
        let at_once = all - self.waits_us.count;
        let rank = (all as u128 * per_mille as u128).div_ceil(1000);
        match rank.checked_sub(at_once as u128) {
            None | Some(0) => 0,
            Some(rank) => self.waits_us.at_rank(rank),
        }
    }

    /// Mean time of an operation, microseconds; 0 without any.
    pub fn time_us_mean(&self) -> u64 {
        self.time_us.checked_div(self.op_count).unwrap_or(0)
    }
}

/// What a client did at a target since it connected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientFigures {
    pub client: ClientId,
    /// Its job's name; may be empty.
    pub job: String,
    /// Host it comes from, `local` for one of the engine's own; empty when it is not known.
    pub host: String,
    /// Its process id there: known for one of the engine's host, else as it says.
    pub pid: u32,
    /// Batches and transactions, failed ones included.
    pub op_count: u64,
    /// Data that came with them.
    pub in_bytes: u64,
    /// Data of their answers.
    pub out_bytes: u64,
    /// Time they waited, microseconds in all.
    pub wait_us: u64,
    /// When the last was answered, nanoseconds since 1970.
    pub seen_ns: u64,
}

/// Who does what at a target.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TargetJobs {
    /// By name.
    pub jobs: Vec<JobFigures>,
    /// Connected clients that have asked for something, those with most operations first; at most [`CLIENTS_TOLD_MAX`].
    pub clients: Vec<ClientFigures>,
    /// Further ones.
    pub clients_left_out: u64,
}

/// Clients of a target that are told at a time.
pub const CLIENTS_TOLD_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_did_not_wait_count_in_means_and_percentiles() {
        let mut figures = JobFigures { op_count: 100, time_us: 5_000, ..JobFigures::default() };
        assert_eq!((figures.wait_us_mean(), figures.wait_us_percentile(990)), (0, 0));
        (0..10).for_each(|_| figures.waits_us.record(1000));
        assert_eq!((figures.wait_us_mean(), figures.time_us_mean()), (100, 50));
        assert_eq!(figures.wait_us_percentile(900), 0);
        assert_eq!(figures.wait_us_percentile(901), 1000);
        assert_eq!(figures.wait_us_percentile(990), 1000);
        let other = JobFigures { op_count: 100, seen_ns: 7, ..JobFigures::default() };
        figures.add(&other);
        assert_eq!((figures.op_count, figures.seen_ns, figures.wait_us_mean()), (200, 7, 50));
        assert_eq!(figures.wait_us_percentile(950), 0);
        assert_eq!(JobFigures::default().wait_us_percentile(990), 0);
    }
}
