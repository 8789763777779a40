//! What must not leave the machine in a support bundle.
//!
//! Secrets are blanked wherever they turn up: those that the configuration names files for, by their content, and whatever
//! looks like one by its name or by where it stands in a URL.

use engine::EngineConfig;
use std::collections::BTreeSet;
use std::path::Path;

/// What stands in the place of a secret.
const BLANK: &str = "***";
/// A shorter content of a secret's file is not looked for: it would blank half of everything.
const SECRET_BYTES_MIN: usize = 6;
/// Names whose values are blanked. Names of files with secrets are not secret.
const NAMES: [&str; 5] = ["token", "password", "passwd", "secret", "credential"];

/// Secrets known by content.
#[derive(Default)]
pub struct Secrets(BTreeSet<String>);

impl Secrets {
    /// Learns those that an engine's configuration names files for. A file that cannot be read tells nobody anything.
    pub fn learn(&mut self, config: &EngineConfig) {
        config.secrets().for_each(|path| self.learn_file(path));
    }

    /// The content of a file, and each of its lines, are secret.
    pub fn learn_file(&mut self, path: &Path) {
        let Ok(content) = std::fs::read(path) else { return };
        let text = String::from_utf8_lossy(&content).trim().to_string();
        let lines = text.lines().map(str::trim).chain([&*text]);
        self.0.extend(lines.filter(|line| line.len() >= SECRET_BYTES_MIN).map(str::to_string));
    }

    /// The text without secrets.
    pub fn blank(&self, text: &str) -> String {
        let mut text = text.to_string();
        // Longer ones first: one may be a part of another.
        let mut known: Vec<&String> = self.0.iter().collect();
        known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in known {
            text = text.replace(secret.as_str(), BLANK);
        }
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            out.push_str(&blank_urls(&blank_value(line)));
        }
        out
    }
}

/// `token = "…"` and `"token": "…"`, with what follows on the line.
fn blank_value(line: &str) -> String {
    let Some(at) = line.find(['=', ':']) else { return line.to_string() };
    let name = line[..at].trim().trim_matches('"').to_lowercase();
    let is_secret = NAMES.iter().any(|secret| name.ends_with(secret));
    if !is_secret || line[at + 1..].trim().is_empty() {
        return line.to_string();
    }
    let end = if line.ends_with('\n') { "\n" } else { "" };
    let comma = if line.trim_end().ends_with(',') { "," } else { "" };
    format!("{} \"{BLANK}\"{comma}{end}", &line[..=at])
}

/// `scheme://user:password@host`.
fn blank_urls(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let authority = after.find(|c: char| "/\"' ,\n".contains(c)).unwrap_or(after.len());
        rest = match after[..authority].rfind('@') {
            Some(user) => {
                out.push_str(BLANK);
                &after[user..]
            }
            None => after,
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_blanked_wherever_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "s3cr3t-of-all\n").unwrap();
        let mut secrets = Secrets::default();
        secrets.learn_file(&path);
        secrets.learn_file(Path::new("/nonexistent/token"));
        let text = "token_file = '/etc/token'\npassword = \"a b\"\n  \"token\": \"x\",\nlog: s3cr3t-of-all!\n\
                    endpoints = ['https://me:pw@host:2379', 'http://h:1']\nno end";
        let blanked = secrets.blank(text);
        assert_eq!(
            blanked,
            "token_file = '/etc/token'\npassword = \"***\"\n  \"token\": \"***\",\nlog: ***!\n\
             endpoints = ['https://***@host:2379', 'http://h:1']\nno end"
        );
    }
}
