//! Advisory locks. Every descriptor is an owner: `flock`, and `fcntl`'s locks of open files.

use super::{Case, Rules, add_rules};

const RULES: &Rules = &[
    (
        "flock: exclusive excludes all",
        &[],
        "open f x creat,rw\n open g x rw\n flock f ex\n EAGAIN flock g ex\n EAGAIN flock g sh\n flock f un\n flock g ex\n EAGAIN flock f sh",
    ),
    (
        "flock: shared excludes exclusive",
        &[],
        "open f x creat,rw\n open g x rw\n flock f sh\n flock g sh\n EAGAIN flock g ex\n flock f un\n flock g ex",
    ),
    (
        "flock: the owner changes its mode",
        &[],
        "open f x creat,rw\n open g x rw\n flock f ex\n flock f sh\n flock g sh\n flock g un\n flock f ex\n EAGAIN flock g sh",
    ),
    (
        "flock: closing unlocks",
        &[],
        "open f x creat,rw\n open g x rw\n flock f ex\n close f\n flock g ex",
    ),
    (
        "flock: needs no write permission",
        &[],
        "create x\n open f x r\n open g x r\n flock f ex\n EAGAIN flock g sh",
    ),
    (
        "flock: of a directory",
        &[],
        "mkdir d 755\n open f d r\n open g d r\n flock f ex\n EAGAIN flock g ex",
    ),
    ("flock: unlocking nothing is fine", &[], "open f x creat,rw\n flock f un"),
    (
        "flock: survives unlink",
        &[],
        "open f x creat,rw\n open g x rw\n unlink x\n flock f ex\n EAGAIN flock g sh",
    ),
    (
        "flock: two files are two locks",
        &[],
        "open f x creat,rw\n open g y creat,rw\n flock f ex\n flock g ex",
    ),
    (
        "flock: two names are one file",
        &[],
        "open f x creat,rw\n link x y\n open g y rw\n flock f ex\n EAGAIN flock g ex",
    ),
    (
        "ranges: exclusive excludes where they meet",
        &["ofd"],
        "open f x creat,rw\n open g x rw\n lock f w 10 10\n EAGAIN lock g r 19 1\n EAGAIN lock g w 0 11\n lock g w 0 10\n lock g w 20 5",
    ),
    (
        "ranges: shared ones overlap",
        &["ofd"],
        "open f x creat,rw\n open g x rw\n lock f r 0 10\n lock g r 5 10\n EAGAIN lock g w 9 1\n lock g w 10 5",
    ),
    (
        "ranges: unlocking a part",
        &["ofd"],
        "open f x creat,rw\n open g x rw\n lock f w 0 30\n lock f u 10 10\n lock g w 10 10\n EAGAIN lock g w 9 1\n EAGAIN lock g w 20 1",
    ),
    (
        "ranges: a part becomes shared",
        &["ofd"],
        "open f x creat,rw\n open g x rw\n lock f w 0 30\n lock f r 10 10\n lock g r 12 3\n EAGAIN lock g r 9 1\n EAGAIN lock f w 10 10",
    ),
    (
        "ranges: neighbours are apart",
        &["ofd"],
        "open f x creat,rw\n open g x rw\n lock f w 0 10\n lock g w 10 10\n lock f u 0 10\n lock g w 0 10",
    ),
    (
        "ranges: zero length is to the end, wherever",
        &["ofd"],
        "open f x creat,rw\n open g x rw\n lock f w 100 0\n EAGAIN lock g r 1000000000000 1\n lock g w 0 100\n ftruncate f 9\n EAGAIN lock g r 500 1",
    ),
    (
        "ranges: closing unlocks",
        &["ofd"],
        "open f x creat,rw\n open g x rw\n lock f w 0 0\n close f\n lock g w 0 0",
    ),
    (
        "ranges: closing another descriptor does not",
        &["ofd"],
        "open f x creat,rw\n open h x rw\n open g x rw\n lock f w 0 0\n close h\n EAGAIN lock g r 0 1",
    ),
    (
        "ranges: a write lock needs the file open for writing",
        &["ofd"],
        "create x\n open f x r\n EBADF lock f w 0 1\n lock f r 0 1\n open g x w\n EBADF lock g r 5 1\n lock g w 5 1",
    ),
    (
        "ranges: a test tells the lock in the way",
        &["ofd"],
        "open f x creat,rw\n open g x rw\n lock f w 0 10\n lock f r 10 10\n getlock g r 0 5 w\n getlock g w 15 1 r\n getlock g r 15 1 free\n getlock g w 20 5 free\n getlock f w 0 20 free",
    ),
    (
        "ranges and flock do not see each other",
        &["ofd"],
        "open f x creat,rw\n open g x rw\n flock f ex\n lock g w 0 0",
    ),
    (
        "ranges: two names are one file",
        &["ofd"],
        "open f x creat,rw\n link x y\n open g y rw\n lock f w 0 0\n EAGAIN lock g w 5 1\n unlink x\n EAGAIN lock g w 5 1",
    ),
];

pub fn add(cases: &mut Vec<Case>) {
    add_rules(cases, "locks", RULES);
}
