//! Engine and store go through operations by `wire::walk` only, which is counted: a test demands that a batch is gone through three times at most
//! (`docs/decisions/2026-11-27-one-walk.md`).

use super::lexer::code_only;
use super::{Finding, Repo};

const WHERE: [&str; 2] = ["crates/engine/src/", "crates/vos/src/"];

/// Reports passes over lists called `ops` that are not counted.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for (path, text) in repo.with_suffix(".rs") {
        if !WHERE.iter().any(|at| path.starts_with(at)) {
            continue;
        }
        let code = code_only(text);
        let code = code.split_once("#[cfg(test)]\nmod tests").map_or(&code[..], |(code, _)| code);
        for (at, line) in code.lines().enumerate() {
            if is_pass(line) {
                let advice = "go by `wire::walk::walk`, or better, have `vos::Summary` tell it";
                findings.push(Finding::new(path, at + 1, "a pass over operations", advice));
            }
        }
    }
}

fn is_pass(line: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let is_list = |name: &str| {
        // Figures of kinds of operations have that name, too.
        let of_figures = ["ctx.ops", "pool.ops"];
        let own = name.rsplit(|c: char| !is_of_name(c)).next();
        own == Some("ops") && !of_figures.iter().any(|figures| name.ends_with(figures))
    };
    let is_called = [".iter()", ".iter_mut()", ".into_iter()"]
        .iter()
        .any(|call| line.match_indices(call).any(|(at, _)| is_list(&line[..at])));
    let looped = line.trim_start().strip_prefix("for ").and_then(|rest| rest.split_once(" in "));
    let looped = looped.and_then(|(_, over)| over.trim_end().strip_suffix('{'));
    is_called || looped.is_some_and(|over| is_list(over.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn passes_over_operations_are_counted() {
        let good = "for op in walk(ops) {\n}\nlet first = batch.ops.first();\nfor drops in all {\n}\n\
                    pool.ops.iter().max();\n#[cfg(test)]\nmod tests {\n    for op in &ops {\n    }\n}\n";
        let bad = "for op in ops {\n}\nfor (at, op) in &batch.ops {\n}\nops.iter().any(f);\n\
                   part.batch().ops.into_iter();\n";
        let found = findings_of(
            check,
            &[
                ("crates/vos/src/a.rs", good),
                ("crates/engine/src/b.rs", bad),
                ("crates/client/src/c.rs", bad),
            ],
        );
        let wanted: Vec<String> = [1, 3, 5, 6]
            .map(|line| {
                format!(
                    "crates/engine/src/b.rs:{line}: a pass over operations: \
                     go by `wire::walk::walk`, or better, have `vos::Summary` tell it"
                )
            })
            .into();
        assert_eq!(found, wanted);
    }
}
