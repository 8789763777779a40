//! The headers alone: each compiles by itself in every language, and what they define in place works.

use crate::harness;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

fn include_dir() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

fn headers() -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["", "daos/", "gurt/"] {
        for entry in std::fs::read_dir(include_dir().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".h") {
                found.push(format!("{folder}{name}"));
            }
        }
    }
    assert!(found.len() > 20);
    found
}

/// Compiles text from stdin without output; what the compiler says if it does not like it.
fn complaint(compiler: &str, arguments: &[&str], text: &str) -> Option<String> {
    let mut child = Command::new(compiler)
        .args(arguments)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
        .arg(include_dir())
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a compiler is installed");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_header_compiles_alone_in_c() {
    for header in headers() {
        for standard in ["-std=gnu99", "-std=c11", "-std=gnu17"] {
            let text = format!("#include <{header}>\nint nothing;\n");
            let said = complaint("cc", &["-x", "c", standard], &text);
            assert_eq!(said, None, "{header} {standard}");
        }
    }
}

#[test]
fn every_header_compiles_alone_in_cpp() {
    for header in headers() {
        for standard in ["-std=c++11", "-std=gnu++20"] {
            let text = format!("#include <{header}>\nint nothing;\n");
            let said = complaint("c++", &["-x", "c++", standard], &text);
            assert_eq!(said, None, "{header} {standard}");
        }
    }
}

#[test]
fn a_wrong_type_for_a_name_is_still_noticed() {
    let call = |name: &str| {
        format!(
            "#include <daos.h>\nint f(int *number, uuid_t id, const char *text, daos_handle_t *poh);\n\
             int f(int *number, uuid_t id, const char *text, daos_handle_t *poh)\n\
             {{ (void)number, (void)id, (void)text; return daos_pool_connect({name}, NULL, \
             DAOS_PC_RW, poh, NULL, NULL); }}\n"
        )
    };
    for name in ["id", "text", "\"tank\"", "NULL"] {
        assert_eq!(complaint("cc", &["-x", "c", "-std=gnu11"], &call(name)), None, "{name}");
    }
    assert!(complaint("cc", &["-x", "c", "-std=gnu11"], &call("number")).is_some());
    assert!(complaint("c++", &["-x", "c++"], &call("number")).is_some());
}

#[test]
fn what_headers_define_in_place_works() {
    harness::run_alone("inline");
}
