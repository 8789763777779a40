//! What an agent that moves files tells Prometheus.

use dfs::Dfs;
use engine::{MetricsDoor, MetricsLimits};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tier::{Dirty, Moved};
use types::Result;

/// Figures of all containers that an agent moves files of.
#[derive(Clone, Default)]
pub struct Figures(Arc<Mutex<BTreeMap<(String, String), Of>>>);

/// Those of a container: by its pool and itself.
#[derive(Default)]
struct Of {
    dirty: Dirty,
    copied_bytes: u64,
    evicted_bytes: u64,
    failed_files: u64,
    passes: u64,
}

impl Figures {
    /// Answers Prometheus at an address until the door is dropped.
    pub fn serve(&self, address: SocketAddr) -> Result<MetricsDoor> {
        let listener = MetricsDoor::bind(address)?;
        let figures = self.clone();
        let source = move || Some(figures.text());
        MetricsDoor::serve(listener, Arc::new(source), MetricsLimits::default())
    }

    /// Adds what a pass did.
    pub fn add(&self, fs: &Dfs, moved: Moved) {
        let cont = fs.container();
        let label = |label: &str, uuid: &uuid::Uuid| match label {
            "" => uuid.to_string(),
            label => label.to_string(),
        };
        let pool = cont.pool().info();
        let name = (label(&pool.label, &pool.uuid), label(&cont.info().label, &cont.info().uuid));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = all.entry(name).or_default();
        of.dirty = moved.dirty;
        of.copied_bytes += moved.copied_bytes;
        of.evicted_bytes += moved.evicted_bytes;
        of.failed_files += moved.failed_files;
        of.passes += 1;
    }

    fn text(&self) -> String {
        let now_ns =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_nanos() as u64);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text(&all, now_ns)
    }
}

type Value = fn(&Of, u64) -> u64;

fn text(all: &BTreeMap<(String, String), Of>, now_ns: u64) -> String {
    let age_s: Value = |of, now_ns| {
        of.dirty.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns) / 1_000_000_000)
    };
    let figures: [(&str, &str, &str, Value); 7] = [
        ("dirty_bytes", "gauge", "What the tier does not have, at the last pass.", |of, _| {
            of.dirty.bytes
        }),
        ("dirty_files", "gauge", "Files with that.", |of, _| of.dirty.files),
        (
            "oldest_dirty_age_seconds",
            "gauge",
            "How long ago the oldest of that was written.",
            age_s,
        ),
        ("copied_bytes_total", "counter", "Sent to the tier by policies.", |of, _| of.copied_bytes),
        ("evicted_bytes_total", "counter", "Given up by the pool for policies.", |of, _| {
            of.evicted_bytes
        }),
        ("failed_files_total", "counter", "Files that could not be moved.", |of, _| {
            of.failed_files
        }),
        ("passes_total", "counter", "Passes over the container.", |of, _| of.passes),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in figures {
        // A string takes all.
        let _ = writeln!(text, "# HELP azekura_tier_{name} {help}");
        let _ = writeln!(text, "# TYPE azekura_tier_{name} {kind}");
        for ((pool, cont), of) in all {
            // Labels have no characters that need another form.
            let value = value(of, now_ns);
            let _ =
                writeln!(text, "azekura_tier_{name}{{pool=\"{pool}\",cont=\"{cont}\"}} {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_is_told_what_is_dirty_and_for_how_long() {
        let dirty = Dirty { files: 2, bytes: 30, since_ns: Some(5_000_000_000) };
        let of = Of { dirty, copied_bytes: 7, ..Of::default() };
        let all = BTreeMap::from([(("tank".to_string(), "home".to_string()), of)]);
        let text = text(&all, 65_999_999_999);
        for line in [
            "azekura_tier_dirty_bytes{pool=\"tank\",cont=\"home\"} 30",
            "azekura_tier_oldest_dirty_age_seconds{pool=\"tank\",cont=\"home\"} 60",
            "azekura_tier_copied_bytes_total{pool=\"tank\",cont=\"home\"} 7",
            "# TYPE azekura_tier_passes_total counter",
        ] {
            assert!(text.lines().any(|told| told == line), "{line}: {text}");
        }
    }
}
