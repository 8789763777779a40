//! Running mutants.
//!
//! The sources are copied to `target/mutants/tree`, and built beside it, so that neither the tree nor what is built of it
//! is changed.

use super::{Edit, Mutant, Test};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most characters that are shown of how one was found.
const SHOWN: usize = 160;

/// Runs mutants; false when one was not found.
pub(super) fn run(
    root: &Path,
    mutants: impl Iterator<Item = &'static Mutant>,
) -> Result<bool, String> {
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let copy = root.join("target/mutants/tree");
    let target = root.join("target/mutants/build");
    let mut all_found = true;
    for mutant in mutants {
        copy_tree(&root, &copy)?;
        mutate(&copy, mutant)?;
        let found = found(&copy, &target, &mutant.found_by);
        match found.map_err(|error| format!("{}: {error}", mutant.name))? {
            Some(how) => println!("{:<30} found: {how}", mutant.name),
            None => {
                all_found = false;
                println!("{:<30} NOT FOUND: {}", mutant.name, mutant.what);
            }
        }
    }
    // So that nobody builds a mutant for the real thing.
    copy_tree(&root, &copy)?;
    Ok(all_found)
}

/// Runs a test; how it failed, if it did.
fn found(tree: &Path, target: &Path, test: &Test) -> Result<Option<String>, String> {
    let output = Command::new("cargo")
        .args(["test", "--package", test.package, "--test", test.program, "--", test.filter])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target)
        .envs(test.env.iter().copied())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    match text.lines().find(|line| line.starts_with("running ")) {
        None => return Err(format!("the tree does not build:\n{text}")),
        Some("running 0 tests") => return Err(format!("no test is called {}", test.filter)),
        Some(_) if output.status.success() => return Ok(None),
        Some(_) => {}
    }
    Ok(Some(said_why(&text).chars().take(SHOWN).collect()))
}

/// Of what a failing test has said, the line that tells why: that of its seed, or what follows the first panic.
fn said_why(text: &str) -> &str {
    let is_of_seed = |line: &&str| {
        let number = line.strip_prefix("seed ").and_then(|rest| rest.split_once(':'));
        number.is_some_and(|(number, _)| number.parse::<u64>().is_ok())
    };
    let panic = || text.lines().skip_while(|line| !line.contains("panicked at ")).nth(1);
    text.lines().find(is_of_seed).or_else(panic).unwrap_or("it failed")
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

pub(super) fn replaced(text: &str, edit: &Edit) -> Result<String, String> {
    match text.matches(edit.from).count() {
        1 => Ok(text.replace(edit.from, edit.to)),
        count => Err(format!(
            "{}: this is there {count} times, not once; bring `xtask/src/mutants/` up to date:\n{}",
            edit.path, edit.from
        )),
    }
}
