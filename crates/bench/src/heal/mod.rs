//! What healing is worth, and what it costs users, on a system of its own in memory.
//!
//! Two copies of files are on all engines but the last one. Again and again one target is left out, so that others make its copies anew, and taken back after
//! a hundredth of the data has changed: once with nobody else there, and once while one user reads pieces of 4 KiB and another one writes pieces of 1 MiB. At the
//! end an engine is added and takes over its share. What targets get is what they count themselves.

mod users;

use crate::backend::{Backend, DfsBackend, NewFile};
use crate::place::Where;
use crate::report::Machine;
use crate::suite::bed::{Bed, Files, Size};
use crate::suite::say;
use crate::table::Table;
use client::{Client, Pool, RebuildState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::{Code, Durability, Error, ObjClass, Rank, Result, TargetId};
use users::{Users, Window};
use wire::control::{ControlRequest, Name, OpenMode, PoolInfo, Subject, TargetAim};
use wire::store::CatchUpStat;

const POOL: &str = "heal";
const CLASS: &str = "RP_2GX";
/// Files, each of so many bytes, written in pieces.
const FILE_BYTES: u64 = 4 << 20;
const PIECE_BYTES: usize = 1 << 20;
/// Directories of the files: what is in one has its first groups beside its names, on few targets. So many that each target's share of them is near what is expected.
const DIRS: u64 = 128;
/// Writers of the files.
const WRITERS: u64 = 2;
/// The engine whose target comes and goes: not the first one, which holds the catalog.
const LOST: Rank = Rank(1);
/// Pause between two looks at the pool.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// What has not ended after so long never will.
const TIME_MAX: Duration = Duration::from_secs(600);

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How often a target goes and comes back, in each way; at least 1.
    pub rounds: u32,
    /// Engines at first, of one target each; at least 3.
    pub engines: u32,
    /// Bytes of files, of which there are two copies; at least 64 MiB.
    pub data_bytes: u64,
    /// How long users are watched with nothing else going on, seconds.
    pub watch_s: f64,
    /// Pool property of that name, percent; `None`: its default.
    pub heal_share: Option<u8>,
    /// A directory in memory for the system.
    pub dir: PathBuf,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rounds: 3,
            engines: 4,
            data_bytes: 1 << 30,
            watch_s: 3.0,
            heal_share: None,
            dir: "/dev/shm".into(),
        }
    }
}

impl Options {
    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        if self.rounds == 0 || self.rounds > 1000 {
            return Err(Error::inval("rounds: want 1 to 1,000"));
        }
        if self.engines < 3 || self.engines > 64 {
            return Err(Error::inval("engines: want 3 to 64"));
        }
        if self.data_bytes < 64 << 20 {
            return Err(Error::inval("data: want at least 64MiB"));
        }
        if !(0.1..=3600.0).contains(&self.watch_s) {
            return Err(Error::inval("watch: want 0.1 to 3,600 seconds"));
        }
        if self.heal_share.is_some_and(|share| !(1..=100).contains(&share)) {
            return Err(Error::inval("heal share: want 1 to 100 percent"));
        }
        Ok(())
    }

    fn files(&self) -> u64 {
        self.data_bytes / FILE_BYTES
    }
}

/// A figure beside its goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    pub name: String,
    /// One value a round.
    pub values: Vec<f64>,
    pub limit: f64,
    /// The limit is the least that is good; else the most.
    pub is_least: bool,
}

impl Goal {
    fn new(name: &str, values: Vec<f64>, limit: f64, is_least: bool) -> Goal {
        Goal { name: name.into(), values, limit, is_least }
    }

    /// The middle one; `None`: nothing was measured.
    pub fn median(&self) -> Option<f64> {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// True when it is measured, and good.
    pub fn is_met(&self) -> bool {
        self.median().is_some_and(|value| match self.is_least {
            true => value >= self.limit,
            false => value <= self.limit,
        })
    }
}

/// What came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// As it was run.
    pub options: Options,
    /// What it ran on.
    pub machine: Machine,
    /// Users' bandwidth of writing with nothing else going on, bytes a second.
    pub write_bytes_s: f64,
    /// Of each rebuild with nobody else there: bytes, and seconds.
    pub rebuilds: Vec<(u64, f64)>,
    /// The same beside users.
    pub rebuilds_beside_users: Vec<(u64, f64)>,
    /// Users before each of these, and meanwhile.
    pub users: Vec<(Window, Window)>,
    pub goals: Vec<Goal>,
}

impl Report {
    /// For people.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&["", "measured", "lowest", "highest", "goal", "met"]);
        for goal in &self.goals {
            let text = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
            let (low, high) = (
                goal.values.iter().copied().min_by(f64::total_cmp),
                goal.values.iter().copied().max_by(f64::total_cmp),
            );
            let sign = if goal.is_least { ">=" } else { "<=" };
            table.row(vec![
                goal.name.clone(),
                text(goal.median()),
                text(low),
                text(high),
                format!("{sign} {}", goal.limit),
                if goal.is_met() { "yes" } else { "no" }.into(),
            ]);
        }
        table
    }
}

/// The system with its files.
struct Site {
    bed: Bed,
    place: Where,
    dir: String,
}

/// What targets have got, and in what time.
#[derive(Clone, Debug)]
struct Moved {
    begun: Instant,
    ended: Instant,
    by_target: BTreeMap<TargetId, u64>,
}

impl Moved {
    fn bytes(&self) -> u64 {
        self.by_target.values().sum()
    }

    fn seconds(&self) -> f64 {
        (self.ended - self.begun).as_secs_f64().max(1e-9)
    }
}

impl Site {
    fn start(options: &Options, binary: &Path) -> Result<Site> {
        let size = Size { engines: options.engines, targets: 1 };
        let bed = Bed::start_of(size, &options.dir, binary, Durability::Memory)?;
        // Two copies, a third one on its way, and half of it is for the index.
        let bytes = options.data_bytes * 8;
        let place = bed.make(&Files { rd_fac: 1, ..Files::new(POOL, bytes) })?;
        let Where::Dfs { dir, .. } = &place else { return Err(Error::inval("no file system")) };
        let dir = dir.clone();
        let mut files = DfsBackend::connect(&place)?;
        files.make_dir(&dir, Some(CLASS.parse()?))?;
        for number in 0..DIRS {
            files.make_dir(&dir_of(&dir, number), Some(CLASS.parse()?))?;
        }
        let site = Site { bed, place, dir };
        if let Some(share) = options.heal_share {
            let subject = Subject::Pool(Name::Label(POOL.into()));
            let props = [("heal_share".to_string(), share.to_string())].into();
            site.ask(ControlRequest::SetProps { subject, props })?;
        }
        Ok(site)
    }

    fn client(&self) -> Result<&Client> {
        self.bed.client()
    }

    fn open(&self) -> Result<Pool> {
        let client = self.client()?;
        client.block_on(client.pool_open(&Name::Label(POOL.into()), OpenMode::ReadWrite))
    }

    fn info(&self) -> Result<PoolInfo> {
        Ok(self.open()?.info().clone())
    }

    fn ask(&self, request: ControlRequest) -> Result<()> {
        let client = self.client()?;
        client.block_on(client.control(&request)).map(|_| ())
    }

    fn until(&self, what: &str, is_so: impl Fn(&PoolInfo) -> bool) -> Result<Instant> {
        let begun = Instant::now();
        while !is_so(&self.info()?) {
            if begun.elapsed() > TIME_MAX {
                return Err(Error::new(Code::TimedOut, format!("{what} has no end")));
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        Ok(Instant::now())
    }

    /// How it was when targets got something last.
    fn caught_up(&self) -> Result<BTreeMap<TargetId, CatchUpStat>> {
        let pool = self.open()?;
        let stats = pool.client().block_on(pool.store_stats())?;
        let last = stats.into_iter().filter_map(|(id, stat)| Some((id, stat?.caught_up?)));
        Ok(last.collect())
    }

    /// Asks for something that moves data, and waits for its end.
    fn moves(&self, request: ControlRequest, is_over: impl Fn(&PoolInfo) -> bool) -> Result<Moved> {
        let before = self.caught_up()?;
        self.ask(request)?;
        // The request itself, and the decision to begin, are no part of the rate.
        let is_moving = |info: &PoolInfo| RebuildState::of_map(&info.map) == RebuildState::Busy;
        let begun =
            self.until("waiting for what is to move", |info| is_moving(info) || is_over(info))?;
        let ended = self.until("what moves", is_over)?;
        let mut by_target = BTreeMap::new();
        for (id, stat) in self.caught_up()? {
            if before.get(&id) != Some(&stat) {
                by_target.insert(id, stat.bytes_mended);
            }
        }
        Ok(Moved { begun, ended, by_target })
    }

    fn lost(&self) -> Result<Vec<TargetId>> {
        let map = self.info()?.map;
        Ok(map
            .targets
            .iter()
            .filter(|target| target.rank == LOST)
            .map(|target| target.id)
            .collect())
    }

    fn aim(&self, aim: TargetAim) -> Result<ControlRequest> {
        Ok(ControlRequest::PoolAim { pool: Name::Label(POOL.into()), targets: self.lost()?, aim })
    }

    /// Others make the copies of a target anew.
    fn rebuild(&self) -> Result<Moved> {
        let is_over = |info: &PoolInfo| RebuildState::of(info) == RebuildState::Done;
        self.moves(self.aim(TargetAim::Exclude)?, is_over)
    }

    /// It comes back.
    fn reintegrate(&self) -> Result<Moved> {
        let is_over = |info: &PoolInfo| RebuildState::of(info) == RebuildState::Idle;
        self.moves(self.aim(TargetAim::Serve)?, is_over)
    }

    /// Writes files of these numbers; seconds.
    fn write(&self, numbers: std::ops::Range<u64>, fill: u8) -> Result<f64> {
        let begun = Instant::now();
        let (place, dir) = (&self.place, &self.dir);
        std::thread::scope(|scope| {
            let writer = |part: u64| {
                let numbers = numbers.clone().filter(move |number| number % WRITERS == part);
                scope.spawn(move || write_some(place, dir, numbers, fill))
            };
            let writers: Vec<_> = (0..WRITERS).map(writer).collect();
            let died = || Error::new(Code::Io, "a writer has died");
            writers.into_iter().try_for_each(|one| one.join().map_err(|_| died())?)
        })?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Bytes in use, of all targets, or of some.
    fn used(&self, of: &[TargetId]) -> Result<u64> {
        let pool = self.open()?;
        let space = pool.client().block_on(pool.query())?;
        let meant =
            space.targets.iter().filter(|target| of.is_empty() || of.contains(&target.target));
        Ok(meant.filter_map(|target| Some(target.stat.as_ref()?.used_bytes())).sum())
    }
}

/// Writes files of these numbers, one after the other.
fn write_some(
    place: &Where,
    dir: &str,
    numbers: impl Iterator<Item = u64>,
    fill: u8,
) -> Result<()> {
    let mut files = DfsBackend::connect(place)?;
    let class: Option<ObjClass> = Some(CLASS.parse()?);
    let piece = vec![fill; PIECE_BYTES];
    for number in numbers {
        let file = files.create(&path(dir, number), &NewFile { class, ..NewFile::default() })?;
        for at in (0..FILE_BYTES).step_by(PIECE_BYTES) {
            files.write_at(&file, at, &piece)?;
        }
    }
    Ok(())
}

/// The directory of a file.
fn dir_of(dir: &str, number: u64) -> String {
    format!("{dir}/part{}", number % DIRS)
}

/// Where a file is.
fn path(dir: &str, number: u64) -> String {
    format!("{}/file{number}", dir_of(dir, number))
}

/// Runs it. `binary` is the `azekura` command whose engines are measured.
///
/// Errors: those of the system, which end it, and when nothing can be printed.
pub fn run(options: &Options, binary: &Path, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    let site = Site::start(options, binary)?;
    let count = options.files();
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let seconds = site.write(0..count, 1)?;
    // Once more: from then on there are pages for it.
    let seconds = seconds.min(site.write(0..count, 2)?);
    let write_bytes_s = (count * FILE_BYTES) as f64 / seconds;
    say(out, &format!("two users write {:.0} MiB/s, of {CLASS}", mib(write_bytes_s)))?;
    let (mut rebuilds, mut returns, mut beside, mut users) = (vec![], vec![], vec![], vec![]);
    for round in 1..=options.rounds {
        let moved = site.rebuild()?;
        let rate = moved.bytes() as f64 / moved.seconds();
        say(
            out,
            &format!(
                "round {round}: {:.0} MiB anew at {:.0} MiB/s",
                mib(moved.bytes() as f64),
                mib(rate)
            ),
        )?;
        rebuilds.push((moved.bytes(), moved.seconds()));
        // A hundredth is written while it is away.
        let changed = count.div_ceil(100);
        let first = (u64::from(round) * changed) % (count - changed + 1);
        site.write(first..first + changed, 3)?;
        let lost = site.lost()?;
        let held = site.used(&lost)?;
        let back = site.reintegrate()?;
        let part = back.bytes() as f64 / held as f64;
        let written = (changed * FILE_BYTES) as f64 / (count * FILE_BYTES) as f64;
        say(
            out,
            &format!(
                "  {:.2} % of what it holds came back with it; {:.2} % had been written",
                part * 100.0,
                written * 100.0
            ),
        )?;
        // As if exactly a hundredth had been.
        returns.push(part * 0.01 / written);

        let crowd = Users::start(&site.place, &site.dir, count)?;
        let began = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(options.watch_s));
        let calm = Instant::now();
        let moved = site.rebuild()?;
        let done = Instant::now();
        site.reintegrate()?;
        let seen = crowd.stop()?;
        let (before, meanwhile) =
            (seen.window(began, calm), seen.window(moved.begun, moved.ended.max(done)));
        say(
            out,
            &format!(
                "  beside users {:.0} MiB/s; they: {before}; meanwhile {meanwhile}",
                mib(moved.bytes() as f64 / moved.seconds())
            ),
        )?;
        beside.push((moved.bytes(), moved.seconds()));
        users.push((before, meanwhile));
    }
    let grown = extend(&site, options)?;
    say(out, &format!("an engine more: {:.2} times its share moved", grown))?;
    let of_users = |of: fn(&(Window, Window)) -> f64| users.iter().map(of).collect::<Vec<f64>>();
    let rates = |of: &[(u64, f64)]| {
        of.iter()
            .map(|(bytes, seconds)| *bytes as f64 / seconds / write_bytes_s)
            .collect::<Vec<f64>>()
    };
    let goals = vec![
        Goal::new("rebuild, of the write bandwidth", rates(&rebuilds), 0.5, true),
        Goal::new(
            "reads beside it, of those without",
            of_users(|(a, b)| b.reads_s / a.reads_s),
            0.8,
            true,
        ),
        Goal::new(
            "writes beside it, of those without",
            of_users(|(a, b)| b.writes_s / a.writes_s),
            0.8,
            true,
        ),
        Goal::new(
            "p99 of 4 KiB reads beside it, times that without",
            of_users(|(a, b)| b.read_p99_us / a.read_p99_us),
            2.0,
            false,
        ),
        Goal::new("what comes back after 1 % has changed", returns, 0.03, false),
        Goal::new("extension by an engine, times its share", vec![grown], 1.1, false),
    ];
    let report = Report {
        options: options.clone(),
        machine: Machine::here(),
        write_bytes_s,
        rebuilds,
        rebuilds_beside_users: beside,
        users,
        goals,
    };
    say(out, &report.table().to_string())?;
    Ok(report)
}

/// One engine more takes over its share: what moved, as a multiple of that.
fn extend(site: &Site, options: &Options) -> Result<f64> {
    let engines = (options.engines + 1).to_string();
    let output = site.bed.beside().args(["up", "--engines", &engines]).output();
    let output = output.map_err(|error| Error::io("adding an engine", error))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::new(Code::Io, format!("adding an engine: {text}")));
    }
    let pool = || Name::Label(POOL.into());
    let share = site.used(&[])? as f64 / f64::from(options.engines + 1);
    site.ask(ControlRequest::PoolExtend { pool: pool(), targets: Vec::new() })?;
    let newest = site.info()?.map.placement_epoch();
    let is_over = |info: &PoolInfo| info.map.next.is_none() && info.map.balanced >= newest;
    let moved = site.moves(ControlRequest::PoolBalance { pool: pool() }, is_over)?;
    Ok(moved.bytes() as f64 / share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        Options::default().check().unwrap();
        for (options, word) in [
            (Options { rounds: 0, ..Options::default() }, "rounds"),
            (Options { engines: 2, ..Options::default() }, "engines"),
            (Options { data_bytes: 1 << 20, ..Options::default() }, "data"),
            (Options { watch_s: 0.0, ..Options::default() }, "watch"),
            (Options { heal_share: Some(0), ..Options::default() }, "heal share"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_goal_is_met_by_the_middle_round() {
        let goal = |values: &[f64], is_least| Goal::new("of", values.to_vec(), 0.5, is_least);
        assert!(goal(&[0.1, 0.6, 0.7], true).is_met());
        assert!(!goal(&[0.1, 0.4, 0.7], true).is_met());
        assert!(goal(&[0.1, 0.4, 0.7], false).is_met());
        assert!(!goal(&[], true).is_met() && !goal(&[], false).is_met(), "nothing was measured");
    }
}
