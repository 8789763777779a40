//! `azekura vos`: look at the devices of a target that no engine serves, and mend them.

use crate::exit::{Failure, Outcome};
use crate::output::{Table, write_failure, write_pairs};
use crate::session::Session;
use ::vos::offline::{
    Consent, DumpFilter, DumpItem, Finding, Offline, Place, Repair, Severity, TargetReport,
};
use ::vos::{DataDevice, Devices};
use clap::{Args, Subcommand};
use engine::EngineConfig;
use env::Env;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use types::{ContId, Error, Oid, PoolId, Result, size};

/// Look into the store of a stopped target, check and repair it.
///
/// A target that an engine has open is refused (exit code 7). Only 'repair' changes anything.
#[derive(Args, Debug)]
pub struct VosArgs {
    #[command(subcommand)]
    verb: VosVerb,
}

#[derive(Subcommand, Debug)]
enum VosVerb {
    /// Show identity, devices, formats, pools, logs and counts
    #[command(after_help = "Examples:
  azekura vos stat /mnt/nvme0/azekura
  azekura vos stat /mnt/pmem0 --nvme /dev/nvme0n1:0/2
  azekura vos stat --config /etc/azekura/engine.toml --target 1")]
    Stat {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Print containers, objects and values with their epochs and places, one a line
    #[command(after_help = "Examples:
  azekura vos dump /mnt/nvme0/azekura --objects
  azekura vos dump /mnt/nvme0/azekura --pool 1 --oid 1152921504606846976.7 --json")]
    Dump {
        #[command(flatten)]
        place: PlaceArgs,
        /// Only this pool (its number, see 'vos stat')
        #[arg(long)]
        pool: Option<u32>,
        /// Only this container (its number)
        #[arg(long)]
        cont: Option<u64>,
        /// Only this object
        #[arg(long)]
        oid: Option<Oid>,
        /// Only this dkey, as the dump writes it
        #[arg(long)]
        dkey: Option<String>,
        /// Objects only, not what is in them
        #[arg(long)]
        objects: bool,
    },
    /// Check superblocks, log, counters, space and places; exit code 1 when something is wrong
    #[command(after_help = "Example:\n  azekura vos check /mnt/nvme0/azekura --data")]
    Check {
        #[command(flatten)]
        place: PlaceArgs,
        /// Read all data, too
        #[arg(long)]
        data: bool,
    },
    /// Put right what can be, and say what was done; exit code 1 when something is left
    #[command(after_help = "Examples:
  azekura vos repair /mnt/nvme0/azekura --dry-run --drop-tail
  azekura vos repair /mnt/nvme0/azekura --drop-tail")]
    Repair {
        #[command(flatten)]
        place: PlaceArgs,
        /// Change nothing, say what would be done
        #[arg(long, short = 'n')]
        dry_run: bool,
        /// Give up a damaged log from the damage on, with updates that were acknowledged
        #[arg(long)]
        drop_tail: bool,
        /// Remove what is left of shards without settings, with the data in it
        #[arg(long)]
        remove_remains: bool,
    },
}

#[derive(Args, Debug)]
struct PlaceArgs {
    /// The target's directory or device (of index and log, if it has others for data)
    #[arg(required_unless_present = "config")]
    device: Option<PathBuf>,
    /// A data device, or part NUMBER of COUNT of one; once for each, in order
    #[arg(long, value_name = "PATH[:NUMBER/COUNT]", value_parser = data_device)]
    nvme: Vec<DataDevice>,
    /// Take the devices from an engine's configuration
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "nvme"])]
    config: Option<PathBuf>,
    /// With --config: which target, from 0
    #[arg(long, default_value_t = 0)]
    target: usize,
}

fn data_device(text: &str) -> Result<DataDevice> {
    let whole = || DataDevice { path: PathBuf::from(text), part: 0, part_count: 1 };
    let Some((path, part)) = text.rsplit_once(':') else { return Ok(whole()) };
    let Some((number, count)) = part.split_once('/') else { return Ok(whole()) };
    match (number.parse(), count.parse()) {
        (Ok(part), Ok(part_count)) if part < part_count => {
            Ok(DataDevice { path: PathBuf::from(path), part, part_count })
        }
        _ => Err(Error::inval(format!("'{part}' is not NUMBER/COUNT with a number from 0"))),
    }
}

impl PlaceArgs {
    fn devices(&self) -> Result<Devices> {
        if let Some(device) = &self.device {
            return Ok(Devices { scm: device.clone(), nvme: self.nvme.clone() });
        }
        let path = self.config.clone().unwrap_or_default();
        let config = EngineConfig::read(&path)?;
        if self.target >= config.targets.len() {
            return Err(Error::inval(format!(
                "{}: there are {} targets, the first is number 0",
                path.display(),
                config.targets.len()
            )));
        }
        Ok(config.devices(self.target))
    }
}

/// Opens a target and runs one thing with it.
fn with<R>(
    place: &PlaceArgs,
    writes: bool,
    run: impl AsyncFnOnce(&Offline) -> Outcome<R>,
) -> Outcome<R> {
    let devices = place.devices()?;
    let env = Env::real()?;
    let outcome = env.block_on(async {
        let offline = Offline::open(&env, &devices, writes).await?;
        run(&offline).await
    });
    env.clear();
    outcome
}

pub fn run(session: &Session, args: &VosArgs) -> Outcome {
    match &args.verb {
        VosVerb::Stat { place } => {
            let report = with(place, false, async |offline| Ok(offline.stat().await?))?;
            session.out.show(&report, |out| show_stat(&report, out))
        }
        VosVerb::Dump { place, pool, cont, oid, dkey, objects } => {
            let filter = DumpFilter {
                pool: pool.map(PoolId),
                cont: cont.map(ContId),
                oid: *oid,
                dkey: dkey.clone(),
                objects_only: *objects,
            };
            dump(session, place, &filter)
        }
        VosVerb::Check { place, data } => check(session, place, *data),
        VosVerb::Repair { place, dry_run, drop_tail, remove_remains } => {
            let consent = Consent { drop_tail: *drop_tail, remove_remains: *remove_remains };
            let repair =
                with(place, !dry_run, async |offline| Ok(offline.repair(consent).await?))?;
            let report = Repaired { dry_run: *dry_run, repair };
            let Repair { done, left } = &report.repair;
            session.out.show(&report, |out| {
                let would = if *dry_run { " (not done: dry run)" } else { "" };
                if done.is_empty() && left.is_empty() {
                    writeln!(out, "Nothing to do.")?;
                }
                done.iter().try_for_each(|line| writeln!(out, "{line}{would}"))?;
                left.iter().try_for_each(|line| writeln!(out, "NOT REPAIRED: {line}"))
            })?;
            if left.is_empty() { Ok(()) } else { Err(Failure::Reported(1)) }
        }
    }
}

#[derive(Serialize)]
struct Repaired {
    dry_run: bool,
    #[serde(flatten)]
    repair: Repair,
}

#[derive(Serialize)]
struct Checked {
    whole: bool,
    findings: Vec<Finding>,
}

fn check(session: &Session, place: &PlaceArgs, data: bool) -> Outcome {
    let checked = with(place, false, async |offline| Ok(offline.check(data).await?));
    let findings = match checked {
        Ok(findings) => findings,
        // A device that is not a whole target is a finding; one in use is not.
        Err(Failure::Error(error))
            if matches!(error.code, types::Code::Csum | types::Code::Version) =>
        {
            vec![Finding { severity: Severity::Damage, pool: None, text: error.to_string() }]
        }
        Err(failure) => return Err(failure),
    };
    let whole = findings.iter().all(|finding| finding.severity == Severity::Note);
    let report = Checked { whole, findings };
    session.out.show(&report, |out| {
        for finding in &report.findings {
            let pool = finding.pool.map(|pool| format!("pool {pool}: ")).unwrap_or_default();
            let severity = match finding.severity {
                Severity::Note => "note",
                Severity::Damage => "DAMAGE",
            };
            writeln!(out, "{severity}: {pool}{}", finding.text)?;
        }
        writeln!(out, "{}", if whole { "The target is whole." } else { "The target is damaged." })
    })?;
    if whole { Ok(()) } else { Err(Failure::Reported(1)) }
}

fn dump(session: &Session, place: &PlaceArgs, filter: &DumpFilter) -> Outcome {
    let json = session.out.json;
    let mut out = BufWriter::new(std::io::stdout().lock());
    // One JSON document that need not fit in memory.
    let mut first = true;
    let mut failed = None;
    let outcome = with(place, false, async |offline| {
        let mut each = |item: DumpItem| {
            let written = if json {
                let comma = if first { "[\n" } else { ",\n" };
                first = false;
                out.write_all(comma.as_bytes())
                    .and_then(|()| Ok(serde_json::to_writer(&mut out, &item)?))
            } else {
                writeln!(out, "{}", line(&item))
            };
            written.map_err(|error| {
                let stop = Error::io("writing the output", std::io::Error::from(error.kind()));
                failed = Some(write_failure(error));
                stop
            })
        };
        Ok(offline.dump(filter, &mut each).await?)
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    if let Err(failure) = outcome {
        if json && !first {
            // The document is closed all the same; the reason goes to the other stream.
            out.write_all(b"\n]\n").and_then(|()| out.flush()).map_err(write_failure)?;
            if let Failure::Error(error) = &failure {
                crate::output::warn_line(format_args!("azekura: {error}"));
                return Err(Failure::Reported(crate::exit::exit_code(error.code)));
            }
        }
        return Err(failure);
    }
    if json {
        let end: &[u8] = if first { b"[]\n" } else { b"\n]\n" };
        out.write_all(end).map_err(write_failure)?;
    }
    out.flush().map_err(write_failure)
}

fn place_text(place: &Place) -> String {
    match place {
        Place::Index => "in the index".into(),
        Place::Data { at } => format!("at {at}"),
        Place::Zero => "zeros".into(),
        Place::Coded { stripe } => {
            format!("in cells of the stripe at {}, version {}", stripe.first, stripe.version)
        }
    }
}

fn line(item: &DumpItem) -> String {
    match item {
        DumpItem::Container { pool, cont } => format!("pool {pool} container {cont}"),
        DumpItem::Object { oid, group, epoch, dkeys, bytes, .. } => {
            format!("  object {oid} group {group} epoch {epoch} dkeys {dkeys} bytes {bytes}")
        }
        DumpItem::Single { dkey, akey, epoch, bytes, place, .. } => {
            format!("    {dkey} / {akey}: {bytes} bytes {} epoch {epoch}", place_text(place))
        }
        DumpItem::Extent { dkey, akey, epoch, index, count, record_bytes, place, .. } => format!(
            "    {dkey} / {akey}: records {index}+{count} of {record_bytes} bytes {} epoch {epoch}",
            place_text(place)
        ),
    }
}

fn show_stat(report: &TargetReport, out: &mut dyn Write) -> std::io::Result<()> {
    let versions = &report.versions;
    let owner = report.owner.as_ref().map_or("nobody yet".to_string(), |owner| {
        format!("engine {}, target number {}", owner.engine, owner.number)
    });
    write_pairs(
        out,
        &[
            ("Target", report.target.clone()),
            ("Owner", owner),
            (
                "Formats",
                format!(
                    "superblock {}, shard {}, log {}, raw device {}",
                    versions.superblock, versions.shard, versions.record, versions.volume
                ),
            ),
        ],
    )?;
    writeln!(out)?;
    let mut table = Table::new(&["DEVICE", "FOR", ">FREE", ">SIZE"]);
    for device in &report.devices {
        table.row(vec![
            device.name.clone(),
            crate::pool::role_text(device.role).into(),
            size::format(device.free_bytes),
            size::format(device.total_bytes),
        ]);
    }
    table.write(out)?;
    writeln!(out)?;
    let mut table = Table::new(&[
        ">POOL",
        "DURABILITY",
        ">SCM USED",
        ">SCM SIZE",
        ">NVME USED",
        ">NVME SIZE",
        ">CONTAINERS",
        ">OBJECTS",
        ">KEYS",
        ">LOG",
        ">IN DOUBT",
    ]);
    for pool in &report.pools {
        table.row(vec![
            pool.pool.to_string(),
            pool.durability.map_or("?".into(), |durability| durability.to_string()),
            size::format(pool.scm_used_bytes),
            size::format(pool.scm_bytes),
            size::format(pool.nvme_used_bytes),
            size::format(pool.nvme_bytes),
            pool.containers.to_string(),
            pool.objects.to_string(),
            pool.dkeys.to_string(),
            pool.log.as_ref().map_or("-".into(), |log| size::format(log.bytes)),
            pool.prepared.to_string(),
        ]);
    }
    table.write(out)?;
    for pool in &report.pools {
        if let Some(error) = &pool.error {
            writeln!(out, "Pool {} cannot be opened: {error}", pool.pool)?;
        }
    }
    report.remains.iter().try_for_each(|what| writeln!(out, "Left over: {what}"))
}
