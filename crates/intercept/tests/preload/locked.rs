//! Locks belong to open file descriptions, and those to all processes that have them.

use crate::harness::{Place, run_c};
use preload::harness::has;

/// A lock ended with the process that took it: the commands after `flock 9` were not excluded by
/// anything. A description's lock was not one of its other processes', and what a process held that
/// ended was free two seconds later.
#[test]
fn locks_are_shared_by_the_processes_of_a_description() {
    run_c("locks");
}

#[test]
fn a_script_excludes_others_after_flock_has_ended() {
    if !has("flock") {
        return;
    }
    // The pauses are longer than servers wait for a client that has gone.
    Place::new("flock").compare(
        r#"
        try() { (flock -n 8 && echo "$1 free" || echo "$1 taken") 8>> lk; }
        (flock 9; try after; sleep 3; try later; sleep 0) 9> lk; try ended
        exec 9> lk; flock 9; flock -u 9; try unlocked; flock 9; sleep 3; try again; exec 9>&-; try closed
        exec 9> lk; flock -s 9; (flock -s -n 8 && echo shared) 8>> lk; try shared; flock -x 9; exec 7>&9 9>&-; try duplicate; exec 7>&-; try gone
        (flock 9; sleep 4 & ) 9> lk; try child; (flock 8; echo "waited") 8>> lk; try end
        flock lk sh -c 'flock -n lk true || echo inner taken'; try command
        for i in 1 2 3 4; do (for n in 1 2 3 4 5; do (flock 9; read -r old < count || old=0; echo $((old + 1)) > count) 9>> lk; done) & done 2> /dev/null; wait; cat count
        "#,
    );
}
