//! Time stamps.

use super::{Case, Rules, add_by_kind, add_rules};

const NOT_LINK: &[&str] = &["regular", "dir", "fifo", "block", "char", "socket"];

const BY_KIND: &Rules = &[
    (
        "utimens sets both, with nanoseconds",
        &[],
        "make {kind} x\n utimens x 1900000000.000000001 1950000000.999999999\n lstat x atime=1900000000000000001 mtime=1950000000999999999",
    ),
    (
        "utimens changes ctime",
        &[],
        "make {kind} x\n mark x\n tick\n utimens x 1 2\n newer x ctime\n lstat x atime=1000000000 mtime=2000000000",
    ),
    (
        "UTIME_OMIT leaves a time",
        &[],
        "make {kind} x\n utimens x 11 22\n utimens x omit 33\n lstat x atime=11000000000 mtime=33000000000\n utimens x 44 omit\n lstat x atime=44000000000 mtime=33000000000",
    ),
    (
        "UTIME_NOW is the present",
        &[],
        "make {kind} x\n utimens x 1 1\n mark x\n utimens x now now\n newer x atime mtime",
    ),
];

const RULES: &Rules = &[
    (
        "times before 1970 and after 2106",
        &[],
        "create x\n utimens x -5.500000000 4294967296\n stat x atime=-4500000000 mtime=4294967296000000000",
    ),
    (
        "utimens follows links, lutimens does not",
        &[],
        "create x\n symlink x l\n utimens l 5 5\n stat x mtime=5000000000\n lutimens l 7 7\n lstat l mtime=7000000000\n stat x mtime=5000000000",
    ),
    (
        "times set to now by who may write",
        &["users"],
        "create x 644\n @1 EACCES utimens x now now\n chmod x 646\n @1 utimens x now now\n @1 EPERM utimens x 5 5\n @1 EPERM utimens x now 5\n @1 EPERM utimens x now omit",
    ),
    (
        "times set by the owner even without write permission",
        &["users"],
        "create x 444\n chown x 1 1\n @1 utimens x now now\n @1 utimens x 5 6\n stat x atime=5000000000 mtime=6000000000",
    ),
    (
        "a write changes mtime and ctime",
        &[],
        "open f x creat,w\n mark x\n tick\n write f 0 abc\n newer x mtime ctime\n same x atime",
    ),
    (
        "a write after an explicit mtime changes it",
        &[],
        "open f x creat,w\n write f 0 a\n utimens x 5 5\n stat x mtime=5000000000\n mark x\n tick\n write f 0 b\n newer x mtime ctime\n stat x atime=5000000000",
    ),
    (
        "a write of nothing changes nothing",
        &[],
        "open f x creat,w\n write f 0 abc\n mark x\n tick\n write f 0 ''\n same x mtime ctime",
    ),
    (
        "a truncate changes mtime and ctime",
        &[],
        "open f x creat,w\n write f 0 abc\n mark x\n tick\n truncate x 1\n newer x mtime ctime\n mark x\n tick\n truncate x 9\n newer x mtime ctime\n mark x\n tick\n truncate x 0\n newer x mtime ctime",
    ),
    (
        "a ftruncate changes mtime and ctime",
        &[],
        "open f x creat,w\n mark x\n tick\n ftruncate f 100\n newer x mtime ctime",
    ),
    (
        "O_TRUNC changes mtime and ctime",
        &[],
        "open f x creat,w\n write f 0 abc\n mark x\n tick\n open g x w,trunc\n newer x mtime ctime",
    ),
    (
        "O_CREAT of what is there changes no directory",
        &[],
        "mkdir d 755\n create d/x\n mark d\n tick\n open f d/x creat,r\n same d mtime ctime",
    ),
    (
        "making sets all three times",
        &[],
        "create mark\n mark mark\n tick\n create x\n rename x mark\n newer mark mtime ctime atime",
    ),
    (
        "a hard-linked file's times are one",
        &[],
        "open f x creat,w\n link x y\n mark y\n tick\n write f 0 abc\n newer y mtime ctime\n utimens x 5 6\n stat y atime=5000000000 mtime=6000000000\n mark y\n tick\n write f 0 d\n newer y mtime ctime",
    ),
    (
        "a failed call changes no time",
        &["users"],
        "create x 644\n mark x\n tick\n @1 EPERM chmod x 777\n @1 EPERM chown x 1 1\n @1 EACCES truncate x 0\n @1 EACCES open f x w\n same x mtime ctime atime",
    ),
    (
        "a rename changes ctime, not mtime",
        &[],
        "open f x creat,w\n write f 0 abc\n utimens x 5 6\n rename x y\n stat y mtime=6000000000 size=3",
    ),
    (
        "fallocate that extends changes ctime",
        &[],
        "open f x creat,w\n mark x\n tick\n fallocate f 0 0 123\n newer x mtime ctime\n stat x size=123",
    ),
];

pub fn add(cases: &mut Vec<Case>) {
    add_by_kind(cases, "times", NOT_LINK, BY_KIND);
    add_rules(cases, "times", RULES);
}
