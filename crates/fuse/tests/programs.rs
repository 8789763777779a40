//! Real programs on a mount, in each cache mode.

mod system;

use system::{System, can_mount};
use types::Durability;

const MODES: [&str; 3] = ["cache=none", "cache=metadata", "cache=full"];

#[test]
fn shell_tools_find_what_they_left() {
    if !can_mount() {
        return;
    }
    let system = System::start(Durability::Memory);
    for (index, mode) in MODES.into_iter().enumerate() {
        let mounted = system.mount(mode);
        let script = "
            mkdir -p $D/a/b && cd $D
            echo hello > a/file && test \"$(cat a/file)\" = hello
            echo more >> a/file && test \"$(wc -l < a/file)\" = 2
            ln a/file a/b/second && test \"$(stat -c %h a/file)\" = 2
            ln -s ../file a/b/link && test \"$(cat a/b/link)\" = 'hello
more'
            mv a/file a/b/third && test ! -e a/file
            cmp a/b/second a/b/third
            rm a/b/third && test \"$(stat -c %h a/b/second)\" = 1
            seq 100000 > numbers && md5sum numbers > sum && md5sum -c sum
            cp -a numbers copy && cmp numbers copy
            truncate -s 1000 copy && test \"$(stat -c %s copy)\" = 1000
            cmp -n 1000 numbers copy
            truncate -s 5M copy && test \"$(stat -c %s copy)\" = 5242880
            dd if=/dev/urandom of=random bs=1M count=3 2>/dev/null
            dd if=random of=direct bs=256k oflag=direct 2>/dev/null && cmp random direct
            chmod 640 numbers && test \"$(stat -c %a numbers)\" = 640
            touch -d '2001-02-03 04:05:06.123456789' numbers
            test \"$(stat -c %y numbers | cut -c1-29)\" = '2001-02-03 04:05:06.123456789'
            mkfifo pipe && test -p pipe
            tar cf - a numbers | (mkdir out && tar xf - -C out)
            cmp numbers out/numbers
            test \"$(find . -type f | wc -l)\" = 8
            cd / && rm -r $D && test ! -e $D
        ";
        let dir = mounted.path(&format!("d{index}"));
        mounted.sh(&format!("D={}\n{script}", dir.display()));
        mounted.unmount();
    }
}
