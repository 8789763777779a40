//! Counts of sizes or times in buckets that grow by a quarter power of two.
//!
//! Cheap enough for hot paths: a few instructions for a value, 1 KiB when full. A percentile is
//! exact to its bucket, at most 25 % too high.

use serde::{Deserialize, Serialize};

/// Buckets per power of two.
const STEPS: u64 = 4;
/// Most buckets; the last takes everything beyond.
pub const HISTOGRAM_BUCKETS_MAX: usize = 160;

/// Counts of values by size; percentiles are at most 25 % too high.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Histogram {
    pub count: u64,
    /// Sum of the values, saturating.
    pub sum: u64,
    pub max: u64,
    /// Values per bucket, up to the last that has one; see [`Histogram::bucket_max`].
    pub buckets: Vec<u64>,
}

fn bucket_of(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = 63 - value.leading_zeros() as u64;
    let step = (value >> (power - 2)) & (STEPS - 1);
    (((power - 1) * STEPS + step) as usize).min(HISTOGRAM_BUCKETS_MAX - 1)
}

impl Histogram {
    /// The greatest value that falls into a bucket.
    pub fn bucket_max(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < STEPS {
            return bucket;
        }
        let (power, step) = (bucket / STEPS + 1, bucket % STEPS);
        let width = 1u64.checked_shl(power as u32 - 2).unwrap_or(u64::MAX);
        width.saturating_mul(STEPS + step + 1) - 1
    }

    pub fn record(&mut self, value: u64) {
        let bucket = bucket_of(value);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Histogram) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Arithmetic mean; 0 without values.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// A value that `per_mille` of a thousand values do not exceed; 0 without values.
    pub fn percentile(&self, per_mille: u64) -> u64 {
        self.at_rank((self.count as u128 * per_mille as u128).div_ceil(1000))
    }

    /// A value that the `rank` smallest ones do not exceed, counted from 1; 0 without values.
    pub fn at_rank(&self, rank: u128) -> u64 {
        let rank = rank.max(1);
        let mut seen = 0u128;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += count as u128;
            if seen >= rank {
                return Histogram::bucket_max(bucket).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bucket_that_ends_at_or_after_it() {
        let values = (0..5000).chain([u32::MAX as u64, 1 << 40, (1 << 40) - 1]);
        for value in values {
            let bucket = bucket_of(value);
            assert!(value <= Histogram::bucket_max(bucket), "{value}");
            assert!(bucket == 0 || value > Histogram::bucket_max(bucket - 1), "{value}");
            assert!(Histogram::bucket_max(bucket) <= value + value / 4, "{value}");
        }
        assert_eq!(bucket_of(u64::MAX), HISTOGRAM_BUCKETS_MAX - 1);
    }

    #[test]
    fn percentiles_and_sums() {
        let (mut all, mut low) = (Histogram::default(), Histogram::default());
        assert_eq!((all.percentile(999), all.mean()), (0, 0));
        (1..=900).for_each(|value| low.record(value % 3));
        (0..100).for_each(|_| all.record(1000));
        all.add(&low);
        assert_eq!((all.count, all.max), (1000, 1000));
        assert_eq!(all.percentile(500), 1);
        assert_eq!(all.percentile(900), 2);
        assert_eq!(all.percentile(950), 1000);
        assert_eq!(all.mean(), (100_000 + 900) / 1000);
    }
}
