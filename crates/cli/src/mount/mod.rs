//! `azekura mount` and `azekura umount`.
//!
//! A mount in the background is this program once more, in a session of its own; it tells over
//! its standard output, as JSON, that the directory is mounted and served, or what is wrong.

pub mod background;
pub mod fstab;

use crate::exit::Outcome;
use crate::session::Session;
use crate::url::Url;
use dfs::MountFlags;
use fuse::mount::Mount;
use fuse::options::{Options, parse_transport};
use fuselow::{End, Signals};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use types::{Error, Result};
use wire::control::{OpenMode, SnapName};

/// Mount a container as a directory.
///
/// Returns when the directory is ready; the mount is served in the background until
/// 'azekura umount', 'umount' or 'fusermount3 -u'. Options of -o: ro, allow_other,
/// no_allow_other, default_permissions, no_default_permissions, acl, nonempty, auto_unmount, dev, suid,
/// noexec, noatime, cache=, attr_timeout=, entry_timeout=, negative_timeout=, timeout=, threads=,
/// io=, local_lock=, max_read=, readahead=, snapshot=, system=. docs/mount.md has them all.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura mount azk://tank/home /mnt/home
  azekura mount azk://tank/home /mnt/home --cache none -o timeout=10
  azekura mount azk://tank/home ~/home --foreground --read-only
  mount -t fuse.azekura azk://tank/home /mnt/home -o cache=full")]
pub struct MountArgs {
    /// The container: azk://POOL/CONT
    #[arg(value_name = "URL")]
    url: OsString,
    /// Where: an empty directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Options as in fstab, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Serve in the foreground, until a signal or the unmounting
    #[arg(long, short)]
    foreground: bool,
    /// What the kernel may keep: none, metadata or full
    #[arg(long, value_name = "MODE")]
    cache: Option<String>,
    /// Seconds that attributes are good for
    #[arg(long, value_name = "SECONDS")]
    attr_timeout: Option<String>,
    /// Seconds that names are good for
    #[arg(long, value_name = "SECONDS")]
    entry_timeout: Option<String>,
    /// A snapshot of the container, read-only
    #[arg(long, value_name = "NAME")]
    snapshot: Option<String>,
    /// Threads that serve; 0: one per CPU, at most eight, and one alone at /dev/fuse on two CPUs
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// How requests come from the kernel: auto, uring or dev
    #[arg(long, value_name = "HOW")]
    io: Option<String>,
    /// Refuse changes
    #[arg(long, short)]
    read_only: bool,
    /// Where a mount in the background logs; nowhere if not given
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Serve, and report on standard output to the one who waits there
    #[arg(long, hide = true)]
    reporting: bool,
}

/// Unmount a directory.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura umount /mnt/home
  azekura umount --lazy /mnt/home")]
pub struct UmountArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Take the mount away now, and end it when nobody uses it any more
    #[arg(long, short)]
    lazy: bool,
}

#[derive(Serialize)]
struct MountReport {
    source: String,
    dir: String,
    pid: u32,
    io: &'static str,
    cache: String,
    read_only: bool,
    write_bytes_max: u32,
}

impl MountArgs {
    /// It serves in this process, and logs.
    pub fn is_server(&self) -> bool {
        self.foreground || self.reporting
    }

    /// Whoever started it waits on its standard output for a report, as JSON.
    pub fn is_reporting(&self) -> bool {
        self.reporting
    }

    fn options(&self) -> Result<Options> {
        let mut options = Options::default();
        for list in &self.options {
            options.apply(list)?;
        }
        // As option lists, so that both ways have the same words and limits.
        for (name, value) in [
            ("cache", &self.cache),
            ("attr_timeout", &self.attr_timeout),
            ("entry_timeout", &self.entry_timeout),
            ("snapshot", &self.snapshot),
        ] {
            if let Some(value) = value {
                options.apply(&format!("{name}={value}"))?;
            }
        }
        if let Some(threads) = self.threads {
            options.apply(&format!("threads={threads}"))?;
        }
        if let Some(io) = &self.io {
            options.transport = parse_transport(io)?;
        }
        options.read_only |= self.read_only;
        Ok(options)
    }
}

/// Mounts; returns when the mount is ready, or in the foreground when it is gone.
pub fn run(session: &Session, args: &MountArgs) -> Outcome {
    let mut options = args.options()?;
    options.timeout = options.timeout.or(session.timeout_said);
    let url = Url::parse(&args.url)?;
    if url.path != b"/" {
        return Err(Error::inval(format!(
            "'{url}' names a path in the container; a whole container is mounted: azk://{}/{}",
            url.pool, url.cont
        ))
        .into());
    }
    let session = match &options.system {
        Some(system) => Session { system: Some(system.clone()), ..session.clone() },
        None => session.clone(),
    };
    let dir = fuselow::check_mount_point(&args.dir, options.nonempty)?;
    if !args.is_server() {
        return background::start(&session, args.log.as_deref());
    }
    serve(&session, args, &options, &url, &dir)
}

fn serve(session: &Session, args: &MountArgs, options: &Options, url: &Url, dir: &Path) -> Outcome {
    // Before there is any thread.
    let signals = Signals::block()?;
    let source = format!("azk://{}/{}", url.pool, url.cont);
    let read_only = options.read_only || options.snapshot.is_some();
    let mode = if read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
    let snapshot = options.snapshot.as_deref().map(SnapName::parse);
    let session = &Session { snapshot, ..session.clone() };
    let flags = if read_only { MountFlags::READ_ONLY } else { MountFlags::NONE };
    crate::tier::install_source(session);
    let mounted = session.mount_with(url, mode, flags)?;
    let mount = Mount::start(mounted.dfs, dir, source.clone(), options)?;
    let agreed = *mount.session().negotiated();
    let report = MountReport {
        source: source.clone(),
        dir: dir.display().to_string(),
        pid: std::process::id(),
        io: if agreed.uring { "uring" } else { "dev" },
        cache: format!("{:?}", options.cache).to_lowercase(),
        read_only,
        write_bytes_max: agreed.max_write_bytes,
    };
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if quiet { Ok(()) } else { writeln!(out, "{source} is mounted at {}.", dir.display()) }
    })?;
    if args.reporting {
        background::report_is_out()?;
    }
    tracing::info!("{source} is mounted at {}, over {}", report.dir, report.io);
    match mount.wait_or_signal(&signals) {
        End::Unmounted => tracing::info!("unmounted"),
        end => tracing::warn!("the mount ended: {end:?}"),
    }
    Ok(())
}

pub fn unmount(session: &Session, args: &UmountArgs) -> Outcome {
    // Not made canonical: the directory of a mount whose server is gone cannot be looked at.
    let dir = crate::session::absolute(&args.dir)?;
    fuselow::unmount(&dir, args.lazy)?;
    session.out.done(&format!("{} is unmounted.", dir.display()))
}
