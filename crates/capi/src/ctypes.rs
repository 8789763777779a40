//! The structs of the C headers as Rust sees them: same members, order, sizes.
//!
//! The headers in `include/` are the definition; `tests/programs/layout.rs` compiles them and compares every
//! size and offset with the structs here. Names are the C names, so that a reader of a C program finds
//! them. Memory that C handed in may hold anything: enums are plain integers here, and flexible array
//! members are reached through pointers.

// The members are documented where they are defined, in the headers.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Bytes.
pub type daos_size_t = u64;
/// A byte offset.
pub type daos_off_t = u64;
/// A moment of a container's history.
pub type daos_epoch_t = u64;
/// An object class by number; 0 is unknown.
pub type daos_oclass_id_t = u32;
/// Preferred redundancy and sharding, `DAOS_OCH_*`.
pub type daos_oclass_hints_t = u16;
/// `DAOS_PROP_CO_LAYOUT_*`.
pub type daos_cont_layout_t = u16;
/// Rank of an engine.
pub type d_rank_t = u32;
/// `uuid_t` of libuuid.
pub type uuid_t = [u8; 16];
/// `DAOS_OT_*`.
pub type daos_otype_t = c_uint;
/// A key is a buffer: `iov_len` bytes at `iov_buf`.
pub type daos_key_t = d_iov_t;

/// Longest name of a system.
pub const DAOS_SYS_NAME_MAX: usize = 15;
/// Longest label of a pool or container.
pub const DAOS_PROP_LABEL_MAX_LEN: usize = 127;
/// Bytes of an anchor that are the library's own.
pub const DAOS_ANCHOR_BUF_MAX: usize = 104;
/// Bytes of the hint text in attributes.
pub const DAOS_CONT_HINT_MAX_LEN: usize = 128;
/// Bytes of the name of a snapshot in C, with the zero at its end.
pub const DAOS_SNAPSHOT_MAX_LEN: usize = 128;
/// Kinds of media in space figures.
pub const DAOS_MEDIA_MAX: usize = 2;

/// One piece of memory; `iov_buf_len` is its capacity, `iov_len` what it holds, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct d_iov_t {
    pub iov_buf: *mut c_void,
    pub iov_buf_len: usize,
    pub iov_len: usize,
}

/// A list of pieces of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct d_sg_list_t {
    pub sg_nr: u32,
    pub sg_nr_out: u32,
    pub sg_iovs: *mut d_iov_t,
}

/// A list of ranks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct d_rank_list_t {
    pub rl_ranks: *mut d_rank_t,
    pub rl_nr: u32,
}

/// A handle: a cookie of the process's table, 0 is none.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct daos_handle_t {
    pub cookie: u64,
}

/// An operation that runs; the caller owns the memory and does not look into `ev_private`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_event_t {
    pub ev_error: c_int,
    pub ev_private: daos_event_private_t,
    pub ev_debug: u64,
}

/// The library's part of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_event_private_t {
    pub space: [u64; 20],
}

/// Where a listing stands.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_anchor_t {
    pub da_type: u16,
    pub da_shard: u16,
    pub da_flags: u32,
    pub da_sub_anchors: u64,
    pub da_buf: [u8; DAOS_ANCHOR_BUF_MAX],
}

/// `da_type` of an anchor before the first entry.
pub const DAOS_ANCHOR_TYPE_ZERO: u16 = 0;
/// `da_type` of an anchor that holds a hashed key.
pub const DAOS_ANCHOR_TYPE_HKEY: u16 = 1;
/// `da_type` of an anchor that holds a key.
pub const DAOS_ANCHOR_TYPE_KEY: u16 = 2;
/// `da_type` of an anchor after the last entry.
pub const DAOS_ANCHOR_TYPE_EOF: u16 = 3;

/// Epochs from `epr_lo` to `epr_hi`, both included.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_epoch_range_t {
    pub epr_lo: daos_epoch_t,
    pub epr_hi: daos_epoch_t,
}

/// What C has as the id of an object.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct daos_obj_id_t {
    pub lo: u64,
    pub hi: u64,
}

/// What is known of a container.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_cont_info_t {
    pub ci_uuid: uuid_t,
    pub ci_lsnapshot: daos_epoch_t,
    pub ci_nhandles: u32,
    pub ci_nsnapshots: u32,
    pub ci_md_otime: u64,
    pub ci_md_mtime: u64,
}

/// Bytes in total and free, by kind of media.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct daos_space {
    pub s_total: [u64; DAOS_MEDIA_MAX],
    pub s_free: [u64; DAOS_MEDIA_MAX],
}

/// Space of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct daos_pool_space {
    pub ps_space: daos_space,
    pub ps_free_min: [u64; DAOS_MEDIA_MAX],
    pub ps_free_max: [u64; DAOS_MEDIA_MAX],
    pub ps_free_mean: [u64; DAOS_MEDIA_MAX],
    pub ps_ntargets: u32,
    pub ps_padding: u32,
}

/// How far a rebuild is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct daos_rebuild_status {
    pub rs_version: u32,
    pub rs_seconds: u32,
    pub rs_errno: i32,
    /// In C a union with `rs_done`.
    pub rs_state: i32,
    pub rs_max_supported_layout_ver: u16,
    pub rs_flags: u8,
    pub rs_reserved_: u8,
    pub rs_fail_rank: i32,
    pub rs_toberb_obj_nr: u64,
    pub rs_obj_nr: u64,
    pub rs_rec_nr: u64,
    pub rs_size: u64,
}

/// What is known of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct daos_pool_info_t {
    pub pi_uuid: uuid_t,
    pub pi_ntargets: u32,
    pub pi_nnodes: u32,
    pub pi_ndisabled: u32,
    pub pi_map_ver: u32,
    pub pi_leader: u32,
    pub pi_bits: u64,
    pub pi_space: daos_pool_space,
    pub pi_rebuild_st: daos_rebuild_status,
}

/// What is known of a target.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct daos_target_info_t {
    pub ta_padding: u32,
    pub ta_state: c_uint,
    pub ta_perf: c_int,
    pub ta_space: daos_space,
}

/// A container in the list of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_pool_cont_info {
    pub pci_uuid: uuid_t,
    pub pci_label: [c_char; DAOS_PROP_LABEL_MAX_LEN + 1],
}

/// A container in the filtered list of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_pool_cont_info2 {
    pub pci_id: daos_pool_cont_info,
    pub pci_cinfo: daos_cont_info_t,
    pub pci_reserved: [*mut c_void; 2],
}

/// One condition of a container filter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_pool_cont_filter_part_t {
    pub pcfp_func: u32,
    pub pcfp_key: u32,
    /// In C a union with `pcfp_valstr`.
    pub pcfp_val64: u64,
}

/// Conditions joined by and, or by or.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_pool_cont_filter_t {
    pub pcf_combine_func: u32,
    pub pcf_nparts: u32,
    pub pcf_parts: *mut *mut daos_pool_cont_filter_part_t,
}

/// A pool in the list of a system.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_mgmt_pool_info_t {
    pub mgpi_uuid: uuid_t,
    pub mgpi_label: *mut c_char,
    pub mgpi_svc: *mut d_rank_list_t,
    pub mgpi_ldr: d_rank_t,
}

/// The value of a property: a number, a string, or memory, by the property's type.
#[repr(C)]
#[derive(Clone, Copy)]
pub union daos_prop_value {
    pub dpe_val: u64,
    pub dpe_str: *mut c_char,
    pub dpe_val_ptr: *mut c_void,
}

/// A property and its value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct daos_prop_entry {
    pub dpe_type: u32,
    pub dpe_flags: u16,
    pub dpe_reserv: u16,
    pub value: daos_prop_value,
}

/// A list of properties, `dpp_nr` of them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_prop_t {
    pub dpp_nr: u32,
    pub dpp_reserv: u32,
    pub dpp_entries: *mut daos_prop_entry,
}

/// Bytes as the value of a property.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_prop_byteval {
    pub dpb_data: *mut c_void,
    pub dpb_len: usize,
}

/// Well-known objects of a container.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_prop_co_roots {
    pub cr_oids: [daos_obj_id_t; 4],
}

/// Whether a container lost data.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_co_status {
    pub dcs_status: u16,
    pub dcs_flags: u16,
    pub dcs_pm_ver: u32,
}

/// The head of an access control list; `dal_len` bytes of entries follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_acl {
    pub dal_ver: u16,
    pub dal_reserv: u16,
    pub dal_len: u32,
}

/// The head of an access control entry; `dae_principal_len` bytes of a name follow, zero-terminated
/// and filled to a multiple of 8 with zeros.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_ace {
    pub dae_access_types: u8,
    pub dae_principal_type: u8,
    pub dae_principal_len: u16,
    pub dae_access_flags: u16,
    pub dae_reserv: u16,
    pub dae_allow_perms: u64,
    pub dae_audit_perms: u64,
    pub dae_alarm_perms: u64,
}

/// A range of an array: `rx_nr` records from `rx_idx`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_recx_t {
    pub rx_idx: u64,
    pub rx_nr: u64,
}

/// What to read or write of one akey.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_iod_t {
    pub iod_name: daos_key_t,
    /// `DAOS_IOD_*`.
    pub iod_type: c_uint,
    /// Size of a record, bytes; 0 (`DAOS_REC_ANY`) asks for it.
    pub iod_size: daos_size_t,
    pub iod_flags: u64,
    pub iod_nr: u32,
    pub iod_recxs: *mut daos_recx_t,
}

/// `iod_type`: not set.
pub const DAOS_IOD_NONE: c_uint = 0;
/// `iod_type`: one value, replaced as a whole.
pub const DAOS_IOD_SINGLE: c_uint = 1;
/// `iod_type`: an array of records.
pub const DAOS_IOD_ARRAY: c_uint = 2;

/// Which records of an akey exist.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_iom_t {
    pub iom_type: c_uint,
    pub iom_nr: u32,
    pub iom_nr_out: u32,
    pub iom_flags: u32,
    pub iom_size: daos_size_t,
    pub iom_recx_lo: daos_recx_t,
    pub iom_recx_hi: daos_recx_t,
    pub iom_recxs: *mut daos_recx_t,
}

/// One key of a listing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_key_desc_t {
    pub kd_key_len: daos_size_t,
    pub kd_val_type: u32,
}

/// Attributes of an object.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_obj_attr {
    pub oa_rank: d_rank_t,
    pub oa_oa: *mut daos_oclass_attr,
}

/// Replication in an object class.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_rp_attr {
    pub r_proto: c_uint,
    pub r_num: c_uint,
}

/// Erasure code in an object class.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_ec_attr {
    pub e_k: u16,
    pub e_p: u16,
    pub e_len: c_uint,
}

/// How an object class protects, by `ca_resil`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union daos_oclass_protection {
    pub rp: daos_rp_attr,
    pub ec: daos_ec_attr,
}

/// An object class in parts.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct daos_oclass_attr {
    pub ca_schema: c_uint,
    pub ca_resil: c_uint,
    pub ca_resil_degree: c_uint,
    pub ca_grp_nr: c_uint,
    pub u: daos_oclass_protection,
}

/// A list of object classes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_oclass_list {
    pub cl_nr: u32,
    pub cl_nr_out: u32,
    pub cl_cids: *mut daos_oclass_id_t,
    pub cl_cattrs: *mut daos_oclass_attr,
}

/// A range of an array or file: `rg_len` cells or bytes from `rg_idx`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_range_t {
    pub rg_idx: daos_off_t,
    pub rg_len: daos_size_t,
}

/// What to read or write of an array.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_array_iod_t {
    pub arr_nr: daos_size_t,
    pub arr_rgs: *mut daos_range_t,
    pub arr_nr_short_read: daos_size_t,
    pub arr_nr_read: daos_size_t,
}

/// Size and last change of an array.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct daos_array_stbuf_t {
    pub st_size: daos_size_t,
    pub st_max_epoch: daos_epoch_t,
}

/// Attributes of a file system.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct dfs_attr_t {
    pub da_id: u64,
    pub da_chunk_size: daos_size_t,
    pub da_oclass_id: daos_oclass_id_t,
    pub da_props: *mut daos_prop_t,
    pub da_mode: u32,
    pub da_dir_oclass_id: daos_oclass_id_t,
    pub da_file_oclass_id: daos_oclass_id_t,
    pub da_hints: [c_char; DAOS_CONT_HINT_MAX_LEN],
}

/// Ranges of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct dfs_iod_t {
    pub iod_nr: daos_size_t,
    pub iod_rgs: *mut daos_range_t,
}

/// How a file or directory is laid out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct dfs_obj_info_t {
    pub doi_oclass_id: daos_oclass_id_t,
    pub doi_chunk_size: daos_size_t,
    pub doi_dir_oclass_id: daos_oclass_id_t,
    pub doi_file_oclass_id: daos_oclass_id_t,
    pub doi_oid: daos_obj_id_t,
}

/// What `dfs_readdir_with_filter` looks for. `dp_name` holds `NAME_MAX` bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct dfs_predicate_t {
    pub dp_name: [c_char; 255],
    pub dp_newer: libc::time_t,
    pub dp_size: usize,
}

/// Where a path leads: pool, container, and the rest of the path.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct duns_attr_t {
    pub da_type: daos_cont_layout_t,
    pub da_oclass_id: daos_oclass_id_t,
    pub da_chunk_size: daos_size_t,
    pub da_props: *mut daos_prop_t,
    pub da_flags: u32,
    pub da_pool: [c_char; DAOS_PROP_LABEL_MAX_LEN + 1],
    pub da_cont: [c_char; DAOS_PROP_LABEL_MAX_LEN + 1],
    pub da_sys: *mut c_char,
    pub da_rel_path: *mut c_char,
    pub da_on_lustre: bool,
    pub da_no_prefix: bool,
    pub da_puuid: uuid_t,
    pub da_cuuid: uuid_t,
    pub da_dir_oclass_id: daos_oclass_id_t,
    pub da_file_oclass_id: daos_oclass_id_t,
    pub da_hints: [c_char; DAOS_CONT_HINT_MAX_LEN],
}

/// A link of a doubly linked list.
#[repr(C)]
#[derive(Debug)]
pub struct d_list_t {
    pub next: *mut d_list_t,
    pub prev: *mut d_list_t,
}

/// What a hash table asks of its user. Any may be null but `hop_key_cmp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct d_hash_table_ops_t {
    pub hop_key_cmp: Option<
        unsafe extern "C" fn(*mut d_hash_table, *mut d_list_t, *const c_void, c_uint) -> bool,
    >,
    pub hop_key_init: Option<unsafe extern "C" fn(*mut d_hash_table, *mut d_list_t, *mut c_void)>,
    pub hop_key_hash: Option<unsafe extern "C" fn(*mut d_hash_table, *const c_void, c_uint) -> u32>,
    pub hop_rec_hash: Option<unsafe extern "C" fn(*mut d_hash_table, *mut d_list_t) -> u32>,
    pub hop_rec_addref: Option<unsafe extern "C" fn(*mut d_hash_table, *mut d_list_t)>,
    pub hop_rec_decref: Option<unsafe extern "C" fn(*mut d_hash_table, *mut d_list_t) -> bool>,
    pub hop_rec_ndecref:
        Option<unsafe extern "C" fn(*mut d_hash_table, *mut d_list_t, c_int) -> c_int>,
    pub hop_rec_free: Option<unsafe extern "C" fn(*mut d_hash_table, *mut d_list_t)>,
}

/// Room for any of the lock kinds of a hash table.
#[repr(C)]
#[derive(Clone, Copy)]
pub union d_hash_lock {
    pub spin: libc::pthread_spinlock_t,
    pub mutex: libc::pthread_mutex_t,
    pub rwlock: libc::pthread_rwlock_t,
}

/// A chain of a hash table.
#[repr(C)]
#[derive(Debug)]
pub struct d_hash_bucket {
    pub hb_head: d_list_t,
}

/// A hash table with chains.
#[repr(C)]
pub struct d_hash_table {
    pub ht_lock: d_hash_lock,
    pub ht_bits: u32,
    pub ht_feats: u32,
    pub ht_priv: *mut c_void,
    pub ht_ops: *mut d_hash_table_ops_t,
    pub ht_buckets: *mut d_hash_bucket,
    pub ht_locks: *mut d_hash_lock,
}
