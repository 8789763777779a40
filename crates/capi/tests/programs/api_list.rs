//! Every name that programs written for DAOS use is there.
//!
//! `tests/api/*.txt` list the functions, macros, types and constants that clients outside DAOS, its
//! examples and its file system tests name.

use crate::harness;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The lines of a list, without comments: columns between tabs.
fn list(name: &str) -> Vec<Vec<String>> {
    let path = crate_dir().join("tests/api").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

/// All headers, with their path below `include`.
fn headers() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in ["", "daos", "gurt"] {
        for entry in std::fs::read_dir(crate_dir().join("include").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "h") {
                let name = path.file_name().unwrap().to_str().unwrap();
                let name = if folder.is_empty() { name.into() } else { format!("{folder}/{name}") };
                found.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(found.len() > 20);
    found
}

/// A header without comments and preprocessor lines.
fn bare(header: &str) -> String {
    let mut rest = header.replace("\\\n", " ");
    let mut code = String::new();
    while let Some((before, after)) = rest.clone().split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").expect("comments end").1.to_owned();
    }
    code.push_str(&rest);
    let is_code = |line: &&str| !line.trim_start().starts_with('#');
    let code: Vec<&str> = code.lines().filter(is_code).collect();
    code.join("\n").replace("extern \"C\" {", "")
}

/// The functions that a header declares without giving their body.
fn declared(header: &str) -> BTreeSet<String> {
    let (mut names, mut depth, mut statement) = (BTreeSet::new(), 0i32, String::new());
    for letter in bare(header).chars() {
        match letter {
            '{' => depth += 1,
            '}' => {
                // Of `extern "C"`, or the end of a body or a type.
                depth = (depth - 1).max(0);
                if depth == 0 {
                    statement.clear();
                }
            }
            ';' if depth == 0 => {
                let text = std::mem::take(&mut statement);
                let text = text.trim();
                let inside = ["static", "typedef", "extern"];
                if inside.iter().any(|word| text.starts_with(word)) {
                    continue;
                }
                if let Some((before, _)) = text.split_once('(') {
                    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                    let name = before.trim_end().rsplit(|letter| !is_name(letter)).next().unwrap();
                    names.insert(name.to_owned());
                }
            }
            _ if depth == 0 => statement.push(letter),
            _ => {}
        }
    }
    names
}

fn all_declared() -> BTreeSet<String> {
    let names: BTreeSet<String> = headers().values().flat_map(|text| declared(text)).collect();
    assert!(names.len() > 300, "{names:?}");
    names
}

/// What the shared object exports.
fn exported() -> BTreeSet<String> {
    let library = harness::library_dir().join("libazekura.so");
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library)
        .output()
        .expect("binutils are installed");
    assert!(output.status.success(), "{}", harness::text(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned())).collect()
}

#[test]
fn the_shared_object_exports_what_the_headers_declare_and_nothing_else() {
    let (declared, exported) = (all_declared(), exported());
    let absent: Vec<_> = declared.difference(&exported).collect();
    assert!(absent.is_empty(), "declared in a header, not exported: {absent:?}");
    let variables = BTreeSet::from(["d_alt_assert".to_owned()]);
    let stray: Vec<_> =
        exported.difference(&declared).filter(|name| !variables.contains(*name)).collect();
    assert!(stray.is_empty(), "exported, but no header declares it: {stray:?}");
}

#[test]
fn the_shared_object_says_its_name() {
    let library = harness::library_dir().join("libazekura.so");
    let output = Command::new("readelf").arg("-d").arg(&library).output().expect("binutils");
    let text = String::from_utf8(output.stdout).unwrap();
    let name = text.lines().find(|line| line.contains("SONAME")).expect("a SONAME");
    assert!(name.contains("[libazekura.so.0]"), "{name}");
}

/// The program that uses each listed name, for C or C++.
fn program() -> String {
    let mut text = String::new();
    for header in headers().keys() {
        writeln!(text, "#include <{header}>").unwrap();
    }
    text += "typedef void (*any_function)(void);\n#define USE(f) used[at++] = (any_function)(f)\n\
             static volatile long long value;\nint main(void)\n{\n\
             any_function used[512];\nint at = 0;\n";
    let functions = list("functions.txt");
    assert!(functions.len() > 200 && functions.len() < 512);
    for line in &functions {
        writeln!(text, "USE({});", line[1]).unwrap();
    }
    for line in list("macros.txt") {
        writeln!(text, "#ifndef {0}\n#error {0}\n#endif", line[1]).unwrap();
    }
    for line in list("constants.txt") {
        writeln!(text, "value = (long long)({});", line[1]).unwrap();
    }
    for line in list("types.txt") {
        match line[1].rsplit_once(' ') {
            // A member of a type.
            Some((name, member)) if name != "struct" && name != "enum" => {
                writeln!(text, "value = sizeof((({name} *)0)->{member});").unwrap();
            }
            // Some types are known by a pointer only.
            _ => writeln!(text, "value = sizeof({} *);", line[1]).unwrap(),
        }
    }
    text + "return at == 0 || used[0] == 0;\n}\n"
}

/// Compiles the program, links it with every library that DAOS has, and runs it.
fn build(compiler: &str, language: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (source, binary): (PathBuf, PathBuf) =
        (dir.path().join("names.c"), dir.path().join("names"));
    std::fs::write(&source, program()).unwrap();
    let libraries = harness::library_dir();
    let output = Command::new(compiler)
        .args(language)
        .args(["-Wall", "-Werror", "-I"])
        .arg(crate_dir().join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .arg("-L")
        .arg(libraries)
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args(["-ldaos", "-ldfs", "-lduns", "-lgurt", "-ldaos_common"])
        .output()
        .expect("a compiler is installed");
    assert!(output.status.success(), "{}", harness::text(&output));
    let output = Command::new(&binary).output().unwrap();
    assert!(output.status.success(), "{}", harness::text(&output));
}

#[test]
fn listed_names_are_usable_in_c() {
    build("cc", &["-std=gnu11"]);
}

#[test]
fn listed_names_are_usable_in_cpp() {
    build("c++", &["-std=gnu++17", "-x", "c++"]);
}

#[test]
fn the_scan_of_headers_sees_functions_and_not_bodies() {
    let header = "#define A(x) x()\n/* f(); */ int f(void);\nstatic inline int g(int x)\n{ h(); }\n\
                  typedef int (*t)(int);\nextern void (*v)(int);\nchar *k(size_t n)\n\
                  __attribute__((malloc));\nstruct s { int (*m)(void); };";
    assert_eq!(declared(header), BTreeSet::from(["f".to_owned(), "k".to_owned()]));
}
