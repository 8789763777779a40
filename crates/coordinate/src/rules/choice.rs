//! Which coordinator a process asks: processes and targets are divided into groups, each with a
//! coordinator of its own, as in the paper (there: one for each Z axis of the machine).
//!
//! A group is chosen by what a process knows about itself without asking anybody: its MPI rank
//! and its host's name.

use super::glob;
use std::str::FromStr;
use types::{Error, Result, hash};

/// Where a coordinator listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Unix(String),
    /// TCP: host name or address, port.
    Tcp(String, u16),
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::inval(format!(
                "'{text}' is not the address of a coordinator (tcp:HOST:PORT or unix:PATH)"
            ))
        };
        match text.split_once(':').ok_or_else(bad)? {
            // The kernel's limit for the path of a socket.
            ("unix", path) if (1..108).contains(&path.len()) => Ok(Self::Unix(path.to_string())),
            ("tcp", rest) => {
                let (host, port) = rest.rsplit_once(':').ok_or_else(bad)?;
                let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                let host = bare.unwrap_or(host);
                let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?;
                let mixed = bare.is_none() && host.contains(':');
                if host.is_empty() || mixed { Err(bad()) } else { Ok(Self::Tcp(host.into(), port)) }
            }
            _ => Err(bad()),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{path}"),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// What tells processes apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Name of the host.
    pub host: String,
    /// MPI rank, if the process has one.
    pub rank: Option<u32>,
}

impl Place {
    /// The number in the host's name (the last one before the first dot), or a hash of a name
    /// without one.
    fn host_number(&self) -> u64 {
        let label = self.host.split('.').next().unwrap_or_default();
        let tail = label.trim_end_matches(|c: char| !c.is_ascii_digit());
        let digits = tail.len() - tail.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let number = tail[tail.len() - digits..].parse();
        number.unwrap_or_else(|_| hash::bytes(label.as_bytes()))
    }
}

/// What numbers the processes that share a list of coordinators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    #[default]
    Rank,
    /// The number in the host's name.
    Host,
}

/// Coordinators for the processes that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Patterns of host names; every host when empty.
    pub hosts: Vec<String>,
    /// Ranks, as first and last; every process when empty.
    pub ranks: Vec<(u32, u32)>,
    /// The coordinators, at least one.
    pub endpoints: Vec<Endpoint>,
    /// What chooses among several.
    pub spread: Spread,
    /// So many neighbours by that number share a coordinator, ≥ 1.
    pub block: u32,
    /// Group to name to the coordinator; `{}` becomes the number of the coordinator in the list.
    pub group: String,
}

impl Choice {
    /// The coordinator and the group for this process; none when it does not fit.
    fn of(&self, place: &Place) -> Option<(Endpoint, String)> {
        let on = |pattern: &String| glob::matches(pattern.as_bytes(), place.host.as_bytes());
        if !self.hosts.is_empty() && !self.hosts.iter().any(on) {
            return None;
        }
        let within =
            |rank: u32| self.ranks.iter().any(|(low, high)| (*low..=*high).contains(&rank));
        if !self.ranks.is_empty() && !place.rank.is_some_and(within) {
            return None;
        }
        let number = match self.spread {
            _ if self.endpoints.len() == 1 => 0,
            Spread::Rank => u64::from(place.rank?),
            Spread::Host => place.host_number(),
        };
        let at = (number / u64::from(self.block)) as usize % self.endpoints.len();
        Some((self.endpoints.get(at)?.clone(), self.group.replace("{}", &at.to_string())))
    }
}

/// The coordinator and group of the first choice that fits the process.
pub fn choose(choices: &[Choice], place: &Place) -> Option<(Endpoint, String)> {
    choices.iter().find_map(|choice| choice.of(place))
}

/// Parses ranks: `0-15,32,64-`.
pub fn parse_ranks(text: &str) -> Result<Vec<(u32, u32)>> {
    let bad = || Error::inval(format!("'{text}' are no ranks (example: 0-15,32,64-)"));
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
    let one = |part: &str| match part.split_once('-') {
        None => number(part).map(|rank| (rank, rank)),
        Some((low, high)) if high.trim().is_empty() => Ok((number(low)?, u32::MAX)),
        Some((low, high)) => {
            let (low, high) = (number(low)?, number(high)?);
            if low <= high { Ok((low, high)) } else { Err(bad()) }
        }
    };
    text.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, rank: Option<u32>) -> Place {
        Place { host: host.into(), rank }
    }

    fn choice(endpoints: &[&str]) -> Choice {
        Choice {
            hosts: Vec::new(),
            ranks: Vec::new(),
            endpoints: endpoints.iter().map(|text| text.parse().unwrap()).collect(),
            spread: Spread::Rank,
            block: 1,
            group: String::new(),
        }
    }

    #[test]
    fn addresses() {
        for text in ["tcp:node1:7431", "tcp:[::1]:7431", "tcp:10.0.0.1:1", "unix:/run/ioc.sock"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for bad in ["", "node1:7431", "tcp:node1", "tcp::7", "tcp:::1:7", "tcp:a:0", "unix:", &long]
        {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_and_ranks_select() {
        let choices = [
            Choice { hosts: vec!["rack1-*".into(), "login".into()], ..choice(&["unix:/a"]) },
            Choice { ranks: parse_ranks("0-3,8").unwrap(), ..choice(&["unix:/b"]) },
            Choice { group: "rest".into(), ..choice(&["unix:/c"]) },
        ];
        let chosen = |host, rank| choose(&choices, &place(host, rank)).unwrap().0.to_string();
        assert_eq!(chosen("rack1-07", Some(100)), "unix:/a");
        assert_eq!(chosen("login", None), "unix:/a");
        assert_eq!(chosen("rack2-07", Some(8)), "unix:/b");
        assert_eq!(chosen("rack2-07", Some(4)), "unix:/c");
        assert_eq!(chosen("rack2-07", None), "unix:/c");
        assert_eq!(choose(&choices[..2], &place("rack2-07", None)), None);
    }

    #[test]
    fn several_coordinators_are_spread_over() {
        let spread = |spread, block, host, rank| {
            let group = "z{}".to_string();
            let choices = [Choice { spread, block, group, ..choice(&["unix:/0", "unix:/1"]) }];
            choose(&choices, &place(host, rank)).map(|(_, group)| group)
        };
        assert_eq!(spread(Spread::Rank, 1, "", Some(3)).unwrap(), "z1");
        assert_eq!(spread(Spread::Rank, 16, "", Some(15)).unwrap(), "z0");
        assert_eq!(spread(Spread::Rank, 16, "", Some(16)).unwrap(), "z1");
        assert_eq!(spread(Spread::Rank, 1, "n", None), None);
        assert_eq!(spread(Spread::Host, 1, "node007.site1", None).unwrap(), "z1");
        assert_eq!(spread(Spread::Host, 1, "node12-ib", None).unwrap(), "z0");
        assert_eq!(spread(Spread::Host, 4, "node12", None).unwrap(), "z1");
        assert!(spread(Spread::Host, 1, "plain", None).is_some());
    }

    #[test]
    fn ranks() {
        assert_eq!(parse_ranks("0-15, 32,64-").unwrap(), [(0, 15), (32, 32), (64, u32::MAX)]);
        for bad in ["", "a", "5-3", "1,,2", "-4"] {
            assert!(parse_ranks(bad).is_err(), "{bad}");
        }
    }
}
