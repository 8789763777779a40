//! Which crate may depend on which: edges go only downward through the layers.
//!
//! A new edge between crates is the biggest kind of change there is, so the table is written
//! down here and compared with every `Cargo.toml`. Dev-dependencies are free: tests may look
//! at both sides of the wire.

use super::lexer::code_only;
use super::rust::has_word;
use super::{Finding, Repo};
use std::collections::{BTreeMap, BTreeSet};

/// Layers from the bottom up; the index is the layer's number.
const LAYERS: [&[&str]; 8] = [
    &["types", "allocator"],
    &["wire", "placement", "codec", "erasure", "admit", "twophase"],
    &["env", "transport"],
    &["vos", "control", "fuselow"],
    &["engine", "client"],
    &["dfs", "perthread", "preload"],
    &["capi", "fuse", "intercept", "python", "gateway", "coordinate", "ioc", "tier", "bench"],
    &["cli"],
];
/// Crates for tests: they may use anything, and nothing but tests may use them.
const TEST_ONLY: [&str; 4] = ["model", "sim", "fuzz", "posix-suite"];
/// The only edges inside a layer.
const WITHIN_LAYER: [(&str, &str); 4] =
    [("placement", "wire"), ("twophase", "wire"), ("transport", "env"), ("ioc", "coordinate")];
/// What a crate may not reach even through others: the two sides of the wire never meet.
const NEVER: [(&str, &str); 2] = [("client", "vos"), ("client", "engine")];

/// Crates that name units of objects; which target has one, only the client below them knows.
const WITHOUT_TARGETS: [&str; 4] = ["dfs", "capi", "fuse", "intercept"];

/// Crates that would serve any program: of `types` they use what [`ERRORS`] names, and nothing that is of a storage system.
const WITH_ERRORS_ONLY: [&str; 1] = ["fuselow"];
const ERRORS: [&str; 3] = ["Code", "Error", "Result"];

/// One crate's non-development dependencies: name and the line that names it.
type Edges = BTreeMap<String, usize>;

/// Reports edges that go up or sideways, forbidden reach, crates without a layer, and ids of targets
/// above the layer that places.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for (path, text) in repo.with_suffix(".rs") {
        if WITH_ERRORS_ONLY.iter().any(|name| path.starts_with(&format!("crates/{name}/src/"))) {
            for (line, name) in of_types(&code_only(text)) {
                if !ERRORS.contains(&name.as_str()) {
                    let advice =
                        "a crate that knows nothing of Azekura takes errors of `types` only";
                    findings.push(Finding::new(path, line, format!("`types::{name}`"), advice));
                }
            }
        }
        if !WITHOUT_TARGETS.iter().any(|name| path.starts_with(&format!("crates/{name}/src/"))) {
            continue;
        }
        for (at, line) in code_only(text).lines().enumerate() {
            if has_word(line, "TargetId") {
                let advice = "name units (`types::Unit`); `client` knows where they are";
                findings.push(Finding::new(path, at + 1, "a target's id", advice));
            }
        }
    }
    let crates: BTreeMap<&str, (&str, Edges)> = repo
        .with_suffix("/Cargo.toml")
        .filter_map(|(path, text)| {
            let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!name.contains('/')).then(|| (name, (path, edges(text))))
        })
        .collect();
    for (name, (path, edges)) in &crates {
        if layer(name).is_none() && !TEST_ONLY.contains(name) {
            findings.push(Finding::new(
                path,
                1,
                format!("crate `{name}` has no layer"),
                "give it one in xtask/src/tidy/layers.rs and in ARCHITECTURE.md",
            ));
            continue;
        }
        for (to, line) in edges.iter().filter(|(to, _)| crates.contains_key(to.as_str())) {
            if let Some(what) = edge_fault(name, to) {
                let advice = "move the shared part down a layer, or make it a dev-dependency";
                findings.push(Finding::new(path, *line, what, advice));
            }
        }
        for (_, forbidden) in NEVER.iter().filter(|(from, _)| from == name) {
            if let Some(chain) = chain_to(name, forbidden, &crates) {
                findings.push(Finding::new(
                    path,
                    1,
                    format!("`{name}` reaches `{forbidden}` ({chain})"),
                    "the two sides of the wire share `types` and `wire` only; cut the chain",
                ));
            }
        }
    }
}

/// What code names of `types`, with lines: the first word of each path, or `*`.
fn of_types(code: &str) -> Vec<(usize, String)> {
    const CRATE: &str = "types::";
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in code.match_indices(CRATE) {
        // `uring_types::…` and `io_uring::types::…` are others.
        if code[..at].ends_with(|c: char| is_of_name(c) || c == ':') {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + CRATE.len()..];
        let listed = rest.strip_prefix('{').and_then(|list| list.split_once("};"));
        let paths = listed.map_or_else(|| vec![rest], |(list, _)| list.split(',').collect());
        for path in paths.into_iter().map(str::trim_start).filter(|path| !path.is_empty()) {
            let end = path.find(|c: char| !is_of_name(c)).unwrap_or(path.len());
            let name = if end == 0 { "*" } else { &path[..end] };
            found.push((line, name.to_string()));
        }
    }
    found
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&name))
}

fn edge_fault(from: &str, to: &str) -> Option<String> {
    if TEST_ONLY.contains(&from) {
        return None;
    }
    if TEST_ONLY.contains(&to) {
        return Some(format!("`{from}` depends on `{to}`, which is for tests only"));
    }
    // An unknown `to` is reported at its own manifest.
    let (above, below) = (layer(from)?, layer(to)?);
    if below < above || WITHIN_LAYER.contains(&(from, to)) {
        return None;
    }
    Some(format!("`{from}` (layer {above}) depends on `{to}` (layer {below})"))
}

/// A chain of edges from one crate to another, for people: `a → b → c`.
fn chain_to(from: &str, to: &str, crates: &BTreeMap<&str, (&str, Edges)>) -> Option<String> {
    let mut seen = BTreeSet::from([from]);
    let mut waiting = vec![(from, from.to_string())];
    while let Some((name, chain)) = waiting.pop() {
        let Some((_, edges)) = crates.get(name) else { continue };
        for next in edges.keys().filter(|next| crates.contains_key(next.as_str())) {
            let chain = format!("{chain} → {next}");
            if next == to {
                return Some(chain);
            }
            if seen.insert(next) {
                waiting.push((next, chain));
            }
        }
    }
    None
}

/// Reads the dependency tables of a manifest, dev-dependencies left out.
fn edges(manifest: &str) -> Edges {
    let mut edges = Edges::new();
    let mut in_table = false;
    for (at, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(table) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            // `[dependencies]`, `[target.'cfg(unix)'.dependencies]`, `[dependencies.wire]`.
            let kind_of = |part: &str| matches!(part, "dependencies" | "build-dependencies");
            let (head, tail) = table.rsplit_once('.').unwrap_or(("", table));
            in_table = kind_of(tail);
            let head_kind = head.rsplit('.').next().unwrap_or(head);
            if kind_of(head_kind) {
                edges.insert(tail.trim_matches('"').to_string(), at + 1);
            }
        } else if in_table && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or(line).trim_matches('"');
            // `alias = { package = "wire" }` depends on `wire`.
            let renamed = line.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            edges.insert(renamed.unwrap_or(name).to_string(), at + 1);
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn findings(manifests: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<(String, &str)> = manifests
            .iter()
            .map(|(name, text)| (format!("crates/{name}/Cargo.toml"), *text))
            .collect();
        let files: Vec<(&str, &str)> =
            paths.iter().map(|(path, text)| (&path[..], *text)).collect();
        findings_of(check, &files)
    }

    #[test]
    fn edges_may_go_down_and_along_the_named_exceptions() {
        let good = findings(&[
            ("types", "[dependencies]\nserde = \"1\"\n"),
            ("wire", "[dependencies]\ntypes.workspace = true\n"),
            ("placement", "[dependencies]\nwire = { workspace = true }\n"),
            ("env", ""),
            ("transport", "[dependencies]\nenv.workspace = true\n"),
            ("engine", "[dev-dependencies]\nclient.workspace = true\n"),
            (
                "client",
                "[dependencies]\ntransport.workspace = true\n[dev-dependencies]\nengine = {}\n",
            ),
            ("fuzz", "[dependencies]\nengine.workspace = true\n"),
        ]);
        assert_eq!(good, Vec::<String>::new());
    }

    #[test]
    fn edges_up_or_sideways_are_reported_with_their_line() {
        let bad = findings(&[
            ("types", "[package]\n\n[dependencies]\nwire.workspace = true\n"),
            ("wire", "[dependencies]\nplacement.workspace = true\n"),
            ("placement", ""),
        ]);
        assert_eq!(bad.len(), 2, "{bad:?}");
        assert!(bad[0].starts_with("crates/types/Cargo.toml:4: `types` (layer 0)"), "{}", bad[0]);
        assert!(bad[1].starts_with("crates/wire/Cargo.toml:2: `wire` (layer 1)"), "{}", bad[1]);
    }

    #[test]
    fn every_way_to_write_a_dependency_is_seen() {
        for manifest in [
            "[dependencies]\nengine.workspace = true\n",
            "[dependencies]\n\"engine\" = { path = \"../engine\" }\n",
            "[dependencies.engine]\nworkspace = true\n",
            "[build-dependencies]\nengine = \"1\"\n",
            "[target.'cfg(unix)'.dependencies]\nengine = \"1\"\n",
            "[target.'cfg(unix)'.dependencies.engine]\nworkspace = true\n",
            "[dependencies]\nother = { package = \"engine\", path = \"../engine\" }\n",
        ] {
            assert_eq!(findings(&[("vos", manifest), ("engine", "")]).len(), 1, "{manifest}");
        }
    }

    #[test]
    fn the_client_may_not_reach_the_store_through_another_crate() {
        let bad = findings(&[
            ("client", "[dependencies]\ncontrol.workspace = true\n"),
            ("control", "[dependencies]\nvos.workspace = true\n"),
            ("vos", ""),
        ]);
        assert!(bad.iter().any(|line| line.contains("client → control → vos")), "{bad:?}");
    }

    #[test]
    fn ids_of_targets_stay_below_the_layer_that_places() {
        let user = "//! Asks.\n// Not a TargetId.\nuse types::TargetId;\n";
        let repo = Repo::of(&[
            ("crates/dfs/src/page.rs", user),
            ("crates/client/src/cont.rs", user),
            ("crates/dfs/tests/page.rs", user),
        ]);
        let mut findings = Vec::new();
        check(&repo, &mut findings);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].to_string().starts_with("crates/dfs/src/page.rs:3: a target's id"));
    }

    #[test]
    fn a_crate_for_any_program_takes_errors_only() {
        let good = "use types::{Code, Error,\n    Result};\nuse io_uring::types::Fd;\n// types::Oid\nfn f() -> types::Result<()> {}\n";
        let bad = "use types::{Error, Oid};\nuse types::*;\nfn f(of: types::Unit) {}\n";
        let repo = Repo::of(&[
            ("crates/fuselow/src/abi.rs", good),
            ("crates/fuselow/src/mount.rs", bad),
            ("crates/fuse/src/mount.rs", bad),
        ]);
        let mut findings = Vec::new();
        check(&repo, &mut findings);
        let found: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        for (line, name) in ["Oid", "*", "Unit"].iter().enumerate() {
            let want = format!("crates/fuselow/src/mount.rs:{}: `types::{name}`", line + 1);
            assert!(found[line].starts_with(&want), "{found:?}");
        }
    }

    #[test]
    fn test_crates_and_unknown_crates_are_reported() {
        let bad = findings(&[
            ("dfs", "[dependencies]\nmodel.workspace = true\n"),
            ("model", ""),
            ("novel", ""),
        ]);
        assert_eq!(bad.len(), 2, "{bad:?}");
        assert!(bad[0].contains("for tests only") && bad[1].contains("has no layer"));
    }
}
