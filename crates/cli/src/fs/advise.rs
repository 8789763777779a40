//! `azekura fs advise`: what a tree would take in other object classes.

use super::remote::Remote;
use crate::exit::Outcome;
use crate::output::Table;
use crate::session::Session;
use crate::url::{self, Url};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use types::{ObjClass, Oid, Result, Scheme, size};
use wire::control::OpenMode;

/// Classes that are compared, cheapest protection last.
const CLASSES: [&str; 11] = [
    "SX",
    "RP_2GX",
    "RP_3GX",
    "EC_2P1GX",
    "EC_2P2GX",
    "EC_4P1GX",
    "EC_4P2GX",
    "EC_8P1GX",
    "EC_8P2GX",
    "EC_16P1GX",
    "EC_16P2GX",
];

/// Show what files would take in other object classes
///
/// Counts the data of files as they are, and what each class would make of them: copies, or cells with parity for
/// whole stripes and copies for the rest. Classes that the pool or the container does not allow say why. Nothing is
/// changed; new files get a class by `fs set-attr`, existing ones by being copied.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs advise azk://tank/home
  azekura fs advise azk://tank/home/data --json")]
pub struct AdviseArgs {
    /// A directory or file
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    url: Url,
}

#[derive(Serialize)]
struct Report {
    url: String,
    files: u64,
    directories: u64,
    /// Data of files, without copies and parity.
    data_bytes: u64,
    /// What they take in the classes they have.
    now_bytes: u64,
    /// Files by class.
    now: BTreeMap<String, u64>,
    classes: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    class: String,
    /// Targets (engines, where there are enough) that may be lost.
    survives: u8,
    bytes: u64,
    /// Why files of this class cannot be made there.
    refused: Option<String>,
}

pub fn run(session: &Session, args: &AdviseArgs) -> Outcome {
    let remote = Remote::open(session, &args.url, OpenMode::ReadOnly)?;
    let mut classes = Vec::new();
    for name in CLASSES {
        classes.push((name.parse::<ObjClass>()?, 0));
    }
    let cell_bytes = remote.dfs().container().info().props.cell_bytes.into();
    let mut tree = Tree { classes, cell_bytes, ..Tree::default() };
    tree.walk(&remote, &args.url.path)?;
    let cont = remote.dfs().container();
    let (props, map) = (&cont.info().props, cont.pool().map());
    let rows = tree.classes.iter().map(|(class, bytes)| Row {
        class: class.to_string(),
        survives: class.scheme.redundancy_factor(),
        bytes: *bytes,
        refused: placement::check_class(*class, props, &map)
            .err()
            .map(|error| error.text.into_string()),
    });
    let report = Report {
        url: args.url.to_string(),
        files: tree.files,
        directories: tree.directories,
        data_bytes: tree.data_bytes,
        now_bytes: tree.now_bytes,
        now: tree.now,
        classes: rows.collect(),
    };
    session.out.show(&report, |out| {
        let now: Vec<String> =
            report.now.iter().map(|(class, files)| format!("{class} ({files})")).collect();
        writeln!(
            out,
            "{} files in {} directories, {} of data; now they take {}: {}.\n",
            report.files,
            report.directories,
            size::format(report.data_bytes),
            size::format(report.now_bytes),
            if now.is_empty() { "no files".to_string() } else { now.join(", ") }
        )?;
        let mut table =
            Table::new(&["CLASS", ">SURVIVES", ">BYTES", ">RATIO", "NOT POSSIBLE HERE"]);
        for row in &report.classes {
            let ratio = row.bytes as f64 / report.data_bytes.max(1) as f64;
            table.row(vec![
                row.class.clone(),
                row.survives.to_string(),
                size::format(row.bytes),
                format!("{ratio:.2}"),
                row.refused.clone().unwrap_or_default(),
            ]);
        }
        table.write(out)
    })
}

/// What was found so far.
#[derive(Default)]
struct Tree {
    /// Files with several names that have been counted.
    seen: HashSet<Oid>,
    files: u64,
    directories: u64,
    data_bytes: u64,
    now_bytes: u64,
    now: BTreeMap<String, u64>,
    /// Bytes in each of these classes.
    classes: Vec<(ObjClass, u64)>,
    /// Of a cell.
    cell_bytes: u64,
}

impl Tree {
    fn walk(&mut self, remote: &Remote, path: &[u8]) -> Result<()> {
        let stat = remote.stat(path, false)?;
        if !stat.is_dir() {
            return self.count(&stat);
        }
        let mut dirs = vec![path.to_vec()];
        while let Some(path) = dirs.pop() {
            self.directories += 1;
            for (name, stat) in remote.list(&path)? {
                match stat.is_dir() {
                    true => dirs.push(url::join(&path, &name)),
                    false => self.count(&stat)?,
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, stat: &dfs::Stat) -> Result<()> {
        if stat.kind() != dfs::FileKind::Regular || (stat.nlink > 1 && !self.seen.insert(stat.oid))
        {
            return Ok(());
        }
        self.files += 1;
        // Holes take nothing, and what has a place only in a tier takes nothing here.
        let bytes = stat.size.min(stat.stored_bytes);
        self.data_bytes += bytes;
        let class = stat.oid.class()?;
        *self.now.entry(class.to_string()).or_default() += 1;
        let cell_bytes = stat.oid.cell_bytes().into();
        // A first part is never coded.
        let first = class.first_part_bytes().unwrap_or(0).min(bytes);
        self.now_bytes += first * class.scheme.copies() as u64
            + taken(class.scheme, bytes - first, stat.chunk_bytes, cell_bytes);
        for (class, sum) in &mut self.classes {
            *sum += taken(class.scheme, bytes, stat.chunk_bytes, self.cell_bytes);
        }
        Ok(())
    }
}

/// Bytes that a file with so many of data takes.
fn taken(scheme: Scheme, bytes: u64, chunk_bytes: u64, cell_bytes: u64) -> u64 {
    let Scheme::ErasureCoded { data, parity } = scheme else {
        return bytes * scheme.members() as u64;
    };
    let stripe = data as u64 * cell_bytes;
    // Stripes end with their chunk.
    let whole_in = |bytes: u64| bytes - bytes % stripe;
    let chunk = chunk_bytes.max(1);
    let coded = bytes / chunk * whole_in(chunk) + whole_in(bytes % chunk);
    coded / data as u64 * (data + parity) as u64 + (bytes - coded) * scheme.copies() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_stripes_are_coded_and_the_rest_is_copies() {
        let code = Scheme::ErasureCoded { data: 4, parity: 2 };
        let (mib, kib) = (1 << 20, 1 << 10);
        let cell = 64 * kib;
        assert_eq!(taken(code, mib, mib, cell), mib * 3 / 2);
        assert_eq!(taken(code, 100, mib, cell), 300);
        assert_eq!(taken(code, mib + 256 * kib + 7, mib, cell), 1_920 * kib + 21);
        // No stripe fits into a chunk.
        assert_eq!(taken(code, mib, 128 * kib, cell), 3 * mib);
        assert_eq!(taken(Scheme::Replicated { copies: 3 }, 10, mib, cell), 30);
        assert_eq!(taken(Scheme::Striped, 10, mib, cell), 10);
        // Large cells in a chunk that holds one stripe of them.
        assert_eq!(taken(code, mib - 1, mib, 256 * kib), 3 * (mib - 1));
        assert_eq!(taken(code, 2 * mib, mib, 256 * kib), 3 * mib);
    }
}
