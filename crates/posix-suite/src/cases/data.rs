//! Reading, writing, sizes, holes.

use super::{Case, Rules, add_rules};

const RULES: &Rules = &[
    (
        "what was written is read",
        &[],
        "open f x creat,rw\n write f 0 hello\n read f 0 5 hello\n read f 1 3 ell\n read f 3 9 lo\n read f 5 9 ''\n read f 99 9 ''\n stat x size=5",
    ),
    (
        "a gap reads as zero",
        &[],
        "open f x creat,rw\n write f 5 end\n read f 0 9 _____end\n stat x size=8",
    ),
    (
        "overwriting in the middle",
        &[],
        "open f x creat,rw\n write f 0 aaaaaaaa\n write f 2 bb\n read f 0 9 aabbaaaa",
    ),
    (
        "across large borders",
        &[],
        "open f x creat,rw\n write f 0 9000*a\n write f 4090 20*b\n read f 4085 30 5*a+20*b+5*a\n stat x size=9000\n write f 1048570 12*c\n read f 1048570 20 12*c\n stat x size=1048582",
    ),
    (
        "writing with a descriptor for reading is EBADF",
        &[],
        "create x\n open f x r\n EBADF write f 0 a\n open g x w\n EBADF read g 0 1 ''",
    ),
    (
        "a negative size is EINVAL",
        &[],
        "create x\n EINVAL truncate x -1\n open f x rw\n EINVAL ftruncate f -1",
    ),
    ("truncate of a directory is EISDIR", &[], "mkdir d 755\n EISDIR truncate d 0"),
    (
        "ftruncate with a descriptor for reading is EINVAL",
        &[],
        "create x\n open f x r\n EINVAL ftruncate f 0",
    ),
    (
        "truncate extends with zeros",
        &[],
        "open f x creat,rw\n write f 0 abc\n truncate x 6\n read f 0 9 abc___\n ftruncate f 100000\n stat x size=100000\n read f 99998 9 __",
    ),
    (
        "truncate cuts, and what is cut is gone",
        &[],
        "open f x creat,rw\n write f 0 abcdef\n truncate x 2\n read f 0 9 ab\n truncate x 5\n read f 0 9 ab___",
    ),
    (
        "truncate to zero and again",
        &[],
        "open f x creat,rw\n write f 0 70000*a\n ftruncate f 0\n stat x size=0\n read f 0 9 ''\n write f 2 b\n read f 0 9 __b",
    ),
    (
        "truncate of what is open elsewhere",
        &[],
        "open f x creat,rw\n open g x rw\n write f 0 abcdef\n ftruncate g 3\n read f 0 9 abc\n fstat f size=3",
    ),
    (
        "two descriptors see one file",
        &[],
        "open f x creat,rw\n open g x r\n write f 0 abc\n read g 0 9 abc\n write f 1 X\n read g 0 9 aXc",
    ),
    (
        "O_APPEND writes at the end",
        &[],
        "open f x creat,w,append\n append f one\n append f two\n open g x rw\n read g 0 9 onetwo\n write g 20 !\n append f three\n stat x size=26\n read g 21 9 three",
    ),
    (
        "O_APPEND after a truncate",
        &[],
        "open f x creat,w,append\n append f abcdef\n truncate x 2\n append f X\n open g x r\n read g 0 9 abX",
    ),
    (
        "two appenders",
        &[],
        "open f x creat,w,append\n open g x w,append\n append f a\n append g b\n append f c\n append g d\n open h x r\n read h 0 9 abcd",
    ),
    (
        "large appends",
        &[],
        "open f x creat,w,append\n append f 70000*a\n append f 70000*b\n stat x size=140000\n open g x r\n read g 69998 4 aabb",
    ),
    (
        "fsync of what was written",
        &[],
        "open f x creat,w\n write f 0 abc\n fsync f\n stat x size=3\n mkdir d 755\n open g d r\n fsync g",
    ),
    (
        "an empty file has no blocks, a written one has",
        &["exact-blocks"],
        "open f x creat,w\n stat x blocks=none size=0\n write f 0 9000*a\n fsync f\n stat x blocks=some",
    ),
    (
        "a written file has blocks, whether it is closed or not",
        &[],
        "open f x creat,w\n write f 0 9000*a\n stat x blocks=some\n close f\n stat x blocks=some size=9000",
    ),
    (
        "fallocate extends",
        &[],
        "open f x creat,rw\n write f 0 abc\n fallocate f 0 0 10\n stat x size=10\n read f 0 20 abc_______\n fallocate f 0 2 3\n stat x size=10\n fallocate f 0 100 50\n stat x size=150",
    ),
    (
        "fallocate KEEP_SIZE keeps it",
        &[],
        "open f x creat,rw\n write f 0 abc\n fallocate f 1 0 10000\n stat x size=3\n read f 0 9 abc",
    ),
    (
        "fallocate of no bytes is EINVAL",
        &[],
        "open f x creat,rw\n EINVAL fallocate f 0 0 0\n EINVAL fallocate f 0 -1 5\n EINVAL fallocate f 0 0 -5\n stat x size=0",
    ),
    (
        "fallocate with a descriptor for reading is EBADF",
        &[],
        "create x\n open f x r\n EBADF fallocate f 0 0 5",
    ),
    (
        "fallocate beyond the largest file is EFBIG",
        &[],
        "open f x creat,rw\n EFBIG fallocate f 0 9223372036854775807 1",
    ),
    (
        "PUNCH_HOLE makes zeros and keeps the size",
        &[],
        "open f x creat,rw\n write f 0 20000*a\n fallocate f 3 100 15000\n read f 98 4 aa__\n read f 15098 4 __aa\n stat x size=20000\n fallocate f 3 19000 5000\n stat x size=20000\n read f 18999 3 a__",
    ),
    (
        "PUNCH_HOLE beyond the end does nothing",
        &[],
        "open f x creat,rw\n write f 0 abc\n fallocate f 3 1000 50\n stat x size=3\n read f 0 9 abc",
    ),
    (
        "PUNCH_HOLE without KEEP_SIZE is EOPNOTSUPP",
        &[],
        "open f x creat,rw\n write f 0 abc\n EOPNOTSUPP|EINVAL fallocate f 2 0 1",
    ),
    (
        "ZERO_RANGE makes zeros and extends",
        &["zero-range"],
        "open f x creat,rw\n write f 0 abcdef\n fallocate f 16 1 2\n read f 0 9 a__def\n fallocate f 16 4 6\n stat x size=10\n read f 0 20 a__d______\n fallocate f 17 9 100\n stat x size=10",
    ),
    (
        "SEEK_DATA and SEEK_HOLE of a plain file",
        &[],
        "open f x creat,rw\n write f 0 9000*a\n data f 0 0\n data f 500 500\n hole f 0 9000\n hole f 8999 9000\n ENXIO data f 9000 0\n ENXIO hole f 9000 0",
    ),
    (
        "SEEK_DATA and SEEK_HOLE around a hole",
        &["holes"],
        "open f x creat,rw\n write f 0 65536*a\n write f 262144 65536*b\n data f 65536 262144\n data f 200000 262144\n hole f 0 65536\n hole f 100000 100000\n hole f 262144 327680\n data f 262200 262200",
    ),
    (
        "SEEK_DATA of a file that is all hole is ENXIO",
        &["holes"],
        "open f x creat,rw\n ftruncate f 100000\n ENXIO data f 0 0\n hole f 0 0\n ENXIO data f 99999 0\n hole f 50000 50000",
    ),
    (
        "SEEK_DATA of an empty file is ENXIO",
        &[],
        "open f x creat,rw\n ENXIO data f 0 0\n ENXIO hole f 0 0",
    ),
    (
        "copy_file_range copies what is there",
        &[],
        "open f x creat,rw\n write f 0 hello\n open g y creat,rw\n copy f 1 g 2 100 4\n read g 0 9 __ello\n copy f 5 g 0 9 0\n copy f 0 g 0 2 2\n read g 0 9 heello",
    ),
    (
        "copy_file_range of large data with a hole",
        &[],
        "open f x creat,rw\n write f 0 65536*a\n write f 262144 65536*b\n open g y creat,rw\n copy f 0 g 0 327680 327680\n stat y size=327680\n read g 65534 4 aa__\n read g 262142 4 __bb",
    ),
    (
        "copy_file_range within a file, apart",
        &[],
        "open f x creat,rw\n write f 0 abcdef\n copy f 0 f 10 3 3\n read f 0 20 abcdef____abc\n EINVAL copy f 0 f 2 4 0",
    ),
    (
        "copy_file_range into a descriptor for reading is EBADF",
        &[],
        "open f x creat,rw\n write f 0 abc\n create y\n open g y r\n EBADF copy f 0 g 0 3 0",
    ),
    (
        "reading a directory's data is EISDIR",
        &[],
        "mkdir d 755\n open f d r\n EISDIR read f 0 9 ''",
    ),
    (
        "O_PATH neither reads nor writes",
        &[],
        "open f x creat,rw\n open g x path\n EBADF read g 0 9 ''\n EBADF write g 0 a\n fstat g kind=regular",
    ),
    (
        "a file at the far end",
        &[],
        "open f x creat,rw\n write f 1099511627776 end\n stat x size=1099511627779\n read f 1099511627775 9 _end\n read f 0 3 ___\n ftruncate f 3\n read f 0 9 ___",
    ),
];

pub fn add(cases: &mut Vec<Case>) {
    add_rules(cases, "data", RULES);
}
