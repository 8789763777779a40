//! Owners, mode bits, who may do what.

use super::{Case, Rules, add_by_kind, add_rules};

const NOT_LINK: &[&str] = &["regular", "dir", "fifo", "block", "char", "socket"];
const ALL: &[&str] = &["regular", "dir", "fifo", "block", "char", "socket", "symlink"];

const BY_KIND: &Rules = &[
    (
        "chmod sets all twelve bits",
        &[],
        "make {kind} x\n chmod x 7654\n stat x mode=7654 kind={kind}\n chmod x 0\n stat x mode=0",
    ),
    (
        "chmod follows links",
        &[],
        "make {kind} x\n symlink x l\n chmod l 111\n stat x mode=111\n lstat l mode=777",
    ),
    (
        "chmod changes ctime only",
        &[],
        "make {kind} x\n mark x\n tick\n chmod x 600\n newer x ctime\n same x mtime atime",
    ),
    (
        "chmod by others is EPERM and changes nothing",
        &["users"],
        "
        make {kind} x 644\n mark x\n tick\n @1 EPERM chmod x 600\n same x ctime\n stat x mode=644",
    ),
    ("chmod by its owner", &["users"], "@1 make {kind} x\n @1 chmod x 640\n stat x mode=640 uid=1"),
];

const BY_KIND_ALL: &Rules = &[
    ("lchown sets both", &[], "make {kind} x\n lchown x 123 456\n lstat x uid=123 gid=456\n lchown x - 7\n lstat x uid=123 gid=7\n lchown x 8 -\n lstat x uid=8 gid=7"),
    ("lchown changes ctime only", &[], "make {kind} x\n mark x\n tick\n lchown x 1 1\n newer x ctime\n same x mtime"),
    ("chown by others is EPERM", &["users"], "make {kind} x\n mark x\n tick\n @1 EPERM lchown x 1 1\n @1 EPERM lchown x - 1\n same x ctime\n lstat x uid=0 gid=0"),
    ("its owner gives it to own groups only", &["users"], "
        make {kind} x\n lchown x 1 5\n @1+7 lchown x - 7\n lstat x uid=1 gid=7\n @1 lchown x 1 1\n lstat x uid=1 gid=1
        @1+7 EPERM lchown x - 8\n @1 EPERM lchown x 2 -\n lstat x uid=1 gid=1"),
    ("in a sticky directory owners of it or the directory remove it", &["users"], "
        mkdir d 1777\n chown d 2 2\n make {kind} d/a\n lchown d/a 1 1\n make {kind} d/b\n lchown d/b 1 1\n make {kind} d/c\n lchown d/c 1 1
        @3 EPERM|EACCES {remove} d/a\n @1 {remove} d/a\n @2 {remove} d/b\n {remove} d/c\n list d"),
    ("in a sticky directory owners of it or the directory rename it", &["users"], "
        mkdir d 1777\n chown d 2 2\n mkdir e 777\n make {kind} d/a 777\n lchown d/a 1 1\n make {kind} e/b 777\n lchown e/b 3 3
        @3 EPERM|EACCES rename d/a d/z\n @3 EPERM|EACCES rename d/a e/z\n @3 EPERM|EACCES rename e/b d/a\n lstat d/a uid=1\n @1 rename d/a d/z\n lstat d/z uid=1"),
];

const RULES: &Rules = &[
    ("the owner's bits are the owner's alone", &["users"], "
        create f\n chown f 1 1\n chmod f 077\n @1 EACCES open a f r\n @2 open b f r\n chmod f 700\n @1 open c f rw\n @2 EACCES open d f r"),
    ("a group's bits are its members' alone", &["users"], "
        create f\n chown f 9 7\n chmod f 604\n @1+7 EACCES open a f r\n @2 open b f r\n chmod f 640\n @1+7 open c f r\n @1+7 EACCES open d f w\n @2 EACCES open e f r"),
    ("the superuser reads and writes all", &["users"], "create f 0\n open a f rw\n mkdir d 0\n create d/x\n list d x"),
    ("the superuser executes what somebody may", &["users"], "create f 600\n EACCES access f x\n chmod f 100\n access f x\n access f rwx"),
    ("access asks for all of its bits", &["users"], "
        create f\n chown f 1 1\n chmod f 500\n @1 access f rx\n @1 EACCES access f w\n @1 EACCES access f rw\n @2 EACCES access f r\n @1 access f -"),
    ("access follows links", &["users"], "create f 600\n symlink f l\n @1 EACCES access l r\n chmod f 604\n @1 access l r\n ENOENT access nowhere -"),
    ("a mode of 0 does not bind the descriptor that made it", &["users"], "chmod . 777\n @1 open f x creat,rw 0\n @1 write f 0 abc\n @1 ftruncate f 1\n @1 EACCES open g x r\n stat x size=1 mode=0"),
    ("opening to truncate needs write permission", &["users"], "open f x creat,w 444\n write f 0 abc\n @1 EACCES open g x r,trunc\n stat x size=3"),
    ("truncate needs write permission", &["users"], "create x 444\n @1 EACCES truncate x 5\n chmod x 446\n @1 truncate x 5\n stat x size=5"),
    ("unlink asks the directory, not the file", &["users"], "mkdir d 777\n create d/x 0\n @1 unlink d/x\n create d/y 777\n chmod d 755\n @1 EACCES unlink d/y\n mkdir d/e 777\n @1 EACCES rmdir d/e"),
    ("rename needs write permission on both directories", &["users"], "
        mkdir a 777\n mkdir b 755\n create a/x\n @1 EACCES rename a/x b/x\n chmod a 755\n chmod b 777\n @1 EACCES rename a/x b/x\n chmod a 777\n @1 rename a/x b/x"),
    ("moving another's directory away needs its write permission", &["users"], "mkdir a 777\n mkdir b 777\n mkdir a/d 755\n @1 EACCES rename a/d b/d\n @1 rename a/d a/e\n chmod a/e 777\n @1 rename a/e b/d\n stat b/d"),
    ("link needs write permission on the new directory", &["users"], "create x 666\n mkdir d 755\n @1 EACCES link x d/y\n chmod d 777\n @1 link x d/y\n stat d/y nlink=2"),
    ("search permission all the way", &["users"], "mkdir a 755\n mkdir a/b 755\n create a/b/f 644\n chmod a 744\n @1 EACCES stat a/b/f\n @1 EACCES open f a/b/f r\n @1 EACCES list a/b\n chmod a 711\n @1 stat a/b/f\n @1 list a/b f"),
    ("search permission through links", &["users"], "mkdir a 700\n create a/f 644\n symlink a l\n @1 EACCES stat l/f\n symlink a/f m\n @1 EACCES stat m\n @1 lstat m kind=symlink\n @1 readlink m a/f"),
    ("a set-group-id directory gives its group", &["users"], "
        mkdir d 777\n chown d 0 9\n chmod d 2777\n @1 create d/f\n stat d/f uid=1 gid=9 mode=644\n @1 mkdir d/e 755\n stat d/e uid=1 gid=9 mode=2755\n @1 symlink a d/l\n lstat d/l gid=9"),
    ("without the bit the maker's group", &["users"], "mkdir d 777\n chown d 0 9\n @1 create d/f\n stat d/f uid=1 gid=1\n @1 mkdir d/e 755\n stat d/e gid=1 mode=755"),
    ("chmod by an owner outside the group drops set-group-id", &["users"], "create x 755\n chown x 1 9\n @1 chmod x 2755\n stat x mode=755\n chown x 1 1\n @1 chmod x 2755\n stat x mode=2755"),
    ("chown by an owner drops set-user-id and set-group-id", &["users"], "
        create x\n chown x 1 5\n chmod x 6755\n @1+7 chown x - 7\n stat x mode=755\n chmod x 6555\n @1 chown x 1 1\n stat x mode=555"),
    ("chown keeps set-group-id where the group does not execute", &["users"], "create x\n chown x 1 1\n chmod x 6745\n @1+7 chown x - 7\n stat x mode=2745"),
    ("chown of a directory keeps its bits", &["users"], "mkdir d 755\n chown d 1 1\n chmod d 6755\n @1+7 chown d - 7\n stat d mode=6755"),
    ("chown by the superuser drops them, too (Linux)", &[], "create x\n chmod x 6755\n chown x 5 5\n stat x mode=755"),
    ("a write by others drops set-user-id", &["users"], "create x\n chmod x 4777\n @1 open f x w\n @1 write f 0 x\n fstat f mode=777"),
    ("a write by others drops set-group-id", &["users"], "create x\n chmod x 2777\n @1 open f x rw\n @1 write f 0 x\n fstat f mode=777\n stat x mode=777"),
    ("a write by others drops both", &["users"], "create x\n chmod x 6777\n @1 open f x w,append\n @1 append f x\n stat x mode=777"),
    ("a write by the superuser drops nothing", &["users"], "create x\n chmod x 6777\n open f x rw\n write f 0 x\n stat x mode=6777"),
    ("a truncate by others drops both", &["users"], "open f x creat,w\n write f 0 abc\n chmod x 6777\n @1 truncate x 1\n stat x mode=777 size=1"),
    ("reading drops nothing", &["users"], "create x\n chmod x 6777\n @1 open f x r\n @1 read f 0 1 ''\n stat x mode=6777"),
    ("device nodes are the superuser's to make", &["users", "dev"], "@1 EPERM make char x\n @1 EPERM make block x\n @1 make fifo y\n make char x\n stat x kind=char rdev=259"),
    ("fchmod is chmod", &[], "open f x creat,r\n fchmod f 640\n stat x mode=640\n unlink x\n fchmod f 600\n fstat f mode=600 nlink=0"),
    ("chmod by others in a closed directory is EACCES", &["users"], "mkdir d 755\n create d/x\n chown d/x 1 1\n chmod d 700\n @1 EACCES chmod d/x 600\n chmod d 711\n @1 chmod d/x 600"),
];

const XATTRS: &Rules = &[
    ("set, get, list, remove", &["xattr-user"], "
        create x\n listxattr x\n setxattr x user.a one\n setxattr x user.b two\n getxattr x user.a one\n listxattr x user.a user.b
        setxattr x user.a three\n getxattr x user.a three\n removexattr x user.a\n ENODATA getxattr x user.a ''\n ENODATA removexattr x user.a\n listxattr x user.b"),
    ("an empty value is a value", &["xattr-user"], "create x\n setxattr x user.a ''\n getxattr x user.a ''\n listxattr x user.a"),
    ("CREATE and REPLACE", &["xattr-user"], "create x\n ENODATA setxattr x user.a v replace\n setxattr x user.a v create\n EEXIST setxattr x user.a w create\n setxattr x user.a w replace\n getxattr x user.a w"),
    ("changes ctime only", &["xattr-user"], "create x\n mark x\n tick\n setxattr x user.a v\n newer x ctime\n same x mtime"),
    ("goes along with a rename and a link", &["xattr-user"], "create x\n setxattr x user.a v\n rename x y\n getxattr y user.a v\n link y z\n getxattr z user.a v\n setxattr y user.b w\n getxattr z user.b w\n unlink y\n getxattr z user.a v"),
    ("of a directory", &["xattr-user"], "mkdir d 755\n setxattr d user.a v\n getxattr d user.a v\n rename d e\n getxattr e user.a v"),
    ("a name over 255 bytes is ERANGE", &["xattr-user"], "create x\n ERANGE setxattr x user.+251*n v\n setxattr x user.+250*n v"),
    ("a value over 64 KiB is E2BIG", &["xattr-user"], "create x\n E2BIG setxattr x user.a 65537*v"),
    ("reading needs read, writing write permission", &["users", "xattr-user"], "create x 600\n setxattr x user.a v\n @1 EACCES getxattr x user.a v\n chmod x 604\n @1 getxattr x user.a v\n @1 EACCES setxattr x user.a w\n chmod x 606\n @1 setxattr x user.a w"),
    ("a fifo has no user attributes", &["xattr-user"], "make fifo x\n EPERM setxattr x user.a v"),
    ("trusted attributes are the superuser's", &["users", "trusted"], "create x 666\n setxattr x trusted.a v\n getxattr x trusted.a v\n @1 EPERM setxattr x trusted.b v\n @1 ENODATA|EPERM getxattr x trusted.a v\n @1 listxattr x"),
    ("a new file of an old name has none", &["xattr-user"], "create x\n setxattr x user.a v\n unlink x\n create x\n listxattr x\n create y\n setxattr y user.b v\n rename x y\n listxattr y"),
];

pub fn add(cases: &mut Vec<Case>) {
    add_by_kind(cases, "permissions", NOT_LINK, BY_KIND);
    add_by_kind(cases, "permissions", ALL, BY_KIND_ALL);
    add_rules(cases, "permissions", RULES);
    add_rules(cases, "xattrs", XATTRS);
}
