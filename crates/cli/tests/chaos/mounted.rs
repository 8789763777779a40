//! Programs that people run, on a mount: a database, a repository, and those that verify what they wrote. Each is a script that mounts
//! the container for itself, goes on until it is told that it is enough, and checks what it did.

use crate::harness::{all_text, azekura};
use crate::work::{Outcome, POOL, Progress, Work};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The container of the programs.
pub const CONT: &str = "mounted";

/// A program's script: `$D` is its directory on the mount, `$T` one beside it; `enough` is true at the end. Each step says so on a line.
pub struct Program {
    pub name: &'static str,
    script: &'static str,
}

/// What each script begins and ends with.
const FRAME: &str = r#"
    mkdir "$T" "$T/mount"
    failed() {
        tail -n 30 "$T/mount.log" >&2
        # Of each directory: whether a name can be made there, here and by somebody else.
        find "$D" -type d -print | while read -r dir; do
            name=$dir/probe
            touch "$name" && rm "$name" || {
                ls -lid "$dir" || true
                ls -la "$dir" || true
                azk fs stat "azk://$POOL/$CONT/${dir#"$T/mount/"}" || true
                azk fs ls "azk://$POOL/$CONT/${dir#"$T/mount/"}" || true
            } >&2 2>&1
        done
    }
    trap 'test $? = 0 || failed' EXIT
    azk mount "azk://$POOL/$CONT" "$T/mount" --log "$T/mount.log" > "$T/mounted"
    end() { cd /; umount "$T/mount"; }
    enough() { test -e "$STOP"; }
    D=$T/mount/$NAME
    mkdir "$D"
    cd "$D"
"#;

pub const PROGRAMS: [Program; 6] = [
    // Money moves, none is made.
    Program {
        name: "sqlite3",
        script: r#"
            ask() { sqlite3 -bail accounts.db "$@"; }
            ask "create table account (id integer primary key, amount integer not null);
                create table moved (number integer primary key, note text);"
            for id in 0 1 2 3 4 5 6 7; do ask "insert into account values ($id, 100)"; done
            n=0
            until enough; do
                if [ $((n % 40)) = 20 ]; then ask "pragma journal_mode = wal" > "$T/mode"; fi
                if [ $((n % 40)) = 0 ]; then ask "pragma journal_mode = delete" > "$T/mode"; fi
                ask "begin immediate;
                    update account set amount = amount - 7 where id = $((n % 8));
                    update account set amount = amount + 7 where id = $(((n * 5 + 3) % 8));
                    insert into moved values ($n, hex(randomblob(2000)));
                    commit;"
                n=$((n + 1))
                test "$(ask 'select sum(amount) from account')" = 800
                test "$(ask 'select count(*) from moved')" = $n
                test $((n % 10)) != 0 || test "$(ask 'pragma integrity_check')" = ok
                echo step
                sleep 0.1
            done
            test "$(ask 'pragma integrity_check')" = ok
        "#,
    },
    // A second copy beside the mount says what is right.
    Program {
        name: "git",
        script: r#"
            git init -q .
            git init -q --bare "$T/copy"
            n=0
            until enough; do
                n=$((n + 1))
                mkdir -p "dir$((n % 5))"
                head -c $((n * 371 % 60000 + 10)) /dev/urandom > "dir$((n % 5))/file$((n % 7))"
                git add -A
                git commit -q -m "change $n"
                if [ $((n % 10)) = 0 ]; then
                    git push -q "$T/copy" HEAD:main
                    git gc -q
                    git fsck --strict --no-progress
                fi
                echo step
                sleep 0.2
            done
            test "$(git rev-list --count HEAD)" = $n
            git fsck --strict --no-progress
            git push -q "$T/copy" HEAD:main
            git -C "$T/copy" fsck --strict --no-progress
            git clone -q "$T/copy" -b main "$T/out"
            diff -r --exclude=.git . "$T/out"
        "#,
    },
    Program {
        name: "fio",
        script: r#"
            n=0
            until enough; do
                n=$((n + 1))
                fio --name=verified --filename=data --size=4m --rw=randwrite --bsrange=512-128k --randseed=$n \
                    --fsync=16 --verify=crc32c --verify_fatal=1 --output="$T/fio.log" ||
                    { cat "$T/fio.log"; false; }
                echo step
                sleep 0.2
            done
        "#,
    },
    // Any call on one file, memory that is mapped among them, and another copy of what it holds. Both programs of this name take these options.
    Program {
        name: "fsx",
        script: r#"
            n=0
            until enough; do
                n=$((n + 1))
                fsx -N 1000 -S $n -P "$T" data > "$T/fsx.log" 2>&1 ||
                    { tail -n 100 "$T/fsx.log" >&2; false; }
                rm data
                echo step
                sleep 0.2
            done
        "#,
    },
    // The two that clusters are judged by, at their hardest: two processes write and read one file in turns, and each other's part of it; many
    // small files, of which each byte is compared.
    Program {
        name: "ior",
        script: r#"
            n=0
            until enough; do
                n=$((n + 1))
                mpirun --oversubscribe -n 2 ior -w -W -r -R -C -e --warningAsErrors -G $n -t 47008 -b 47008 -s 24 \
                    -o shared > "$T/ior.log" 2>&1 || { cat "$T/ior.log" >&2; false; }
                echo step
                sleep 0.2
            done
        "#,
    },
    Program {
        name: "mdtest",
        script: r#"
            until enough; do
                mpirun --oversubscribe -n 2 mdtest -n 40 -w 3901 -e 3901 -X --warningAsErrors -d tree \
                    > "$T/mdtest.log" 2>&1 || { cat "$T/mdtest.log" >&2; false; }
                test "$(grep -c '^ *File' "$T/mdtest.log")" -ge 4
                echo step
                sleep 0.2
            done
        "#,
    },
];

/// Programs that are here; of the others it is said that they are not.
pub fn programs(work: &Work<'_>) -> Vec<&'static Program> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_here = |name: &str| std::env::split_paths(&paths).any(|dir| dir.join(name).exists());
    if !work.plan.has_programs || !std::path::Path::new("/dev/fuse").exists() {
        return Vec::new();
    }
    let (here, missing): (Vec<_>, Vec<_>) =
        PROGRAMS.iter().partition(|program| is_here(program.name));
    missing.iter().for_each(|program| println!("SKIPPED: no '{}' here", program.name));
    here
}

/// Runs a program until it is enough.
pub fn run(work: &Work<'_>, program: &Program, progress: &Progress) -> Outcome {
    let hosts = work.hosts;
    let mut command = Command::new("bash");
    let script = format!("{FRAME}{}end\n", program.script);
    let azk = format!(
        "azk() {{ {:?} --timeout hard --system '{}' \"$@\"; }}\n",
        azekura().get_program(),
        hosts.system()
    );
    command.args(["-e", "-u", "-o", "pipefail", "-c", &(azk + &script)]);
    let mut inside = hosts.run_at(hosts.client_host(), command);
    let at = hosts.path(&format!("run-{}", program.name));
    inside.env("T", &at).env("HOME", &at).env("LC_ALL", "C").env("NAME", program.name);
    inside.env("POOL", POOL).env("CONT", CONT).env("STOP", hosts.path("stop"));
    inside.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    inside.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for (who, mail) in [("AUTHOR", "a@example.org"), ("COMMITTER", "c@example.org")] {
        inside.env(format!("GIT_{who}_NAME"), who).env(format!("GIT_{who}_EMAIL"), mail);
    }
    let failed = |error: std::io::Error| format!("{}: {error}", program.name);
    let said = tempfile::NamedTempFile::new().map_err(failed)?;
    let errors = said.reopen().map_err(failed)?;
    let mut child = inside.stdout(Stdio::piped()).stderr(errors).spawn().map_err(failed)?;
    let mut last = String::new();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        last = line.map_err(failed)?;
        progress.step();
    }
    match child.wait_with_output().map_err(failed)? {
        output if output.status.success() => Ok(()),
        output => {
            let errors = std::fs::read_to_string(said.path()).unwrap_or_default();
            Err(format!(
                "{}: {}: {last}\n{errors}{}",
                program.name,
                output.status,
                all_text(&output)
            ))
        }
    }
}
