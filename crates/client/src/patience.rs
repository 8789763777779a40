//! How long operations wait for engines that do not answer.

use std::str::FromStr;
use std::time::Duration;
use types::{Error, Result};

/// Names the patience of programs that say nothing themselves.
const PATIENCE_VAR: &str = "AZEKURA_PATIENCE";
/// Longer than any machine lives.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);
const SECONDS_MAX: f64 = 1e9;

/// How long an operation waits, retries included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Until the engine answers, as with hard mounts of NFS. What is interrupted ends.
    Hard,
    /// This long; then the operation fails with `TimedOut`.
    Soft(Duration),
}

impl Patience {
    /// What the environment (`AZEKURA_PATIENCE`) says. `None` when it says nothing; what makes no
    /// sense is told in the log.
    pub fn from_env() -> Option<Patience> {
        let text = std::env::var(PATIENCE_VAR).ok().filter(|text| !text.is_empty())?;
        match text.parse() {
            Ok(patience) => Some(patience),
            Err(error) => {
                tracing::warn!("{PATIENCE_VAR}: {error}");
                None
            }
        }
    }

    /// The time that an operation may take.
    pub fn limit(self) -> Duration {
        match self {
            Patience::Hard => FOR_EVER,
            Patience::Soft(limit) => limit,
        }
    }

    /// The patience that a limit stands for.
    pub fn of(limit: Duration) -> Patience {
        if limit >= FOR_EVER { Patience::Hard } else { Patience::Soft(limit) }
    }
}

impl FromStr for Patience {
    type Err = Error;

    /// `hard`, or a number of seconds above zero.
    fn from_str(text: &str) -> Result<Patience> {
        if text == "hard" {
            return Ok(Patience::Hard);
        }
        match text.parse::<f64>() {
            Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => {
                Ok(Patience::Soft(Duration::from_secs_f64(seconds)))
            }
            _ => Err(Error::inval(format!("'{text}' is neither 'hard' nor a number of seconds"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers() {
        assert_eq!("hard".parse::<Patience>().unwrap(), Patience::Hard);
        let soft: Patience = "2.5".parse().unwrap();
        assert_eq!(soft, Patience::Soft(Duration::from_millis(2500)));
        assert_eq!(Patience::of(soft.limit()), soft);
        assert_eq!(Patience::of(Patience::Hard.limit()), Patience::Hard);
        for bad in ["", "soft", "0", "-1", "nan", "inf", "1e300", "Hard"] {
            assert!(bad.parse::<Patience>().unwrap_err().to_string().contains("hard"), "{bad}");
        }
    }
}
