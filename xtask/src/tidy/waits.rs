//! Who sleeps in the engine or the store says why a timer is what is waited for.
//!
//! What waits for a state that the process itself changes waits for the change ([`env::Signal`], `waiters.rs` of the engine): a loop that sleeps and
//! looks is late by half its pause, and under load one of hundreds. The two look alike to a machine, so the reason is asked for.

use super::lexer::code_only;
use super::rust::is_explained;
use super::{Finding, Repo};

/// Where the rule holds.
const PLACES: [&str; 2] = ["crates/engine/src/", "crates/vos/src/"];

/// Reports sleeps without a reason.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for (path, text) in repo.with_suffix(".rs") {
        if !PLACES.iter().any(|place| path.starts_with(place)) || path.ends_with("_test.rs") {
            continue;
        }
        let code = code_only(text);
        // Tests let time pass.
        let code = code.split_once("#[cfg(test)]\nmod tests").map_or(&code[..], |(code, _)| code);
        let raw: Vec<&str> = text.lines().collect();
        for (at, line) in code.lines().enumerate() {
            let sleeps = line.contains(".sleep(") || line.contains("thread::sleep(");
            if sleeps && !is_explained(&raw, at, |line| line.contains("timer:")) {
                let advice = "wait for the event (`env::Signal`); where time itself is waited for, say why above it: `// timer: …`";
                findings.push(Finding::new(path, at + 1, "a sleep without a reason", advice));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn a_sleep_has_a_reason() {
        let good = "// timer: one look a day.\nenv.sleep(DAY).await;\n// .sleep( in a comment\nfn sleep() {}\n\
                    #[cfg(test)]\nmod tests {\n    fn f() {\n        env.sleep(DAY);\n    }\n}\n";
        let bad = "while !ready() {\n    env.sleep(PAUSE).await;\n}\nstd::thread::sleep(PAUSE);\n";
        let found = findings_of(
            check,
            &[
                ("crates/engine/src/a.rs", good),
                ("crates/engine/src/a_test.rs", bad),
                ("crates/env/src/a.rs", bad),
                ("crates/vos/src/log/a.rs", bad),
            ],
        );
        assert_eq!(found.len(), 2, "{found:?}");
        for (found, line) in found.iter().zip([2, 4]) {
            let start = format!("crates/vos/src/log/a.rs:{line}: a sleep without a reason");
            assert!(found.starts_with(&start), "{found:?}");
        }
    }
}
