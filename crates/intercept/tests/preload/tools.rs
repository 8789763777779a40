//! Real programs.

use crate::harness::Place;
use preload::harness::has;

#[test]
fn coreutils_and_findutils() {
    Place::new("coreutils").compare(
        r#"
        mkdir -p a/b/c; head -c 3000000 /dev/zero | tr '\0' x > a/big; echo s > a/b/s; ln a/b/s a/b/hard; ln -s s a/b/sym
        chmod 640 a/b/s; touch -d '2001-02-03 04:05:06.789012345' a/b/s
        cp -a a copy; diff -r a copy; stat -c '%n %F %s %a %h' copy copy/big copy/b/s copy/b/sym | sed 's/directory .*/directory/'
        stat -c %y copy/b/s; [ copy/b/s -ef copy/b/hard ] && echo hard
        dd if=a/big of=part bs=1000 skip=5 count=7 2>/dev/null; wc -c < part
        dd if=/dev/zero of=sparse bs=1 count=1 seek=5000000 2>/dev/null; stat -c %s sparse
        dd if=part of=sparse conv=notrunc bs=100 seek=3 2>/dev/null; md5sum sparse
        split -b 1000000 a/big piece.; ls piece.*; cat piece.* | cmp - a/big
        sort -r a/b/s > sorted; sort -o sorted sorted a/b/s; cat sorted; tac sorted; rev sorted; nl sorted
        find . -type f -size +1000k | sort; find a -newer a/b/s | sort; find . -name 's*' -print0 | sort -z | xargs -0 ls -d
        sed -i 's/s/t/' a/b/s; cat a/b/s; install -m 600 a/b/s i; stat -c %a i; y=$(mktemp -p . x.XXXXXX); echo ${#y}; rm $y
        touch stamp; truncate -s 10 stamp; stat -c %s stamp; shred -n 1 -u stamp; ls stamp 2>/dev/null || echo shredded
        grep -r t a/b | sort; cmp a/b/s copy/b/s || echo differ; tail -c 3 i; head -n 1 i; realpath a/b/sym | sed 's|.*/w/||'
        du -s --apparent-size part | cut -f1; rm -rf a copy piece.*; ls
        chmod 000 i; test -e i && echo there; chmod 600 i; setfattr -n user.x -v y i 2>/dev/null || true
        "#,
    );
}

#[test]
fn tar_keeps_what_it_is_given() {
    Place::new("tar").compare(
        r#"
        mkdir -p t/u; for i in $(seq 40); do echo $i > t/f$i; done; ln -s f1 t/l; ln t/f2 t/u/h; head -c 200000 /dev/zero > t/z
        tar cf t.tar t; mkdir out; tar xf t.tar -C out; diff -r t out/t; tar tf t.tar | sort; tar cSzf s.tgz t; mkdir o2; tar xzf s.tgz -C o2
        diff -r t o2/t; find o2 | wc -l; [ o2/t/f2 -ef o2/t/u/h ] && echo hard; tar df t.tar && echo equal
        tar cf - t | (mkdir o3; cd o3; tar xf -); diff -r t o3/t && echo piped
        "#,
    );
}

#[test]
fn rsync_and_checksums() {
    if has("rsync") {
        Place::new("rsync").compare(
            r#"
            mkdir -p s/d; for i in 1 2 3; do head -c ${i}00000 /dev/zero | tr '\0' $i > s/f$i; done; ln -s f1 s/l; ln s/f2 s/d/h
            rsync -aHX s/ r/; diff -r s r; [ r/f2 -ef r/d/h ] && echo hard; echo more >> s/f1
            rsync -ac --inplace s/ r/; cmp s/f1 r/f1; rm s/f3; rsync -a --delete s/ r/; ls r
            "#,
        );
    }
}

#[test]
fn git_keeps_a_repository() {
    if has("git") {
        Place::new("git").compare(
            r#"
            export GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z'
            export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e
            git -c init.defaultBranch=main init -q r; cd r
            for i in $(seq 30); do mkdir -p d$((i % 5)); echo "file $i" > d$((i % 5))/f$i; done
            git add .; git commit -qm one; git rev-parse HEAD; git checkout -q -b b; echo x >> d1/f1; git commit -qam two
            git checkout -q main; echo y >> d2/f2; git commit -qam three; git merge -q -m four b; git log --format=%s | sort
            git status --short; git mv d3/f3 d3/g3; git rm -q d4/f4; git commit -qm five; git rev-parse HEAD^{tree}
            git gc -q; git fsck --full; cd ..; git clone -q r c; cd c; git log --oneline | wc -l; git diff HEAD~1 --stat | tail -1; git stash list
            "#,
        );
    }
}

#[test]
fn python_reads_writes_and_walks() {
    if has("python3") {
        Place::new("python").compare(
            r#"
            cat > p.py <<'EOF'
import os, shutil, subprocess, sys, tempfile, json, glob, stat, io
os.makedirs('a/b')
with open('a/t', 'w') as f:
    for i in range(1000): f.write(f'line {i}\n')
print(sum(1 for _ in open('a/t')), os.path.getsize('a/t'))
with open('a/b/bin', 'wb+') as f:
    f.write(bytes(range(256)) * 5000); f.seek(-256, 2); print(len(f.read())); f.seek(5); print(f.read(3))
print([(d, sorted(x), sorted(y)) for d, x, y in os.walk('.')])
print(sorted(e.name for e in os.scandir('a') if e.is_file()))
shutil.copytree('a', 'c'); print(sorted(os.listdir('c'))); shutil.move('c', 'e'); shutil.rmtree('e/b')
print(subprocess.run(['cat', 'a/t'], capture_output=True).stdout[-9:], subprocess.check_output('wc -l < a/t', shell=True))
with open('sub', 'w') as f: subprocess.run(['echo', 'from child'], stdout=f)
print(open('sub').read(), subprocess.run([sys.executable, '-c', 'import os; print(os.listdir("e"))'], cwd='.', capture_output=True, text=True).stdout)
with tempfile.NamedTemporaryFile(dir='.') as f: f.write(b'x'); f.flush(); print(os.stat(f.name).st_size)
with tempfile.TemporaryDirectory(dir='.') as d: print(os.path.isdir(d))
with tempfile.TemporaryFile(dir='.') as f: f.write(b'gone'); f.seek(0); print(f.read(), os.fstat(f.fileno()).st_nlink)
os.rename('sub', 'sub2'); os.symlink('sub2', 'l'); print(os.readlink('l'), os.path.realpath('l')[-4:], os.path.lexists('sub'))
fd = os.open('a/t', os.O_RDWR); print(os.pread(fd, 6, 7), os.lseek(fd, 0, os.SEEK_END)); os.ftruncate(fd, 10); print(os.fstat(fd).st_size); os.close(fd)
try: os.mkdir('a')
except FileExistsError as e: print(e.errno)
json.dump({'k': list(range(10))}, open('j', 'w')); print(json.load(open('j')))
print(sorted(glob.glob('**/*', recursive=True)))
import mmap
with open('j', 'rb') as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m: print(m[:5], len(m))
os.utime('j', ns=(1, 2)); print(os.stat('j').st_mtime_ns); os.chmod('j', 0o600); print(oct(os.stat('j').st_mode))
pid = os.fork()
if pid == 0:
    open('child', 'w').write('child'); os._exit(0)
os.waitpid(pid, 0); print(open('child').read())
d = os.open('a', os.O_RDONLY); print(sorted(os.listdir(d))); print(os.stat('t', dir_fd=d).st_size); os.fchdir(d); print(os.listdir('.') == os.listdir(d), os.getcwd()[-2:])
EOF
            python3 p.py; cat > m.py <<'EOF'
def f(): return 42
EOF
            python3 -c 'import m; print(m.f())'; ls __pycache__ | wc -l
            "#,
        );
    }
}

#[test]
fn make_builds_a_program() {
    if has("make") && has("gcc") {
        Place::new("make").compare(
            r#"
            for i in 1 2 3 4; do echo "int f$i(void) { return $i; }" > f$i.c; done
            cat > main.c <<'EOF'
#include <stdio.h>
#include "all.h"
int main(void) { printf("%d\n", f1() + f2() + f3() + f4()); return 0; }
EOF
            for i in 1 2 3 4; do echo "int f$i(void);"; done > all.h
            printf 'OBJS = f1.o f2.o f3.o f4.o main.o\nprog: $(OBJS)\n\tgcc -o $@ $^\n%%.o: %%.c all.h\n\tgcc -O1 -c -o $@ $<\nlib.a: $(OBJS)\n\tar rcs $@ $^\nclean:\n\trm -f *.o prog\n' > Makefile
            make -s -j2; make -s prog; make -s lib.a; ar t lib.a; ls *.o; ./prog; cp prog "$T/prog-made"; "$T/prog-made"; make -s clean; ls
            "#,
        );
    }
}

#[test]
fn editors_save_by_renaming() {
    Place::new("save").compare(
        r#"
        echo old > f; chmod 640 f; exec 7< f; echo new > .f.tmp; chmod --reference=f .f.tmp; mv -f .f.tmp f; cat f; cat <&7; stat -c %a f
        ln f f~; echo newer > f2; mv f2 f; cat f f~; ls -A
        "#,
    );
}

#[test]
fn sqlite_keeps_a_database() {
    if has("sqlite3") {
        Place::new("sqlite").compare(
            r#"
            q() { sqlite3 db "$@"; }
            q 'create table t(a integer primary key, b text);'
            q "with recursive n(i) as (select 1 union all select i+1 from n where i<2000) insert into t select i, hex(i) from n;"
            q 'select count(*), sum(length(b)) from t;'; q 'begin; delete from t where a % 3 = 0; rollback; select count(*) from t;'
            q 'delete from t where a % 2; vacuum; pragma integrity_check; select count(*) from t;'
            for i in 1 2 3; do (sqlite3 -cmd '.timeout 60000' db "insert into t(b) values('p$i');") & done; wait; q 'select count(*) from t;'
            ls
            "#,
        );
    }
}

/// A log needs memory that processes share, which without a mount is not to be had; one process
/// alone does without it.
#[test]
fn sqlite_keeps_a_database_with_a_log() {
    if has("sqlite3") {
        Place::new("sqlite-log").compare(
            r#"
            q() { sqlite3 -cmd 'pragma locking_mode=exclusive' db "$@" | tail -n +2; }
            q 'pragma journal_mode=wal; create table t(a integer primary key, b text);'
            q "with recursive n(i) as (select 1 union all select i+1 from n where i<2000) insert into t select i, hex(i) from n; select count(*) from t;"
            q 'begin; delete from t where a % 3 = 0; rollback; delete from t where a % 2; pragma wal_checkpoint(truncate); pragma integrity_check; select count(*) from t;'
            ls
            "#,
        );
    }
}

#[test]
fn python_makes_an_environment_and_installs_into_it() {
    if has("python3") {
        Place::new("venv").compare(
            r#"
            mkdir wheels; cat > m.py <<'EOF'
import zipfile
info = 'answer-1.0.dist-info/'
files = {'answer.py': 'def main():\n    print("answer", 42)\n', info + 'METADATA': 'Metadata-Version: 2.1\nName: answer\nVersion: 1.0\n',
         info + 'WHEEL': 'Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
         info + 'entry_points.txt': '[console_scripts]\nanswer = answer:main\n'}
with zipfile.ZipFile('wheels/answer-1.0-py3-none-any.whl', 'w') as wheel:
    for path, text in files.items():
        wheel.writestr(path, text)
    wheel.writestr(info + 'RECORD', ''.join(f'{path},,\n' for path in [*files, info + 'RECORD']))
EOF
            python3 m.py; python3 -m venv --without-pip --system-site-packages env; . env/bin/activate
            python -c 'import pip' 2> /dev/null || { echo no pip; exit 0; }
            python -m pip install -q --disable-pip-version-check --no-index --find-links wheels answer
            python -c 'import answer; answer.main()'; answer; ls env/lib/python3*/site-packages
            python -m pip uninstall -q -y --disable-pip-version-check answer; ls env/bin | grep -c answer || true; find env -name "answer*"
            "#,
        );
    }
}

#[test]
fn vim_saves() {
    if has("vim") {
        Place::new("vim").compare(
            r#"
            seq 100 > file; chmod 640 file; exec 7< file
            vim -es -u NONE -N -c 'set backup backupskip= backupcopy=no writebackup' -c '%s/^5$/five/' -c 'wq' file
            sed -n 5p file; stat -c %a file; sed -n 5p file~; sed -n 5p <&7; ls -A
            vim -es -u NONE -N -c 'set backupcopy=yes nobackup' -c '%s/^6$/six/' -c 'wq' file; md5sum < file; ls -A
            "#,
        );
    }
}

#[test]
fn two_processes_append_to_one_log() {
    Place::new("appenders").compare(
        r#"
        for who in one two; do (for i in $(seq 300); do echo "$who $i $(printf %0$((i % 50))d 0)" >> log; done) & done
        (exec 9>> log; for i in $(seq 300); do echo "three $i $(printf %0$((i % 90))d 0)" >&9; done) &
        wait; wc -l < log; sort log | md5sum; for who in one two three; do grep "^$who " log | md5sum; done
        "#,
    );
}

/// The file system's own part of a tool that checks it: what was written is read back.
#[test]
fn fio_verifies_what_it_wrote() {
    let fio = std::env::var("AZEKURA_FIO").unwrap_or_else(|_| "fio".into());
    if !std::path::Path::new(&fio).exists() && !has(&fio) {
        return;
    }
    Place::new("fio").compare(&format!(
        r#"
        go() {{ {fio} --name=t --size=8m --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --thread=0 --output=$T/out "$@" || {{ cat $T/out; exit 1; }}; rm -f t.*; }}
        go --ioengine=psync --rw=randwrite --bs=4k --size=2m; go --ioengine=psync --rw=write --bs=1m --numjobs=2 --fsync=4
        go --ioengine=psync --rw=randrw --bs=3k --size=1m; go --ioengine=vsync --rw=randwrite --bs=16k; go --ioengine=sync --rw=write --bs=64k; ls
        "#
    ));
}
