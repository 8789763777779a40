//! Settings of the preload library: a configuration file, and the environment over it.
//!
//! The file is the one `AZEKURA_IOC_CONFIG` names (empty: none), or else the first there is of
//! `$XDG_CONFIG_HOME/azekura/ioc.toml` (`~/.config` when unset) and `/etc/azekura/ioc.toml`. A
//! privileged program (set-user-id) heeds neither its caller's environment nor a file of theirs.
//!
//! Without a coordinator in either place, or with `AZEKURA_IOC=off`, nothing is coordinated. A
//! mistake is an error and not a guess: what was meant to limit writers and does not would go
//! unnoticed.

use super::Rule;
use super::choice::{Choice, Endpoint, Place, Spread, choose, parse_ranks};
use crate::message::NAME_BYTES_MAX;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::job::SCHEDULER_VARIABLES;
use types::{Error, Result, size};

const SITE_FILE: &str = "/etc/azekura/ioc.toml";
/// Where launchers put the rank, tried in this order.
const RANK_VARIABLES: [&str; 8] = [
    "PMIX_RANK",
    "PMI_RANK",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "ALPS_APP_PE",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
];

/// What a process does about coordination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub endpoint: Endpoint,
    /// Group to name to the coordinator; may be empty.
    pub group: String,
    /// Job, for fairness among jobs.
    pub job: String,
    /// Name of this host.
    pub host: String,
    /// MPI rank, if the process has one.
    pub rank: Option<u32>,
    /// Share of the job, ≥ 1.
    pub weight: u16,
    /// Requests of higher priority go first.
    pub priority: u8,
    /// Calls on fewer bytes do not ask; 0: all ask.
    pub min_bytes: u64,
    /// Reads ask too.
    pub reads: bool,
    /// Longest silence of a coordinator that is asked, before it is given up for a while.
    pub timeout: Duration,
    /// Longest wait for a permission, from a coordinator that is alive.
    pub wait_max: Duration,
    /// Time until the first attempt to reach a coordinator again; doubles with each failure.
    pub backoff: Duration,
    /// What the doubling ends at.
    pub backoff_max: Duration,
    /// File with the token for TCP.
    pub token_file: Option<PathBuf>,
    /// Rules for targets, see [`super::targets_of`].
    pub rules: Vec<Rule>,
    /// File for lines; without one only the summary is told, on the standard error output.
    pub log: Option<PathBuf>,
    /// Log each coordinated call.
    pub log_calls: bool,
    /// Log a summary when the process ends.
    pub summary: bool,
}

/// What settings are read from.
pub struct Surroundings<'a> {
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Text of a file; none when there is no such file.
    pub read: &'a dyn Fn(&Path) -> std::io::Result<Option<String>>,
    /// Name of the host.
    pub host: &'a str,
    /// User id, which stands for the job when no scheduler names one.
    pub user: u32,
    /// The program has more rights than its caller.
    pub privileged: bool,
}

/// The file's form. Unknown keys are mistakes.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Form {
    coordinator: Option<String>,
    coordinators: Vec<ChoiceForm>,
    group: Option<String>,
    job: Option<String>,
    weight: Option<u16>,
    priority: Option<u8>,
    min_size: Option<Amount>,
    reads: Option<bool>,
    timeout: Option<Amount>,
    wait_max: Option<Amount>,
    backoff: Option<Amount>,
    backoff_max: Option<Amount>,
    token_file: Option<PathBuf>,
    rank_variable: Option<String>,
    rule: Vec<RuleForm>,
    log: Option<PathBuf>,
    log_calls: Option<bool>,
    summary: Option<bool>,
}

/// A plain number or a number with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(u64),
    Text(String),
}

impl Amount {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceForm {
    #[serde(default)]
    hosts: Vec<String>,
    ranks: Option<String>,
    addresses: Vec<String>,
    #[serde(default)]
    by: Spread,
    block: Option<u32>,
    group: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleForm {
    path: Option<String>,
    fstype: Option<String>,
    target: String,
}

impl Settings {
    /// Reads the settings; none when nothing shall be coordinated.
    pub fn load(from: &Surroundings<'_>) -> Result<Option<Self>> {
        let ours = |name: &str| (from.variable)(&format!("AZEKURA_IOC{name}"));
        let variable = |name: &str| if from.privileged { None } else { ours(name) };
        let switch = variable("").filter(|text| !text.is_empty());
        if switch.as_deref() == Some("off") {
            return Ok(None);
        }
        let form = match file(from)? {
            None => Form::default(),
            Some((path, text)) => toml::from_str(&text).map_err(|error| {
                Error::inval(format!("{}: {}", path.display(), error.to_string().trim()))
            })?,
        };
        Self::combine(from, form, switch, &variable)
    }

    fn combine(
        from: &Surroundings<'_>,
        form: Form,
        switch: Option<String>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>> {
        let place = Place { host: from.host.to_string(), rank: rank(from, form.rank_variable) };
        let choices: Vec<Choice> =
            form.coordinators.into_iter().map(ChoiceForm::into_choice).collect::<Result<_>>()?;
        let chosen = match (switch, choose(&choices, &place), form.coordinator) {
            (Some(address), ..) => Some((address.parse()?, String::new())),
            (None, Some(chosen), _) => Some(chosen),
            (None, None, Some(address)) => Some((address.parse()?, String::new())),
            (None, None, None) => None,
        };
        let Some((endpoint, group)) = chosen else { return Ok(None) };

        let text = |name: &str, file: Option<Amount>, usual: &str| {
            variable(name).or(file.map(Amount::text)).unwrap_or_else(|| usual.to_string())
        };
        let number = |name: &str, file: Option<u64>, usual: u64, range: (u64, u64)| {
            let value = match variable(name) {
                Some(text) => text.trim().parse().ok(),
                None => Some(file.unwrap_or(usual)),
            };
            let (low, high) = range;
            value.filter(|value| (low..=high).contains(value)).ok_or_else(|| {
                Error::inval(format!("AZEKURA_IOC{name} must be a number from {low} to {high}"))
            })
        };
        let flag = |name: &str, file: Option<bool>| match variable(name).as_deref() {
            None | Some("") => Ok(file.unwrap_or(false)),
            Some("1" | "on" | "true" | "yes") => Ok(true),
            Some("0" | "off" | "false" | "no") => Ok(false),
            Some(other) => Err(Error::inval(format!("AZEKURA_IOC{name}: '{other}' is not 0 or 1"))),
        };
        let path = |name: &str, file: Option<PathBuf>| {
            variable(name).map(PathBuf::from).or(file).filter(|path| !path.as_os_str().is_empty())
        };
        let group = Some(group).filter(|group| !group.is_empty());
        let job = || SCHEDULER_VARIABLES.iter().find_map(|name| (from.variable)(name));
        Ok(Some(Self {
            endpoint,
            group: plain_name(variable("_GROUP").or(group).or(form.group).unwrap_or_default())?,
            job: plain_name(
                variable("_JOB")
                    .or(form.job)
                    .or_else(job)
                    .unwrap_or_else(|| format!("uid-{}", from.user)),
            )?,
            rank: place.rank,
            host: plain_name(place.host).unwrap_or_default(),
            weight: number("_WEIGHT", form.weight.map(u64::from), 1, (1, 65_535))? as u16,
            priority: number("_PRIORITY", form.priority.map(u64::from), 0, (0, 255))? as u8,
            min_bytes: size::parse(&text("_MIN_SIZE", form.min_size, "8MiB"))?,
            reads: flag("_READS", form.reads)?,
            timeout: parse_duration(&text("_TIMEOUT", form.timeout, "10s"))?,
            wait_max: parse_duration(&text("_WAIT_MAX", form.wait_max, "10min"))?,
            backoff: parse_duration(&text("_BACKOFF", form.backoff, "1s"))?,
            backoff_max: parse_duration(&text("_BACKOFF_MAX", form.backoff_max, "1min"))?,
            token_file: path("_TOKEN_FILE", form.token_file),
            rules: rules(variable("_TARGET"), form.rule)?,
            log: path("_LOG", form.log),
            log_calls: flag("_LOG_CALLS", form.log_calls)?,
            summary: flag("_SUMMARY", form.summary)?,
        }))
    }
}

impl ChoiceForm {
    fn into_choice(self) -> Result<Choice> {
        if self.addresses.is_empty() {
            return Err(Error::inval("an entry of coordinators needs an address"));
        }
        let block = self.block.unwrap_or(1);
        if block == 0 {
            return Err(Error::inval("block of an entry of coordinators must be at least 1"));
        }
        Ok(Choice {
            hosts: self.hosts,
            ranks: self.ranks.as_deref().map_or(Ok(Vec::new()), parse_ranks)?,
            endpoints: self.addresses.iter().map(|text| text.parse()).collect::<Result<_>>()?,
            spread: self.by,
            block,
            group: self.group.unwrap_or_default(),
        })
    }
}

/// The configuration file's path and text, if there is one.
fn file(from: &Surroundings<'_>) -> Result<Option<(PathBuf, String)>> {
    let variable = |name: &str| (from.variable)(name).filter(|text| !text.is_empty());
    let read = |path: PathBuf| match (from.read)(&path) {
        Ok(text) => Ok(text.map(|text| (path, text))),
        Err(error) => Err(Error::io(path.display(), error)),
    };
    if !from.privileged {
        if let Some(named) = (from.variable)("AZEKURA_IOC_CONFIG") {
            if named.is_empty() {
                return Ok(None);
            }
            let missing = || Error::inval(format!("AZEKURA_IOC_CONFIG: there is no file {named}"));
            return read(PathBuf::from(&named))?.map(Some).ok_or_else(missing);
        }
        let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
        let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        if let Some(found) = config.map(|dir| read(dir.join("azekura/ioc.toml"))).transpose()?
            && found.is_some()
        {
            return Ok(found);
        }
    }
    read(PathBuf::from(SITE_FILE))
}

fn rank(from: &Surroundings<'_>, named: Option<String>) -> Option<u32> {
    let all = named.iter().map(String::as_str).chain(RANK_VARIABLES);
    all.filter_map(|name| (from.variable)(name)).find_map(|text| text.trim().parse().ok())
}

fn rules(variable: Option<String>, forms: Vec<RuleForm>) -> Result<Vec<Rule>> {
    if let Some(text) = variable.filter(|text| !text.is_empty()) {
        return Ok(vec![Rule::always(text.parse()?)]);
    }
    if forms.is_empty() {
        return Ok(Rule::usual());
    }
    let rule = |form: RuleForm| {
        let RuleForm { path, fstype, target } = form;
        Ok(Rule { path, fstype, assign: target.parse()? })
    };
    forms.into_iter().map(rule).collect()
}

/// A name as the messages allow it.
fn plain_name(name: String) -> Result<String> {
    if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Error::inval(format!(
            "'{}' is no name: at most {NAME_BYTES_MAX} bytes, no control characters",
            name.escape_debug()
        )));
    }
    Ok(name)
}

/// Parses a duration: `500ms`, `5s`, `2min`, `1h`, or seconds without a unit.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let bad = || Error::inval(format!("'{text}' is no duration (examples: 500ms, 5s, 2min)"));
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let unit_ms: u64 = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1_000,
        "min" | "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    // A year is longer than any wait, and keeps sums of times far from their limits.
    let ms = number.checked_mul(unit_ms).filter(|ms| *ms <= 366 * 24 * 3_600_000);
    ms.map(Duration::from_millis).ok_or_else(bad)
}

#[cfg(test)]
mod tests;
