//! Carrying out calls: in the thread's context, to their end, with an `errno` for an answer.

use crate::config::Prefix;
use crate::mount::{self, Dir, Mount};
use crate::open::Open;
use crate::path::{Spot, Start};
use crate::report::{self, Family, Level, Why};
use crate::walk::{self, End, From};
use crate::{inside, locks, numbered, path};
use dfs::{Dfs, FileKind, Obj, OpenFlags};
use libc::c_int;
use perthread::{Ctx, Local};
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Arc;
use types::{Code, Error, Result};

/// How far a step of an operation has come.
pub enum Step<T> {
    Done(T),
    /// The name is a symbolic link that is to be followed; its target.
    Link(Vec<u8>),
}

/// What came of a call.
pub enum Answer<T> {
    /// It was carried out.
    Done(T),
    /// It concerns another file system: the same call with this path is for the kernel.
    Outside(CString),
}

/// What an operation works with.
pub struct Scene<'a> {
    pub ctx: &'a Arc<Ctx>,
    pub local: &'a Rc<Local>,
    pub mount: &'a Rc<Mount>,
    /// The mounted file system, as the caller sees it.
    pub fs: Dfs,
}

/// The `errno` of a failure, which is logged.
fn told(error: Error, what: impl FnOnce() -> Vec<u8>) -> c_int {
    report::log(Level::Debug, format_args!("{}: {error}", what().escape_ascii()));
    error.errno()
}

fn with<T>(
    prefix: &'static Prefix,
    body: impl FnOnce(&Scene<'_>) -> Result<T>,
    what: impl FnOnce() -> Vec<u8>,
) -> Result<T, c_int> {
    inside::run(|| {
        let run = || {
            mount::prepare()?;
            let ctx = Ctx::of_thread()?;
            let held = ctx.lock();
            let local = held.local();
            let mount = Mount::of(local, prefix)?;
            let scene = Scene { ctx: &ctx, local, mount: &mount, fs: mount.fs() };
            body(&scene)
        };
        run().map_err(|error| told(error, what))
    })
}

fn start(scene: &Scene<'_>, spot: &Spot) -> Result<From> {
    let dir = match &spot.start {
        Start::Prefix => None,
        Start::Dir(open) => {
            if open.kind() != FileKind::Directory {
                return Err(Error::bare(Code::NotDir));
            }
            let obj = open.object(scene.local)?;
            Some(Rc::new(Dir { obj, path: open.path() }))
        }
    };
    Ok(From { dir, text: spot.text.clone(), links: 0 })
}

/// Times a path may leave a file system for another of ours.
const CROSSINGS_MAX: usize = 40;

/// Runs an operation where a path leads, following symbolic links as it says.
pub fn at<T>(
    family: Family,
    spot: &Spot,
    operation: impl AsyncFn(&Scene<'_>, &End) -> Result<Step<T>>,
) -> Result<Answer<T>, c_int> {
    report::taken(family);
    locks::look();
    let mut next: Option<Spot> = None;
    for _ in 0..CROSSINGS_MAX {
        let spot = next.as_ref().unwrap_or(spot);
        match at_once(spot, &operation)? {
            Answer::Done(value) => return Ok(Answer::Done(value)),
            Answer::Outside(left) => {
                let config = crate::config::get().ok_or(libc::ENOENT)?;
                let again = numbered::spot(left.to_bytes(), true);
                match again.or_else(|| path::below_any(config, left.to_bytes())) {
                    // Out and in again, perhaps to another one.
                    Some(again) => next = Some(again),
                    None => {
                        let text = left.to_string_lossy();
                        report::passed(family, Why::LeftPrefix, format_args!("{text}"));
                        return Ok(Answer::Outside(left));
                    }
                }
            }
        }
    }
    Err(libc::ELOOP)
}

fn at_once<T>(
    spot: &Spot,
    operation: &impl AsyncFn(&Scene<'_>, &End) -> Result<Step<T>>,
) -> Result<Answer<T>, c_int> {
    with(
        spot.prefix,
        |scene| {
            let client = scene.local.client.clone();
            if let Some(open) = itself(spot) {
                let obj = open.object(scene.local)?;
                let end = End::Open(open, obj);
                return client.block_on(async {
                    match operation(scene, &end).await? {
                        Step::Done(value) => Ok(Answer::Done(value)),
                        Step::Link(_) => Err(Error::bare(Code::TooManyLinks)),
                    }
                });
            }
            let mut from = start(scene, spot)?;
            client.block_on(async {
                loop {
                    let end = walk::walk(scene.mount, &mut from).await?;
                    if let End::Outside(path) = end {
                        return outside(path);
                    }
                    match operation(scene, &end).await? {
                        Step::Done(value) => return Ok(Answer::Done(value)),
                        Step::Link(target) => {
                            let End::Name { dir, wants_dir, .. } = end else {
                                return Err(Error::bare(Code::Inval));
                            };
                            let tail: &[u8] = if wants_dir { b"/" } else { b"" };
                            let left = walk::follow(scene.mount, dir, &target, tail, &mut from)?;
                            if let Some(path) = left {
                                return outside(path);
                            }
                        }
                    }
                }
            })
        },
        || spot.full(),
    )
}

/// The open file that a spot is as a whole, unless it is a directory to walk from.
fn itself(spot: &Spot) -> Option<Arc<Open>> {
    match &spot.start {
        Start::Dir(open) if spot.text.is_empty() && open.kind() != FileKind::Directory => {
            Some(open.clone())
        }
        _ => None,
    }
}

fn outside<T>(path: Vec<u8>) -> Result<Answer<T>> {
    let path = CString::new(path).map_err(|_| Error::bare(Code::NonExist))?;
    Ok(Answer::Outside(path))
}

/// Runs an operation on what a path names.
pub fn on<T>(
    family: Family,
    spot: &Spot,
    follow: bool,
    operation: impl AsyncFn(&Scene<'_>, &Obj) -> Result<T>,
) -> Result<Answer<T>, c_int> {
    at(family, spot, async |scene, end| match object(scene, end, follow).await? {
        Step::Done(obj) => operation(scene, &obj).await.map(Step::Done),
        Step::Link(target) => Ok(Step::Link(target)),
    })
}

/// What a path's end names, to be named in other calls.
pub async fn object(scene: &Scene<'_>, end: &End, follow: bool) -> Result<Step<Obj>> {
    match end {
        End::Dir(dir) => Ok(Step::Done(dir.obj.clone())),
        End::Open(_, obj) => Ok(Step::Done(obj.dup(OpenFlags::PATH | OpenFlags::NOFOLLOW))),
        End::Outside(_) => Err(Error::bare(Code::Inval)),
        End::Name { dir, name, wants_dir } => {
            let flags = OpenFlags::PATH | OpenFlags::NOFOLLOW;
            let obj = scene.fs.lookup_rel(&dir.obj, name, flags).await?;
            match obj.kind() {
                FileKind::Symlink if follow || *wants_dir => {
                    scene.fs.readlink(&obj).await.map(Step::Link)
                }
                FileKind::Directory => Ok(Step::Done(obj)),
                _ if *wants_dir => Err(Error::bare(Code::NotDir)),
                _ => Ok(Step::Done(obj)),
            }
        }
    }
}

/// Two paths of one call.
pub enum Two<T> {
    /// It was carried out.
    Done(T),
    /// Both lead out: the same call with these paths is for the kernel.
    Outside(CString, CString),
}

/// Runs an operation on two names of one file system; `EXDEV` when they are not.
pub fn at_two<T>(
    family: Family,
    from: &Spot,
    to: &Spot,
    follow_from: bool,
    operation: impl AsyncFn(&Scene<'_>, &End, &End) -> Result<T>,
) -> Result<Two<T>, c_int> {
    report::taken(family);
    if !std::ptr::eq(from.prefix, to.prefix) {
        return Err(libc::EXDEV);
    }
    with(
        from.prefix,
        |scene| {
            let (mut first, mut second) = (start(scene, from)?, start(scene, to)?);
            let client = scene.local.client.clone();
            client.block_on(async {
                let one = loop {
                    let end = walk::walk(scene.mount, &mut first).await?;
                    if !follow_from {
                        break end;
                    }
                    let End::Name { dir, .. } = &end else { break end };
                    let Step::Link(target) = object(scene, &end, true).await? else { break end };
                    let dir = dir.clone();
                    if let Some(path) = walk::follow(scene.mount, dir, &target, b"", &mut first)? {
                        break End::Outside(path);
                    }
                };
                let two = walk::walk(scene.mount, &mut second).await?;
                match (one, two) {
                    (End::Outside(one), End::Outside(two)) => {
                        let string =
                            |path| CString::new(path).map_err(|_| Error::bare(Code::NonExist));
                        Ok(Two::Outside(string(one)?, string(two)?))
                    }
                    (End::Outside(_), _) | (_, End::Outside(_)) => {
                        Err(Error::bare(Code::CrossDevice))
                    }
                    (one, two) => operation(scene, &one, &two).await.map(Two::Done),
                }
            })
        },
        || [from.full(), b" and ".to_vec(), to.full()].concat(),
    )
}

/// Runs an operation on an open file.
pub fn run<T>(
    family: Family,
    open: &Arc<Open>,
    operation: impl AsyncFnOnce(&Dfs, &Obj) -> Result<T>,
) -> Result<T, c_int> {
    report::taken(family);
    locks::look();
    inside::run(|| {
        let run = || {
            mount::prepare()?;
            open.run(operation)
        };
        run().map_err(|error| told(error, || path::join(&open.prefix.path, &open.path())))
    })
}
