//! Modules of a crate stand one above the other: none reaches itself over what it names.
//!
//! The compiler takes any circle inside a crate. Where there is one nobody can begin to read at the bottom, and what is in it is
//! changed together or not at all. Files in a folder count as one module here, the folder's; what holds between them is theirs
//! ([`super::rooms`]).
//!
//! A module names another one by paths that begin at the root of the crate, over what that passes on as well. It also names one that adds
//! methods to a type of a third module, by calling them: seen where a name is that of one function of the crate only, and the caller can
//! have the type.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::lexer::code_only;
use super::rooms::{named_after, without_tests};
use super::{Finding, Repo};

/// Where the rule holds: roots of crates.
const ROOTS: [&str; 1] = ["crates/vos/src/"];

/// A place where a module names another one.
#[derive(Clone)]
struct Mention {
    path: String,
    line: usize,
    what: String,
}

/// What each module names, with one place of each.
type Edges<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Mention>>;

/// Reports circles.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for root in ROOTS {
        let of_root = repo.with_suffix(".rs").filter(|(path, _)| path.starts_with(root));
        let files: Vec<(&str, String)> = of_root
            .map(|(path, text)| (path, without_tests(&code_only(text)).to_string()))
            .collect();
        let Some((_, lib)) = files.iter().find(|(path, _)| path[root.len()..] == *"lib.rs") else {
            continue;
        };
        let files = Files { root, modules: modules(lib), passed_on: passed_on(lib), files: &files };
        let mut edges = Edges::new();
        files.add_paths(&mut edges);
        files.add_methods(&mut edges);
        report(&edges, findings);
    }
}

/// The modules that the root of a crate declares.
fn modules(lib: &str) -> BTreeSet<&str> {
    let of = |line: &'_ str| -> Option<(usize, usize)> {
        let start = line.find("mod ")? + 4;
        line.ends_with(';').then(|| (start, line.len() - 1))
    };
    lib.lines().filter_map(|line| of(line).map(|(from, to)| &line[from..to])).collect()
}

/// What the root of a crate passes on under names of its own: name, and the module that it is of.
fn passed_on(lib: &str) -> BTreeMap<&str, &str> {
    let mut all = BTreeMap::new();
    for found in lib.split("pub use ").skip(1).filter_map(|rest| rest.split_once(';')) {
        let Some((module, names)) = found.0.split_once("::") else { continue };
        let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let words = names.split(|c: char| !is_of_name(c)).filter(|word| !word.is_empty());
        all.extend(words.map(|word| (word, module.trim())));
    }
    all
}

/// The sources of a crate.
struct Files<'a> {
    root: &'a str,
    modules: BTreeSet<&'a str>,
    passed_on: BTreeMap<&'a str, &'a str>,
    /// Paths and code.
    files: &'a [(&'a str, String)],
}

impl<'a> Files<'a> {
    /// Files of modules: the module, how many modules are above what is in the file, its path and code.
    fn each(&self) -> impl Iterator<Item = (&'a str, usize, &'a str, &'a str)> {
        self.files.iter().filter_map(|(path, code)| {
            let inside = path[self.root.len()..].strip_suffix(".rs")?;
            let inside = inside.strip_suffix("/mod").unwrap_or(inside);
            let module = inside.split('/').next()?;
            let module = self.modules.get(module)?;
            Some((*module, inside.split('/').count(), *path, code.as_str()))
        })
    }

    /// The module that a name at the root of the crate is, or is of.
    fn module_of(&self, name: &str) -> Option<&'a str> {
        let module = self.modules.get(name).or_else(|| self.passed_on.get(name))?;
        Some(module)
    }

    fn add_paths(&self, edges: &mut Edges<'a>) {
        for (module, depth, path, code) in self.each() {
            let from_root = ["crate::".to_string(), "super::".repeat(depth)];
            for (line, name) in from_root.iter().flat_map(|start| named_after(code, start)) {
                let Some(other) = self.module_of(&name) else { continue };
                add(
                    edges,
                    module,
                    other,
                    Mention { path: path.to_string(), line, what: format!("`crate::{name}`") },
                );
            }
        }
    }

    /// Calls of methods that a module adds to a type of another one, by who has that type: it names the module that defines it, or one
    /// that does so in the end. Others call something of that name in another crate.
    fn add_methods(&self, edges: &mut Edges<'a>) {
        let mut homes = BTreeMap::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (module, _, _, code) in self.each() {
            for start in ["struct ", "enum "] {
                homes.extend(words_after(code, start).map(|name| (name, module)));
            }
            words_after(code, "fn ").for_each(|name| *counts.entry(name).or_default() += 1);
        }
        let mut added = BTreeMap::new();
        for (module, _, _, code) in self.each() {
            for (of, body) in impls(code) {
                let Some(home) = homes.get(of).filter(|home| **home != module) else { continue };
                let names = open_methods(body).filter(|name| counts[name] == 1);
                added.extend(names.map(|name| (name, (module, *home))));
            }
        }
        let by_paths = edges.clone();
        for (module, _, path, code) in self.each() {
            let below = below(&by_paths, module);
            for (line, name) in calls(code) {
                let Some((other, home)) = added.get(name) else { continue };
                if !below.contains(home) {
                    continue;
                }
                let what = format!("`.{name}()`");
                add(edges, module, other, Mention { path: path.to_string(), line, what });
            }
        }
    }
}

/// A module, and all that it names in the end.
fn below<'a>(edges: &Edges<'a>, module: &'a str) -> BTreeSet<&'a str> {
    let mut all = BTreeSet::from([module]);
    let mut next = vec![module];
    while let Some(module) = next.pop() {
        let others = edges.get(module).into_iter().flat_map(BTreeMap::keys);
        next.extend(others.copied().filter(|other| all.insert(other)));
    }
    all
}

fn add<'a>(edges: &mut Edges<'a>, from: &'a str, to: &'a str, mention: Mention) {
    if from != to {
        edges.entry(from).or_default().entry(to).or_insert(mention);
    }
}

fn word_at(code: &str) -> &str {
    let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(code.len());
    &code[..end]
}

/// Words that follow `start` where that is a word of its own.
fn words_after<'a>(code: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    let is_own = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let found = code.match_indices(start).filter(move |(at, _)| is_own(*at));
    found.map(move |(at, _)| word_at(&code[at + start.len()..])).filter(|word| !word.is_empty())
}

/// Types with what is added to them: `impl Name` and `impl Name<…>` at the margin, to the brace there.
fn impls(code: &str) -> impl Iterator<Item = (&str, &str)> {
    code.split("\nimpl").skip(1).filter_map(|rest| {
        let (head, body) = rest.split_once("{\n")?;
        let head = match head.strip_prefix('<') {
            Some(generic) => generic.split_once("> ")?.1,
            None => head,
        };
        let body = body.split_once("\n}").map_or(body, |(body, _)| body);
        (!head.contains(" for ")).then(|| (word_at(head.trim_start()), body))
    })
}

/// Names of methods that others can call.
fn open_methods(body: &str) -> impl Iterator<Item = &str> {
    body.lines().filter_map(|line| {
        let rest = line.strip_prefix("    pub")?;
        words_after(rest, "fn ").next()
    })
}

/// Names that are called behind a dot, or named behind a path as something to call, with lines.
fn calls(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(at, line)| {
        let behind = |mark: &'static str, ends: &'static [&'static str]| {
            line.match_indices(mark).filter_map(move |(at, _)| {
                let rest = &line[at + mark.len()..];
                let word = word_at(rest);
                let is_call = ends.iter().any(|end| rest[word.len()..].starts_with(end));
                (is_call && !word.is_empty()).then_some(word)
            })
        };
        let all = behind(".", &["(", "::<"]).chain(behind("::", &["(", "::<", ")", ","]));
        all.map(move |word| (at + 1, word))
    })
}

/// Reports the shortest way from a module back to itself, for each circle one.
fn report(edges: &Edges<'_>, findings: &mut Vec<Finding>) {
    let mut told: BTreeSet<&str> = BTreeSet::new();
    let mut ways: Vec<Vec<&str>> =
        edges.keys().filter_map(|start| way_back(edges, start)).collect();
    ways.sort_by_key(|way| (way.len(), way[0]));
    for way in ways {
        if way.iter().any(|module| told.contains(module)) {
            continue;
        }
        told.extend(&way);
        let (from, to) = (way[0], *way.get(1).unwrap_or(&way[0]));
        let mention = &edges[from][to];
        let what = format!("{} closes a circle: {} → {from}", mention.what, way.join(" → "));
        let advice =
            "move what is needed further down, or have it handed in by who stands above both";
        findings.push(Finding::new(&mention.path, mention.line, what, advice));
    }
}

/// The modules on the shortest way from one back to itself, it first.
fn way_back<'a>(edges: &Edges<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(module) = next.pop_front() {
        for other in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
            if *other == start {
                let mut way = vec![module];
                while way[way.len() - 1] != start {
                    way.push(came_from[way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(other) {
                came_from.insert(other, module);
                next.push_back(other);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    const LIB: (&str, &str) = (
        "crates/vos/src/lib.rs",
        "//! A crate.\nmod a;\nmod b;\npub mod c;\nmod log;\n\npub use b::{Bee, Hive};\npub use log::wal::Wal;\n",
    );

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![LIB];
        all.extend(files);
        findings_of(check, &all)
    }

    #[test]
    fn modules_may_stand_one_above_the_other() {
        let a = "use crate::b::Bee;\nuse crate::{c, log::wal::Wal};\nfn f(at: crate::Hive) {}\n\
                 #[cfg(test)]\nmod tests {\n    use crate::a::f;\n}\n";
        let b = "// Not crate::a.\nuse crate::c;\nconst A: &str = \"crate::a\";\n";
        let c = "use std::rc::Rc;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n";
        // Files of one folder know each other.
        let wal = "use crate::log::batch;\nuse super::batch::Batch;\n";
        let batch = "use super::wal::Wal;\nuse crate::c;\n";
        let files = [
            ("crates/vos/src/a.rs", a),
            ("crates/vos/src/b.rs", b),
            ("crates/vos/src/c.rs", c),
            ("crates/vos/src/log/wal.rs", wal),
            ("crates/vos/src/log/batch.rs", batch),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }

    #[test]
    fn a_circle_is_reported_once_by_its_shortest_way() {
        let files = [
            ("crates/vos/src/a.rs", "use std::rc::Rc;\nuse crate::{c, log};\nuse crate::b;\n"),
            ("crates/vos/src/b.rs", "fn f() {\n    crate::a::g();\n}\n"),
            ("crates/vos/src/c.rs", "use crate::log;\n"),
            ("crates/vos/src/log/mod.rs", "use crate::b::Bee;\n"),
            ("crates/other/src/a.rs", "use crate::b;\n"),
        ];
        let found = found(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        let start = "crates/vos/src/a.rs:3: `crate::b` closes a circle: a → b → a: move";
        assert!(found[0].starts_with(start), "{found:?}");
    }

    #[test]
    fn what_the_root_passes_on_is_of_its_module() {
        for named in ["crate::Wal", "crate::log::wal::Wal", "super::Wal", "crate::{c, Wal}"] {
            let a = format!("use {named};\n");
            let wal = "fn f(with: super::super::a::With) {}\n";
            let found = found(&[("crates/vos/src/a.rs", &a), ("crates/vos/src/log/wal.rs", wal)]);
            assert_eq!(found.len(), 1, "{named}: {found:?}");
            assert!(found[0].contains("a → log → a"), "{found:?}");
        }
    }

    #[test]
    fn who_calls_what_a_module_adds_to_a_type_names_that_module() {
        let a = "pub(crate) struct Shard(u8);\nimpl Shard {\n    fn f(&self) {\n        self.sweep();\n    }\n}\n";
        let b = "use crate::a::Shard;\n\nimpl Shard {\n    pub(crate) fn sweep(&self) {}\n\n    fn own(&self) {}\n}\n";
        let files = [("crates/vos/src/a.rs", a), ("crates/vos/src/b.rs", b)];
        let found_here = found(&files);
        let start = "crates/vos/src/a.rs:4: `.sweep()` closes a circle: a → b → a: move";
        assert!(found_here.len() == 1 && found_here[0].starts_with(start), "{found_here:?}");
        // A name that several functions have tells nothing, nor one that only its own module can call.
        let c = ("crates/vos/src/c.rs", "fn sweep() {}\n");
        assert_eq!(found(&[files[0], files[1], c]), Vec::<String>::new());
        // Who cannot have the type calls something else of that name.
        let (c, log) = ("use crate::log;\n", "fn f(by: Other) {\n    by.sweep();\n}\n");
        let b = format!("use crate::c;\n{b}");
        let below: [(&str, &str); 4] = [
            ("crates/vos/src/a.rs", "pub struct Shard(u8);\n"),
            ("crates/vos/src/b.rs", &b),
            ("crates/vos/src/c.rs", c),
            ("crates/vos/src/log/mod.rs", log),
        ];
        assert_eq!(found(&below), Vec::<String>::new());
        let a = a.replace("sweep", "own");
        assert_eq!(found(&[("crates/vos/src/a.rs", &a), files[1]]), Vec::<String>::new());
    }
}
