//! The language of the cases, one step a line:
//!
//! ```text
//! [@USER[+GROUP]] [ERRNO[|ERRNO]] COMMAND ARGUMENT…
//! ```
//!
//! A step is done by the superuser or `@USER` (a number), and must succeed or fail with one of the
//! errors named. `#` begins a comment. Paths are relative to the case's own directory, which is
//! `.` and belongs to the superuser with mode 0777. In any argument `N*TEXT` is TEXT repeated, `''`
//! is empty. Modes are octal. Commands:
//!
//! | | |
//! |---|---|
//! | `mkdir P MODE` `rmdir P` `create P [MODE]` `make KIND P [MODE]` `unlink P` | |
//! | `symlink TARGET P` `link P NEW` `rename P NEW [noreplace] [exchange]` `readlink P TARGET` | |
//! | `list P NAME…` (all, in any order) `umask MODE` `tick` (let the clock move on) | |
//! | `chmod P MODE` `chown P UID GID` `lchown …` (`-` leaves one alone) `access P rwx` | |
//! | `utimens P ATIME MTIME` (seconds, `now`, `omit`) `lutimens …` `truncate P SIZE` | |
//! | `stat P FIELD=VALUE…` `lstat …` `fstat FD …`: mode nlink uid gid size kind atime mtime blocks | |
//! | `mark P` and later `newer P TIME…` or `same P TIME…`: against the mark | |
//! | `same-object P Q`; `other-object P Q` | |
//! | `open FD P FLAG,… [MODE]` `tmpfile FD P FLAG,… [MODE]` `linkfd FD P` `close FD` `fsync FD` | |
//! | `write FD OFFSET DATA` `append FD DATA` `read FD OFFSET BYTES DATA` `ftruncate FD SIZE` | |
//! | `fchmod FD MODE` `fallocate FD FLAGS OFFSET BYTES` `data FD OFFSET AT` `hole FD OFFSET AT` | |
//! | `copy FD OFFSET FD OFFSET BYTES COPIED` | |
//! | `flock FD sh|ex|un` `lock FD r|w|u FIRST BYTES` `getlock FD r|w FIRST BYTES free|r|w` | |
//! | `setxattr P NAME VALUE [create|replace]` `getxattr P NAME VALUE` `listxattr P NAME…` `removexattr P NAME` | |

use crate::system::{
    Attrs, Errno, Fd, LockAsked, LockWanted, NewTime, OpenHow, System, Times, User,
};
use std::collections::HashMap;

const ERRORS: &[(&str, Errno)] = &[
    ("EPERM", libc::EPERM),
    ("ENOENT", libc::ENOENT),
    ("ENXIO", libc::ENXIO),
    ("EBADF", libc::EBADF),
    ("EAGAIN", libc::EAGAIN),
    ("EACCES", libc::EACCES),
    ("EBUSY", libc::EBUSY),
    ("EEXIST", libc::EEXIST),
    ("EXDEV", libc::EXDEV),
    ("ENOTDIR", libc::ENOTDIR),
    ("EISDIR", libc::EISDIR),
    ("EINVAL", libc::EINVAL),
    ("EFBIG", libc::EFBIG),
    ("ENOSPC", libc::ENOSPC),
    ("ENAMETOOLONG", libc::ENAMETOOLONG),
    ("ENOTEMPTY", libc::ENOTEMPTY),
    ("ELOOP", libc::ELOOP),
    ("ENODATA", libc::ENODATA),
    ("ERANGE", libc::ERANGE),
    ("E2BIG", libc::E2BIG),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
];

const FLAGS: &[(&str, i32)] = &[
    ("r", libc::O_RDONLY),
    ("w", libc::O_WRONLY),
    ("rw", libc::O_RDWR),
    ("creat", libc::O_CREAT),
    ("excl", libc::O_EXCL),
    ("trunc", libc::O_TRUNC),
    ("append", libc::O_APPEND),
    ("dir", libc::O_DIRECTORY),
    ("nofollow", libc::O_NOFOLLOW),
    ("path", libc::O_PATH),
    ("nonblock", libc::O_NONBLOCK),
];

/// Kinds of things that `make` makes.
pub(crate) const KINDS: [&str; 7] =
    ["regular", "dir", "fifo", "block", "char", "socket", "symlink"];

fn kind_of(mode: u32) -> &'static str {
    match mode & libc::S_IFMT {
        libc::S_IFREG => "regular",
        libc::S_IFDIR => "dir",
        libc::S_IFIFO => "fifo",
        libc::S_IFBLK => "block",
        libc::S_IFCHR => "char",
        libc::S_IFSOCK => "socket",
        libc::S_IFLNK => "symlink",
        _ => "nothing",
    }
}

/// What a step says when it is not as it should be.
enum Fault {
    Errno(Errno),
    /// It gave something else, or the step makes no sense.
    Wrong(String),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::Errno(errno)
    }
}

type Step<T> = Result<T, Fault>;

struct Runner<'a> {
    system: &'a mut dyn System,
    dir: &'a str,
    files: HashMap<String, Fd>,
    marks: HashMap<String, Times>,
}

/// Runs a script in a new directory of this name; tells the first step that went wrong.
pub fn run_script(system: &mut dyn System, dir: &str, script: &str) -> Result<(), String> {
    system.be(User::ROOT);
    system.umask(0);
    let top = format!("/{dir}");
    system.mkdir(&top, 0o777).map_err(|errno| format!("mkdir {top}: {}", name_of(errno)))?;
    let mut runner = Runner { system, dir: &top, files: HashMap::new(), marks: HashMap::new() };
    let mut outcome = Ok(());
    for line in script.lines() {
        let line = line.split_once('#').map_or(line, |(step, _)| step).trim();
        if line.is_empty() {
            continue;
        }
        if let Err(why) = runner.line(line) {
            outcome = Err(format!("'{}': {why}", shorten(line)));
            break;
        }
    }
    let open: Vec<Fd> = runner.files.values().copied().collect();
    for fd in open {
        // What is left open is closed; nothing hangs on it.
        let _ = runner.system.close(fd);
    }
    runner.system.be(User::ROOT);
    runner.system.umask(0);
    outcome
}

fn shorten(line: &str) -> String {
    if line.len() > 120 { format!("{}…", &line[..100]) } else { line.to_string() }
}

fn name_of(errno: Errno) -> String {
    let known = ERRORS.iter().find(|(_, number)| *number == errno);
    known.map_or(format!("errno {errno}"), |(name, _)| name.to_string())
}

/// `N*TEXT` is TEXT N times; several are joined by `+`.
fn expand(word: &str) -> String {
    if word == "''" {
        return String::new();
    }
    if !word.contains('*') {
        return word.to_string();
    }
    let part = |part: &str| match part.split_once('*') {
        Some((count, text)) => match count.parse::<usize>() {
            Ok(count) => text.repeat(count),
            Err(_) => part.to_string(),
        },
        None => part.to_string(),
    };
    word.split('+').map(part).collect()
}

fn wrong<T>(what: impl Into<String>) -> Step<T> {
    Err(Fault::Wrong(what.into()))
}

fn number<T: std::str::FromStr>(word: &str) -> Step<T> {
    word.parse().or_else(|_| wrong(format!("'{word}' is no number")))
}

fn octal(word: &str) -> Step<u32> {
    u32::from_str_radix(word, 8).or_else(|_| wrong(format!("'{word}' is no mode")))
}

impl Runner<'_> {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let mut user = User::ROOT;
        if let Some(who) = words[0].strip_prefix('@') {
            let (id, group) = match who.split_once('+') {
                Some((id, group)) => (id, group.parse().ok()),
                None => (who, None),
            };
            user = User { id: id.parse().map_err(|_| "no such user")?, group };
            words.remove(0);
        }
        let mut expected = Vec::new();
        if words[0].starts_with('E') {
            for name in words.remove(0).split('|') {
                let found = ERRORS.iter().find(|(known, _)| *known == name);
                expected.push(found.ok_or(format!("unknown error {name}"))?.1);
            }
        }
        let args: Vec<String> = words[1..].iter().map(|word| expand(word)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.system.be(user);
        let outcome = self.step(words[0], &args);
        self.system.be(User::ROOT);
        match outcome {
            Err(Fault::Wrong(why)) => Err(why),
            Ok(()) if expected.is_empty() => Ok(()),
            Ok(()) => Err("succeeded".into()),
            Err(Fault::Errno(errno)) if expected.contains(&errno) => Ok(()),
            Err(Fault::Errno(errno)) => Err(name_of(errno)),
        }
    }

    fn path(&self, path: &str) -> String {
        match path {
            "." => self.dir.to_string(),
            "''" | "" => String::new(),
            path if path.starts_with('/') => path.to_string(),
            path => format!("{}/{path}", self.dir),
        }
    }

    fn fd(&self, name: &str) -> Step<Fd> {
        self.files.get(name).copied().map_or_else(|| wrong(format!("no file {name}")), Ok)
    }

    fn step(&mut self, command: &str, args: &[&str]) -> Step<()> {
        match (command, args) {
            ("tick", []) => self.system.tick(),
            ("umask", [mode]) => self.system.umask(octal(mode)?),
            (
                "mkdir" | "rmdir" | "create" | "make" | "unlink" | "symlink" | "link" | "rename",
                _,
            ) => {
                self.name_step(command, args)?;
            }
            ("readlink", [path, target]) => {
                let found = self.system.readlink(&self.path(path))?;
                let target = match target.strip_prefix("./") {
                    Some(rest) => self.path(rest),
                    None => target.to_string(),
                };
                if found != target {
                    return wrong(format!("leads to {found}"));
                }
            }
            ("list", [path, names @ ..]) => {
                let mut found = self.system.list(&self.path(path))?;
                let mut names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
                found.sort();
                names.sort();
                if found != names {
                    return wrong(format!("holds {found:?}"));
                }
            }
            ("count", [path, count]) => {
                let found = self.system.list(&self.path(path))?.len();
                if found != number::<usize>(count)? {
                    return wrong(format!("holds {found} names"));
                }
            }
            ("chmod" | "chown" | "lchown" | "access" | "utimens" | "lutimens" | "truncate", _) => {
                self.attr_step(command, args)?;
            }
            ("stat" | "lstat", [path, fields @ ..]) => {
                let attrs = self.system.stat(&self.path(path), command == "stat")?;
                check_fields(&attrs, fields)?;
            }
            ("mark", [path]) => {
                let attrs = self.system.stat(&self.path(path), false)?;
                self.marks.insert(path.to_string(), attrs.times);
            }
            ("newer" | "same", [path, times @ ..]) => {
                let now = self.system.stat(&self.path(path), false)?.times;
                let Some(then) = self.marks.get(*path) else {
                    return wrong("no mark");
                };
                for time in times {
                    let (then, now) = (time_of(then, time)?, time_of(&now, time)?);
                    if (command == "newer") != (now > then) || (command == "same" && now != then) {
                        return wrong(format!("{time} was {then}, is {now}"));
                    }
                }
            }
            ("same-object" | "other-object", [a, b]) => {
                let a = self.system.stat(&self.path(a), false)?.ino;
                let b = self.system.stat(&self.path(b), false)?.ino;
                if (a == b) != (command == "same-object") {
                    return wrong(format!("objects {a} and {b}"));
                }
            }
            ("setxattr" | "getxattr" | "listxattr" | "removexattr", _) => {
                self.xattr_step(command, args)?;
            }
            _ => self.file_step(command, args)?,
        }
        Ok(())
    }

    fn name_step(&mut self, command: &str, args: &[&str]) -> Step<()> {
        match (command, args) {
            ("mkdir", [path, mode]) => self.system.mkdir(&self.path(path), octal(mode)?)?,
            ("rmdir", [path]) => self.system.rmdir(&self.path(path))?,
            ("create", [path, mode @ ..]) => {
                let mode = mode.first().map_or(Ok(0o644), |mode| octal(mode))?;
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
                let fd = self.system.open(&self.path(path), OpenHow { flags, mode })?;
                self.system.close(fd)?;
            }
            ("make", [kind, path, mode @ ..]) => {
                let mode = mode.first().map_or(Ok(0o644), |mode| octal(mode))?;
                let path = self.path(path);
                let node = |kind: u32, rdev: u64| (kind | mode, rdev);
                let (mode, rdev) = match *kind {
                    "regular" => node(libc::S_IFREG, 0),
                    "dir" => return Ok(self.system.mkdir(&path, mode)?),
                    "fifo" => node(libc::S_IFIFO, 0),
                    "block" => node(libc::S_IFBLK, 0x0102),
                    "char" => node(libc::S_IFCHR, 0x0103),
                    "socket" => node(libc::S_IFSOCK, 0),
                    "symlink" => return Ok(self.system.symlink("nowhere", &path)?),
                    kind => return wrong(format!("no kind {kind}")),
                };
                self.system.mknod(&path, mode, rdev)?;
            }
            ("unlink", [path]) => self.system.unlink(&self.path(path))?,
            ("symlink", [target, path]) => {
                // `./` stands for the case's directory.
                let target = match target.strip_prefix("./") {
                    Some(rest) => self.path(rest),
                    None => target.to_string(),
                };
                self.system.symlink(&target, &self.path(path))?;
            }
            ("link", [path, new]) => self.system.link(&self.path(path), &self.path(new))?,
            ("rename", [path, new, flags @ ..]) => {
                let mut bits = 0;
                for flag in flags {
                    bits |= match *flag {
                        "noreplace" => 1,
                        "exchange" => 2,
                        flag => return wrong(format!("no flag {flag}")),
                    };
                }
                self.system.rename(&self.path(path), &self.path(new), bits)?;
            }
            _ => return wrong("what is this step?"),
        }
        Ok(())
    }

    fn attr_step(&mut self, command: &str, args: &[&str]) -> Step<()> {
        match (command, args) {
            ("chmod", [path, mode]) => self.system.chmod(&self.path(path), octal(mode)?)?,
            ("chown" | "lchown", [path, uid, gid]) => {
                let id = |word: &str| if word == "-" { Ok(None) } else { number(word).map(Some) };
                let (uid, gid) = (id(uid)?, id(gid)?);
                self.system.chown(&self.path(path), uid, gid, command == "chown")?;
            }
            ("access", [path, bits]) => {
                let bit = |letter: char, bit: u32| if bits.contains(letter) { bit } else { 0 };
                let bits = bit('r', 4) | bit('w', 2) | bit('x', 1);
                self.system.access(&self.path(path), bits)?;
            }
            ("utimens" | "lutimens", [path, atime, mtime]) => {
                let time = |word: &str| -> Step<NewTime> {
                    Ok(match word {
                        "now" => NewTime::Now,
                        "omit" => NewTime::Omit,
                        word => match word.split_once('.') {
                            Some((seconds, ns)) => {
                                let (s, ns): (i64, i64) = (number(seconds)?, number(ns)?);
                                NewTime::At(s * 1_000_000_000 + ns)
                            }
                            None => NewTime::At(number::<i64>(word)? * 1_000_000_000),
                        },
                    })
                };
                let times = [time(atime)?, time(mtime)?];
                self.system.utimens(&self.path(path), times, command == "utimens")?;
            }
            ("truncate", [path, size]) => {
                self.system.truncate(&self.path(path), number(size)?)?;
            }
            _ => return wrong("what is this step?"),
        }
        Ok(())
    }

    fn xattr_step(&mut self, command: &str, args: &[&str]) -> Step<()> {
        match (command, args) {
            ("setxattr", [path, name, value, flags @ ..]) => {
                let flags = match flags {
                    [] => 0,
                    ["create"] => 1,
                    ["replace"] => 2,
                    _ => return wrong("no such flag"),
                };
                self.system.setxattr(&self.path(path), name, value.as_bytes(), flags)?;
            }
            ("getxattr", [path, name, value]) => {
                let found = self.system.getxattr(&self.path(path), name)?;
                if found != value.as_bytes() {
                    return wrong(format!("is {}", found.escape_ascii()));
                }
            }
            ("listxattr", [path, names @ ..]) => {
                let mut found = self.system.listxattr(&self.path(path))?;
                // What the machine adds by itself is none of ours.
                found.retain(|name| name.starts_with("user.") || name.starts_with("trusted."));
                let mut names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
                found.sort();
                names.sort();
                if found != names {
                    return wrong(format!("has {found:?}"));
                }
            }
            ("removexattr", [path, name]) => self.system.removexattr(&self.path(path), name)?,
            _ => return wrong("what is this step?"),
        }
        Ok(())
    }

    fn file_step(&mut self, command: &str, args: &[&str]) -> Step<()> {
        match (command, args) {
            ("open" | "tmpfile", [name, path, flags, mode @ ..]) => {
                let mode = mode.first().map_or(Ok(0o644), |mode| octal(mode))?;
                let mut bits = 0;
                for flag in flags.split(',') {
                    match FLAGS.iter().find(|(known, _)| *known == flag) {
                        Some((_, bit)) => bits |= bit,
                        None => return wrong(format!("no flag {flag}")),
                    }
                }
                let (how, path) = (OpenHow { flags: bits, mode }, self.path(path));
                let fd = match command {
                    "open" => self.system.open(&path, how)?,
                    _ => self.system.tmpfile(&path, how)?,
                };
                self.files.insert(name.to_string(), fd);
            }
            ("linkfd", [fd, path]) => self.system.link_fd(self.fd(fd)?, &self.path(path))?,
            ("close", [fd]) => {
                let fd = self.files.remove(*fd).map_or_else(|| wrong("no such file"), Ok)?;
                self.system.close(fd)?;
            }
            ("fsync", [fd]) => self.system.fsync(self.fd(fd)?)?,
            ("fstat", [fd, fields @ ..]) => {
                check_fields(&self.system.fstat(self.fd(fd)?)?, fields)?;
            }
            ("write", [fd, offset, data]) => {
                let written =
                    self.system.write(self.fd(fd)?, Some(number(offset)?), data.as_bytes())?;
                if written != data.len() {
                    return wrong(format!("{written} bytes"));
                }
            }
            ("append", [fd, data]) => {
                let written = self.system.write(self.fd(fd)?, None, data.as_bytes())?;
                if written != data.len() {
                    return wrong(format!("{written} bytes"));
                }
            }
            ("read", [fd, offset, bytes, data]) => {
                let found = self.system.read(self.fd(fd)?, number(offset)?, number(bytes)?)?;
                // `_` stands for a byte of zero.
                let data: Vec<u8> = data.bytes().map(|b| if b == b'_' { 0 } else { b }).collect();
                if found != data {
                    return wrong(format!("is {}", shorten(&found.escape_ascii().to_string())));
                }
            }
            ("ftruncate", [fd, size]) => self.system.ftruncate(self.fd(fd)?, number(size)?)?,
            ("fchmod", [fd, mode]) => self.system.fchmod(self.fd(fd)?, octal(mode)?)?,
            ("fallocate", [fd, flags, offset, bytes]) => {
                let (offset, bytes) = (number(offset)?, number(bytes)?);
                self.system.fallocate(self.fd(fd)?, number(flags)?, offset, bytes)?;
            }
            ("data" | "hole", [fd, offset, at]) => {
                let found = self.system.seek(self.fd(fd)?, command == "hole", number(offset)?)?;
                if found != number::<u64>(at)? {
                    return wrong(format!("at {found}"));
                }
            }
            ("copy", [from, at, to, to_at, bytes, copied]) => {
                let (from, to) = (self.fd(from)?, self.fd(to)?);
                let (at, to_at) = (number(at)?, number(to_at)?);
                let found = self.system.copy(from, at, to, to_at, number(bytes)?)?;
                if found != number::<usize>(copied)? {
                    return wrong(format!("{found} bytes"));
                }
            }
            ("flock", [fd, how]) => {
                self.system.lock(self.fd(fd)?, LockAsked::Whole, wanted(how)?)?;
            }
            ("lock", [fd, how, first, bytes]) => {
                let range = LockAsked::Range(number(first)?, number(bytes)?);
                self.system.lock(self.fd(fd)?, range, wanted(how)?)?;
            }
            ("getlock", [fd, how, first, bytes, holder]) => {
                let range = (number(first)?, number(bytes)?);
                let found = self.system.test_lock(self.fd(fd)?, range, wanted(how)?)?;
                let expected = if *holder == "free" { None } else { Some(wanted(holder)?) };
                if found != expected {
                    return wrong(format!("{found:?}"));
                }
            }
            _ => return wrong("what is this step?"),
        }
        Ok(())
    }
}

fn wanted(word: &str) -> Step<LockWanted> {
    Ok(match word {
        "sh" | "r" => LockWanted::Shared,
        "ex" | "w" => LockWanted::Exclusive,
        "un" | "u" => LockWanted::Unlock,
        word => return wrong(format!("no lock {word}")),
    })
}

fn time_of(times: &Times, name: &str) -> Step<i64> {
    Ok(match name {
        "atime" => times.atime,
        "mtime" => times.mtime,
        "ctime" => times.ctime,
        name => return wrong(format!("no time {name}")),
    })
}

fn check_fields(attrs: &Attrs, fields: &[&str]) -> Step<()> {
    for field in fields {
        let Some((name, want)) = field.split_once('=') else {
            return wrong(format!("what is {field}?"));
        };
        let found = match name {
            "mode" => format!("{:o}", attrs.mode & 0o7777),
            "kind" => kind_of(attrs.mode).to_string(),
            "nlink" => attrs.nlink.to_string(),
            "uid" => attrs.uid.to_string(),
            "gid" => attrs.gid.to_string(),
            "size" => attrs.size.to_string(),
            "rdev" => attrs.rdev.to_string(),
            "atime" => attrs.times.atime.to_string(),
            "mtime" => attrs.times.mtime.to_string(),
            "blocks" => (if attrs.blocks == 0 { "none" } else { "some" }).to_string(),
            name => return wrong(format!("no field {name}")),
        };
        if found != want {
            return wrong(format!("{name} is {found}"));
        }
    }
    Ok(())
}
