//! Names of everything in the catalog.
//!
//! | key | value |
//! |---|---|
//! | `system` | [`crate::SystemDf`] |
//! | `engine/UUID` | [`crate::EngineDf`] |
//! | `pool/POOL` | [`crate::PoolDf`] |
//! | `pool-label/LABEL`, `pool-uuid/UUID` | pool number, decimal |
//! | `pool-ioc/POOL` | [`crate::AdmissionDf`] |
//! | `cont/POOL/CONT` | [`crate::ContDf`] |
//! | `cont-label/POOL/LABEL`, `cont-uuid/POOL/UUID` | container number, decimal |
//! | `snaps/POOL/CONT` | [`crate::SnapsDf`] |
//! | `times/POOL/CONT` | [`crate::TimesDf`] |
//! | `oids/POOL/CONT` | [`crate::OidsDf`] |
//! | `closed` | [`crate::ClosedDf`]: no service may work on this catalog |
//! | `recovered` | how often the catalog was made anew (see `recover`) |
//! | `attr/pool/POOL/NAME`, `attr/cont/POOL/CONT/NAME`, `attr/system/NAME` | the attribute's bytes |
//!
//! Numbers in keys are hex of fixed width, so that the order of keys is that of numbers. Attribute
//! names may hold any text, slashes too: they are always last. Labels hold no slash.

use types::{ContId, PoolId};
use uuid::Uuid;

pub const SYSTEM: &str = "system";
pub const ENGINES: &str = "engine/";
pub const POOLS: &str = "pool/";
pub const CONTS: &str = "cont/";
pub const ADMISSIONS: &str = "pool-ioc/";
pub const SNAPS: &str = "snaps/";
pub const CLOSED: &str = "closed";
pub const SYSTEM_ATTRS: &str = "attr/system/";
pub const RECOVERED: &str = "recovered";

/// True for what changes whenever a container is used.
pub fn is_of_use_only(key: &str) -> bool {
    key.starts_with("oids/") || key.starts_with("times/")
}

pub fn engine(uuid: Uuid) -> String {
    format!("{ENGINES}{uuid}")
}

pub fn pool(id: PoolId) -> String {
    format!("{POOLS}{:08x}", id.0)
}

pub fn pool_label(label: &str) -> String {
    format!("pool-label/{label}")
}

pub fn pool_uuid(uuid: Uuid) -> String {
    format!("pool-uuid/{uuid}")
}

pub fn pool_admission(id: PoolId) -> String {
    format!("pool-ioc/{:08x}", id.0)
}

pub fn conts(pool: PoolId) -> String {
    format!("cont/{:08x}/", pool.0)
}

pub fn cont(pool: PoolId, id: ContId) -> String {
    format!("cont/{:08x}/{:016x}", pool.0, id.0)
}

pub fn cont_labels(pool: PoolId) -> String {
    format!("cont-label/{:08x}/", pool.0)
}

pub fn cont_label(pool: PoolId, label: &str) -> String {
    format!("cont-label/{:08x}/{label}", pool.0)
}

pub fn cont_uuids(pool: PoolId) -> String {
    format!("cont-uuid/{:08x}/", pool.0)
}

pub fn cont_uuid(pool: PoolId, uuid: Uuid) -> String {
    format!("cont-uuid/{:08x}/{uuid}", pool.0)
}

pub fn snaps_of_pool(pool: PoolId) -> String {
    format!("snaps/{:08x}/", pool.0)
}

pub fn snaps(pool: PoolId, id: ContId) -> String {
    format!("snaps/{:08x}/{:016x}", pool.0, id.0)
}

pub fn times_of_pool(pool: PoolId) -> String {
    format!("times/{:08x}/", pool.0)
}

pub fn times(pool: PoolId, id: ContId) -> String {
    format!("times/{:08x}/{:016x}", pool.0, id.0)
}

pub fn oids_of_pool(pool: PoolId) -> String {
    format!("oids/{:08x}/", pool.0)
}

pub fn oids(pool: PoolId, id: ContId) -> String {
    format!("oids/{:08x}/{:016x}", pool.0, id.0)
}

pub fn pool_attrs(pool: PoolId) -> String {
    format!("attr/pool/{:08x}/", pool.0)
}

pub fn conts_attrs(pool: PoolId) -> String {
    format!("attr/cont/{:08x}/", pool.0)
}

pub fn cont_attrs(pool: PoolId, id: ContId) -> String {
    format!("attr/cont/{:08x}/{:016x}/", pool.0, id.0)
}
