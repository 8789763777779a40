//! Entry points for fuzzing: what decodes bytes and text of programs, of other processes and of
//! the catalog. None may panic, whatever the bytes.

use crate::ctypes::{DAOS_ANCHOR_BUF_MAX, d_iov_t, daos_acl, daos_anchor_t, daos_handle_t};
use crate::global::{Kind, decode, encode};
use crate::{acl, dfs, duns, gurt, obj, pool, prop, prop_map};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::mem::size_of;
use types::{ContId, ContProps, Durability, Oid, PoolId};
use uuid::Uuid;
use wire::control::{ContInfo, OpenMode, PoolInfo};
use wire::map::PoolMap;

/// Global handles of each kind.
pub fn global_handles(bytes: &[u8]) {
    fn check<T: Serialize + DeserializeOwned>(kind: Kind, bytes: &[u8]) {
        let Ok(value) = decode::<T>(kind, bytes) else { return };
        let raw = encode(kind, &value).expect("what was decoded is encoded");
        let again = decode::<T>(kind, &raw).expect("what was encoded is decoded");
        assert_eq!(encode(kind, &again).expect("and encoded once more"), raw);
    }
    check::<(PoolInfo, OpenMode)>(Kind::Pool, bytes);
    check::<(Uuid, ContInfo, OpenMode)>(Kind::Cont, bytes);
    check::<(Uuid, Oid, u32, u64)>(Kind::Array, bytes);
    check::<dfs::global::Mount>(Kind::Mount, bytes);
    check::<Vec<u8>>(Kind::File, bytes);
    // Through C: a pool of whatever the bytes say is opened, described and closed.
    let mut raw = bytes.to_vec();
    let (iov_buf_len, iov_len) = (raw.len(), raw.len());
    let glob = d_iov_t { iov_buf: raw.as_mut_ptr().cast(), iov_buf_len, iov_len };
    let mut poh = daos_handle_t::default();
    // SAFETY: a buffer as long as said, and room for the results.
    unsafe {
        if pool::daos_pool_global2local(glob, &mut poh) == 0 {
            let mut size = d_iov_t { iov_buf: std::ptr::null_mut(), iov_buf_len: 0, iov_len: 0 };
            assert_eq!(pool::daos_pool_local2global(poh, &mut size), 0);
            assert_eq!(pool::daos_pool_disconnect(poh, std::ptr::null_mut()), 0);
        }
    }
}

/// Valid global handles: one of each kind that needs no system to be made.
pub fn global_handle_seeds() -> Vec<Vec<u8>> {
    let array = (Uuid::nil(), Oid { hi: 1, lo: 2 }, 1u32, 4096u64);
    let id = PoolId(1);
    let pool = PoolInfo {
        id,
        uuid: Uuid::nil(),
        label: "tank".into(),
        durability: Durability::Wal,
        placement: types::PlacementRule::Equal,
        scm_bytes: 1 << 20,
        nvme_bytes: 1 << 30,
        cont_count: 1,
        handle_count: 1,
        map: PoolMap {
            pool: id,
            version: 1,
            engines: Vec::new(),
            targets: Vec::new(),
            placements: Vec::new(),
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        },
        aims: Vec::new(),
        is_rebuild_stopped: false,
        balance_wanted: 0,
        is_move_due: false,
    };
    let cont = ContInfo {
        id: ContId(1),
        uuid: Uuid::nil(),
        label: "home".into(),
        props: ContProps::default(),
        handle_count: 1,
        created_ns: 1,
        placement_epoch: 0,
        opened_ns: 2,
        changed_ns: 3,
        snapshot_count: 0,
        snapshot_last: types::Epoch::ZERO,
    };
    let seeds = [
        encode(Kind::Pool, &(pool, OpenMode::ReadWrite)),
        encode(Kind::Cont, &(Uuid::nil(), cont, OpenMode::ReadOnly)),
        encode(Kind::Array, &array),
        encode(Kind::File, &vec![7u8; 60]),
    ];
    seeds.into_iter().map(|seed| seed.expect("a plain value is encoded")).collect()
}

/// Anchors that callers hand back: of keys, and of directories.
pub fn anchors(bytes: &[u8]) {
    let [kind, flags, rest @ ..] = bytes else { return };
    let mut anchor = daos_anchor_t {
        da_type: (*kind).into(),
        da_shard: (*flags).into(),
        da_flags: u32::from(*flags) << 8,
        da_sub_anchors: (*flags).into(),
        da_buf: [0; DAOS_ANCHOR_BUF_MAX],
    };
    let used = rest.len().min(DAOS_ANCHOR_BUF_MAX);
    anchor.da_buf[..used].copy_from_slice(&rest[..used]);
    if let Ok(Some(position)) = obj::anchor::position(&anchor) {
        let mut again = anchor;
        obj::anchor::put_position(&mut again, &position);
        let back = obj::anchor::position(&again).expect("what was written is read");
        assert_eq!(back.map(|back| back.to_bytes()), Some(position.to_bytes()));
    }
    if let Ok(at) = dfs::dir::anchor_of(&anchor) {
        let mut again = anchor;
        dfs::dir::set_anchor(&mut again, &at);
        if !at.is_end() {
            assert!(dfs::dir::anchor_of(&again).is_ok());
        }
    }
}

/// Text of container properties.
pub fn property_text(bytes: &[u8]) {
    let mut list = std::ptr::null_mut();
    // SAFETY: text of the length said, and room for the list.
    unsafe {
        let (text, len) = (bytes.as_ptr().cast(), bytes.len() as u64);
        if !bytes.is_empty() && prop::daos_prop_from_str(text, len, &mut list) == 0 {
            // What the parser takes, the container takes or refuses in words.
            let _ = prop_map::cont_spec(list);
            prop::daos_prop_free(list);
        }
    }
}

/// Text of an access control list, an entry a line.
pub fn acl_text(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let Ok(list) = acl::give_texts(&lines) else { return };
    // SAFETY: a list made above, given back once.
    unsafe {
        if std::str::from_utf8(bytes).is_err() {
            // Names in another encoding may have no text.
            let _ = acl::texts_of(list);
            return gurt::alloc::free(list);
        }
        let texts = acl::texts_of(list).expect("a list made of text is told as text");
        gurt::alloc::free(list);
        let again = acl::give_texts(&texts).expect("what was told is understood");
        assert_eq!(acl::texts_of(again).expect("and told again"), texts);
        gurt::alloc::free(again);
    }
}

/// An access control list as it lies in memory: what follows its head, in a list that says so.
pub fn raw_acl(bytes: &[u8]) {
    // In words, so that it is aligned as C's memory is.
    let mut memory = vec![0u64; size_of::<daos_acl>().div_ceil(8) + bytes.len().div_ceil(8)];
    let list = memory.as_mut_ptr().cast::<daos_acl>();
    // SAFETY: the memory has room for the head and all bytes behind it.
    unsafe {
        list.write(daos_acl { dal_ver: 1, dal_reserv: 0, dal_len: bytes.len() as u32 });
        let behind = list.cast::<u8>().add(size_of::<daos_acl>());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), behind, bytes.len());
        // A name in memory may hold what text sets entries and parts apart with.
        if let Ok(texts) = acl::texts_of(list)
            && let Ok(again) = acl::give_texts(&texts)
        {
            gurt::alloc::free(again);
        }
    }
}

/// The attribute that keeps a container's properties.
pub fn kept_properties(bytes: &[u8]) {
    let kept = prop_map::kept_in(Some(bytes));
    let written = prop_map::encode_kept(&kept).expect("what was read is written");
    assert_eq!(prop_map::kept_in(Some(&written)), kept);
}

/// A valid attribute for [`kept_properties`].
pub fn kept_properties_seed() -> Vec<u8> {
    let kept = [
        (prop::cont::OWNER, prop::Value::Text("me@".into())),
        (prop::cont::EC_CELL_SZ, prop::Value::Number(65536)),
    ];
    prop_map::encode_kept(&kept.into()).expect("plain values are written")
}

/// The text of the attribute by which a path leads to a container.
pub fn path_attribute(bytes: &[u8]) {
    duns::check_attribute(bytes);
}

/// Addresses and direct paths of containers.
pub fn path_address(bytes: &[u8]) {
    duns::check_address(bytes);
}
