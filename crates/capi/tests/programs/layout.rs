//! Compiles the headers and compares the size, the alignment and every offset of each struct with
//! the struct of the same name in `ctypes`.

use azekura::ctypes::*;
use azekura::gurt::{heap::*, hhash::*, slab::*};
use azekura::tse::{tse_sched_t, tse_task_t};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::path::Path;
use std::process::Command;

/// What one struct looks like: name in C, size, alignment, and members with their offsets.
struct Layout {
    c_name: &'static str,
    size: usize,
    align: usize,
    members: Vec<(&'static str, usize)>,
}

/// The struct as Rust lays it out. `member as name` is one that C calls `name`.
macro_rules! layouts {
    ($($c:literal: $rust:ident { $($member:ident $(as $alias:ident)?),* })*) => {
        vec![$(Layout {
            c_name: $c,
            size: size_of::<$rust>(),
            align: align_of::<$rust>(),
            members: vec![$((
                layouts!(@name $member $($alias)?),
                offset_of!($rust, $member),
            )),*],
        }),*]
    };
    (@name $member:ident) => { stringify!($member) };
    (@name $member:ident $alias:ident) => { stringify!($alias) };
}

fn rust_layouts() -> Vec<Layout> {
    layouts! {
        "d_iov_t": d_iov_t { iov_buf, iov_buf_len, iov_len }
        "d_sg_list_t": d_sg_list_t { sg_nr, sg_nr_out, sg_iovs }
        "d_rank_list_t": d_rank_list_t { rl_ranks, rl_nr }
        "daos_handle_t": daos_handle_t { cookie }
        "daos_event_t": daos_event_t { ev_error, ev_private, ev_debug }
        "daos_anchor_t": daos_anchor_t { da_type, da_shard, da_flags, da_sub_anchors, da_buf }
        "daos_epoch_range_t": daos_epoch_range_t { epr_lo, epr_hi }
        "daos_obj_id_t": daos_obj_id_t { lo, hi }
        "daos_cont_info_t": daos_cont_info_t { ci_uuid, ci_lsnapshot, ci_nhandles, ci_nsnapshots, ci_md_otime, ci_md_mtime }
        "struct daos_space": daos_space { s_total, s_free }
        "struct daos_pool_space": daos_pool_space { ps_space, ps_free_min, ps_free_max, ps_free_mean, ps_ntargets, ps_padding }
        "struct daos_rebuild_status": daos_rebuild_status { rs_version, rs_seconds, rs_errno, rs_state, rs_max_supported_layout_ver, rs_flags, rs_reserved_, rs_fail_rank, rs_toberb_obj_nr, rs_obj_nr, rs_rec_nr, rs_size }
        "daos_pool_info_t": daos_pool_info_t { pi_uuid, pi_ntargets, pi_nnodes, pi_ndisabled, pi_map_ver, pi_leader, pi_bits, pi_space, pi_rebuild_st }
        "daos_target_info_t": daos_target_info_t { ta_padding, ta_state, ta_perf, ta_space }
        "struct daos_pool_cont_info": daos_pool_cont_info { pci_uuid, pci_label }
        "struct daos_pool_cont_info2": daos_pool_cont_info2 { pci_id, pci_cinfo, pci_reserved }
        "daos_pool_cont_filter_part_t": daos_pool_cont_filter_part_t { pcfp_func, pcfp_key, pcfp_val64 }
        "daos_pool_cont_filter_t": daos_pool_cont_filter_t { pcf_combine_func, pcf_nparts, pcf_parts }
        "daos_mgmt_pool_info_t": daos_mgmt_pool_info_t { mgpi_uuid, mgpi_label, mgpi_svc, mgpi_ldr }
        "struct daos_prop_entry": daos_prop_entry { dpe_type, dpe_flags, dpe_reserv, value as dpe_val }
        "daos_prop_t": daos_prop_t { dpp_nr, dpp_reserv, dpp_entries }
        "struct daos_prop_byteval": daos_prop_byteval { dpb_data, dpb_len }
        "struct daos_prop_co_roots": daos_prop_co_roots { cr_oids }
        "struct daos_co_status": daos_co_status { dcs_status, dcs_flags, dcs_pm_ver }
        "struct daos_acl": daos_acl { dal_ver, dal_reserv, dal_len }
        "struct daos_ace": daos_ace { dae_access_types, dae_principal_type, dae_principal_len, dae_access_flags, dae_reserv, dae_allow_perms, dae_audit_perms, dae_alarm_perms }
        "daos_recx_t": daos_recx_t { rx_idx, rx_nr }
        "daos_iod_t": daos_iod_t { iod_name, iod_type, iod_size, iod_flags, iod_nr, iod_recxs }
        "daos_iom_t": daos_iom_t { iom_type, iom_nr, iom_nr_out, iom_flags, iom_size, iom_recx_lo, iom_recx_hi, iom_recxs }
        "daos_key_desc_t": daos_key_desc_t { kd_key_len, kd_val_type }
        "struct daos_obj_attr": daos_obj_attr { oa_rank, oa_oa }
        "struct daos_rp_attr": daos_rp_attr { r_proto, r_num }
        "struct daos_ec_attr": daos_ec_attr { e_k, e_p, e_len }
        "struct daos_oclass_attr": daos_oclass_attr { ca_schema, ca_resil, ca_resil_degree, ca_grp_nr, u }
        "struct daos_oclass_list": daos_oclass_list { cl_nr, cl_nr_out, cl_cids, cl_cattrs }
        "daos_range_t": daos_range_t { rg_idx, rg_len }
        "daos_array_iod_t": daos_array_iod_t { arr_nr, arr_rgs, arr_nr_short_read, arr_nr_read }
        "daos_array_stbuf_t": daos_array_stbuf_t { st_size, st_max_epoch }
        "dfs_attr_t": dfs_attr_t { da_id, da_chunk_size, da_oclass_id, da_props, da_mode, da_dir_oclass_id, da_file_oclass_id, da_hints }
        "dfs_iod_t": dfs_iod_t { iod_nr, iod_rgs }
        "dfs_obj_info_t": dfs_obj_info_t { doi_oclass_id, doi_chunk_size, doi_dir_oclass_id, doi_file_oclass_id, doi_oid }
        "dfs_predicate_t": dfs_predicate_t { dp_name, dp_newer, dp_size }
        "struct duns_attr_t": duns_attr_t { da_type, da_oclass_id, da_chunk_size, da_props, da_flags, da_pool, da_cont, da_sys, da_rel_path, da_on_lustre, da_no_prefix, da_puuid, da_cuuid, da_dir_oclass_id, da_file_oclass_id, da_hints }
        "d_list_t": d_list_t { next, prev }
        "struct d_rlink": d_rlink { rl_link, rl_ref, rl_initialized }
        "struct d_hlink": d_hlink { hl_link, hl_key, hl_ops }
        "struct d_binheap_ops": d_binheap_ops { hop_enter, hop_exit, hop_compare }
        "struct d_binheap": d_binheap { d_bh_lock, d_bh_feats, d_bh_nodes_cnt, d_bh_hwm, d_bh_nodes, d_bh_ops, d_bh_priv }
        "struct d_slab_reg": d_slab_reg { sr_init, sr_reset, sr_release, sr_name, sr_size, sr_offset, sr_max_desc, sr_max_free_desc }
        "struct d_slab": d_slab { slab_types, slab_arg, slab_lock, slab_init }
        "tse_task_t": tse_task_t { dt_result }
        "tse_sched_t": tse_sched_t { ds_result, ds_udata }
        "d_hash_table_ops_t": d_hash_table_ops_t { hop_key_cmp, hop_key_init, hop_key_hash, hop_rec_hash, hop_rec_addref, hop_rec_decref, hop_rec_ndecref, hop_rec_free }
        "struct d_hash_bucket": d_hash_bucket { hb_head }
        "struct d_hash_table": d_hash_table { ht_lock, ht_bits, ht_feats, ht_priv, ht_ops, ht_buckets, ht_locks }
    }
}

/// A program that prints `name size align` and `name.member offset` for each.
fn program(layouts: &[Layout]) -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <daos.h>\n#include <daos_fs.h>\n#include <daos_fs_sys.h>\n\
         #include <daos_uns.h>\n#include <gurt/hash.h>\n#include <gurt/heap.h>\n#include <gurt/slab.h>\n\
         #include <daos/tse.h>\nint main(void)\n{\n",
    );
    for Layout { c_name: name, members, .. } in layouts {
        writeln!(text, "printf(\"{name}|%zu %zu\\n\", sizeof({name}), _Alignof({name}));").unwrap();
        for (member, _) in members {
            writeln!(text, "printf(\"{name}.{member}|%zu\\n\", offsetof({name}, {member}));")
                .unwrap();
        }
    }
    text + "return 0;\n}\n"
}

#[test]
fn structs_are_the_same_in_c_and_in_rust() {
    let layouts = rust_layouts();
    let dir = tempfile::tempdir().unwrap();
    let (source, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&source, program(&layouts)).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(include);
    let output = compiler.arg(&source).arg("-o").arg(&binary).output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let printed = Command::new(&binary).output().unwrap();
    assert!(printed.status.success());
    let printed = String::from_utf8(printed.stdout).unwrap();
    let in_c: BTreeMap<&str, &str> =
        printed.lines().map(|line| line.split_once('|').unwrap()).collect();
    let mut in_rust = BTreeMap::new();
    for Layout { c_name, size, align, members } in &layouts {
        in_rust.insert(c_name.to_string(), format!("{size} {align}"));
        for (member, offset) in members {
            in_rust.insert(format!("{c_name}.{member}"), offset.to_string());
        }
    }
    let in_rust: BTreeMap<&str, &str> =
        in_rust.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(in_c, in_rust);
    assert!(in_rust.len() > 200, "the list is cut");
}

#[test]
fn limits_are_the_same_in_c_and_in_rust() {
    let pairs = [
        ("DAOS_SYS_NAME_MAX", DAOS_SYS_NAME_MAX),
        ("DAOS_PROP_LABEL_MAX_LEN", DAOS_PROP_LABEL_MAX_LEN),
        ("DAOS_ANCHOR_BUF_MAX", DAOS_ANCHOR_BUF_MAX),
        ("DAOS_CONT_HINT_MAX_LEN", DAOS_CONT_HINT_MAX_LEN),
        ("DAOS_MEDIA_MAX", DAOS_MEDIA_MAX),
        ("DAOS_ANCHOR_TYPE_HKEY", DAOS_ANCHOR_TYPE_HKEY as usize),
        ("DAOS_ANCHOR_TYPE_KEY", DAOS_ANCHOR_TYPE_KEY as usize),
        ("DAOS_ANCHOR_TYPE_EOF", DAOS_ANCHOR_TYPE_EOF as usize),
        ("DAOS_IOD_SINGLE", DAOS_IOD_SINGLE as usize),
        ("DAOS_IOD_ARRAY", DAOS_IOD_ARRAY as usize),
    ];
    let mut text = String::from("#include <daos.h>\n");
    for (name, value) in pairs {
        writeln!(text, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("limits.c");
    std::fs::write(&source, text).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-fsyntax-only", "-I"]).arg(include).arg(&source);
    let output = compiler.output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
