//! Property lists of C's as properties of pools and containers, and back.
//!
//! A container of ours has fewer properties than DAOS's lists have types. What it has is set from
//! the list and told from the container: label, layout, checksum, redundancy factor, cell size. What only
//! programs care for (layouts other than POSIX, well-known objects, owner, access control list, ...) is *kept*: it can be stored as one attribute ([`KEPT_ATTR`]) and told again, and
//! has no other effect. What would promise something we do not do (compression, encryption,
//! deduplication) is refused.

use crate::ctypes::daos_prop_t;
use crate::errno::{DER_NOMEM, DER_NOSYS};
use crate::prop::{self, Value, cont, pool};
use std::collections::BTreeMap;
use types::{Code, ContLayout, ContProps, CsumKind, Error, Result};
use wire::control::{ContInfo, PoolInfo};

/// The attribute of a container that keeps what has no place in its properties.
pub const KEPT_ATTR: &str = "azekura.c.props";

/// `DAOS_PROP_CO_LABEL_DEFAULT`.
const NO_LABEL: &str = "container_label_not_set";
/// `DAOS_PROP_CO_LAYOUT_POSIX`.
const LAYOUT_POSIX: u64 = 1;
/// Checksums, by DAOS's numbers.
const CSUM_CRC16: u64 = 1;
const CSUM_CRC32: u64 = 2;
const CSUM_CRC64: u64 = 3;
const CSUM_SHA1: u64 = 4;
const CSUM_SHA256: u64 = 5;
const CSUM_SHA512: u64 = 6;
const CSUM_ADLER32: u64 = 7;
/// Bytes under one checksum.
const CSUM_CHUNK_BYTES: u64 = types::sums::SUM_CHUNK_BYTES as u64;
/// Version of all formats, as told.
const FORMAT_VERSION: u64 = 1;
/// The performance domain of everything: the root of the pool.
const PERF_DOMAIN_ROOT: u64 = 255;
/// What the owner and the owner's group may do when nobody said otherwise.
const CONT_ACL: [&str; 2] = ["A::OWNER@:rwdtTaAo", "A:G:GROUP@:rwtT"];
const POOL_ACL: [&str; 2] = ["A::OWNER@:rw", "A:G:GROUP@:rw"];

fn told(der: i32) -> Error {
    match der {
        DER_NOMEM => Error::from(Code::NoMem),
        DER_NOSYS => Error::from(Code::NotSupported),
        _ => Error::inval("the property list has no meaning"),
    }
}

fn refused(what: &str) -> Error {
    Error::new(Code::NotSupported, format!("{what} is not offered"))
}

/// The checksum for a number of DAOS's: the same, or the nearest of ours.
fn csum_of(number: u64) -> Result<CsumKind> {
    match number {
        0 => Ok(CsumKind::Off),
        CSUM_CRC16 | CSUM_CRC32 | CSUM_ADLER32 => Ok(CsumKind::Crc32c),
        CSUM_CRC64 => Ok(CsumKind::Crc64),
        // The strongest there is.
        CSUM_SHA1 | CSUM_SHA256 | CSUM_SHA512 => Ok(CsumKind::Sha256),
        _ => Err(refused("this checksum")),
    }
}

fn csum_number(csum: CsumKind) -> u64 {
    match csum {
        CsumKind::Off => 0,
        CsumKind::Crc32c => CSUM_CRC32,
        // DAOS has no number for XXH3; it is 64 bits as well.
        CsumKind::Crc64 | CsumKind::Xxh3 => CSUM_CRC64,
        CsumKind::Sha256 => CSUM_SHA256,
    }
}

/// What a list says of a container to be made.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ContSpec {
    pub props: ContProps,
    /// Label, if one is named.
    pub label: Option<String>,
    /// Properties that are kept and told again.
    pub kept: BTreeMap<u32, Value>,
}

impl ContSpec {
    /// So many object numbers are in use already: those of a container that is copied under its ids.
    pub fn numbers_used(&self) -> u64 {
        match self.kept.get(&cont::ALLOCED_OID) {
            Some(Value::Number(count)) => *count,
            _ => 0,
        }
    }

    fn set(&mut self, property: u32, value: Value) -> Result<()> {
        match (property, value) {
            (cont::LABEL, Value::Text(label)) => self.label = Some(label),
            (cont::LAYOUT_TYPE, Value::Number(layout)) => {
                if layout == LAYOUT_POSIX {
                    self.props.layout = ContLayout::Posix;
                } else {
                    self.kept.insert(property, Value::Number(layout));
                }
            }
            (cont::CSUM, Value::Number(csum)) => self.props.csum = csum_of(csum)?,
            (cont::CSUM_SERVER_VERIFY, Value::Number(verify)) => {
                self.props.server_verify = verify != 0;
            }
            (cont::EC_CELL_SZ, Value::Number(bytes)) => {
                let checked = types::props::check_cell_bytes(bytes);
                self.props.cell_bytes = checked.map_err(|_| refused("this size of cells"))?;
            }
            // Chunks have one size here, which is told.
            (cont::CSUM_CHUNK_SIZE, _) => (),
            (cont::REDUN_FAC, Value::Number(factor)) => self.props.rd_fac = factor as u8,
            (cont::COMPRESS, Value::Number(1..)) => return Err(refused("compression")),
            (cont::ENCRYPT, Value::Number(1..)) => return Err(refused("encryption")),
            (cont::DEDUP, Value::Number(1..)) => return Err(refused("deduplication")),
            (cont::COMPRESS | cont::ENCRYPT | cont::DEDUP, _) => (),
            // These are told by the container, whatever a list copied from another one says.
            (cont::STATUS | cont::GLOBAL_VERSION | cont::OBJ_VERSION | cont::PERF_DOMAIN, _) => (),
            (property, value) => {
                self.kept.insert(property, value);
            }
        }
        Ok(())
    }

    /// The attributes to make the container with: what is kept, if anything is.
    pub fn attrs(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        if self.kept.is_empty() {
            return Ok(BTreeMap::new());
        }
        Ok(BTreeMap::from([(KEPT_ATTR.to_string(), encode_kept(&self.kept)?)]))
    }
}

/// The attribute's bytes for properties to keep.
pub(crate) fn encode_kept(kept: &BTreeMap<u32, Value>) -> Result<Vec<u8>> {
    serde_json::to_vec(kept).map_err(|error| Error::inval(format!("properties to keep: {error}")))
}

/// What a list says of a container to be made. NULL: the defaults.
///
/// # Safety
/// `list` is NULL or a property list.
pub unsafe fn cont_spec(list: *const daos_prop_t) -> Result<ContSpec> {
    // SAFETY: the caller's promise.
    let values = unsafe { prop::read(list, false) }.map_err(told)?;
    let mut spec = ContSpec::default();
    for (property, value) in values {
        spec.set(property, value)?;
    }
    // Lists name no classes: the defaults are as strong as the factor demands.
    let props = &mut spec.props;
    for class in [&mut props.oclass, &mut props.dir_oclass, &mut props.file_oclass] {
        *class = class.at_least(props.rd_fac);
    }
    if props.layout == ContLayout::Posix {
        let default = ContProps::posix(props.rd_fac);
        (props.dir_oclass, props.file_oclass) = (default.dir_oclass, default.file_oclass);
    }
    Ok(spec)
}

/// The properties, and the label if one is named, of a container to be made. NULL: the defaults.
/// What would be kept is not: see [`cont_spec`].
///
/// # Safety
/// `list` is NULL or a property list.
pub unsafe fn cont_props(list: *const daos_prop_t) -> Result<(ContProps, Option<String>)> {
    // SAFETY: the caller's promise.
    let spec = unsafe { cont_spec(list) }?;
    Ok((spec.props, spec.label))
}

/// The properties in an attribute's bytes; none when they are not ours.
pub(crate) fn kept_in(attr: Option<&[u8]>) -> BTreeMap<u32, Value> {
    attr.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

/// The principal of this process: containers and pools have no owner of their own, and whoever can
/// connect may do everything.
fn me(find: impl Fn() -> Option<String>) -> Value {
    Value::Text(find().unwrap_or_else(|| "nobody@".to_string()))
}

fn user() -> Value {
    // SAFETY: asks for a number.
    me(|| crate::acl::user(unsafe { libc::geteuid() }))
}

fn group() -> Value {
    // SAFETY: asks for a number.
    me(|| crate::acl::group(unsafe { libc::getegid() }))
}

fn acl(texts: [&str; 2]) -> Value {
    Value::Acl(texts.map(str::to_string).to_vec())
}

/// Every property of a container that has a value.
pub(crate) fn cont_values(info: &ContInfo, kept: BTreeMap<u32, Value>) -> Vec<(u32, Value)> {
    let label = if info.label.is_empty() { NO_LABEL } else { &info.label };
    let layout = (info.props.layout == ContLayout::Posix) as u64 * LAYOUT_POSIX;
    let mut values = BTreeMap::from([
        (cont::LABEL, Value::Text(label.to_string())),
        (cont::LAYOUT_TYPE, Value::Number(layout)),
        (cont::LAYOUT_VER, Value::Number(1)),
        (cont::CSUM, Value::Number(csum_number(info.props.csum))),
        (cont::CSUM_CHUNK_SIZE, Value::Number(CSUM_CHUNK_BYTES)),
        (cont::CSUM_SERVER_VERIFY, Value::Number(info.props.server_verify as u64)),
        (cont::REDUN_FAC, Value::Number(info.props.rd_fac.into())),
        (cont::REDUN_LVL, Value::Number(1)),
        (cont::SNAPSHOT_MAX, Value::Number(0)),
        (cont::ACL, acl(CONT_ACL)),
        (cont::COMPRESS, Value::Number(0)),
        (cont::ENCRYPT, Value::Number(0)),
        (cont::OWNER, user()),
        (cont::OWNER_GROUP, group()),
        (cont::EC_CELL_SZ, Value::Number(info.props.cell_bytes.into())),
        (cont::DEDUP, Value::Number(0)),
        (cont::DEDUP_THRESHOLD, Value::Number(4096)),
        (cont::ROOTS, Value::Roots([(0, 0); 4])),
        (cont::STATUS, Value::Number(0)),
        (cont::ALLOCED_OID, Value::Number(0)),
        (cont::GLOBAL_VERSION, Value::Number(FORMAT_VERSION)),
        (cont::OBJ_VERSION, Value::Number(FORMAT_VERSION)),
        (cont::PERF_DOMAIN, Value::Number(PERF_DOMAIN_ROOT)),
    ]);
    // One that was made when cells had one size tells what they have.
    values.extend(kept.into_iter().filter(|(property, _)| *property != cont::EC_CELL_SZ));
    values.into_iter().collect()
}

/// Fills in the entries a list asks for; NULL asks for nothing.
///
/// # Safety
/// `list` is NULL or a property list.
pub unsafe fn fill_cont(list: *mut daos_prop_t, info: &ContInfo) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { fill_cont_kept(list, info, BTreeMap::new()) }
}

/// As [`fill_cont`], with what is kept of the container.
///
/// # Safety
/// `list` is NULL or a property list.
pub unsafe fn fill_cont_kept(
    list: *mut daos_prop_t,
    info: &ContInfo,
    kept: BTreeMap<u32, Value>,
) -> Result<()> {
    if list.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { prop::answer(list, &cont_values(info, kept)) }.map_err(told)
}

/// As [`fill_cont`], for a pool.
///
/// # Safety
/// `list` is NULL or a property list.
pub unsafe fn fill_pool(list: *mut daos_prop_t, info: &PoolInfo) -> Result<()> {
    if list.is_null() {
        return Ok(());
    }
    let values = [
        (pool::LABEL, Value::Text(info.label.clone())),
        (pool::ACL, acl(POOL_ACL)),
        (pool::SPACE_RB, Value::Number(0)),
        (pool::OWNER, user()),
        (pool::OWNER_GROUP, group()),
        (pool::SVC_LIST, Value::Ranks(vec![0])),
    ];
    // SAFETY: the caller's promise.
    unsafe { prop::answer(list, &values) }.map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ContId;

    fn spec(values: &[(u32, Value)]) -> Result<ContSpec> {
        let mut list = daos_prop_t { dpp_nr: 0, dpp_reserv: 0, dpp_entries: std::ptr::null_mut() };
        // SAFETY: the list is a variable of this test, its entries are given back.
        unsafe {
            prop::answer(&mut list, values).unwrap();
            let spec = cont_spec(&list);
            prop::fini(&mut list);
            spec
        }
    }

    fn info(spec: &ContSpec) -> ContInfo {
        ContInfo {
            id: ContId(1),
            uuid: uuid::Uuid::nil(),
            label: spec.label.clone().unwrap_or_default(),
            props: spec.props.clone(),
            handle_count: 0,
            created_ns: 0,
            placement_epoch: 0,
            opened_ns: 0,
            changed_ns: 0,
            snapshot_count: 0,
            snapshot_last: types::Epoch::ZERO,
        }
    }

    #[test]
    fn what_a_list_sets_is_told_again() {
        let values = [
            (cont::LABEL, Value::Text("mine".into())),
            (cont::LAYOUT_TYPE, Value::Number(3)),
            (cont::CSUM, Value::Number(CSUM_SHA256)),
            (cont::REDUN_FAC, Value::Number(2)),
            (cont::OWNER, Value::Text("alice@".into())),
            (cont::ACL, Value::Acl(vec!["A::OWNER@:rw".into()])),
            (cont::EC_CELL_SZ, Value::Number(262_144)),
            (cont::ROOTS, Value::Roots([(1, 2), (3, 4), (5, 6), (7, 8)])),
            (cont::ENCRYPT, Value::Number(0)),
        ];
        let made = spec(&values).unwrap();
        assert_eq!(made.label.as_deref(), Some("mine"));
        assert_eq!((made.props.csum, made.props.rd_fac), (CsumKind::Sha256, 2));
        assert_eq!(made.props.layout, ContLayout::Plain);
        assert_eq!(made.props.oclass.to_string(), "RP_3G1");
        let attrs = made.attrs().unwrap();
        let told = cont_values(&info(&made), kept_in(attrs.get(KEPT_ATTR).map(Vec::as_slice)));
        for value in &values {
            assert!(told.contains(value), "{value:?}");
        }
        // A list copied from one container makes another.
        let again = spec(&told).unwrap();
        assert_eq!(again.props, made.props);
        assert!(made.kept.iter().all(|(property, value)| again.kept[property] == *value));
    }

    #[test]
    fn defaults_and_refusals() {
        // SAFETY: NULL is allowed.
        let plain = unsafe { cont_spec(std::ptr::null()) }.unwrap();
        assert_eq!(plain, ContSpec::default());
        assert!(plain.attrs().unwrap().is_empty());
        let told = cont_values(&info(&plain), kept_in(Some(b"nonsense")));
        assert!(told.contains(&(cont::LABEL, Value::Text(NO_LABEL.into()))));
        let posix = spec(&[(cont::LAYOUT_TYPE, Value::Number(LAYOUT_POSIX))]).unwrap();
        assert_eq!(posix.props.layout, ContLayout::Posix);
        assert!(posix.kept.is_empty());
        for property in [cont::COMPRESS, cont::ENCRYPT, cont::DEDUP] {
            let error = spec(&[(property, Value::Number(1))]).unwrap_err();
            assert_eq!(error.code, Code::NotSupported);
        }
        assert!(spec(&[(cont::CSUM, Value::Number(8))]).is_err());
        let error = spec(&[(cont::REDUN_FAC, Value::Number(9))]).unwrap_err();
        assert_eq!(error.code, Code::Inval);
        for csum in 0..=7 {
            let Ok(kind) = csum_of(csum) else { continue };
            assert_eq!(csum_of(csum_number(kind)).unwrap(), kind);
        }
    }
}
