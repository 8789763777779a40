//! Making, opening, removing and renaming things.

use super::{Case, Rules, add_by_kind, add_rules};

const ALL: &[&str] = &["regular", "dir", "fifo", "block", "char", "socket", "symlink"];
const NOT_DIR: &[&str] = &["regular", "fifo", "block", "char", "socket", "symlink"];

const BY_KIND: &Rules = &[
    ("is made, is of its kind, goes", &[], "
        make {kind} x\n lstat x kind={kind} uid=0 gid=0\n list . x
        {remove} x\n ENOENT lstat x\n list ."),
    ("belongs to its maker", &["users"], "@1 make {kind} x\n lstat x uid=1 gid=1"),
    ("O_CREAT|O_EXCL on it is EEXIST", &[], "make {kind} x\n EEXIST open f x creat,excl,w"),
    ("a rename keeps the object and changes ctime", &[], "
        make {kind} x\n lstat x kind={kind}\n symlink nowhere mark\n rename mark m2\n unlink m2
        make regular old\n rename x y\n ENOENT lstat x\n lstat y kind={kind}\n list . old y"),
    ("a rename onto itself does nothing", &[], "make {kind} x\n rename x x\n lstat x kind={kind}"),
    ("NOREPLACE onto it is EEXIST", &["exchange"], "
        create a\n make {kind} x\n EEXIST rename a x noreplace\n lstat x kind={kind}\n rename a b noreplace\n list . b x"),
    ("it swaps with a file", &["exchange"], "
        create a\n make {kind} x\n rename a x exchange\n lstat a kind={kind}\n lstat x kind=regular"),
    ("rmdir of its directory is ENOTEMPTY", &[], "
        mkdir d 755\n make {kind} d/x\n EEXIST|ENOTEMPTY rmdir d\n {remove} d/x\n rmdir d"),
    ("a directory renamed onto its directory is ENOTEMPTY", &[], "
        mkdir a 755\n mkdir d 755\n make {kind} d/x\n EEXIST|ENOTEMPTY rename a d"),
    ("making it changes its directory's mtime and ctime", &[], "
        mkdir d 755\n mark d\n tick\n make {kind} d/x\n newer d mtime ctime"),
    ("removing it changes its directory's mtime and ctime", &[], "
        mkdir d 755\n make {kind} d/x\n tick\n mark d\n tick\n {remove} d/x\n newer d mtime ctime"),
];

const BY_KIND_NOT_DIR: &Rules = &[
    ("rmdir of it is ENOTDIR", &[], "make {kind} x\n ENOTDIR rmdir x"),
    (
        "a directory renamed onto it is ENOTDIR",
        &[],
        "
        make {kind} x\n mkdir d 755\n ENOTDIR rename d x\n lstat x kind={kind}",
    ),
    (
        "renamed onto a directory is EISDIR",
        &[],
        "
        make {kind} x\n mkdir d 755\n EISDIR rename x d\n lstat d kind=dir",
    ),
    (
        "renamed onto a file it takes its place",
        &[],
        "
        make {kind} x\n create y\n rename x y\n ENOENT lstat x\n lstat y kind={kind} nlink=1",
    ),
    (
        "opened as a directory is ENOTDIR",
        &[],
        "
        make {kind} x\n ENOTDIR|ENOENT open f x r,dir,nonblock",
    ),
    (
        "as a component is ENOTDIR",
        &[],
        "make {kind} x\n ENOTDIR|ENOENT lstat x/y\n ENOTDIR|ENOENT lstat x/.",
    ),
];

const RULES: &Rules = &[
    ("mkdir: mode less the umask", &[], "
        umask 77\n mkdir d 151\n stat d mode=100\n umask 501\n mkdir e 345\n stat e mode=244"),
    ("open: mode less the umask", &[], "
        umask 70\n open f x creat,w 345\n stat x mode=305\n umask 501\n open g y creat,w 345\n stat y mode=244"),
    ("mkfifo: mode less the umask", &[], "umask 77\n make fifo x 151\n stat x mode=100"),
    ("symlink: no umask, mode 0777", &[], "umask 77\n symlink a x\n lstat x mode=777 size=1"),
    ("a name of 255 bytes is fine", &[], "create 255*n\n lstat 255*n\n rename 255*n 255*m\n unlink 255*m\n list ."),
    ("any bytes but / and NUL are a name", &[], "create a\\b\n create \u{1}\u{7f}\n create é\n create -x\n count . 4"),
    ("unlink of a directory is EISDIR (Linux)", &[], "mkdir d 755\n EISDIR|EPERM unlink d\n stat d kind=dir"),
    ("rmdir of . is EINVAL", &[], "mkdir d 755\n EINVAL rmdir d/.\n stat d"),
    ("rmdir of .. is ENOTEMPTY", &[], "mkdir d 755\n mkdir d/e 755\n ENOTEMPTY|EEXIST rmdir d/e/..\n stat d/e"),
    ("rmdir follows no symbolic link", &[], "mkdir d 755\n symlink d l\n ENOTDIR rmdir l\n stat d"),
    ("a trailing slash demands a directory", &[], "
        create f\n ENOTDIR stat f/\n ENOTDIR unlink f/\n ENOTDIR|EISDIR open g f/ r\n mkdir d 755\n stat d/ kind=dir"),
    ("a trailing slash follows a link", &[], "mkdir d 755\n symlink d l\n lstat l/ kind=dir\n lstat l kind=symlink"),
    ("mkdir takes a trailing slash", &[], "mkdir d/ 755\n stat d kind=dir"),
    ("creating with a trailing slash is EISDIR", &[], "EISDIR open f x/ creat,w\n ENOENT stat x"),
    ("slashes count once", &[], "mkdir d 755\n create d///x\n stat d//x kind=regular\n stat .//d/./x"),
    (".. leads up", &[], "mkdir a 755\n mkdir a/b 755\n create c\n stat a/b/../../c kind=regular\n same-object a/b/.. a"),
    ("a removed directory's entries are gone for all", &[], "mkdir d 755\n rmdir d\n ENOENT create d/x\n ENOENT list d"),
    ("open: O_CREAT makes, and opens what is there", &[], "
        open f x creat,w 600\n write f 0 abc\n open g x creat,r 777\n read g 0 9 abc\n stat x mode=600 size=3"),
    ("open: O_CREAT on a directory is EISDIR", &[], "mkdir d 755\n EISDIR open f d creat,r\n EISDIR open f d w\n EISDIR open f d rw"),
    ("open: a directory for reading", &[], "mkdir d 755\n open f d r\n fstat f kind=dir\n open g d r,dir\n close g"),
    ("open: O_EXCL follows no dangling link", &[], "symlink nowhere l\n EEXIST open f l creat,excl,w\n ENOENT stat nowhere"),
    ("open: O_CREAT makes what a dangling link names", &[], "symlink there l\n open f l creat,w\n stat there kind=regular"),
    ("open: O_NOFOLLOW on a link is ELOOP", &[], "
        create x\n symlink x l\n ELOOP open f l r,nofollow\n ELOOP open f l w,nofollow\n ELOOP open f l r,creat,nofollow\n open f x r,nofollow"),
    ("open: O_TRUNC empties", &[], "open f x creat,w\n write f 0 abc\n open g x w,trunc\n fstat g size=0\n fstat f size=0"),
    ("open: O_TRUNC follows a link", &[], "open f x creat,w\n write f 0 abc\n symlink x l\n open g l w,trunc\n stat x size=0"),
    ("open: a fifo without a reader is ENXIO", &["special-open"], "make fifo x\n ENXIO open f x w,nonblock"),
    ("open: a socket is ENXIO", &["special-open"], "make socket x\n ENXIO open f x r\n ENXIO open f x rw"),
    ("a file open when unlinked lives on", &[], "
        open f x creat,rw\n write f 0 hello\n unlink x\n ENOENT stat x\n read f 0 9 hello\n fstat f nlink=0 size=5
        write f 5 !\n read f 0 9 hello!\n open g x creat,rw\n fstat g size=0\n read f 0 9 hello!"),
    ("a file open when replaced lives on", &[], "
        open f x creat,rw\n write f 0 old\n create y\n rename y x\n read f 0 9 old\n fstat f nlink=0\n stat x size=0"),
    ("a directory goes below another", &[], "mkdir a 755\n mkdir b 755\n mkdir a/c 755\n create a/c/f\n rename a/c b/d\n stat b/d/f\n ENOENT stat a/c\n same-object b/d/.. b"),
    ("a directory replaces an empty one", &[], "mkdir a 755\n create a/f\n mkdir b 755\n rename a b\n stat b/f\n ENOENT stat a"),
    ("a directory does not go below itself", &[], "
        mkdir a 755\n mkdir a/b 755\n EINVAL rename a a/b\n EINVAL rename a a/b/c\n EINVAL rename a a/x\n stat a/b"),
    ("nor by exchange", &["exchange"], "mkdir a 755\n mkdir a/b 755\n EINVAL rename a a/b exchange\n EINVAL|ENOTEMPTY rename a/b a exchange"),
    ("a directory onto its full ancestor is ENOTEMPTY", &[], "mkdir a 755\n mkdir a/b 755\n ENOTEMPTY|EEXIST rename a/b a"),
    ("rename of . and .. is refused", &[], "mkdir d 755\n mkdir d/e 755\n EINVAL|EBUSY rename d/e/. x\n EINVAL|EBUSY rename d/e/.. x\n EINVAL|EBUSY rename d d/.\n stat d/e"),
    ("rename follows no links", &[], "create x\n symlink x l\n rename l m\n lstat m kind=symlink\n create y\n rename y m\n lstat m kind=regular\n stat x"),
    ("rename onto another name of the file does nothing", &[], "create x\n link x y\n rename x y\n stat x nlink=2\n same-object x y"),
    ("exchange of a missing name is ENOENT", &["exchange"], "create x\n ENOENT rename x y exchange\n ENOENT rename y x exchange"),
    ("exchange with NOREPLACE is EINVAL", &["exchange"], "create x\n create y\n EINVAL rename x y noreplace exchange"),
    ("exchange of directories with content", &["exchange"], "mkdir a 755\n mkdir b 755\n create a/x\n create b/y\n rename a b exchange\n list a y\n list b x"),
    ("a trailing slash on a renamed file is ENOTDIR", &[], "create x\n ENOTDIR rename x/ y\n ENOTDIR rename x y/\n stat x"),
    ("a rename changes the ctime that other names show", &[], "create x\n link x y\n mark y\n tick\n rename x z\n newer y ctime\n same y mtime"),
    ("an exchange changes both ctimes", &["exchange"], "create x\n link x y\n create a\n link a b\n mark y\n mark b\n tick\n rename x a exchange\n newer y ctime\n newer b ctime\n same y mtime\n same b mtime"),
    ("a renamed replacement drops a name", &[], "create x\n create y\n link y z\n tick\n mark z\n tick\n rename x y\n stat z nlink=1\n newer z ctime"),
    ("rename changes both directories' times", &[], "mkdir a 755\n mkdir b 755\n create a/x\n mark a\n mark b\n tick\n rename a/x b/x\n newer a mtime ctime\n newer b mtime ctime"),
    ("a failed rename changes nothing", &[], "mkdir a 755\n create a/x\n mkdir b 755\n mark a\n mark b\n tick\n EISDIR rename a/x b\n same a mtime ctime\n same b mtime ctime"),
    ("directories count their subdirectories", &["dir-nlink"], "
        mkdir a 755\n mkdir b 755\n stat a nlink=2\n mkdir a/x 755\n mkdir a/y 755\n create a/f\n stat a nlink=4
        rename a/x b/x\n stat a nlink=3\n stat b nlink=3\n rmdir a/y\n stat a nlink=2"),
    ("a listing has every name once", &[], "mkdir d 755\n create d/a\n mkdir d/b 755\n symlink x d/c\n make fifo d/e\n list d a b c e\n unlink d/c\n list d a b e"),
    ("a listing of an empty directory is empty", &[], "mkdir d 755\n list d"),
    ("a listing of a file is ENOTDIR", &[], "create f\n ENOTDIR list f"),
    ("a listing needs read permission", &["users"], "mkdir d 711\n create d/x\n @1 EACCES list d\n @1 stat d/x\n chmod d 744\n @1 list d x"),
];

pub fn add(cases: &mut Vec<Case>) {
    add_by_kind(cases, "names", ALL, BY_KIND);
    add_by_kind(cases, "names", NOT_DIR, BY_KIND_NOT_DIR);
    add_rules(cases, "names", RULES);
}
