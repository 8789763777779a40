//! `cargo xtask mutants`: defects that were mended, put back one at a time; the simulated cluster must find each.
//!
//! The sources are copied to `target/mutants/tree`, and built beside it, so that neither the tree nor what is built of it
//! is changed. A mutant is a list of exact replacements; a text that is not found once is an error, and a test says so
//! before anybody runs this.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seeds in which a mutant must be found.
const SEED_COUNT: u32 = 200;

/// One replacement in a file.
struct Edit {
    path: &'static str,
    /// What is there once.
    from: &'static str,
    to: &'static str,
}

/// A defect.
struct Mutant {
    name: &'static str,
    what: &'static str,
    edits: &'static [Edit],
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "failed-decision",
        what: "a coordinator tells a decision that its log has failed to write",
        edits: &[Edit {
            path: "crates/engine/src/commit/coordinate.rs",
            from: "                Err(error) => self.failed(error, Event::LogFailed),\n",
            to: "                Err(_) => Event::Logged,\n",
        }],
    },
    Mutant {
        name: "relaxed-transactions",
        what: "two-phase records of a relaxed pool are not written before the next step",
        edits: &[
            Edit {
                path: "crates/engine/src/commit/coordinate.rs",
                from: "match self.ctx.shard.written(self.lsn).await {",
                to: "match self.ctx.shard.durable(self.lsn).await {",
            },
            Edit {
                path: "crates/twophase/src/participant.rs",
                from: "            false => Firmness::Written,\n",
                to: "            false => Firmness::Promised,\n",
            },
            Edit {
                path: "crates/engine/src/commit/coordinate.rs",
                from: "step.firm(&ctx, Firmness::Written).await",
                to: "step.firm(&ctx, Firmness::Promised).await",
            },
            Edit {
                path: "crates/engine/src/admin.rs",
                from: "self.decide(pool, &ctx, tx, unit, outcome).await?.written(&ctx).await?;",
                to: "self.decide(pool, &ctx, tx, unit, outcome).await?.durable(&ctx).await?;",
            },
        ],
    },
    Mutant {
        name: "late-first-try",
        what: "old sessions go on, and only what says that it is a retry is looked up",
        edits: &[
            Edit {
                path: "crates/engine/src/target.rs",
                from: "        if let Some(earlier) = earlier {\n            earlier.end();\n        }\n",
                to: "        drop(earlier);\n",
            },
            Edit {
                path: "crates/engine/src/batch.rs",
                from: "        if changes(batch) {\n            let tx = TxId { client, seq: header.request_id };\n",
                to: "        if header.flags & wire::header::FLAG_RETRY != 0 {\n            let tx = TxId { client, seq: header.request_id };\n",
            },
            Edit {
                path: "crates/engine/src/batch.rs",
                from: "        if changes(batch) && ask.ctx.shard.replayed(ask.tx())?.is_some() {\n",
                to: "        if false {\n",
            },
        ],
    },
    Mutant {
        name: "answers-pushed-out",
        what: "a client has more updates in doubt than a target keeps answers",
        edits: &[Edit {
            path: "crates/client/src/in_doubt.rs",
            from: "        if doubts.len() >= self.most {\n",
            to: "        if doubts.len() >= usize::MAX {\n",
        }],
    },
    Mutant {
        name: "shown-too-early",
        what: "reads show what is not on stable storage",
        edits: &[Edit {
            path: "crates/vos/src/unsettled.rs",
            from: "        self.config().durability == Durability::Wal\n",
            to: "        self.config().durability == Durability::Wal && false\n",
        }],
    },
];

/// Runs the mutants that are named, or all; false when one was not found.
pub fn run(root: &Path, names: &[&str]) -> Result<bool, String> {
    if let Some(unknown) = names.iter().find(|name| !MUTANTS.iter().any(|m| m.name == **name)) {
        let known: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        return Err(format!("no mutant is called {unknown}; there are {}", known.join(", ")));
    }
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let copy = root.join("target/mutants/tree");
    let target = root.join("target/mutants/build");
    let mut all_found = true;
    for mutant in MUTANTS.iter().filter(|m| names.is_empty() || names.contains(&m.name)) {
        copy_tree(&root, &copy)?;
        mutate(&copy, mutant)?;
        let seeds = SEED_COUNT.to_string();
        let output = Command::new("cargo")
            .args(["test", "--workspace", "--test", "swarm"])
            .current_dir(&copy)
            .env("CARGO_TARGET_DIR", &target)
            .env("AZEKURA_SWARM_SEEDS", &seeds)
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        if !text.contains("running 1 test") {
            return Err(format!("{}: the tree does not build:\n{text}", mutant.name));
        }
        let seed = text.lines().find(|line| line.starts_with("seed "));
        let seed = seed.map(|line| line.chars().take(160).collect::<String>());
        match seed.filter(|_| !output.status.success()) {
            Some(seed) => println!("{:<22} found: {seed}", mutant.name),
            None => {
                all_found = false;
                println!("{:<22} NOT FOUND in {SEED_COUNT} seeds: {}", mutant.name, mutant.what);
            }
        }
    }
    // So that nobody builds a mutant for the real thing.
    copy_tree(&root, &copy)?;
    Ok(all_found)
}

/// Makes `to` hold the sources of `from`; files that are the same stay untouched, and are not built again.
fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    let doing = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(from)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    let names: BTreeSet<PathBuf> = String::from_utf8_lossy(&listed.stdout)
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|name| from.join(name).is_file())
        .collect();
    for name in &names {
        let (source, place) = (from.join(name), to.join(name));
        let bytes = std::fs::read(&source).map_err(doing(&source))?;
        if std::fs::read(&place).is_ok_and(|old| old == bytes) {
            continue;
        }
        if let Some(dir) = place.parent() {
            std::fs::create_dir_all(dir).map_err(doing(dir))?;
        }
        std::fs::write(&place, bytes).map_err(doing(&place))?;
    }
    remove_others(to, to, &names).map_err(doing(to))
}

/// Removes files that are not among `names`: a source that is no more would be built.
fn remove_others(root: &Path, dir: &Path, names: &BTreeSet<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(root, &path, names)?;
        } else if path.strip_prefix(root).is_ok_and(|name| !names.contains(name)) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn mutate(root: &Path, mutant: &Mutant) -> Result<(), String> {
    for edit in mutant.edits {
        let path = root.join(edit.path);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", edit.path))?;
        let text = replaced(&text, edit).map_err(|e| format!("{}: {e}", mutant.name))?;
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", edit.path))?;
    }
    Ok(())
}

fn replaced(text: &str, edit: &Edit) -> Result<String, String> {
    match text.matches(edit.from).count() {
        1 => Ok(text.replace(edit.from, edit.to)),
        count => Err(format!(
            "{}: this is there {count} times, not once; bring `xtask/src/mutants.rs` up to date:\n{}",
            edit.path, edit.from
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who changes code that a mutant changes is told here, not by a long run some day.
    #[test]
    fn mutants_fit_the_sources() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for mutant in MUTANTS {
            for edit in mutant.edits {
                let text = std::fs::read_to_string(root.join(edit.path)).unwrap();
                assert_ne!(replaced(&text, edit).unwrap(), text, "{}", mutant.name);
            }
        }
    }
}
