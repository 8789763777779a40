//! How many processes a coordinator lets write to a target at once.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use types::{Error, Result};

/// Most writers a coordinator can be told.
const WRITERS_MAX: u32 = 1 << 16;

/// Which way a run goes. In reports and on the command line: `off`, a number, `auto`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Limit {
    /// Without coordination: all at once.
    Off,
    /// So many at a time, the paper's MAX_WRITER_CNT.
    Writers(u32),
    /// What the coordinator finds best.
    Auto,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Off => f.write_str("off"),
            Limit::Writers(count) => write!(f, "{count}"),
            Limit::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for Limit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Limit> {
        match text {
            "off" => Ok(Limit::Off),
            "auto" => Ok(Limit::Auto),
            _ => {
                let count = text.parse().ok().filter(|count| (1..=WRITERS_MAX).contains(count));
                count.map(Limit::Writers).ok_or_else(|| {
                    let text = format!("'{text}' is no limit: want 1 to {WRITERS_MAX}, auto, off");
                    Error::inval(text)
                })
            }
        }
    }
}

impl From<Limit> for String {
    fn from(limit: Limit) -> String {
        limit.to_string()
    }
}

impl TryFrom<String> for Limit {
    type Error = Error;

    fn try_from(text: String) -> Result<Limit> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_survive_their_text_form() {
        for limit in [Limit::Off, Limit::Writers(2), Limit::Auto] {
            assert_eq!(limit.to_string().parse::<Limit>().unwrap(), limit);
            let json = serde_json::to_string(&limit).unwrap();
            assert_eq!(serde_json::from_str::<Limit>(&json).unwrap(), limit);
        }
        for bad in ["", "0", "-1", "many", "65537"] {
            assert!(bad.parse::<Limit>().is_err(), "{bad}");
        }
    }
}
