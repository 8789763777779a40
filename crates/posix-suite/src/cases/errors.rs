//! Errors that all calls with a path have in common.

use super::Case;

/// A call: name, what it needs, steps before it, and the call itself with `{}` for the path whose
/// fault is tested.
const CALLS: &[(&str, &str, &str)] = &[
    ("mkdir", "", "mkdir {} 755"),
    ("rmdir", "", "rmdir {}"),
    ("create", "", "create {}"),
    ("open to read", "", "open f {} r"),
    ("open to write", "", "open f {} w"),
    ("unlink", "", "unlink {}"),
    ("link to", "create there", "link there {}"),
    ("link from", "", "link {} link-name"),
    ("symlink", "", "symlink target {}"),
    ("readlink", "", "readlink {} x"),
    ("mkfifo", "", "make fifo {}"),
    ("rename from", "", "rename {} new-name"),
    ("rename to", "create there", "rename there {}"),
    ("stat", "", "stat {}"),
    ("chmod", "", "chmod {} 600"),
    ("chown", "", "chown {} 0 0"),
    ("lchown", "", "lchown {} 0 0"),
    ("truncate", "", "truncate {} 0"),
    ("utimens", "", "utimens {} now now"),
    ("access", "", "access {} r"),
    ("list", "", "list {}"),
];

/// Calls that make a name: nothing need be there.
const MAKERS: &[&str] = &["mkdir", "create", "link to", "symlink", "mkfifo", "rename to"];

pub fn add(cases: &mut Vec<Case>) {
    let mut case = |name: String, needs, script: String| {
        cases.push(Case { name: format!("errors: {name}"), needs, script });
    };
    for (call, before, step) in CALLS {
        let with = |path: &str| step.replace("{}", path);
        let makes = MAKERS.contains(call);
        case(
            format!("{call}: a component that is no directory is ENOTDIR"),
            &[],
            format!("{before}\ncreate file\nENOTDIR {}", with("file/x")),
        );
        case(
            format!("{call}: a component that is not there is ENOENT"),
            &[],
            format!("{before}\nENOENT {}", with("missing/x")),
        );
        case(
            format!("{call}: a name of 256 bytes is ENAMETOOLONG"),
            &[],
            format!("{before}\nENAMETOOLONG {}", with("256*n")),
        );
        case(
            format!("{call}: a component of 256 bytes is ENAMETOOLONG"),
            &[],
            format!("{before}\nENAMETOOLONG {}", with("256*n+/x")),
        );
        case(
            format!("{call}: a path of 4096 bytes is ENAMETOOLONG"),
            &[],
            format!("{before}\nENAMETOOLONG {}", with("2048*./")),
        );
        case(
            format!("{call}: a circle of symbolic links is ELOOP"),
            &[],
            format!(
                "{before}\nsymlink b a\nsymlink a b\nELOOP {}\nELOOP {}",
                with("a/x"),
                with("b/x")
            ),
        );
        case(
            format!("{call}: a directory that may not be searched is EACCES"),
            &["users"],
            format!(
                "{before}\nmkdir d 777\ncreate d/x 666\nchmod d 600\n@1 EACCES {}",
                with("d/x")
            ),
        );
        if !makes {
            case(
                format!("{call}: a name that is not there is ENOENT"),
                &[],
                format!("{before}\nENOENT {}", with("missing")),
            );
        } else if *call != "rename to" {
            case(
                format!("{call}: a directory that may not be written is EACCES"),
                &["users"],
                // A link to what one may not write is EPERM where Linux protects links.
                format!("{before}\nmkdir d 755\n@1 EACCES|EPERM {}", with("d/x")),
            );
            for kind in ["regular", "dir", "fifo", "symlink"] {
                case(
                    format!("{call}: a name that is taken by a {kind} is EEXIST"),
                    &[],
                    format!("{before}\nmake {kind} x\nEEXIST {}", with("x")),
                );
            }
        }
    }
    // `""` names nothing.
    for (call, _, step) in CALLS.iter().filter(|(call, ..)| !call.starts_with("link to")) {
        let before = if *call == "rename to" { "create there" } else { "" };
        case(
            format!("{call}: the empty path is ENOENT"),
            &[],
            format!("{before}\nENOENT {}", step.replace("{}", "''")),
        );
    }
}
