//! Paths that lead to containers: `duns_*`.
//!
//! Three kinds of text name a place in a container: an address (`daos://POOL/CONT/PATH`, or
//! `azk://`), a direct path (`/POOL/CONT/PATH`), and a path of this machine at or above which a file
//! or directory has the attribute `user.daos`. The attribute's text names the kind of container and
//! the UUIDs of pool and container; its form is DAOS's, so that either can read the other's.

use crate::ctypes::{daos_handle_t, duns_attr_t};
use crate::dfs::cont::{Wanted, create};
use crate::dfs::{bad_handle, now};
use crate::guard;
use crate::pool::PoolHandle;
use client::Pool;
use libc::c_char;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use types::{Code, ContLayout, Error, Result};
use uuid::Uuid;
use wire::control::{ContInfo, Name};

/// Name of the attribute.
const XATTR: &CStr = c"user.daos";
/// Longest text of the attribute, bytes.
const XATTR_BYTES_MAX: usize = 170;
/// `da_flags`.
const NO_PREFIX: u32 = 1;
const NO_REVERSE_LOOKUP: u32 = 1 << 1;
const NO_CHECK_PATH: u32 = 1 << 2;
/// Names of container layouts, by number.
const LAYOUTS: [&str; 9] =
    ["unknown", "POSIX", "HDF5", "PYTHON", "SPARK", "DATABASE", "ROOT", "SEISMIC", "METEO"];
/// `DAOS_PROP_CO_LAYOUT_POSIX`.
const POSIX: u16 = 1;
/// Schemes of addresses.
const SCHEMES: [&str; 2] = ["daos://", "azk://"];

/// A place in a container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Place {
    /// `DAOS_PROP_CO_LAYOUT_*`; 0 when the text does not say.
    layout: u16,
    /// Label or UUID.
    pool: String,
    /// Label or UUID; empty when only a pool is named.
    cont: String,
    /// From `/` on; empty when nothing follows.
    path: Vec<u8>,
}

/// A label or a UUID.
fn is_name(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    is_uuid(text) || types::limits::check_label(text).is_ok()
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok()
}

/// `POOL/CONT/PATH`, or `POOL` alone.
fn place_in(text: &[u8]) -> Result<Place> {
    let bad = || Error::inval(format!("'{}' names no container", text.escape_ascii()));
    let mut parts = text.splitn(3, |byte| *byte == b'/');
    let (pool, cont) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if !is_name(pool) || !(cont.is_empty() || is_name(cont)) {
        return Err(bad());
    }
    let path = match parts.next() {
        Some(rest) if cont.is_empty() && !rest.is_empty() => return Err(bad()),
        Some(rest) if !rest.is_empty() => [b"/", rest].concat(),
        _ => Vec::new(),
    };
    // Names were checked to be ASCII.
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    Ok(Place { layout: 0, pool: text(pool), cont: text(cont), path })
}

/// The part of an address after its scheme.
fn address_of(text: &[u8]) -> Option<&[u8]> {
    SCHEMES.iter().find_map(|scheme| {
        let (head, rest) = text.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    })
}

/// What the attribute's text says: `DAOS.KIND://POOL/CONT`, both as UUIDs.
fn parse_attribute(text: &[u8]) -> Result<Place> {
    let bad = || Error::inval(format!("'{}' is not a container's attribute", text.escape_ascii()));
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = std::str::from_utf8(&text[..end]).map_err(|_| bad())?;
    let (kind, rest) =
        text.strip_prefix("DAOS.").and_then(|text| text.split_once("://")).ok_or_else(bad)?;
    let layout = LAYOUTS.iter().position(|name| name.eq_ignore_ascii_case(kind)).ok_or_else(bad)?;
    let place = place_in(rest.as_bytes())?;
    if layout == 0 || !is_uuid(&place.pool) || !is_uuid(&place.cont) || !place.path.is_empty() {
        return Err(bad());
    }
    Ok(Place { layout: layout as u16, ..place })
}

fn attribute_text(layout: u16, pool: &Uuid, cont: &Uuid) -> Result<String> {
    match LAYOUTS.get(layout as usize) {
        Some(kind) if layout > 0 => Ok(format!("DAOS.{kind}://{pool}/{cont}")),
        _ => Err(Error::inval(format!("{layout} is no container layout"))),
    }
}

/// Parses what may be an attribute's text; one that is understood is written and read the same.
/// For fuzzing.
pub(crate) fn check_attribute(text: &[u8]) {
    let Ok(place) = parse_attribute(text) else { return };
    let uuid = |text: &str| Uuid::try_parse(text).expect("only UUIDs are taken");
    let written = attribute_text(place.layout, &uuid(&place.pool), &uuid(&place.cont));
    let again = parse_attribute(written.expect("a layout with a name").as_bytes());
    let again = again.expect("what was written is read");
    assert_eq!((again.layout, uuid(&again.cont)), (place.layout, uuid(&place.cont)));
}

/// Parses what may be an address or a direct path, without looking at the file system. For
/// fuzzing.
pub(crate) fn check_address(text: &[u8]) {
    if let Ok(place) = resolve(text, NO_CHECK_PATH) {
        assert!(is_name(place.pool.as_bytes()));
        assert!(place.cont.is_empty() || is_name(place.cont.as_bytes()));
        assert!(place.path.is_empty() || place.path.starts_with(b"/"));
    }
}

/// The error of a call of the operating system.
fn system_error(doing: &str, path: &Path, error: std::io::Error) -> Error {
    let code = match error.raw_os_error() {
        Some(libc::ENOENT) => Code::NonExist,
        Some(libc::EEXIST) => Code::Exist,
        Some(libc::EACCES) => Code::Access,
        Some(libc::EPERM) => Code::NoPerm,
        Some(libc::ENOTDIR) => Code::NotDir,
        Some(libc::EISDIR) => Code::IsDir,
        Some(libc::ENOTEMPTY) => Code::NotEmpty,
        Some(libc::ENAMETOOLONG) => Code::NameTooLong,
        Some(libc::ELOOP) => Code::TooManyLinks,
        Some(libc::ENODATA) => Code::NoAttr,
        Some(libc::ENOTSUP) => Code::NotSupported,
        Some(libc::ENOSPC) => Code::NoSpace,
        Some(libc::EROFS) => Code::ReadOnly,
        Some(libc::EBUSY) => Code::Busy,
        Some(libc::EINVAL) => Code::Inval,
        _ => Code::Io,
    };
    Error::new(code, format!("{doing} {}: {error}", path.display()))
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::inval("a NUL in a path"))
}

/// The attribute's text; `None` where there is none.
fn read_attribute(path: &Path) -> Result<Option<Vec<u8>>> {
    let mut text = vec![0; XATTR_BYTES_MAX + 1];
    let name = c_path(path)?;
    // SAFETY: NUL-terminated strings, and a buffer as long as said.
    let bytes = unsafe {
        libc::getxattr(name.as_ptr(), XATTR.as_ptr(), text.as_mut_ptr().cast(), text.len())
    };
    match usize::try_from(bytes) {
        Ok(bytes) => {
            text.truncate(bytes);
            Ok(Some(text))
        }
        Err(_) => {
            let error = std::io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENODATA | libc::ENOTSUP) => Ok(None),
                Some(libc::ERANGE) => {
                    Err(Error::inval("the attribute is too long for one of ours"))
                }
                _ => Err(system_error("reading user.daos of", path, error)),
            }
        }
    }
}

fn write_attribute(path: &Path, text: &str) -> Result<()> {
    let name = c_path(path)?;
    // The NUL is stored too, as DAOS does.
    let text = CString::new(text).map_err(|_| Error::inval("a NUL in an attribute"))?;
    let raw = text.as_bytes_with_nul();
    // SAFETY: NUL-terminated strings, and a buffer as long as said.
    let failed =
        unsafe { libc::setxattr(name.as_ptr(), XATTR.as_ptr(), raw.as_ptr().cast(), raw.len(), 0) };
    match failed {
        0 => Ok(()),
        _ => Err(system_error("setting user.daos of", path, std::io::Error::last_os_error())),
    }
}

/// Where a text leads.
fn resolve(text: &[u8], flags: u32) -> Result<Place> {
    if let Some(address) = address_of(text) {
        return place_in(address);
    }
    let direct = || {
        let bad = || Error::inval("a direct path is /POOL/CONT/PATH");
        let rest = text.strip_prefix(b"/").ok_or_else(bad)?;
        let start = rest.iter().position(|byte| *byte != b'/').ok_or_else(bad)?;
        let place = place_in(&rest[start..])?;
        if place.cont.is_empty() { Err(bad()) } else { Ok(place) }
    };
    if flags & NO_CHECK_PATH != 0 {
        return direct();
    }
    if flags & NO_PREFIX != 0
        && let Ok(place) = direct()
        && is_uuid(&place.pool)
        && is_uuid(&place.cont)
    {
        return Ok(place);
    }
    resolve_local(Path::new(OsStr::from_bytes(text)), flags & NO_REVERSE_LOOKUP == 0)
}

/// Looks for the attribute at a path of this machine and, if `upwards`, above it.
fn resolve_local(path: &Path, upwards: bool) -> Result<Place> {
    let (mut at, mut below) = existing(path, upwards)?;
    loop {
        if let Some(text) = read_attribute(&at)? {
            let place = parse_attribute(&text)?;
            let path = match below.as_os_str().is_empty() {
                true => Vec::new(),
                false => [b"/", below.as_os_str().as_bytes()].concat(),
            };
            return Ok(Place { path, ..place });
        }
        let up = at.parent().filter(|_| upwards).map(Path::to_path_buf);
        let (Some(up), Some(name)) = (up, at.file_name()) else {
            let text = format!("neither {} nor what it is in leads to a container", path.display());
            return Err(Error::new(Code::NoAttr, text));
        };
        // Joining an empty path would end in a slash.
        below = match below.as_os_str().is_empty() {
            true => PathBuf::from(name),
            false => Path::new(name).join(below),
        };
        at = up;
    }
}

/// The deepest part of a path that exists, without symbolic links, and what follows it.
fn existing(path: &Path, upwards: bool) -> Result<(PathBuf, PathBuf)> {
    let mut below = PathBuf::new();
    let mut at = path;
    loop {
        let here = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        match std::fs::canonicalize(here) {
            Ok(found) => return Ok((found, below)),
            Err(error) => {
                let gone = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
                let (Some(up), Some(name)) =
                    (at.parent().filter(|_| gone && upwards), at.file_name())
                else {
                    return Err(system_error("resolving", path, error));
                };
                below = match below.as_os_str().is_empty() {
                    true => PathBuf::from(name),
                    false => Path::new(name).join(below),
                };
                at = up;
            }
        }
    }
}

/// Copies a text into an array of C's.
fn put_chars(chars: &mut [c_char], text: &str) -> Result<()> {
    if text.len() >= chars.len() {
        return Err(Error::inval(format!("'{text}' is too long for a label")));
    }
    chars.fill(0);
    for (to, from) in chars.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    Ok(())
}

/// A text for C, which frees it; NULL for an empty one.
fn allocated(text: &[u8]) -> Result<*mut c_char> {
    if text.is_empty() {
        return Ok(std::ptr::null_mut());
    }
    let text = CString::new(text).map_err(|_| Error::inval("a NUL in a path"))?;
    // SAFETY: a NUL-terminated string.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    if copy.is_null() { Err(Code::NoMem.into()) } else { Ok(copy) }
}

/// Tells C of a place.
fn tell(place: &Place, attr: &mut duns_attr_t) -> Result<()> {
    put_chars(&mut attr.da_pool, &place.pool)?;
    put_chars(&mut attr.da_cont, &place.cont)?;
    let uuid = |text: &str| Uuid::try_parse(text).map_or([0; 16], |uuid| *uuid.as_bytes());
    attr.da_puuid = uuid(&place.pool);
    attr.da_cuuid = uuid(&place.cont);
    attr.da_type = place.layout;
    attr.da_on_lustre = false;
    attr.da_sys = std::ptr::null_mut();
    attr.da_rel_path = allocated(&place.path)?;
    Ok(())
}

/// Finds out where a path leads; see the header. `da_rel_path` gets what follows the container, or
/// NULL. `ENODATA` when neither the path nor what it is in leads to a container. The result is
/// freed with [`duns_destroy_attr`].
///
/// # Safety
/// `path` is a C string; `attr` has its `da_flags` and `da_no_prefix` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn duns_resolve_path(path: *const c_char, attr: *mut duns_attr_t) -> i32 {
    guard::posix(|| {
        // SAFETY: the caller's promise.
        let (text, attr) = unsafe { (guard::text(path)?, attr.as_mut()) };
        let attr = attr.ok_or_else(guard::null)?;
        let flags = attr.da_flags | if attr.da_no_prefix { NO_PREFIX } else { 0 };
        tell(&resolve(text, flags)?, attr)
    })
}

/// Reads the attribute's text, `len` bytes of it or up to a NUL.
///
/// # Safety
/// `str` is `len` bytes; `attr` is good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn duns_parse_attr(
    str: *mut c_char,
    len: u64,
    attr: *mut duns_attr_t,
) -> i32 {
    guard::posix(|| {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX).min(XATTR_BYTES_MAX + 1);
        if str.is_null() {
            return Err(guard::null());
        }
        // SAFETY: the caller's promise.
        let text = unsafe { std::slice::from_raw_parts(str.cast::<u8>(), bytes) };
        // SAFETY: the caller's promise.
        let attr = unsafe { attr.as_mut() }.ok_or_else(guard::null)?;
        tell(&parse_attribute(text)?, attr)
    })
}

/// Sets the system's name in `attrp`, in place of the one that is there.
///
/// # Safety
/// `attrp` was filled in by these functions or zeroed; `sys` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn duns_set_sys_name(attrp: *mut duns_attr_t, sys: *const c_char) -> i32 {
    guard::posix(|| {
        // SAFETY: the caller's promise.
        let (attr, sys) = unsafe { (attrp.as_mut().ok_or_else(guard::null)?, guard::text(sys)?) };
        let fresh = allocated(sys)?;
        // SAFETY: NULL or memory of `strdup`.
        unsafe { libc::free(attr.da_sys.cast()) };
        attr.da_sys = fresh;
        Ok(())
    })
}

/// Frees what these functions put into `attrp`; NULL is fine.
///
/// # Safety
/// `attrp` is NULL, zeroed, or was filled in by these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn duns_destroy_attr(attrp: *mut duns_attr_t) {
    // SAFETY: the caller's promise.
    let Some(attr) = (unsafe { attrp.as_mut() }) else { return };
    for text in [&mut attr.da_rel_path, &mut attr.da_sys] {
        // SAFETY: NULL or memory of `strdup`.
        unsafe { libc::free(text.cast()) };
        *text = std::ptr::null_mut();
    }
}

/// Makes the directory (for a POSIX container) or file that shall lead to a container.
fn make_local(path: &Path, layout: u16) -> Result<()> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let made = match layout {
        POSIX => std::fs::DirBuilder::new().mode(0o755).create(path),
        _ => std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map(|_| ()),
    };
    made.map_err(|error| system_error("making", path, error))
}

fn remove_local(path: &Path, layout: u16) -> Result<()> {
    let removed = match layout {
        POSIX => std::fs::remove_dir(path),
        _ => std::fs::remove_file(path),
    };
    removed.map_err(|error| system_error("removing", path, error))
}

/// Makes what leads to a container, `made` making or finding that; takes it away again when that
/// fails.
async fn link(
    pool: &Pool,
    path: &Path,
    layout: u16,
    made: impl AsyncFnOnce() -> Result<ContInfo>,
) -> Result<ContInfo> {
    make_local(path, layout)?;
    let linked = async {
        let cont = made().await?;
        let text = attribute_text(layout, &pool.info().uuid, &cont.uuid)?;
        Ok((write_attribute(path, &text), cont))
    };
    match linked.await {
        Ok((Ok(()), cont)) => Ok(cont),
        Ok((Err(error), _)) | Err(error) => {
            let _ = remove_local(path, layout);
            Err(error)
        }
    }
}

/// What `attrp` asks for: a container of its layout, with its classes and properties.
///
/// # Safety
/// As for [`duns_create_path`].
unsafe fn make_cont(pool: &Pool, attr: &duns_attr_t, label: &str) -> Result<Wanted> {
    let wanted = crate::ctypes::dfs_attr_t {
        da_id: 0,
        da_chunk_size: attr.da_chunk_size,
        da_oclass_id: attr.da_oclass_id,
        da_props: attr.da_props,
        da_mode: 0,
        da_dir_oclass_id: attr.da_dir_oclass_id,
        da_file_oclass_id: attr.da_file_oclass_id,
        da_hints: attr.da_hints,
    };
    // SAFETY: the caller's promise.
    let mut wanted = unsafe { Wanted::of(&wanted, pool) }?;
    if attr.da_type != POSIX {
        // SAFETY: the caller's promise.
        let mut spec = unsafe { crate::prop_map::cont_spec(attr.da_props) }?;
        let layout = crate::prop::Value::Number(attr.da_type as u64);
        spec.kept.insert(crate::prop::cont::LAYOUT_TYPE, layout);
        wanted.attrs = spec.attrs()?;
        wanted.props.layout = ContLayout::Plain;
    }
    if !label.is_empty() {
        wanted.label = label.to_string();
    }
    Ok(wanted)
}

async fn make(pool: &Pool, wanted: Wanted) -> Result<ContInfo> {
    if wanted.props.layout == ContLayout::Posix {
        let opened = create(pool, wanted).await?;
        let info = opened.info().clone();
        opened.close().await?;
        return Ok(info);
    }
    let Wanted { props, label, attrs } = wanted;
    pool.cont_create(&label, Uuid::nil(), props, attrs).await
}

/// Makes a container of the layout `da_type` and, at `path`, a directory (POSIX) or file (others) that
/// leads to it; for an address `daos://POOL/LABEL` only the container. `da_cont` and `da_pool` get
/// the UUIDs.
///
/// # Safety
/// `path` is a C string; `attrp` is zeroed but for what is asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn duns_create_path(
    poh: daos_handle_t,
    path: *const c_char,
    attrp: *mut duns_attr_t,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (text, attr) = unsafe { (guard::text(path)?, attrp.as_mut()) };
        let attr = attr.ok_or_else(guard::null)?;
        if attr.da_type == 0 || attr.da_type as usize >= LAYOUTS.len() {
            return Err(Error::inval(format!("{} is no container layout", attr.da_type)));
        }
        let handle = PoolHandle::of(poh).map_err(bad_handle)?;
        handle.require_writable()?;
        let pool = handle.mirror(local)?;
        let cont = match address_of(text) {
            Some(address) => {
                let place = place_in(address)?;
                if place.cont.is_empty() || is_uuid(&place.cont) || !place.path.is_empty() {
                    return Err(Error::inval("a container is made as daos://POOL/LABEL"));
                }
                require_pool(&pool, &place.pool)?;
                // SAFETY: the caller's promise.
                make(&pool, unsafe { make_cont(&pool, attr, &place.cont) }?).await?
            }
            None => {
                let path = Path::new(OsStr::from_bytes(text));
                let layout = attr.da_type;
                // SAFETY: the caller's promise.
                let wanted = unsafe { make_cont(&pool, attr, "") }?;
                let mut made = None;
                let linked = link(&pool, path, layout, async || {
                    let cont = make(&pool, wanted).await?;
                    made = Some(cont.uuid);
                    Ok(cont)
                })
                .await;
                if let (Err(_), Some(uuid)) = (&linked, made) {
                    let _ = pool.cont_destroy(Name::Uuid(uuid), true).await;
                }
                linked?
            }
        };
        put_chars(&mut attr.da_pool, &pool.info().uuid.to_string())?;
        put_chars(&mut attr.da_cont, &cont.uuid.to_string())?;
        attr.da_puuid = *pool.info().uuid.as_bytes();
        attr.da_cuuid = *cont.uuid.as_bytes();
        Ok(())
    })
}

/// `Inval` unless a name means this pool.
fn require_pool(pool: &Pool, name: &str) -> Result<()> {
    let info = pool.info();
    if name == info.label || Uuid::try_parse(name).is_ok_and(|uuid| uuid == info.uuid) {
        return Ok(());
    }
    Err(Error::inval(format!("the path leads to pool '{name}', the handle to another")))
}

/// Destroys the container a path leads to, open or not, and then what leads to it.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn duns_destroy_path(poh: daos_handle_t, path: *const c_char) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let text = unsafe { guard::text(path) }?;
        let handle = PoolHandle::of(poh).map_err(bad_handle)?;
        handle.require_writable()?;
        let pool = handle.mirror(local)?;
        let place = resolve(text, NO_REVERSE_LOOKUP)?;
        require_pool(&pool, &place.pool)?;
        if place.cont.is_empty() || !place.path.is_empty() {
            return Err(Error::inval("the path does not lead to a container itself"));
        }
        let local_path = address_of(text).is_none().then(|| Path::new(OsStr::from_bytes(text)));
        match pool.cont_destroy(crate::pool::name_of(&place.cont)?, true).await {
            // Somebody destroyed it by another path; what is left here goes too.
            Err(error) if error.code == Code::NonExist && local_path.is_some() => {}
            other => other?,
        }
        match local_path {
            Some(path) => remove_local(path, place.layout),
            None => Ok(()),
        }
    })
}

/// Makes a path that leads to a container that exists.
///
/// # Safety
/// Both are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn duns_link_cont(
    poh: daos_handle_t,
    cont: *const c_char,
    path: *const c_char,
) -> i32 {
    now(async |local| {
        // SAFETY: the caller's promise.
        let (cont, text) = unsafe { (guard::utf8(cont)?, guard::text(path)?) };
        let pool = PoolHandle::of(poh).map_err(bad_handle)?.mirror(local)?;
        let found = pool.cont_query(&crate::pool::name_of(cont)?).await?;
        let layout = match found.props.layout {
            ContLayout::Posix => POSIX,
            ContLayout::Plain => return Err(Error::inval("the container's layout is not known")),
        };
        let path = Path::new(OsStr::from_bytes(text));
        link(&pool, path, layout, async || Ok(found)).await.map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POOL: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    const CONT: &str = "0a1b2c3d-0000-4000-8000-123456789abc";

    #[test]
    fn addresses_name_pool_container_and_path() {
        for (text, pool, cont, path) in [
            ("daos://tank/home", "tank", "home", ""),
            ("daos://tank/home/", "tank", "home", ""),
            ("azk://tank/home/a/b", "tank", "home", "/a/b"),
            ("DAOS://tank/home/a//b", "tank", "home", "/a//b"),
            ("daos://tank", "tank", "", ""),
            ("daos://tank/", "tank", "", ""),
        ] {
            let place = resolve(text.as_bytes(), 0).unwrap();
            let wanted = (pool, cont, path.as_bytes());
            assert_eq!((&place.pool[..], &place.cont[..], &place.path[..]), wanted, "{text}");
        }
        for bad in ["daos://", "daos:///", "daos://a b/c", "daos://tank//x", "daos://tank/a b"] {
            assert_eq!(resolve(bad.as_bytes(), 0).unwrap_err().code, Code::Inval, "{bad}");
        }
    }

    #[test]
    fn direct_paths_are_taken_only_when_asked_for() {
        let direct = format!("/{POOL}/{CONT}/x");
        for flags in [NO_PREFIX, NO_CHECK_PATH] {
            let place = resolve(direct.as_bytes(), flags).unwrap();
            assert_eq!(
                (&place.pool[..], &place.cont[..], &place.path[..]),
                (POOL, CONT, &b"/x"[..])
            );
        }
        assert!(resolve(direct.as_bytes(), 0).is_err());
        // Labels could be any path, unless the caller says that none is meant.
        assert_eq!(resolve(b"/tank/home", NO_CHECK_PATH).unwrap().cont, "home");
        assert!(resolve(b"/no_such_dir_azk/home", NO_PREFIX).is_err());
    }

    #[test]
    fn the_attribute_is_found_above_a_path_that_need_not_exist() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap().join("top");
        make_local(&top, POSIX).unwrap();
        let text = format!("DAOS.POSIX://{POOL}/{CONT}");
        if write_attribute(&top, &text).is_err_and(|error| error.code == Code::NotSupported) {
            eprintln!("no attributes on {}: not tested", top.display());
            return;
        }
        let at = |rest: &str| top.join(rest).into_os_string().into_encoded_bytes();
        let found = resolve(top.as_os_str().as_bytes(), 0).unwrap();
        assert_eq!((found.layout, &found.path[..]), (POSIX, &b""[..]));
        assert_eq!(resolve(&at("a/b.h5"), 0).unwrap().path, b"/a/b.h5");
        std::fs::create_dir(top.join("real")).unwrap();
        assert_eq!(resolve(&at("real/x"), 0).unwrap().path, b"/real/x");
        assert!(resolve(&at("real"), NO_REVERSE_LOOKUP).is_err());
        assert_eq!(resolve(dir.path().as_os_str().as_bytes(), 0).unwrap_err().code, Code::NoAttr);
        write_attribute(&top, "DAOS.POSIX://what").unwrap();
        assert_eq!(resolve(top.as_os_str().as_bytes(), 0).unwrap_err().code, Code::Inval);
    }

    #[test]
    fn attributes_are_written_as_they_are_read() {
        let uuid = |text: &str| Uuid::try_parse(text).unwrap();
        for layout in 1..LAYOUTS.len() as u16 {
            let text = attribute_text(layout, &uuid(POOL), &uuid(CONT)).unwrap();
            let place = parse_attribute(text.as_bytes()).unwrap();
            assert_eq!((place.layout, &place.pool[..], &place.cont[..]), (layout, POOL, CONT));
            assert_eq!(parse_attribute(format!("{text}\0junk").as_bytes()).unwrap(), place);
        }
        assert!(attribute_text(0, &uuid(POOL), &uuid(CONT)).is_err());
        for bad in ["", "DAOS.POSIX", "DAOS.POSIX://", "DAOS.X://a/b", "DAOS.POSIX://tank/home"] {
            assert!(parse_attribute(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_brings_it_down(text: Vec<u8>, prefix in 0..4usize, flags in 0..8u32) {
            let head = ["", "daos://", "DAOS.POSIX://", "/"][prefix];
            let text = [head.as_bytes(), &text].concat();
            let _ = parse_attribute(&text);
            let _ = place_in(&text);
            if flags & NO_CHECK_PATH != 0 {
                let _ = resolve(&text, flags);
            }
        }
    }
}
