//! Hard and symbolic links.

use super::{Case, Rules, add_by_kind, add_rules};

const LINKABLE: &[&str] = &["regular", "fifo", "block", "char", "socket", "symlink"];

const BY_KIND: &Rules = &[
    ("all names are one object", &[], "
        make {kind} a\n lstat a nlink=1\n link a b\n link b c\n lstat a nlink=3 kind={kind}\n lstat c nlink=3\n same-object a c
        lchown b 5 6\n lstat a uid=5 gid=6\n lstat c uid=5 gid=6\n unlink a\n lstat b nlink=2\n unlink c\n lstat b nlink=1 kind={kind}\n unlink b\n list ."),
    ("a link changes ctime and the directory", &[], "
        make {kind} a\n mark a\n mark .\n tick\n link a b\n newer a ctime\n newer . mtime ctime\n same a mtime"),
    ("an unlink of one name changes ctime", &[], "make {kind} a\n link a b\n tick\n mark b\n tick\n unlink a\n newer b ctime\n same b mtime"),
    ("a name that went may be given again", &[], "
        make {kind} a\n link a b\n unlink a\n link b a\n lstat b nlink=2\n same-object a b\n rename a c\n link b a\n lstat c nlink=3\n unlink b\n unlink c\n link a b\n lstat b nlink=2 kind={kind}"),
    ("a rename of a second name keeps them", &[], "make {kind} a\n link a b\n mkdir d 755\n rename b d/c\n lstat a nlink=2\n same-object a d/c"),
];

const RULES: &Rules = &[
    ("link of a directory is EPERM", &[], "mkdir d 755\n EPERM link d e"),
    ("link does not follow (Linux)", &[], "create x\n symlink x l\n link l m\n lstat m kind=symlink nlink=2\n stat x nlink=1"),
    ("link to an existing name is EEXIST", &[], "create x\n create y\n EEXIST link x y\n EEXIST link x x"),
    ("a failed link changes no ctime", &["users"], "create x\n mkdir d 755\n mark x\n mark d\n tick\n @1 EACCES|EPERM link x d/y\n same x ctime\n same d mtime ctime"),
    ("data is shared by all names", &[], "open f x creat,rw\n link x y\n write f 0 abc\n open g y rw\n read g 0 9 abc\n truncate y 1\n stat x size=1\n chmod y 640\n stat x mode=640"),
    ("a hard-linked file lives while open", &[], "open f x creat,rw\n write f 0 abc\n link x y\n unlink x\n unlink y\n read f 0 9 abc\n fstat f nlink=0"),
    ("names of 255 bytes come and go", &[], "
        create 255*n\n link 255*n x\n unlink 255*n\n link x 255*n\n lstat x nlink=2\n unlink x\n link 255*n x\n lstat x nlink=2"),
    ("an open file keeps its attributes when its names change", &[], "
        open f x creat,rw\n link x y\n unlink x\n fchmod f 640\n stat y mode=640 nlink=1\n rename y z\n fchmod f 600\n stat z mode=600\n unlink z\n fchmod f 400\n fstat f mode=400 nlink=0"),
    ("readlink gives the target as it was", &[], "symlink a/b/../c x\n readlink x a/b/../c\n symlink 4095*t y\n lstat y size=4095\n readlink y 4095*t"),
    ("a target of 4096 bytes is ENAMETOOLONG", &[], "ENAMETOOLONG symlink 4096*t x"),
    ("an empty target is ENOENT", &[], "ENOENT symlink '' x"),
    ("readlink of what is no link is EINVAL", &[], "create x\n mkdir d 755\n EINVAL readlink x y\n EINVAL readlink d y"),
    ("links lead through links", &[], "mkdir d 755\n create d/f\n symlink d a\n symlink a b\n symlink b/f c\n stat c kind=regular\n same-object b/f d/f"),
    ("an absolute link starts at the top", &[], "mkdir d 755\n create f\n symlink ./f d/l\n stat d/l kind=regular"),
    ("a relative link starts at its directory", &[], "mkdir d 755\n create d/f\n symlink f d/l\n stat d/l kind=regular\n rename d/l l\n ENOENT stat l"),
    ("40 links are followed, 41 are ELOOP", &[], "
        create l0
        symlink l0 l1\n symlink l1 l2\n symlink l2 l3\n symlink l3 l4\n symlink l4 l5\n symlink l5 l6\n symlink l6 l7\n symlink l7 l8\n symlink l8 l9\n symlink l9 l10
        symlink l10 l11\n symlink l11 l12\n symlink l12 l13\n symlink l13 l14\n symlink l14 l15\n symlink l15 l16\n symlink l16 l17\n symlink l17 l18\n symlink l18 l19\n symlink l19 l20
        symlink l20 l21\n symlink l21 l22\n symlink l22 l23\n symlink l23 l24\n symlink l24 l25\n symlink l25 l26\n symlink l26 l27\n symlink l27 l28\n symlink l28 l29\n symlink l29 l30
        symlink l30 l31\n symlink l31 l32\n symlink l32 l33\n symlink l33 l34\n symlink l34 l35\n symlink l35 l36\n symlink l36 l37\n symlink l37 l38\n symlink l38 l39\n symlink l39 l40
        symlink l40 l41\n stat l40 kind=regular\n ELOOP stat l41\n ELOOP open f l41 r"),
    ("a link to itself is ELOOP", &[], "symlink x x\n ELOOP stat x\n lstat x kind=symlink\n ELOOP open f x creat,w\n unlink x"),
    ("unlink removes the link, not what it names", &[], "create x\n symlink x l\n unlink l\n stat x\n ENOENT lstat l"),
    ("a file without a name gets one", &["tmpfile"], "
        tmpfile f . rw 640\n write f 0 data\n fstat f nlink=0 mode=640 size=4\n list .\n linkfd f x\n stat x size=4 nlink=1 mode=640\n read f 0 9 data"),
    ("a file without a name is the maker's", &["tmpfile", "users"], "mkdir d 777\n @1 tmpfile f d rw 600\n fstat f uid=1 gid=1"),
    ("a file without a name needs the directory's permission", &["tmpfile", "users"], "mkdir d 755\n @1 EACCES tmpfile f d rw 600"),
    ("a file without a name takes no name that is taken", &["tmpfile"], "tmpfile f . w\n create x\n EEXIST linkfd f x"),
];

pub fn add(cases: &mut Vec<Case>) {
    add_by_kind(cases, "links", LINKABLE, BY_KIND);
    add_rules(cases, "links", RULES);
}
