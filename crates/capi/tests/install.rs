//! An installed tree is what build systems of DAOS's clients look for, wherever it is moved to.

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a build leaves, with stand-ins for what is not looked into.
fn built(dir: &Path) -> PathBuf {
    let built = dir.join("built");
    std::fs::create_dir(&built).unwrap();
    // The program is only asked for shell completions and manual pages.
    let program = "#!/bin/sh\necho completion\n[ \"$1\" != help ] || echo page >\"$4/azekura.1\"\n";
    std::fs::write(built.join("azekura"), program).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(built.join("azekura"), executable).unwrap();
    let library = harness::library_dir().join("libazekura.so");
    for name in ["libazekura.so", "libazekura_ioc.so", "libazekura_intercept.so"] {
        std::fs::copy(&library, built.join(name)).unwrap();
    }
    built
}

struct Tree {
    dir: tempfile::TempDir,
    prefix: PathBuf,
}

impl Tree {
    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn script(&self, first: &Path, prefix: &Path) {
        let output = Command::new(Tree::root().join("scripts/install.sh"))
            .arg(first)
            .arg(prefix)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", harness::text(&output));
    }

    /// Installs, then moves the tree to another place.
    fn install() -> Tree {
        let dir = tempfile::tempdir().unwrap();
        let built = built(dir.path());
        let tree = Tree { prefix: dir.path().join("moved"), dir };
        let first = tree.dir.path().join("first");
        tree.script(&built.join("azekura"), &first);
        std::fs::rename(&first, &tree.prefix).unwrap();
        tree
    }

    /// Compiles and links as `AC_CHECK_LIB` does, runs the program without `LD_LIBRARY_PATH`.
    fn probe(&self, folder: &str, text: &str, flags: &[&str]) {
        let (source, binary) = (self.dir.path().join("probe.c"), self.dir.path().join("probe"));
        std::fs::write(&source, text).unwrap();
        let libraries = self.prefix.join(folder);
        let output = Command::new("cc")
            .arg("-I")
            .arg(self.prefix.join("include"))
            .arg("-L")
            .arg(&libraries)
            .arg(format!("-Wl,-rpath,{}", libraries.display()))
            .arg(&source)
            .arg("-o")
            .arg(&binary)
            .args(flags)
            .output()
            .unwrap();
        assert!(output.status.success(), "{flags:?}: {}", harness::text(&output));
        let output = Command::new(&binary).output().unwrap();
        assert!(output.status.success(), "{flags:?}: {}", harness::text(&output));
    }

    /// A symbol that must be found in one library alone.
    fn check_lib(&self, library: &str, symbol: &str) {
        let text = format!(
            "char {symbol}();\nint main(int argc, char **argv)\n\
             {{ return argc > 9 ? {symbol}() : (argv == 0); }}\n"
        );
        for folder in ["lib", "lib64"] {
            self.probe(folder, &text, &["-w", &format!("-l{library}")]);
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.prefix.clone()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap().is_dir() {
                    true => open.push(entry.path()),
                    false => found.push(entry.path()),
                }
            }
        }
        found
    }
}

/// The lines of `configure` scripts of IOR, ROMIO, mpiFileUtils and fio.
#[test]
fn probes_of_configure_scripts_succeed() {
    let tree = Tree::install();
    for (library, symbol) in [
        ("gurt", "d_hash_murmur64"),
        ("gurt", "d_hash_table_create"),
        ("daos", "daos_init"),
        ("dfs", "dfs_mkdir"),
        ("dfs", "dfs_mount"),
        ("duns", "duns_resolve_path"),
        ("daos_common", "d_errstr"),
        ("azekura", "azk_version"),
    ] {
        tree.check_lib(library, symbol);
    }
    // fio's: a whole program, with the call in place.
    let fio = "#include <fcntl.h>\n#include <daos.h>\n#include <daos_fs.h>\n\
               int main(int argc, char **argv)\n{\n daos_handle_t poh = {0};\n daos_handle_t coh = {0};\n\
               dfs_t *dfs;\n (void) dfs_mount(poh, coh, O_RDWR, &dfs);\n return argc < 0 || !argv;\n}\n";
    tree.probe("lib64", fio, &["-luuid", "-ldfs", "-ldaos"]);
    // All names together are one object: state is shared.
    let all = ["-lgurt", "-ldaos_common", "-ldaos", "-ldfs", "-lduns", "-luuid"];
    tree.probe("lib64", fio, &all);
}

#[test]
fn package_files_follow_the_tree() {
    let tree = Tree::install();
    if Command::new("pkg-config").arg("--version").output().is_err() {
        eprintln!("pkg-config is not installed: only the files are checked");
    }
    for name in ["azekura", "daos", "dfs", "duns", "gurt", "daos_common"] {
        let path = tree.prefix.join("lib/pkgconfig").join(format!("{name}.pc"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains('@') && !text.contains("first"), "{text}");
        assert!(text.contains(&format!("-l{name}")), "{text}");
        let asked = Command::new("pkg-config")
            .args(["--cflags", "--libs", name])
            .env("PKG_CONFIG_PATH", tree.prefix.join("lib/pkgconfig"))
            .output();
        if let Ok(output) = asked {
            assert!(output.status.success(), "{}", harness::text(&output));
            let flags = String::from_utf8(output.stdout).unwrap();
            let flags: Vec<&str> = flags.split_whitespace().collect();
            tree.probe("lib", "#include <daos.h>\nint main(void) { return 0; }\n", &flags);
        }
    }
}

#[test]
fn removing_leaves_nothing() {
    let tree = Tree::install();
    assert!(tree.files().len() > 40);
    // What somebody else has put there stays.
    std::fs::write(tree.prefix.join("include/gurt/other.h"), "").unwrap();
    tree.script(Path::new("--remove"), &tree.prefix);
    assert_eq!(tree.files(), [tree.prefix.join("include/gurt/other.h")]);
}

/// The libraries carried their debug information along: 40 MB for what has 5 MB of code.
#[test]
fn libraries_are_installed_without_debug_information() {
    let tree = Tree::install();
    let sections = |path: &Path| {
        let output = Command::new("readelf").arg("-SW").arg(path).output().unwrap();
        assert!(output.status.success(), "{}", harness::text(&output));
        harness::text(&output)
    };
    let original = sections(&harness::library_dir().join("libazekura.so"));
    assert!(original.contains(".debug_line"), "nothing to strip: {original}");
    for name in ["libazekura.so.0", "libazekura_ioc.so", "libazekura_intercept.so"] {
        let installed = sections(&tree.prefix.join("lib").join(name));
        assert!(!installed.contains(".debug_line"), "{name}: {installed}");
    }
    // On request debuggers find it where they look.
    let prefix = tree.dir.path().join("with-debug");
    let output = Command::new(Tree::root().join("scripts/install.sh"))
        .arg(tree.dir.path().join("built/azekura"))
        .arg(&prefix)
        .env("DEBUG", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", harness::text(&output));
    assert!(sections(&prefix.join("lib/libazekura.so.0")).contains(".gnu_debuglink"));
    assert!(sections(&prefix.join("lib/debug/libazekura.so.0.debug")).contains(".debug_line"));
    tree.script(Path::new("--remove"), &prefix);
    assert!(!prefix.join("lib/debug/libazekura.so.0.debug").exists());
}

#[test]
fn users_of_daos_find_the_names_they_type() {
    let tree = Tree::install();
    for (name, place) in [
        ("bin/daos", "azekura"),
        ("bin/dmg", "azekura"),
        ("bin/dfuse", "azekura"),
        ("lib/libioil.so", "libazekura_intercept.so"),
        ("lib/libpil4dfs.so", "libazekura_intercept.so"),
    ] {
        assert_eq!(std::fs::read_link(tree.prefix.join(name)).unwrap(), Path::new(place), "{name}");
        assert!(tree.prefix.join(name).exists(), "{name} leads nowhere");
    }
    assert!(tree.prefix.join("share/man/man1/azekura.1").exists());
    // DAOS itself, installed at the same place, is not written over.
    let prefix = tree.dir.path().join("beside-daos");
    std::fs::create_dir_all(prefix.join("bin")).unwrap();
    std::fs::write(prefix.join("bin/daos"), "theirs").unwrap();
    tree.script(&tree.dir.path().join("built/azekura"), &prefix);
    assert_eq!(std::fs::read_to_string(prefix.join("bin/daos")).unwrap(), "theirs");
}

/// Where distributions want what a package brings.
const PACKAGED: [&str; 11] = [
    "usr/bin/azekura",
    "usr/bin/daos",
    "usr/lib/libazekura.so.0",
    "usr/lib/libpil4dfs.so",
    "usr/include/daos.h",
    "usr/lib/systemd/system/azekura-engine.service",
    "usr/lib/sysusers.d/azekura.conf",
    "usr/share/man/man1/azekura.1.gz",
    "usr/share/bash-completion/completions/azekura",
    "etc/azekura/engine.toml",
    "usr/sbin/mount.fuse.azekura",
];

fn has(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        eprintln!("SKIPPED: {program} is not installed");
    }
    is_there
}

/// Packages unpacked into an empty root, or listed: everything is where the distribution wants it.
#[test]
fn packages_hold_what_is_installed() {
    let (is_debian, is_rpm) = (has("dpkg-deb"), has("rpmbuild"));
    if !is_debian && !is_rpm {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let built = built(dir.path());
    let out = dir.path().join("packages");
    let output = Command::new(Tree::root().join("scripts/packages.sh"))
        .args([&built.join("azekura"), &out])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", harness::text(&output));
    let package = |kind: &str| {
        let mut made = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        made.find(|path| path.extension().is_some_and(|end| end == kind)).expect("a package")
    };
    if is_rpm {
        // The configuration survives an update, and directories go with the package.
        let ask = |what: &[&str]| {
            let mut rpm = Command::new("rpm");
            let asked = rpm.args(["-qp", "--dbpath"]).arg(dir.path().join("none")).args(what);
            harness::text(&asked.arg(package("rpm")).output().unwrap())
        };
        let list = ask(&["-l"]);
        for name in PACKAGED.iter().chain(&["usr/lib64/libdaos.so", "usr/share/doc/azekura"]) {
            assert!(list.lines().any(|line| line == format!("/{name}")), "{name}: {list}");
        }
        assert!(ask(&["-c"]).contains("/etc/azekura/engine.toml"));
        assert!(!list.contains(".build-id"), "{list}");
    }
    if !is_debian {
        return;
    }
    let package = package("deb");
    let root = dir.path().join("root");
    let unpacked = Command::new("dpkg-deb").arg("-x").args([&package, &root]).output().unwrap();
    assert!(unpacked.status.success(), "{}", harness::text(&unpacked));
    for name in PACKAGED {
        assert!(root.join(name).exists(), "{name} is missing");
    }
    let control = Command::new("dpkg-deb").arg("-f").arg(&package).output().unwrap();
    let control = harness::text(&control);
    assert!(
        control.contains("Package: azekura") && control.contains("Depends: libc6"),
        "{control}"
    );
}
