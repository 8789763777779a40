//! `azekura tier mount`: a container in a store as a directory, without a pool, and without a system where the store is named by its URL.

use super::browse::{Browsed, Browser};
use super::definition;
use super::snapshot::described;
use crate::exit::Outcome;
use crate::mount::background;
use crate::session::{Session, absolute};
use clap::Args;
use fuse::options::Options;
use fuselow::{End, Signals};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tier::{Definition, PART_BYTES_DEFAULT, Shown, Source, Store};
use types::{Error, Result, size};

/// Show a container in a store as a directory, to be read only
///
/// As it was when 'azekura fs tier sync' of its root was last run, or as a snapshot in the store has it. It needs the store and nothing else: no
/// pool, and with a URL no system. Served in the background until 'azekura umount'. Files that had no copy then are not shown.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura tier mount /mnt/cold --from cold --cont home
  azekura tier mount /mnt/cold --from s3://bucket/azekura --endpoint https://s3.example.org --credentials ~/s3.toml
  azekura umount /mnt/cold")]
pub struct TierMountArgs {
    /// Where: an empty directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The tier: its name, or the URL of its store as for 'tier add'
    #[arg(long, value_name = "NAME|URL")]
    from: String,
    /// The container: its name then, or its UUID; may be left out where there is one only
    #[arg(long)]
    cont: Option<String>,
    /// As a snapshot in the store has it ('tier snapshot list')
    #[arg(long, value_name = "TIME")]
    snapshot: Option<String>,
    /// With a URL: where the store answers
    #[arg(long)]
    endpoint: Option<String>,
    /// With a URL: region, for S3 [default: us-east-1]
    #[arg(long)]
    region: Option<String>,
    /// With a URL: the bucket is part of the host name
    #[arg(long)]
    virtual_host: bool,
    /// With a URL: file with the credentials
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// With a URL: file with the key of encrypted parts
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Serve in the foreground, until a signal or the unmounting
    #[arg(long, short)]
    foreground: bool,
    /// Where a mount in the background logs; nowhere if not given
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Serve, and report on standard output to the one who waits there
    #[arg(long, hide = true)]
    reporting: bool,
}

#[derive(Serialize)]
struct Report {
    source: String,
    dir: String,
    pid: u32,
    /// When what is shown was written down, nanoseconds since 1970.
    made_ns: u64,
    files_bytes: u64,
    /// Names of files that had no copy then.
    missing: u64,
}

impl TierMountArgs {
    /// It serves in this process, and logs.
    pub fn is_server(&self) -> bool {
        self.foreground || self.reporting
    }

    /// Whoever started it waits on its standard output for a report, as JSON.
    pub fn is_reporting(&self) -> bool {
        self.reporting
    }

    fn definition(&self, session: &Session) -> Result<Definition> {
        if self.from.contains("://") {
            return Ok(Definition {
                url: self.from.clone(),
                endpoint: self.endpoint.clone(),
                region: self.region.clone(),
                virtual_host: self.virtual_host,
                credentials: self.credentials.as_deref().map(absolute).transpose()?,
                part_bytes: PART_BYTES_DEFAULT,
                zstd_level: None,
                key_file: self.key_file.as_deref().map(absolute).transpose()?,
            });
        }
        let has_own = self.endpoint.is_some()
            || self.region.is_some()
            || self.virtual_host
            || self.credentials.is_some()
            || self.key_file.is_some();
        if has_own {
            let text =
                format!("tier '{}' knows where it is; these options go with a URL", self.from);
            return Err(Error::inval(text));
        }
        definition(session, &self.from)
    }
}

pub fn run(session: &Session, args: &TierMountArgs) -> Outcome {
    let dir = fuselow::check_mount_point(&args.dir, false)?;
    if !args.is_server() {
        return background::start(session, args.log.as_deref());
    }
    serve(session, args, &dir)
}

fn serve(session: &Session, args: &TierMountArgs, dir: &Path) -> Outcome {
    // Before there is any thread.
    let signals = Signals::block()?;
    let definition = args.definition(session)?;
    let store = Store::open(&definition)?;
    let wanted = described(&store, args.cont.as_deref(), args.snapshot.as_deref());
    let (head, entries) = tier::wait(wanted)??;
    let shown = Shown::new(&entries)?;
    let (files_bytes, missing) = (shown.bytes(), shown.missing());
    let source = format!("{}#{}", definition.url, head.label);
    let resolve = move |_: &str| Ok(definition.clone());
    let browsed = Arc::new(Browsed::new(shown, Source::new(Box::new(resolve)), args.from.clone()));
    let options = Options { read_only: true, local_locks: true, ..Options::default() };
    let config = options.config(source.clone());
    let start = move |_| Ok(Browser(browsed.clone()));
    let mounted = fuselow::Session::start(dir, &config, start)?;
    let report = Report {
        source: source.clone(),
        dir: dir.display().to_string(),
        pid: std::process::id(),
        made_ns: head.made_ns,
        files_bytes,
        missing,
    };
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if quiet {
            return Ok(());
        }
        writeln!(out, "{source} ({}) is mounted at {}.", size::format(files_bytes), report.dir)
    })?;
    if args.reporting {
        background::report_is_out()?;
    }
    match mounted.wait_or_signal(&signals) {
        End::Unmounted => tracing::info!("unmounted"),
        end => tracing::warn!("the mount ended: {end:?}"),
    }
    Ok(())
}
