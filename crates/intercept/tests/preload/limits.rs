//! What the kernel answers where it keeps a limit or knows what cannot be.

use crate::harness::{Place, run_c};

/// The limit of file sizes was not kept for files of ours, and killed the program silently when it was
/// smaller than the memory that the library shares with an engine.
#[test]
fn the_limit_of_file_sizes_holds() {
    run_c("sizes");
    Place::new("ulimit").compare(
        r#"
        ulimit -c 0; echo start > f
        (ulimit -f 100; head -c 200000 /dev/zero > big) 2> /dev/null || echo "ended with $?"; stat -c %s big
        for limit in 1 8 400; do
            (ulimit -f $limit; echo "below $limit" > small; cat small f; (cat; echo child) < f; exec 7< f; sh -c 'cat <&7'; mkdir d$limit; ls)
            (ulimit -f $limit; head -c 900000 /dev/zero >> big) 2> /dev/null || echo "ended with $?"
        done; stat -c %s big
        "#,
    );
}

/// Calls by number met a descriptor that nobody can use; a splice, flags that contradict each
/// other and leases were answered in ways that programs do not know from files.
#[test]
fn calls_by_number_splices_and_leases_are_answered_as_by_the_kernel() {
    run_c("raw");
}
