//! The cases, by group.

mod data;
mod errors;
mod links;
mod locks;
mod names;
mod permissions;
mod times;

use crate::Case;
use crate::script::KINDS;

pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    errors::add(&mut cases);
    names::add(&mut cases);
    links::add(&mut cases);
    permissions::add(&mut cases);
    times::add(&mut cases);
    data::add(&mut cases);
    locks::add(&mut cases);
    cases
}

/// A table of rules: name, what it needs (words), script.
type Rules = [(&'static str, &'static [&'static str], &'static str)];

fn add_rules(cases: &mut Vec<Case>, group: &str, rules: &Rules) {
    cases.extend(rules.iter().map(|(name, needs, script)| Case {
        name: format!("{group}: {name}"),
        needs,
        script: script.to_string(),
    }));
}

/// One case for each kind of thing; `{kind}` in the script stands for it, `{remove}` for the call
/// that removes it. Kinds that need device nodes say so.
fn add_by_kind(cases: &mut Vec<Case>, group: &str, kinds: &[&str], rules: &Rules) {
    for (name, needs, script) in rules {
        for kind in KINDS.iter().filter(|kind| kinds.contains(*kind)) {
            let is_device = matches!(*kind, "block" | "char");
            let needs = match needs {
                [] if is_device => &["dev"][..],
                ["users"] if is_device => &["users", "dev"],
                needs => needs,
            };
            let remove = if *kind == "dir" { "rmdir" } else { "unlink" };
            // Only the superuser makes devices, and gives them away.
            let script = match is_device {
                true => script.replace("@1 make {kind} x", "make {kind} x\n lchown x 1 1\n"),
                false => script.to_string(),
            };
            cases.push(Case {
                name: format!("{group}: {name} ({kind})"),
                needs,
                script: script.replace("{kind}", kind).replace("{remove}", remove),
            });
        }
    }
}
