//! `cargo xtask mutants`: defects that were mended, or might have been made, put in one at a time; a test must find each.
//!
//! A mutant is a list of exact replacements, and names the test that must find it: the simulated cluster in trouble
//! ([`SWARM`]), or one of the story that the mutant would break. A text that is not found once is an error, and a test says so
//! before anybody runs this.

mod clients;
mod healing;
mod leases;
mod member_reads;
mod returns;
mod run;
mod transactions;

use std::path::Path;

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
    found_by: Test,
}

/// A test that must fail, of those of a program.
struct Test {
    package: &'static str,
    program: &'static str,
    /// What the names of its tests that are run have in them.
    filter: &'static str,
    /// Environment, where less than all that it does shows the defect, or more is needed.
    env: &'static [(&'static str, &'static str)],
}

/// Seeds of whole clusters in trouble.
const SWARM: Test =
    Test { package: "sim", program: "swarm", filter: "", env: &[("AZEKURA_SWARM_SEEDS", "200")] };

fn all() -> impl Iterator<Item = &'static Mutant> {
    let members = leases::MUTANTS.iter().chain(member_reads::MUTANTS);
    let others = clients::MUTANTS.iter().chain(returns::MUTANTS).chain(members);
    transactions::MUTANTS.iter().chain(healing::MUTANTS).chain(others)
}

/// The mutants, for people: name, defect, and the test that must find it.
pub fn list() -> String {
    let line = |mutant: &Mutant| {
        let Test { package, program, filter, env } = &mutant.found_by;
        let env: String = env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let test = format!("{env}cargo test -p {package} --test {program} {filter}");
        format!("{}: {}\n    {}\n", mutant.name, mutant.what, test.trim_end())
    };
    all().map(line).collect()
}

/// Runs the mutants that are named, or all; false when one was not found.
///
/// Errors: a name that no mutant has, a mutant that does not fit the sources or does not build.
pub fn run(root: &Path, names: &[&str]) -> Result<bool, String> {
    if let Some(unknown) = names.iter().find(|name| !all().any(|mutant| mutant.name == **name)) {
        let known: Vec<&str> = all().map(|mutant| mutant.name).collect();
        return Err(format!("no mutant is called {unknown}; there are {}", known.join(", ")));
    }
    let is_meant = |mutant: &&Mutant| names.is_empty() || names.contains(&mutant.name);
    run::run(root, all().filter(is_meant))
}

/// A test of simulated clusters.
const fn cluster(filter: &'static str) -> Test {
    Test { package: "sim", program: "cluster", filter, env: &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

    /// Who changes code that a mutant changes is told here, not by a long run some day.
    #[test]
    fn mutants_fit_the_sources() {
        for mutant in all() {
            for edit in mutant.edits {
                let text = std::fs::read_to_string(Path::new(ROOT).join(edit.path)).unwrap();
                assert_ne!(run::replaced(&text, edit).unwrap(), text, "{}", mutant.name);
            }
        }
    }

    #[test]
    fn no_two_mutants_have_a_name() {
        let names: BTreeSet<&str> = all().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), all().count());
    }

    fn sources(of: &Path, found: &mut Vec<PathBuf>) {
        if of.is_dir() {
            for entry in std::fs::read_dir(of).unwrap() {
                sources(&entry.unwrap().path(), found);
            }
        } else if of.is_file() {
            found.push(of.to_owned());
        }
    }

    /// One that was renamed would run nothing, and find nothing.
    #[test]
    fn the_tests_that_are_to_find_them_are_there() {
        for mutant in all() {
            let Test { package, program, filter, .. } = &mutant.found_by;
            let dir = Path::new(ROOT).join("crates").join(package).join("tests");
            let mut files = Vec::new();
            sources(&dir.join(program), &mut files);
            sources(&dir.join(format!("{program}.rs")), &mut files);
            assert!(
                !files.is_empty(),
                "{}: there is no {program} in {}",
                mutant.name,
                dir.display()
            );
            let Some(name) = filter.rsplit("::").next().filter(|name| !name.is_empty()) else {
                continue;
            };
            let is_there = |file: &PathBuf| {
                std::fs::read_to_string(file).unwrap().contains(&format!("fn {name}("))
            };
            assert!(files.iter().any(is_there), "{}: there is no test {name}", mutant.name);
        }
    }
}
