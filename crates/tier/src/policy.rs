//! What is moved when: the policy of a directory, as text.
//!
//! One line each; the first rule that fits a file decides.
//!
//! ```text
//! keep path=*.idx
//! evict unused=30d size=64MiB.. path=raw/*
//! keep uses=10../30d
//! copy unchanged=1h
//! fill high=85% low=70%
//! cache max=300GiB
//! ```
//!
//! A decision needs nothing but a file's attributes, so a walk over the names suffices; what is noted of a file's uses is
//! asked for only where a rule has `uses`.

use dfs::find::name_matches;
use dfs::tier::{USES_DAYS, Uses, day_of};
use std::fmt;
use std::str::FromStr;
use types::{Error, Result, size};

/// Rules of one policy.
const RULES_MAX: usize = 64;

/// What of a directory's files is moved when.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    pub rules: Vec<Rule>,
    pub fill: Option<Fill>,
    pub cache: Option<CacheMax>,
}

/// What happens to files that fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub action: Action,
    /// Neither read nor written for so long, nor brought back, seconds.
    pub unused_s: Option<u64>,
    /// Not written for so long, seconds.
    pub unchanged_s: Option<u64>,
    /// How often it was used.
    pub uses: Option<UsesRange>,
    /// Smallest size, bytes.
    pub size_min: Option<u64>,
    /// Largest size, bytes.
    pub size_max: Option<u64>,
    /// Shell pattern: with a `/` for the path from the policy's directory on, else for the name.
    pub path: Option<String>,
}

/// On how many days a file was used, of the last so many, today among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsesRange {
    pub min: Option<u32>,
    pub max: Option<u32>,
    /// 1 to 64.
    pub days: u32,
}

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Nothing; not because of fill level and cache limit either.
    Keep,
    /// Has the tier take a copy.
    Copy,
    /// The same, and the pool gives up its own.
    Evict,
}

/// From how full a pool on files go, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Percent of the pool, 1 to 99.
    pub high: u8,
    /// Percent of the pool, less than `high`.
    pub low: u8,
}

/// The most that the pool keeps of a policy's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheMax {
    Bytes(u64),
    /// Of the pool.
    Percent(u8),
}

/// What a decision is made by.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// From the policy's directory on, without a leading slash.
    pub path: &'a [u8],
    pub size: u64,
    /// Last use, nanoseconds since 1970.
    pub used_ns: i64,
    /// Last change of the data, nanoseconds since 1970.
    pub changed_ns: i64,
    /// Days that it was used on, if a rule of the policy asks for that.
    pub uses: Uses,
}

impl Policy {
    /// The rule that says what is to happen to a file; `None`: none is about it.
    pub fn decide(&self, facts: &Facts<'_>, now_ns: i64) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.fits(facts, now_ns))
    }

    /// True when a rule wants to know how often files are used.
    pub fn asks_uses(&self) -> bool {
        self.rules.iter().any(|rule| rule.uses.is_some())
    }

    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Policy::default()
    }

    fn add_line(&mut self, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let bad = |what: String| Error::inval(format!("'{line}': {what}"));
        let mut pairs = Vec::new();
        for word in words {
            let pair = word.split_once('=');
            let pair = pair.ok_or_else(|| bad(format!("'{word}' is not NAME=VALUE")))?;
            if pairs.iter().any(|(name, _)| *name == pair.0) {
                return Err(bad(format!("'{}' is there twice", pair.0)));
            }
            pairs.push(pair);
        }
        let unknown =
            |name: &str, names: &str| bad(format!("no '{name}' here (there are: {names})"));
        let action = match verb {
            "keep" => Action::Keep,
            "copy" => Action::Copy,
            "evict" => Action::Evict,
            "fill" => {
                let (mut high, mut low) = (None, None);
                for (name, value) in pairs {
                    match name {
                        "high" => high = Some(percent(value).map_err(&bad)?),
                        "low" => low = Some(percent(value).map_err(&bad)?),
                        _ => return Err(unknown(name, "high, low")),
                    }
                }
                let (Some(high), Some(low)) = (high, low) else {
                    return Err(bad("wants high=PERCENT low=PERCENT".into()));
                };
                if low >= high {
                    return Err(bad("low must be below high".into()));
                }
                return once(&mut self.fill, Fill { high, low }).map_err(&bad);
            }
            "cache" => {
                let [("max", value)] = pairs[..] else {
                    return Err(bad("wants max=SIZE or max=PERCENT".into()));
                };
                let max = match value.ends_with('%') {
                    true => CacheMax::Percent(percent(value).map_err(&bad)?),
                    false => CacheMax::Bytes(size::parse(value).map_err(|e| bad(e.to_string()))?),
                };
                return once(&mut self.cache, max).map_err(&bad);
            }
            _ => return Err(bad("begins with none of keep, copy, evict, fill, cache".into())),
        };
        let mut rule = Rule {
            action,
            unused_s: None,
            unchanged_s: None,
            uses: None,
            size_min: None,
            size_max: None,
            path: None,
        };
        for (name, value) in pairs {
            match name {
                "unused" => rule.unused_s = Some(parse_age(value).map_err(&bad)?),
                "unchanged" => rule.unchanged_s = Some(parse_age(value).map_err(&bad)?),
                "uses" => rule.uses = Some(parse_uses(value).map_err(&bad)?),
                "size" => {
                    let (from, to) = value.split_once("..").unwrap_or((value, ""));
                    let bound = |text: &str| match text {
                        "" => Ok(None),
                        text => size::parse(text).map(Some).map_err(|e| bad(e.to_string())),
                    };
                    (rule.size_min, rule.size_max) = (bound(from)?, bound(to)?);
                    let is_empty = rule.size_min.zip(rule.size_max).is_some_and(|(a, b)| a > b);
                    if is_empty || (rule.size_min, rule.size_max) == (None, None) {
                        return Err(bad("a size is 64MiB, 64MiB.., ..1GiB or 64MiB..1GiB".into()));
                    }
                }
                "path" if value.is_empty() => return Err(bad("the pattern is empty".into())),
                "path" => rule.path = Some(value.to_string()),
                _ => return Err(unknown(name, "unused, unchanged, uses, size, path")),
            }
        }
        if self.rules.len() == RULES_MAX {
            return Err(bad(format!("a policy has at most {RULES_MAX} rules")));
        }
        self.rules.push(rule);
        Ok(())
    }
}

impl Rule {
    fn fits(&self, facts: &Facts<'_>, now_ns: i64) -> bool {
        let is_old = |age_s: Option<u64>, since_ns: i64| {
            let passed_ns = now_ns as i128 - since_ns as i128;
            age_s.is_none_or(|age_s| passed_ns >= age_s as i128 * 1_000_000_000)
        };
        is_old(self.unused_s, facts.used_ns)
            && is_old(self.unchanged_s, facts.changed_ns)
            && self.uses.is_none_or(|range| range.fits(facts.uses, day_of(now_ns)))
            && self.size_min.is_none_or(|min| facts.size >= min)
            && self.size_max.is_none_or(|max| facts.size <= max)
            && self.path.as_ref().is_none_or(|pattern| path_matches(pattern, facts.path))
    }
}

impl UsesRange {
    fn fits(self, uses: Uses, today: u32) -> bool {
        let count = uses.count(today, self.days);
        self.min.is_none_or(|min| count >= min) && self.max.is_none_or(|max| count <= max)
    }
}

fn path_matches(pattern: &str, path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let of = if pattern.contains('/') { path } else { name };
    name_matches(pattern.trim_start_matches('/').as_bytes(), of)
}

impl CacheMax {
    /// The limit in a pool of that size, bytes.
    pub fn bytes(self, pool_bytes: u64) -> u64 {
        match self {
            CacheMax::Bytes(bytes) => bytes,
            CacheMax::Percent(percent) => (pool_bytes as u128 * percent as u128 / 100) as u64,
        }
    }
}

impl FromStr for CacheMax {
    type Err = Error;

    fn from_str(text: &str) -> Result<CacheMax> {
        let policy: Policy = format!("cache max={}", text.trim()).parse()?;
        policy.cache.ok_or_else(|| Error::inval("no limit"))
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> std::result::Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err("is there twice".into()),
    }
}

fn percent(text: &str) -> std::result::Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<u8>().ok();
    let number = number.filter(|number| (1..=99).contains(number));
    number.ok_or_else(|| format!("'{text}' is no percentage from 1% to 99%"))
}

const DAY_S: u64 = 86_400;
const AGES: [(&str, u64); 5] = [("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// An age such as `30d`, `12h`, `90s`: seconds.
fn parse_age(text: &str) -> std::result::Result<u64, String> {
    let bad = || format!("'{text}' is no age (examples: 90s, 10m, 12h, 30d, 8w)");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" => 1,
        unit => AGES.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?.1,
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    // A century is long enough, and keeps sums far from their limits.
    number.checked_mul(factor).filter(|age_s| *age_s <= 100 * 366 * 86_400).ok_or_else(bad)
}

/// A range of days such as `10../30d`, `..2/30d`, `3..5/8w`.
fn parse_uses(text: &str) -> std::result::Result<UsesRange, String> {
    let bad = || {
        format!(
            "'{text}' is not MIN..MAX/AGE (examples: 10../30d, ..2/8w); whole days, at most {USES_DAYS}"
        )
    };
    let (range, window) = text.split_once('/').ok_or_else(bad)?;
    let (from, to) = range.split_once("..").ok_or_else(bad)?;
    let bound = |text: &str| match text {
        "" => Ok(None),
        text => text.parse::<u32>().map(Some).map_err(|_| bad()),
    };
    let (min, max) = (bound(from)?, bound(to)?);
    let window_s = parse_age(window)?;
    let days = u32::try_from(window_s / DAY_S).map_err(|_| bad())?;
    let is_range = min.or(max).is_some() && min.zip(max).is_none_or(|(min, max)| min <= max);
    if !is_range || !window_s.is_multiple_of(DAY_S) || !(1..=USES_DAYS).contains(&days) {
        return Err(bad());
    }
    Ok(UsesRange { min, max, days })
}

/// Seconds as an age such as `30d`, `90s`: the largest unit that keeps them exact.
pub fn age(age_s: u64) -> String {
    let whole = AGES.iter().find(|(_, factor)| age_s > 0 && age_s.is_multiple_of(*factor));
    whole.map_or("0s".into(), |(unit, factor)| format!("{}{unit}", age_s / factor))
}

/// A size that parses to exactly this.
fn exact(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units.iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

impl FromStr for Policy {
    type Err = Error;

    /// Lines; empty ones and those that begin with `#` say nothing.
    fn from_str(text: &str) -> Result<Policy> {
        let mut policy = Policy::default();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            policy.add_line(line)?;
        }
        Ok(policy)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.rules {
            writeln!(f, "{rule}")?;
        }
        if let Some(Fill { high, low }) = self.fill {
            writeln!(f, "fill high={high}% low={low}%")?;
        }
        match self.cache {
            Some(CacheMax::Bytes(bytes)) => writeln!(f, "cache max={}", exact(bytes)),
            Some(CacheMax::Percent(percent)) => writeln!(f, "cache max={percent}%"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.action {
            Action::Keep => "keep",
            Action::Copy => "copy",
            Action::Evict => "evict",
        })?;
        if let Some(age_s) = self.unused_s {
            write!(f, " unused={}", age(age_s))?;
        }
        if let Some(age_s) = self.unchanged_s {
            write!(f, " unchanged={}", age(age_s))?;
        }
        if let Some(UsesRange { min, max, days }) = self.uses {
            let bound =
                |count: Option<u32>| count.map(|count| count.to_string()).unwrap_or_default();
            write!(f, " uses={}..{}/{days}d", bound(min), bound(max))?;
        }
        let bound = |bytes: Option<u64>| bytes.map(exact).unwrap_or_default();
        if (self.size_min, self.size_max) != (None, None) {
            write!(f, " size={}..{}", bound(self.size_min), bound(self.size_max))?;
        }
        match &self.path {
            Some(path) => write!(f, " path={path}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: i64 = 86_400_000_000_000;

    fn parsed(text: &str) -> Policy {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_shown_is_what_was_said() {
        let text = "keep path=*.idx\nevict unused=30d unchanged=90s size=64MiB..1GiB path=raw/*\ncopy unchanged=1h\n\
                    keep uses=10../30d\nevict uses=..2/56d\nevict size=..4097\nevict\nfill high=85% low=70%\ncache max=300GiB\n";
        assert_eq!(parsed(text).to_string(), text);
        assert_eq!(parsed("# nothing\n\n  cache   max=20% ").to_string(), "cache max=20%\n");
        assert_eq!(parsed("evict unused=0 size=1k").to_string(), "evict unused=0s size=1KiB..\n");
        assert_eq!(parsed("keep uses=1..2/8w").to_string(), "keep uses=1..2/56d\n");
        assert!(parsed("#").is_empty());
        assert_eq!("5%".parse::<CacheMax>().unwrap().bytes(200), 10);
    }

    #[test]
    fn nonsense_is_told_with_its_line() {
        for (text, told) in [
            ("move", "begins with none of"),
            ("evict unused", "not NAME=VALUE"),
            ("evict age=1d", "unused, unchanged, uses, size, path"),
            ("evict unused=1y", "no age"),
            ("evict unused=99999999999999999999d", "no age"),
            ("evict unused=1d unused=2d", "twice"),
            ("evict uses=1/30d", "is not MIN..MAX/AGE"),
            ("evict uses=../30d", "is not MIN..MAX/AGE"),
            ("evict uses=3..2/30d", "is not MIN..MAX/AGE"),
            ("evict uses=..2/12h", "is not MIN..MAX/AGE"),
            ("evict uses=..2/65d", "is not MIN..MAX/AGE"),
            ("evict uses=..2/x", "no age"),
            ("evict size=..", "a size is"),
            ("evict size=2..1", "a size is"),
            ("evict size=x", "not a size"),
            ("evict path=", "empty"),
            ("fill high=80%", "wants high=PERCENT low"),
            ("fill high=70% low=70%", "below high"),
            ("fill high=100% low=1%", "no percentage"),
            ("fill high=9% low=1%\nfill high=9% low=1%", "twice"),
            ("cache", "wants max"),
            ("cache max=0%", "no percentage"),
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(
                error.contains(told) && error.contains(text.lines().last().unwrap()),
                "{error}"
            );
        }
        let many = "evict\n".repeat(RULES_MAX + 1);
        assert!(many.parse::<Policy>().is_err());
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = parsed(
            "keep path=*.idx\nevict unused=30d size=100..200\ncopy path=a/?.txt unchanged=1d\nevict path=huge",
        );
        let uses = Uses::default();
        let facts = Facts { path: b"d/x", size: 150, used_ns: 0, changed_ns: 0, uses };
        let decide = |facts: Facts<'_>, days: i64| {
            policy.decide(&facts, days * DAY_NS).map(|rule| rule.action)
        };
        assert_eq!(decide(facts, 30), Some(Action::Evict));
        assert_eq!(decide(facts, 29), None);
        assert_eq!(decide(Facts { path: b"d/x.idx", ..facts }, 30), Some(Action::Keep));
        assert_eq!(decide(Facts { size: 99, ..facts }, 30), None);
        assert_eq!(decide(Facts { size: 201, ..facts }, 30), None);
        assert_eq!(decide(Facts { path: b"a/b.txt", size: 1, ..facts }, 1), Some(Action::Copy));
        assert_eq!(decide(Facts { path: b"a/b.txt", size: 1, ..facts }, 0), None);
        assert_eq!(decide(Facts { path: b"c/a/b.txt", size: 1, ..facts }, 1), None);
        assert_eq!(decide(Facts { path: b"x/huge", size: 1, ..facts }, 0), Some(Action::Evict));
        // A clock that was ahead: nothing is old.
        assert_eq!(decide(Facts { used_ns: i64::MAX, ..facts }, 30), None);
        assert_eq!(decide(Facts { used_ns: i64::MIN, ..facts }, 0), Some(Action::Evict));
    }

    #[test]
    fn how_often_a_file_is_used_decides() {
        let policy = parsed("keep uses=3../30d\nevict uses=..1/10d");
        assert!(policy.asks_uses() && !parsed("evict unused=1d").asks_uses());
        let mut uses = Uses::default();
        for day in [100, 105, 110] {
            uses.add(day);
        }
        let decide = |today: i64| {
            let facts = Facts { path: b"x", size: 1, used_ns: 0, changed_ns: 0, uses };
            policy.decide(&facts, today * DAY_NS).map(|rule| rule.action)
        };
        assert_eq!(decide(110), Some(Action::Keep));
        assert_eq!(decide(129), Some(Action::Keep));
        assert_eq!(decide(130), Some(Action::Evict), "twice in 30 days, and not in the last 10");
        // A clock that is behind: what is later than today does not count.
        assert_eq!(decide(106), None);
        assert_eq!(decide(99), Some(Action::Evict));
    }
}
