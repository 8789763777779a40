//! bash: redirections, here-documents, current directory, tests.

use crate::harness::Place;

#[test]
fn redirections_and_here_documents() {
    Place::new("redirections").compare(
        r#"
        echo one > a; echo two >> a; cat a; cat < a
        cat > here <<EOF
here $((1 + 1))
EOF
        cat here
        { echo out; echo err >&2; } > both 2>&1; cat both
        exec 5<a; read -r -u5 x; read -r -u5 y; echo "$x/$y"; exec 5<&-
        exec 6>six; echo 6 >&6; (echo sub >&6); sh -c 'echo child >&6'; exec 6>&-; cat six
        printf 'a\nb\n' | tee t1 t2 > t3; cat t1 t2 t3
        for i in 1 2 3; do echo line $i; done > loop; wc -l < loop
        while read -r line; do echo "got $line"; done < loop
        echo x | cat > piped; cat piped
        set -o noclobber; (echo no > a) 2>/dev/null || echo refused; set +o noclobber
        > empty; wc -c < empty; echo -n abc > partial; cat partial; echo
        x=$(< a); echo "[$x]"
        ls > listing; cat listing
        TMPDIR=$PWD; export TMPDIR
        cat <<LONG | wc -c
$(head -c 100000 /dev/zero | tr '\0' z)
LONG
        "#,
    );
}

#[test]
fn the_current_directory_is_below_the_prefix() {
    Place::new("cwd").compare(
        r#"
        mkdir -p d/e; cd d/e; pwd; cd ..; pwd; cd - > /dev/null; pwd; cd ../..
        ln -s d/e link; cd link; pwd; pwd -P; cd -P ..; pwd; cd ..
        (cd d && echo sub > f && cat f); cat d/f
        env pwd; sh -c pwd; bash -c 'cd d; /bin/pwd'; cat d/../d/f link/../f
        find . | sort; ls -R
        cd /; cd - > /dev/null; echo d/* */e; [ -d d ] && [ ! -e nope ] && [ -L link ] && echo tests
        mkdir gone; cd gone; rmdir ../gone; cat x 2>/dev/null || echo gone
        "#,
    );
}

#[test]
fn errors_are_those_of_posix() {
    Place::new("errors").compare(
        r#"
        exec 2>&1
        mkdir d; echo x > f; ln -s loop loop; ln -s nowhere dangling
        try() { "$@" && echo "done: $*" || echo "failed: $*"; }
        try mkdir d; try mkdir f/x; try mkdir n/x; try rmdir f; try rmdir n; try rm d; try cat d
        try cat loop; try cat dangling; try cat n; try cat f/; try cat f/x; try ls n
        try ln f d/f; try ln d dd; try ln -s x f; try ln f d/f; try mv n m; try mv d d/e; try mv f d/f
        try rmdir d; try cp f f; try touch n/x; try readlink f; try chmod 600 n; try mkdir d/.
        try rmdir d/.; try cat ''; try mv d f; try truncate -s 5 d
        try cat "$(head -c 300 /dev/zero | tr '\0' n)" | tr -d n
        echo over > dangling; cat nowhere; ls -l nowhere | cut -c1-10
        try stat -c %s f; try cat nope/../f
        "#,
    );
}
