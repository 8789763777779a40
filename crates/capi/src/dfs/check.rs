//! The checker, the scan, and the owner of a container's file system.

use super::mount::credentials;
use super::{bad_handle, now};
use crate::cont::ContHandle;
use crate::ctypes::daos_handle_t;
use crate::guard;
use crate::pool::{PoolHandle, name_of};
use ::dfs::check::{CheckReport, Mend, Problem};
use ::dfs::find::Query;
use ::dfs::{Dfs, FileKind, MountFlags, SetAttr};
use client::ContOpenOptions;
use libc::{c_char, gid_t, uid_t};
use std::io::Write;
use types::{Error, Result};
use wire::control::{Evict, OpenMode};

/// `DFS_CHECK_*`.
const PRINT: u64 = 1;
const REMOVE: u64 = 1 << 1;
const RELINK: u64 = 1 << 2;
const VERIFY: u64 = 1 << 3;
const EVICT_ALL: u64 = 1 << 4;

/// Checks a file system that nobody has open (`EBUSY`). `flags`: `DFS_CHECK_PRINT` prints what
/// nothing names; `_REMOVE` removes it, `_RELINK` gives it a name in `/lost+found/NAME` (NULL: in
/// `/lost+found`), not both; `_VERIFY` reads all file data. `_EVICT_ALL` closes all handles first;
/// programs that go on with theirs are not stopped, so a checker that mends must not run beside them.
///
/// # Safety
/// `cont` is a C string, `name` too or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_cont_check(
    poh: daos_handle_t,
    cont: *const c_char,
    flags: u64,
    name: *const c_char,
) -> i32 {
    now(async |local| {
        let pool = PoolHandle::of(poh).map_err(bad_handle)?;
        // SAFETY: the caller's promise.
        let cont = name_of(unsafe { guard::utf8(cont) }?)?;
        let home = match name.is_null() {
            true => &b""[..],
            // SAFETY: the caller's promise.
            false => unsafe { guard::text(name) }?,
        };
        let mend = mend_of(flags)?;
        let evict = if flags & EVICT_ALL != 0 { Evict::All } else { Evict::Nobody };
        let options = ContOpenOptions { evict, ..ContOpenOptions::default() };
        let pool = pool.mirror(local)?;
        let opened = pool.cont_open_with(&cont, OpenMode::Exclusive, options).await?;
        let checked = async {
            let fs = Dfs::mount(&opened, MountFlags::NO_PERM_CHECK, credentials()).await?;
            let report = fs.check_into(mend, home).await?;
            if flags & PRINT != 0 {
                print_report(&report)?;
            }
            if flags & VERIFY != 0 {
                verify(&fs).await?;
            }
            Ok(())
        };
        let checked: Result<()> = checked.await;
        let closed = opened.close().await;
        checked.and(closed)
    })
}

fn mend_of(flags: u64) -> Result<Mend> {
    if flags & !(PRINT | REMOVE | RELINK | VERIFY | EVICT_ALL) != 0 {
        return Err(Error::inval(format!("unknown bits in the flags {flags:#x}")));
    }
    match (flags & REMOVE != 0, flags & RELINK != 0) {
        (true, true) => Err(Error::inval("what is removed cannot be given a name")),
        (true, false) => Ok(Mend::Remove),
        (false, true) => Ok(Mend::Relink),
        (false, false) => Ok(Mend::Nothing),
    }
}

fn print_report(report: &CheckReport) -> Result<()> {
    let mut text = format!(
        "{} objects, {} directories, {} entries\n",
        report.object_count, report.dir_count, report.entry_count
    );
    for finding in &report.findings {
        let what = match &finding.problem {
            Problem::Leaked => "nothing names it".to_string(),
            Problem::Dangling => "its object is lost".to_string(),
            Problem::LinkCount { stored, seen } => format!("{stored} names on record, {seen} seen"),
            Problem::Parent { stored } => format!("says it is in {stored}"),
            Problem::Misplaced { stored, seen } => {
                format!("{stored} names, of which {seen} are where they are looked for")
            }
            Problem::Hidden => "its data beyond the first part are not shown".to_string(),
        };
        let mended = if finding.mended { " (mended)" } else { "" };
        let path = finding.path.escape_ascii();
        text.push_str(&format!("{} {path}: {what}{mended}\n", finding.oid));
    }
    print(&text)
}

/// The report of a caller who asked for one.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Error::io("printing the report", error))
}

/// Reads every file, so that each checksum is compared.
async fn verify(fs: &Dfs) -> Result<()> {
    let root = fs.root().await?;
    let mut files = Vec::new();
    let query = Query { kind: Some(FileKind::Regular), ..Query::default() };
    fs.find(&root, &query, |found| {
        files.push(found.path);
        Ok(())
    })
    .await?;
    let mut memory = vec![0; 4 << 20];
    for path in files {
        let absolute = [b"/", &path[..]].concat();
        let file = fs.lookup(&absolute, ::dfs::OpenFlags::READ).await?;
        let mut offset = 0;
        loop {
            let read = fs.read(&file, offset, &mut memory).await;
            let read =
                read.map_err(|error| error.context(format!("reading {}", path.escape_ascii())))?;
            offset += read as u64;
            if read < memory.len() {
                break;
            }
        }
    }
    Ok(())
}

/// Walks a file system and prints how many files, directories and links it has, how large and how
/// deep. `flags` and `name` mean nothing.
///
/// # Safety
/// `cont` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_cont_scan(
    poh: daos_handle_t,
    cont: *const c_char,
    _flags: u64,
    _name: *const c_char,
) -> i32 {
    now(async |local| {
        let pool = PoolHandle::of(poh).map_err(bad_handle)?;
        // SAFETY: the caller's promise.
        let cont = name_of(unsafe { guard::utf8(cont) }?)?;
        let opened = pool.mirror(local)?.cont_open(&cont, OpenMode::ReadOnly).await?;
        let scanned = scan(&opened).await;
        let closed = opened.close().await;
        scanned.and(closed)
    })
}

async fn scan(cont: &client::Container) -> Result<()> {
    let how = MountFlags::NO_PERM_CHECK | MountFlags::READ_ONLY;
    let fs = Dfs::mount(cont, how, credentials()).await?;
    let root = fs.root().await?;
    let (mut files, mut dirs, mut links, mut others) = (0u64, 1u64, 0u64, 0u64);
    let (mut bytes, mut bytes_max, mut depth_max) = (0u64, 0u64, 0usize);
    let query = Query { with_stat: true, ..Query::default() };
    fs.find(&root, &query, |found| {
        match found.kind {
            FileKind::Regular => files += 1,
            FileKind::Directory => dirs += 1,
            FileKind::Symlink => links += 1,
            _ => others += 1,
        }
        if let Some(stat) = found.stat.filter(|_| found.kind == FileKind::Regular) {
            bytes += stat.size;
            bytes_max = bytes_max.max(stat.size);
        }
        let depth = found.path.iter().filter(|byte| **byte == b'/').count() + 1;
        depth_max = depth_max.max(depth);
        Ok(())
    })
    .await?;
    print(&format!(
        "files {files}\ndirectories {dirs}\nsymbolic links {links}\nothers {others}\n\
         bytes {bytes}\nlargest file, bytes {bytes_max}\ndepth {depth_max}\n"
    ))
}

/// Gives the root directory another owner and group; -1 leaves one alone. The names are for access
/// control lists, which opening a container does not look at yet.
///
/// # Safety
/// None is needed: the names are not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dfs_cont_set_owner(
    coh: daos_handle_t,
    _user: *mut c_char,
    uid: uid_t,
    _group: *mut c_char,
    gid: gid_t,
) -> i32 {
    now(async |local| {
        let cont = ContHandle::of(coh).map_err(bad_handle)?;
        cont.require_writable()?;
        let mirror = cont.mirror(local)?;
        let fs = Dfs::mount(&mirror, MountFlags::NO_PERM_CHECK, credentials()).await?;
        let kept = |id: u32| Some(id).filter(|id| *id != u32::MAX);
        let set = SetAttr { uid: kept(uid), gid: kept(gid), ..SetAttr::default() };
        fs.setattr(&fs.root().await?, &set).await.map(|_| ())
    })
}
