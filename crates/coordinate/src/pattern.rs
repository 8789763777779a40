//! Patterns for names of targets and jobs, of the same form as those for paths.

use crate::rules::glob;
use std::fmt;

/// A pattern; see [`glob`]: `*` stops at a slash, `**` does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern that this text is; every text is one.
    pub fn new(text: &str) -> Pattern {
        Pattern(text.to_string())
    }

    /// True when it matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        glob::matches(self.0.as_bytes(), name.as_bytes())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
