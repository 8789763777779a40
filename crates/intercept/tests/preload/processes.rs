//! Fork, exec, inherited descriptors.

use crate::harness::{Place, c_program, run_c};

#[test]
fn files_go_on_in_children_and_in_programs_they_execute() {
    run_c("children");
}

#[test]
fn a_program_on_the_prefix_is_executed() {
    let place = Place::new("programs");
    let program = c_program("hello");
    let script = "cp \"$P\" $D/hello; $D/hello a b; cd $D; ./hello c; PATH=$D:$PATH hello d
        printf '#!/bin/sh\\necho script \"$@\"\\n' > $D/s; chmod 755 $D/s; $D/s x; ./s y
        printf 'echo plain $1\\n' > $D/p; chmod 755 $D/p; ./p z
        env -i $D/hello e
        ln -s /bin/echo $D/outside; $D/outside away
        ln -s /bin/sh $D/sh; ln -s sh $D/sh2; printf '#!'$D'/sh2 -e\\necho inner $0 \"$@\" | sed s:$D::g\\n' > $D/i; chmod 755 $D/i; $D/i x
        printf '#!'$D'/i one\\n' > $D/j; chmod 755 $D/j; ./j y; printf '#!'$D'/k\\n' > $D/k; chmod 755 $D/k; if ./k 2>&1; then false; fi | grep -c levels
        chmod 644 $D/hello; if ./hello; then false; else echo $?; fi 2>/dev/null";
    let said = place.run(place.command("bash").env("P", program).args(["-e", "-c", script]));
    let want = "hello a b\nhello c\nhello d\nscript x\nscript y\nplain z\nhello e\naway\ninner /i x\n\
                inner /i one /./j y\n1\n126\n";
    assert_eq!(said, want);
}

#[test]
fn a_summary_says_what_was_taken() {
    let place = Place::new("summary");
    let log = place.dir().join("log");
    let mut command = place.command("cp");
    command.arg("/etc/hostname").arg(&place.azk).env("AZEKURA_INTERCEPT_SUMMARY", "1");
    command.env("AZEKURA_INTERCEPT_LOG", format!("debug:{}", log.display()));
    place.run(&mut command);
    let text = std::fs::read_to_string(log).unwrap();
    let line = text.lines().last().unwrap();
    assert!(line.contains(": cp: ") && line.contains("write 1"), "{text}");
}

#[test]
fn nothing_is_connected_for_programs_that_do_not_come_near() {
    let place = Place::new("away");
    // A system that is not there: only who connects notices.
    let mut command = place.command("cat");
    command.arg("/etc/hostname").env("AZEKURA_SYSTEM", "/nowhere/at/all");
    place.run(&mut command);
    let mut command = place.command("cat");
    command.arg(format!("{}/x", place.azk)).env("AZEKURA_SYSTEM", "/nowhere/at/all");
    assert!(!crate::harness::finish(&mut command).status.success());
    let mut command = place.command("ls");
    command.arg(&place.azk).env("AZEKURA_INTERCEPT", "off");
    assert!(!crate::harness::finish(&mut command).status.success(), "off is off");
}

/// A process that is killed leaves neither its locks nor files without a name: others get the lock,
/// and the space is free.
#[test]
fn what_a_killed_process_held_is_free() {
    let place = Place::new("killed");
    let mut holder = place.command("bash");
    holder.args([
        "-e",
        "-c",
        "cd $D; exec 8>locked 9>gone; flock 8; echo much >&9; rm gone; touch ready; exec sleep 600",
    ]);
    let mut holder = holder.stdin(std::process::Stdio::null()).spawn().unwrap();
    place.bash(
        "for i in $(seq 600); do if [ -e $D/ready ]; then exit 0; fi; sleep 0.1; done; exit 1",
    );
    place.bash("cd $D; exec 8>locked; if flock -n 8; then exit 1; fi");
    holder.kill().unwrap();
    holder.wait().unwrap();
    place.bash("cd $D; exec 8>locked; flock -w 60 8; rm locked ready; ls -A | (! grep .)");
    crate::harness::eventually_no_orphans();
}
