//! `/dev/stdin`, `/dev/fd/N`, `/proc/self/fd/N`: paths that name a descriptor of a file of ours.

use crate::harness::{Place, run_c};
use preload::harness::has;

/// Such a path led to the memory file that the descriptor was for the kernel: `wc` counted nothing,
/// `dd` and `tar` wrote into it and ended with success, `tee` died of a bus error.
#[test]
fn programs_read_and_write_by_a_descriptors_path() {
    Place::new("by-path").compare(
        r#"
        seq 1000 > in; wc -l /dev/stdin < in | cut -d' ' -f1; cat /dev/fd/0 < in | md5sum; cat /proc/self/fd/5 5< in | md5sum
        sort -n /dev/stdin < in | md5sum; diff - in < in && cmp /dev/stdin in < in; cp /dev/stdin copy < in; cmp in copy
        dd if=in of=/dev/stdout 2> /dev/null > o; cmp in o; dd if=in of=/dev/fd/6 6> o bs=100 2> /dev/null; cmp in o
        seq 2000 | tee /dev/stdout > o; md5sum < o; seq 10 | tee -a /dev/stdout > o; cat o; seq 5 | tee /dev/stderr 2> o > /dev/null; cat o
        tar -cf /dev/stdout --owner=0 --group=0 --mtime=@0 in > o.tar; tar -tf /dev/stdin < o.tar; tar -xOf o.tar | cmp - in
        gzip -c < in > /dev/stdout | cat > /dev/null; gzip -c < in > in.gz; zcat /dev/stdin < in.gz | md5sum
        (cd /dev; wc -l stdin; cd fd; wc -l 0) < in | cut -d' ' -f1
        ln -s /dev/stdout link; echo linked > link > o2 || true; (echo linked > link) > o2; cat o2; cat link 1<> o2 || true
        echo kept > gone; exec 7<> gone; rm gone; cat /dev/fd/7; echo again >> /dev/fd/7; cat /proc/self/fd/7; exec 7>&-
        echo 'echo script $0' > s; sh /dev/stdin < s; . /dev/fd/8 8< s | cut -d' ' -f1; mkdir d; echo inner > d/f; exec 9< d; cat /dev/fd/9/f; ls /proc/self/fd/9/; exec 9<&-
        [ -f /dev/stdin ] < in && stat -L -c '%s %F' /dev/stdin < in; truncate -s 7 /dev/fd/4 4> t; stat -c %s t; chmod 640 /dev/fd/4 4< t; stat -c %a t
        [ -r /dev/stdin ] < in && [ ! -x /dev/stdin ] < in && touch -d @5 /dev/stdin < in; stat -c %Y in
        "#,
    );
}

#[test]
fn a_compiler_writes_to_the_standard_output() {
    if has("gcc") {
        Place::new("gcc-stdout").compare(
            r#"
            echo 'int main(void) { return 42; }' > m.c; gcc -o /dev/stdout m.c > prog; chmod 755 prog; ./prog || echo $?
            gcc -E -P -o /dev/stdout m.c > m.i; cat m.i; gcc -c -o /dev/fd/5 m.c 5> m.o; nm m.o
            "#,
        );
    }
}

#[test]
fn a_descriptors_path_is_the_file_in_every_family_of_calls() {
    run_c("numbered");
}
