//! Properties of pools and containers.

use crate::{Error, ObjClass, Result, limits};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// When an update is acknowledged; a property of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// On stable storage before the answer.
    #[default]
    Wal,
    /// Written in the background every few milliseconds.
    Relaxed,
    /// Held in memory only; nothing survives a restart.
    Memory,
}

/// What the targets of a pool are weighed by; a property of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementRule {
    /// All get the same.
    #[default]
    Equal,
    /// By the room that is free on their data devices.
    Capacity,
    /// By the room, and by how fast their data devices were when they were measured.
    Score,
}

/// What a container's objects mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContLayout {
    /// Objects as their owner likes.
    #[default]
    Plain,
    Posix,
}

/// Checksum over stored data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CsumKind {
    Off,
    /// CRC-32C (Castagnoli).
    #[default]
    Crc32c,
    /// CRC-64/NVME.
    Crc64,
    /// XXH3, 64 bits.
    Xxh3,
    Sha256,
}

macro_rules! named_values {
    ($kind:ty, $what:literal, $($value:path => $name:literal),+) => {
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($value => $name),+ })
            }
        }
        impl FromStr for $kind {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                match text.to_ascii_lowercase().as_str() {
                    $($name => Ok($value),)+
                    _ => Err(Error::inval(format!(
                        concat!("'{}' is not a ", $what, " (want one of: {})"),
                        text,
                        [$($name),+].join(", ")
                    ))),
                }
            }
        }
    };
}

named_values!(Durability, "durability",
    Durability::Wal => "wal", Durability::Relaxed => "relaxed", Durability::Memory => "memory");
named_values!(PlacementRule, "placement",
    PlacementRule::Equal => "equal", PlacementRule::Capacity => "capacity",
    PlacementRule::Score => "score");
named_values!(ContLayout, "container layout",
    ContLayout::Plain => "plain", ContLayout::Posix => "posix");
named_values!(CsumKind, "checksum",
    CsumKind::Off => "off", CsumKind::Crc32c => "crc32c", CsumKind::Crc64 => "crc64",
    CsumKind::Xxh3 => "xxh3", CsumKind::Sha256 => "sha256");

/// Properties of a container, fixed at creation unless said otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContProps {
    /// What the objects mean.
    pub layout: ContLayout,
    /// Class of objects whose creator names none. May be changed.
    pub oclass: ObjClass,
    /// Class of directories. May be changed.
    pub dir_oclass: ObjClass,
    /// Class of files. May be changed.
    pub file_oclass: ObjClass,
    /// Chunk of files, bytes: a multiple of 4 KiB, at most 1 GiB. May be changed.
    pub chunk_bytes: u64,
    /// Least redundancy factor of any object, 0 to 5.
    pub rd_fac: u8,
    /// Checksum over stored data.
    pub csum: CsumKind,
    /// Targets compare data with their checksums when they arrive, not only when they are read.
    pub server_verify: bool,
    /// Cell of stripes of objects with erasure codes, bytes: a power of two from 64 KiB to 1 MiB.
    pub cell_bytes: u32,
}

/// Cell of stripes where nothing else is said, bytes.
pub const CELL_BYTES_DEFAULT: u32 = 64 << 10;

impl Default for ContProps {
    fn default() -> ContProps {
        ContProps {
            layout: ContLayout::Plain,
            oclass: ObjClass::S1,
            dir_oclass: ObjClass::S1,
            file_oclass: ObjClass::S1,
            chunk_bytes: limits::CHUNK_BYTES_DEFAULT,
            rd_fac: 0,
            csum: CsumKind::Crc32c,
            server_verify: false,
            cell_bytes: CELL_BYTES_DEFAULT,
        }
    }
}

impl ContProps {
    /// Of a file system whose maker names no class: files and directories use one target while they are small and all of them when
    /// they are large, with as many copies as `rd_fac` (0 to 5) asks for.
    pub fn posix(rd_fac: u8) -> ContProps {
        ContProps {
            layout: ContLayout::Posix,
            oclass: ObjClass::S1.at_least(rd_fac),
            dir_oclass: ObjClass::SPREADING.at_least(rd_fac),
            file_oclass: ObjClass::PROGRESSIVE.at_least(rd_fac),
            rd_fac,
            ..ContProps::default()
        }
    }
}

/// Checks the size of cells: a power of two from 64 KiB to 1 MiB.
pub fn check_cell_bytes(bytes: u64) -> Result<u32> {
    match u32::try_from(bytes) {
        Ok(bytes) if bytes.is_power_of_two() && (64 << 10..=1 << 20).contains(&bytes) => Ok(bytes),
        _ => Err(Error::inval(format!(
            "cell size {bytes} must be a power of two from 64 KiB to 1 MiB"
        ))),
    }
}

/// Checks a chunk size: a multiple of 4 KiB, at most 1 GiB.
pub fn check_chunk_bytes(bytes: u64) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(4096) || bytes > 1 << 30 {
        return Err(Error::inval(format!(
            "chunk size {bytes} must be a multiple of 4 KiB from 4 KiB to 1 GiB"
        )));
    }
    Ok(())
}
