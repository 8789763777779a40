//! A table of rules of POSIX, one case per rule, is run elsewhere through the library; here are
//! those that only interception can break: paths that cross the border.

use crate::harness::Place;

#[test]
fn links_lead_in_and_out_of_the_prefix() {
    let place = Place::new("border");
    let said = place.bash(
        r#"
        cd $D; echo in > in; echo out > $T/out; mkdir d
        ln -s $T/out to-out; ln -s $T to-dir; ln -s $D/in abs; ln -s ../../../../../../../etc/hostname up
        cat to-out to-dir/out abs; cat up > /dev/null; ls to-dir/out > /dev/null; echo more >> to-out; cat $T/out
        echo made > to-dir/made; cat $T/made; (cd to-dir; ls made; cd $D; cat in)
        cd d; cat ../in ../../border/in ../../../..$D/in; cd ..
        if mv in $T/moved 2>/dev/null; then cat $T/moved; fi; cp $T/moved in; ln in $T/hard 2>/dev/null || echo EXDEV
        stat -c %F to-out; stat -Lc %F to-out to-dir; realpath to-dir | grep -c "$T"; readlink abs | grep -c "$D/in"
        [ $D/../border/in -ef in ] && echo same; ls -d $D/.. /..$D; test -e $D/../../etc/hostname && echo up
        "#,
    );
    let lines: Vec<&str> = said.lines().collect();
    let want = [
        "out",
        "out",
        "in",
        "out",
        "more",
        "made",
        "made",
        "in",
        "in",
        "in",
        "in",
        "in",
        "EXDEV",
        "symbolic link",
        "regular file",
        "directory",
        "1",
        "1",
        "same",
    ];
    assert_eq!(lines[..want.len()], want, "{said}");
    assert_eq!(lines.last(), Some(&"up"));
}
