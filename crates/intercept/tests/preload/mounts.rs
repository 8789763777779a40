//! Below a mount: calls are taken, and what the library cannot do the kernel does there.

use crate::harness::{Mounted, Place, c_program};
use preload::harness::has;
use std::process::Command;

/// A place on a mount, and programs that know of it by the mount only.
struct OnMount {
    place: Place,
    mounted: Mounted,
}

impl OnMount {
    fn new(name: &str, options: &str) -> Option<OnMount> {
        let place = Place::new(name);
        Mounted::new(options).map(|mounted| OnMount { place, mounted })
    }

    /// The directory of the place, on the mount.
    fn dir(&self) -> String {
        let name = self.place.azk.rsplit('/').next().unwrap();
        self.mounted.dir().join(name).display().to_string()
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.place.command(program);
        command.env_remove("AZEKURA_INTERCEPT").env("D", self.dir());
        command
    }

    fn bash(&self, script: &str) -> String {
        let mut command = self.command("bash");
        self.place.run(command.args(["-e", "-u", "-o", "pipefail", "-c", script]))
    }
}

#[test]
fn mappings_and_pipes_go_to_the_mount() {
    for options in ["cache=none", "cache=metadata"] {
        let Some(on) = OnMount::new(&format!("mapped-{}", &options[6..]), options) else { return };
        let log = on.place.dir().join("log");
        let mut command = on.command(c_program("mounted"));
        command.arg(on.dir()).arg(on.place.dir()).env("AZEKURA_INTERCEPT_SUMMARY", "1");
        command.env("AZEKURA_INTERCEPT_LOG", format!("info:{}", log.display()));
        on.place.run(&mut command);
        let told = std::fs::read_to_string(log).unwrap();
        let summary = told.lines().last().unwrap();
        // The mount did what it had to, and no more.
        let parts = ["open 4 (1 done by the mount)", "write 3,", "mmap 1 (3 done by the mount)"];
        assert!(parts.iter().all(|part| summary.contains(part)), "{told}");
    }
}

#[test]
fn programs_and_directories_on_the_mount_are_the_kernels() {
    let Some(on) = OnMount::new("on-mount", "") else { return };
    let said = on.place.run(
        on.command("bash").env("P", c_program("hello")).args([
            "-e",
            "-c",
            "cp $P $D/hello; $D/hello a; cd $D; ./hello b; mkdir d; cd d; pwd | grep -c $D/d; echo text > ../f
            cat ../f; cp ../hello .; env -u LD_PRELOAD ../hello c; env -u LD_PRELOAD cat ../f; cd ..
            env -u LD_PRELOAD sh -c 'echo more >> f'; cat f; env -u LD_PRELOAD mv f g; cat g",
        ]),
    );
    assert_eq!(said, "hello a\nhello b\n1\ntext\nhello c\ntext\ntext\nmore\ntext\nmore\n");
}

#[test]
fn a_static_program_and_a_shared_library_work_on_the_mount() {
    let Some(on) = OnMount::new("static", "cache=none") else { return };
    if !has("cc") {
        return;
    }
    let said = on.bash(
        r#"
        cat > $T/s.c <<'EOF'
#include <stdio.h>
int main(int argc, char **argv) { char t[99]; FILE *f = fopen(argv[1], argc > 2 ? "w" : "r"); if (!f) return 1;
  if (argc > 2) return fputs(argv[2], f) < 0 || fclose(f); puts(fgets(t, 99, f)); return 0; }
EOF
        cat > $T/d.c <<'EOF'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) { void *l = dlopen(argv[1], RTLD_NOW); if (!l) { puts(dlerror()); return 1; }
  (void)argc; printf("%d\n", ((int (*)(void))dlsym(l, "answer"))()); return 0; }
EOF
        echo 'int answer(void) { return 42; }' > $D/l.c; cc -shared -fPIC -o $D/l.so $D/l.c; cc -o $T/d $T/d.c -ldl; $T/d $D/l.so
        echo -n taken > $D/f
        if cc -static -o $T/s $T/s.c 2> /dev/null; then $T/s $D/f; $T/s $D/g untouched; cat $D/g; else echo taken; echo -n untouched; fi
        "#,
    );
    assert_eq!(said, "42\ntaken\nuntouched");
}

/// Where nothing may be changed the kernel does all: a snapshot is shown there, perhaps.
#[test]
fn a_mount_that_is_read_only_is_left_alone() {
    let Some(on) = OnMount::new("read-only", "ro") else { return };
    let said =
        on.bash("ls -d $D; mkdir $D/d 2> $T/why && exit 1; grep -o 'Read-only file system' $T/why");
    assert_eq!(said, format!("{}\nRead-only file system\n", on.dir()));
    let mut command = on.command("ls");
    command.arg(on.dir()).env("AZEKURA_INTERCEPT_SUMMARY", "1");
    let output = crate::harness::finish(&mut command);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("directory"), "{told}");
}

/// Processes share the index of a log in memory that the mount maps for them, and read and write
/// the rest through the library.
#[test]
fn sqlite_keeps_a_database_with_a_log_on_the_mount() {
    let Some(on) = OnMount::new("wal", "") else { return };
    if !has("sqlite3") {
        return;
    }
    let said = on.bash(
        r#"
        cd $D; q() { sqlite3 -bail -cmd '.timeout 60000' db "$@"; }; q 'pragma journal_mode=wal; create table t(a integer primary key, b text);'
        q 'with recursive n(i) as (select 1 union all select i+1 from n where i<2000) insert into t(b) select hex(i) from n;'
        for w in 1 2 3; do (for i in $(seq 10); do q "insert into t(b) values('w$w');"; done) & done; wait
        q "select count(*), count(distinct b) from t where b like 'w_'; pragma integrity_check; pragma wal_checkpoint(truncate);"
        env -u LD_PRELOAD sqlite3 db 'select count(*) from t; pragma integrity_check'; ls
        "#,
    );
    assert_eq!(said, "wal\n30|3\nok\n0|0|0\n2030\nok\ndb\n");
}
