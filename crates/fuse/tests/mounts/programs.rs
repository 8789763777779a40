//! Real programs on a mount, in each cache mode. Scripts check what they did themselves: the first
//! command that fails ends them.

use crate::system::{Mounted, System, can_mount};
use std::process::Stdio;
use std::time::{Duration, Instant};
use types::Durability;

const MODES: [&str; 3] = ["cache=none", "cache=metadata", "cache=full"];
/// A script that runs longer hangs.
const SCRIPT_TIME_MAX: Duration = Duration::from_secs(180);

/// False, said loudly, when a program is not installed.
fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|dir| dir.join(program).exists());
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

/// Runs a script of bash on a mount in each of these modes, in a directory of its own (`$D`), with
/// another of the machine's own file system at `$T`; if these programs are there.
fn on_mounts(programs: &[&str], modes: &[&str], script: &str) {
    if !can_mount() || !programs.iter().all(|program| has(program)) {
        return;
    }
    let system = System::start(Durability::Memory);
    for (index, mode) in modes.iter().enumerate() {
        let mounted = system.mount(mode);
        run(&mounted, mode, &format!("d{index}"), script);
        mounted.unmount();
    }
}

fn run(mounted: &Mounted, mode: &str, dir: &str, script: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = mounted.path(dir);
    std::fs::create_dir(&dir).unwrap();
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut command = std::process::Command::new("bash");
    command.args(["-e", "-u", "-o", "pipefail", "-c", script]).current_dir(&dir);
    command.env("D", &dir).env("T", scratch.path()).env("HOME", scratch.path()).env("LC_ALL", "C");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for (who, mail) in [("AUTHOR", "a@example.org"), ("COMMITTER", "c@example.org")] {
        command.env(format!("GIT_{who}_NAME"), who).env(format!("GIT_{who}_EMAIL"), mail);
    }
    command.stdin(Stdio::null()).stdout(said.reopen().unwrap()).stderr(said.reopen().unwrap());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + SCRIPT_TIME_MAX;
    let told = || std::fs::read_to_string(said.path()).unwrap_or_default();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "with {mode}: {status}\n{}", told());
            return;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("hangs with {mode}:\n{}", told());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn shell_tools_find_what_they_left() {
    on_mounts(
        &[],
        &MODES,
        r#"
        mkdir -p a/b
        echo hello > a/file; test "$(cat a/file)" = hello
        echo more >> a/file; test "$(wc -l < a/file)" = 2
        ln a/file a/b/second; test "$(stat -c %h a/file)" = 2
        ln -s ../file a/b/link; test "$(cat a/b/link)" = $'hello\nmore'
        mv a/file a/b/third; test ! -e a/file
        cmp a/b/second a/b/third
        rm a/b/third; test "$(stat -c %h a/b/second)" = 1
        seq 100000 > numbers; md5sum numbers > sum; md5sum -c sum
        cp -a numbers copy; cmp numbers copy
        truncate -s 1000 copy; test "$(stat -c %s copy)" = 1000
        cmp -n 1000 numbers copy
        truncate -s 5M copy; test "$(stat -c %s copy)" = 5242880
        dd if=/dev/urandom of=random bs=1M count=3 2>/dev/null
        dd if=random of=direct bs=256k oflag=direct 2>/dev/null; cmp random direct
        chmod 640 numbers; test "$(stat -c %a numbers)" = 640
        touch -d '2001-02-03 04:05:06.123456789' numbers
        test "$(stat -c %y numbers | cut -c1-29)" = '2001-02-03 04:05:06.123456789'
        mkfifo pipe; test -p pipe
        test "$(find . -type f | wc -l)" = 6
        cd /; rm -r $D; test ! -e $D
        "#,
    );
}

/// A tree of all kinds of things: sizes, modes, owners, times, links, holes, attributes.
const TREE: &str = r#"
    make_tree() {
        mkdir -p $1/{a,b,c}/{d,e}; for i in $(seq 60); do seq $i $((i * 70)) > $1/a/d/f$i; done
        for i in $(seq 40); do echo $i > $1/b/e/small$i; done; head -c 3000000 /dev/urandom > $1/c/big; : > $1/c/empty
        ln $1/a/d/f1 $1/b/hard; ln -s ../a/d/f2 $1/b/soft; ln -s nowhere $1/b/dangling; mkfifo $1/c/pipe
        chmod 600 $1/a/d/f3; chmod 4755 $1/a/d/f4; chmod 1777 $1/c; chown 12:34 $1/a/d/f5 2>/dev/null || true
        touch -d '2001-02-03 04:05:06.123456789' $1/a/d/f6 $1/a/e; touch -h -d '2002-02-02 02:02:02' $1/b/soft
        truncate -s 2M $1/c/sparse; echo middle | dd of=$1/c/sparse bs=1 seek=1000000 conv=notrunc 2>/dev/null
    }
    told() { (cd $1; find . ! -type d -printf '%p %y %m %U:%G %T@ %l %n\n' | sort; find . -type d -printf '%p %m %T@\n' | sort; find . -type f -print0 | sort -z | xargs -0 md5sum); }
"#;

#[test]
fn tar_cp_and_find_keep_a_tree() {
    on_mounts(
        &["tar"],
        &MODES,
        &format!(
            r#"{TREE}
            make_tree $T/tree; told $T/tree > $T/want
            tar cf $T/t.tar --format=posix -C $T tree; tar xpf $T/t.tar; told tree | diff $T/want -
            tar cSf $D/back.tar --format=posix tree; mkdir $T/back; tar xpf $D/back.tar -C $T/back; told $T/back/tree | diff $T/want -
            tar df $D/back.tar
            cp -a tree copy; told copy | diff $T/want -; cp -a copy $T/copy; told $T/copy | diff $T/want -
            test "$(stat -c %i copy/a/d/f1)" = "$(stat -c %i copy/b/hard)"
            test "$(find tree -type f -size +2000k | sort | tr '\n' ' ')" = "tree/c/big tree/c/sparse "
            test "$(find tree -name 'small*' -newermt 2001-01-01 | wc -l)" = 40; test "$(find tree -links 2 -type f | wc -l)" = 2
            find tree -name 'small*' -delete; test "$(find tree -path '*/e/*' | wc -l)" = 0; find tree -perm -4000 | grep -q f4
            "#
        ),
    );
}

#[test]
fn rsync_keeps_a_tree_and_its_attributes() {
    on_mounts(
        &["rsync", "python3"],
        &MODES[1..],
        &format!(
            r#"{TREE}
            make_tree $T/tree; make_tree plain
            cat > $T/acl.py <<'EOF'
import os, struct, sys
acl = lambda *entries: struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in entries)
none = 0xffffffff
if sys.argv[1] == 'set':
    os.setxattr('plain/a/d/f1', 'user.colour', b'blue')
    for path in 'plain/a/d/f2', 'plain/a':
        os.setxattr(path, 'system.posix_acl_access', acl((1, 6, none), (2, 4, 77), (4, 4, none), (8, 6, 88), (16, 6, none), (32, 0, none)))
for where, dirs, files in os.walk(sys.argv[2]):
    for path in sorted(os.path.join(where, name) for name in dirs + files):
        names = sorted(os.listxattr(path, follow_symlinks=False))
        print(os.path.relpath(path, sys.argv[2]), [(name, os.getxattr(path, name, follow_symlinks=False)) for name in names])
EOF
            attributes() {{ python3 $T/acl.py get $1 | sort; }}
            python3 $T/acl.py set plain > $T/first; test "$(grep -c colour $T/first)" = 2; test "$(grep -c posix_acl $T/first)" = 2
            rsync -@-1 -aHAX $T/tree/ in/; told $T/tree > $T/want; told in | diff $T/want -
            rsync -@-1 -aHAX plain/ copy/; diff <(told plain) <(told copy); diff <(attributes plain) <(attributes copy)
            echo more >> plain/a/d/f7; rm plain/b/e/small1; rsync -@-1 -aHAXi --delete plain/ copy/ > $T/log; diff <(told plain) <(told copy)
            test "$(grep -c '^>f' $T/log)" = 1; grep -q 'deleting *b/e/small1' $T/log; rsync -@-1 -aHAXic plain/ copy/ | (! grep .)
            "#
        ),
    );
}

/// ACLs of a shared directory, tried as users who are named in them and users who are not.
const ACLS: &str = r#"
cat > $T/acl.py <<'EOF'
import os, stat, struct, sys
none, access, default = 0xffffffff, 'system.posix_acl_access', 'system.posix_acl_default'
def acl(*entries):
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in entries)
def read(path, name=access):
    raw = os.getxattr(path, name)
    return [struct.unpack_from('<HHI', raw, at) for at in range(4, len(raw), 8)]
def as_user(uid, gid, what):
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([]); os.setgid(gid); os.setuid(uid); os.umask(0o077)
            what()
            os._exit(0)
        except PermissionError:
            os._exit(13)
        except BaseException as error:
            print(error, flush=True)
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def want(what, is_so):
    assert is_so, what
mode = lambda path: stat.S_IMODE(os.stat(path).st_mode)
touch = lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
entries = (1, 7, none), (2, 7, 77), (4, 0, none), (8, 5, 88), (16, 7, none), (32, 0, none)
os.mkdir('team')
for name in access, default:
    os.setxattr('team', name, acl(*entries))
try:
    os.setxattr('team', default, acl((1, 7, none)))
    raise SystemExit('a default ACL without group and others')
except OSError as error:
    want(error, error.errno == 22)
want('the mask is the group bits', mode('team') == 0o770)
# As `tar x --acls` does with what had none.
os.mkdir('bare')
for name in access, default:
    os.removexattr('bare', name)
if sys.argv[1] == 'evaluated':
    want('a named user makes a file', as_user(77, 7, lambda: touch('team/f')) == 0)
    want('and a directory', as_user(77, 7, lambda: os.mkdir('team/sub')) == 0)
    want('others do not', as_user(99, 9, lambda: touch('team/g')) == 13)
    want('nor a named group without write', as_user(99, 88, lambda: touch('team/g')) == 13)
    want('the umask is left out', mode('team/f') == 0o660 and mode('team/sub') == 0o770)
    want(read('team/f'), read('team/f') == [(1, 6, none), *entries[1:4], (16, 6, none), (32, 0, none)])
    want(read('team/sub'), read('team/sub', default) == list(entries) == read('team/sub'))
    look = lambda uid, gid: as_user(uid, gid, lambda: open('team/f').read())
    change = lambda uid, gid: as_user(uid, gid, lambda: open('team/f', 'a').write('x'))
    want('a named group reads', look(99, 88) == 0 and change(99, 88) == 13)
    want('others do not', look(99, 9) == 13)
    want('deeper down', as_user(77, 7, lambda: os.mkdir('team/sub/deep')) == 0)
    want(read('team/sub/deep', default), read('team/sub/deep', default) == list(entries))
    os.chmod('team/f', 0o600)
    want(read('team/f'), (16, 0, none) in read('team/f') and look(99, 88) == 13)
    os.chmod('team/f', 0o640)
    want(read('team/f'), (16, 4, none) in read('team/f') and look(99, 88) == 0)
    os.rename('team/f', 'team/sub/moved')
    want('it moves along', (8, 5, 88) in read('team/sub/moved'))
    nameless = os.open('team', os.O_TMPFILE | os.O_RDWR, 0o666)
    want('bits alone grant what the owning group has', stat.S_IMODE(os.fstat(nameless).st_mode) == 0o600)
else:
    os.umask(0o022)
    touch('team/f')
    want('it is inherited, too', mode('team/f') == 0o640 and (16, 4, none) in read('team/f'))
os.removexattr('team', default)
touch('team/plain')
want('and not any more', os.listxattr('team/plain') == [])
EOF
"#;

#[test]
fn acls_are_inherited_and_evaluated() {
    let evaluated = ["cache=none,acl", "cache=metadata,acl", "cache=full,acl"];
    on_mounts(&["python3"], &evaluated, &format!("{ACLS}python3 $T/acl.py evaluated"));
    on_mounts(&["python3"], &MODES[..1], &format!("{ACLS}python3 $T/acl.py kept"));
}

#[test]
fn git_keeps_repositories() {
    on_mounts(
        &["git"],
        &MODES,
        r#"
        git -c init.defaultBranch=main init -q $T/origin; cd $T/origin
        for i in $(seq 60); do mkdir -p d$((i % 7)); seq $i $((i * 30)) > d$((i % 7))/f$i; done; ln -s d1/f1 link; printf '#!/bin/sh\n' > run; chmod 755 run
        git add .; git commit -qm one; for i in 1 2 3; do echo $i >> d$i/f$i; git commit -qam "change $i"; done
        cd $D; git clone -q file://$T/origin far; git clone -q --no-hardlinks $T/origin near; git clone -q near linked
        for r in far near linked; do (cd $r; git fsck --full --strict; test -z "$(git status --short)"; test "$(git log --oneline | wc -l)" = 4); done
        cd far; git checkout -q -b work; echo x >> d2/f2; git mv d3/f3 d3/g3; git rm -q d4/f4; git commit -qam work
        git checkout -q main; echo y > new; git add new; git commit -qm new; git merge -q -m merge work; git stash list; git tag -a -m t t1
        git gc -q --prune=now; git fsck --full --strict; git repack -qad; git verify-pack .git/objects/pack/*.idx; git worktree add -q ../tree work
        (cd ../tree; git status --short | (! grep .)); git push -q $T/origin main:pushed; git -C $T/origin fsck --full
        diff <(git ls-tree -r main) <(git -C $T/origin ls-tree -r pushed)
        "#,
    );
}

#[test]
fn sqlite_keeps_databases_with_rollback_and_with_a_log() {
    on_mounts(
        &["sqlite3"],
        &MODES,
        r#"
        for mode in delete wal; do
            db=$mode.db; q() { sqlite3 -bail -cmd '.timeout 60000' $db "$@"; }
            test "$(q "pragma journal_mode=$mode")" = $mode
            q 'create table t(a integer primary key, b text, who int); create index i on t(b);'
            q 'with recursive n(i) as (select 1 union all select i+1 from n where i<3000) insert into t(b, who) select hex(i * 7919), 0 from n;'
            for w in 1 2 3; do (for i in $(seq 15); do q "insert into t(b, who) values(hex($i), $w);"; done) & done
            for i in $(seq 10); do test "$(q 'select count(*) from t where who = 0')" = 3000; done
            wait
            test "$(q 'select count(*), count(distinct who) from t')" = '3045|4'
            q 'begin; delete from t; rollback; delete from t where a % 3 = 0; vacuum;'
            test "$(q 'pragma integrity_check; pragma foreign_key_check;')" = ok
            test "$(q 'select count(*) from t')" = 2030
            # A writer that is killed in the middle of a transaction leaves what was before.
            rm -f $T/in; mkfifo $T/in; sqlite3 $db < $T/in > /dev/null & writer=$!
            exec 8> $T/in; printf 'begin immediate;\ndelete from t;\n.shell touch %s\n' $T/reached.$mode >&8
            for i in $(seq 600); do test -e $T/reached.$mode && break; sleep 0.05; done
            kill -9 $writer; wait $writer 2>/dev/null || true; exec 8>&-
            for i in $(seq 600); do q 'begin immediate; rollback' 2>/dev/null && break; sleep 0.1; done
            test "$(q 'select count(*) from t; pragma integrity_check')" = $'2030\nok'
        done
        "#,
    );
}

#[test]
fn python_makes_an_environment_and_installs_into_it() {
    on_mounts(
        &["python3"],
        &MODES[1..2],
        r#"
        python3 -c 'import venv, ensurepip' || { echo 'SKIPPED: this Python has no venv'; exit 0; }
        mkdir wheels; cat > $T/make.py <<'EOF'
import zipfile, sys
name = 'wheels/answer-1.0-py3-none-any.whl'
info = 'answer-1.0.dist-info/'
files = {'answer/__init__.py': 'def answer():\n    return 42\n', info + 'METADATA': 'Metadata-Version: 2.1\nName: answer\nVersion: 1.0\n',
         info + 'WHEEL': 'Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
         info + 'entry_points.txt': '[console_scripts]\nanswer = answer:main\n'}
files['answer/__init__.py'] += 'def main():\n    print("answer", answer())\n'
with zipfile.ZipFile(name, 'w') as wheel:
    for path, text in files.items():
        wheel.writestr(path, text)
    wheel.writestr(info + 'RECORD', ''.join(f'{path},,\n' for path in [*files, info + 'RECORD']))
EOF
        python3 $T/make.py; python3 -m venv env; . env/bin/activate
        pip install -q --disable-pip-version-check --no-index --find-links wheels answer
        test "$(python -c 'import answer; print(answer.answer(), answer.__file__)')" = "42 $(echo $D/env/lib/python3*/site-packages/answer/__init__.py)"
        test "$(answer)" = 'answer 42'; test -e env/lib/python3*/site-packages/answer/__pycache__; pip check -q --disable-pip-version-check
        pip uninstall -q -y answer; test ! -e env/lib/python3*/site-packages/answer
        "#,
    );
}

#[test]
fn make_builds_with_several_jobs() {
    on_mounts(
        &["make", "gcc", "ar"],
        &MODES,
        r#"
        for i in $(seq 24); do printf '#include "all.h"\nint f%d(int x) { return x + %d; }\n' $i $i > f$i.c; echo "int f$i(int);"; done > all.h
        { echo '#include <stdio.h>'; echo '#include "all.h"'; echo 'int main(void) { int x = 0;'; for i in $(seq 24); do echo "x = f$i(x);"; done; echo 'printf("%d\n", x); return 0; }'; } > main.c
        printf 'OBJS := $(patsubst %%.c,%%.o,$(filter-out main.c,$(wildcard *.c)))\nprog: main.o lib.a\n\tgcc -g -o $@ $^\nlib.a: $(OBJS)\n\trm -f $@; ar rcs $@ $^\n%%.o: %%.c all.h\n\tgcc -g -O1 -Wall -MMD -c -o $@ $<\n' > Makefile
        make -s -j4; test "$(./prog)" = 300; make -q prog; sleep 0.02; touch f3.c; make -j4 | grep -c 'gcc.*f3.c'; test "$(./prog)" = 300
        gcc -shared -fPIC -o libf.so f1.c; gcc -o dynamic -x c - -x none ./libf.so <<< 'int f1(int); int main(void) { return f1(41) != 42; }'; ./dynamic
        "#,
    );
}

#[test]
fn editors_save_by_renaming() {
    on_mounts(
        &["vim"],
        &MODES,
        r#"
        seq 100 > file; chmod 640 file; ln file other; exec 7< file
        vim -es -u NONE -N -c 'set backup backupskip= backupcopy=no writebackup' -c '%s/^5$/five/' -c 'wq' file
        test "$(sed -n 5p file)" = five; test "$(stat -c %a file)" = 640; test "$(sed -n 5p file~)" = 5; test "$(sed -n 5p <&7)" = 5; test "$(sed -n 5p other)" = 5
        vim -es -u NONE -N -c 'set backupcopy=yes nobackup' -c '%s/^6$/six/' -c 'wq' other; test "$(sed -n 6p other)" = six; test "$(sed -n 6p file~)" = six
        ls -A | (! grep '\.sw'); echo new > .file.tmp; chmod --reference=file .file.tmp; sync .file.tmp; mv -f .file.tmp file; test "$(cat file)" = new
        sed -i s/new/newer/ file; test "$(cat file)" = newer
        "#,
    );
}

#[test]
fn two_processes_append_to_one_log() {
    on_mounts(
        &[],
        &MODES,
        r#"
        for who in one two; do (for i in $(seq 400); do echo "$who $i $(printf %0$((i % 50))d 0)" >> log; done) & done
        (exec 9>> log; for i in $(seq 400); do echo "three $i $(printf %0$((i % 90))d 0)" >&9; done) &
        wait; test "$(wc -l < log)" = 1200
        for who in one two three; do test "$(grep "^$who " log | cut -d' ' -f2)" = "$(seq 400)"; done
        test "$(grep -Evc '^(one|two|three) [0-9]+ 0+$' log)" = 0
        "#,
    );
}

/// Data that were written are read back and compared, block by block.
#[test]
fn fio_verifies_what_it_wrote() {
    let fio = std::env::var("AZEKURA_FIO").unwrap_or_else(|_| "fio".into());
    let found = if fio.contains('/') { std::path::Path::new(&fio).exists() } else { has(&fio) };
    if !found {
        eprintln!("SKIPPED: no fio; AZEKURA_FIO may say where it is");
        return;
    }
    on_mounts(
        &[],
        &MODES,
        &format!(
            r#"
            go() {{ {fio} --name=t --size=8m --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --group_reporting --output=$T/out "$@" || {{ cat $T/out; exit 1; }}; rm -f t.*; }}
            go --ioengine=psync --rw=randwrite --bs=4k --size=2m; go --ioengine=psync --rw=write --bs=1m --numjobs=2 --fsync=4
            go --ioengine=psync --rw=randrw --bs=3k --size=1m
            if {fio} --enghelp | grep -qw libaio; then go --ioengine=libaio --iodepth=16 --direct=1 --rw=randwrite --bs=16k; else echo 'SKIPPED: fio has no libaio'; fi
            go --ioengine=mmap --rw=randwrite --bs=4k --size=2m; go --ioengine=mmap --rw=write --bs=64k --fsync=16
            "#
        ),
    );
}
