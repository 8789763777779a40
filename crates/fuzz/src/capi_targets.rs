//! Targets of the C API: global handles, anchors, properties, access control lists, paths.

use crate::corpus;
use crate::target::Target;
use azekura::fuzz;

const AMPLIFICATION: usize = 256;

/// All targets of this module.
pub fn all() -> Vec<Target> {
    let target = |name, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>| Target {
        name,
        run,
        seeds,
        amplification_max: AMPLIFICATION,
    };
    vec![
        target("capi-global-handles", fuzz::global_handles, fuzz::global_handle_seeds),
        target("capi-anchors", fuzz::anchors, || {
            let anchor = |kind: u8, flags: u8, body: &[u8]| [&[kind, flags], body].concat();
            let keys = client::Anchor::start().to_bytes();
            let names = dfs::DirAnchor::start().to_short();
            vec![
                anchor(0, 0, &[]),
                anchor(2, 0, &[&[0, keys.len() as u8], &keys[..]].concat()),
                anchor(2, 0, &[1, 16, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]),
                anchor(1, 0, &[&[names.len() as u8], &names[..]].concat()),
                anchor(3, 0, &[]),
            ]
        }),
        target("capi-property-text", fuzz::property_text, || {
            corpus::texts(&[
                "label:mine;rd_fac:2;cksum:crc32",
                "ec_cell_sz:65536; dedup:off",
                "a:b",
            ])
        }),
        target("capi-acl-text", fuzz::acl_text, || {
            corpus::texts(&["A::OWNER@:rw\nA:G:builders@:r", "A::EVERYONE@:r", "UL:S:me@:rwcd"])
        }),
        target("capi-raw-acl", fuzz::raw_acl, || {
            let mut owner = vec![0u8; 32];
            owner[0] = 1;
            owner[8] = 3;
            let mut user = owner.clone();
            user[1] = 1;
            user[2] = 8;
            user.extend(b"me@\0\0\0\0\0");
            vec![owner.clone(), [owner, user].concat()]
        }),
        target(
            "capi-kept-properties",
            fuzz::kept_properties,
            || vec![fuzz::kept_properties_seed()],
        ),
        target("capi-path-attribute", fuzz::path_attribute, || {
            corpus::texts(&[
                "DAOS.POSIX://67e55044-10b1-426f-9247-bb680e5fe0c8/b0a3d7a4-1b5a-4b0e-8f0a-3c1d2e4f5a6b",
                "DAOS.HDF5://67e55044-10b1-426f-9247-bb680e5fe0c8/67e55044-10b1-426f-9247-bb680e5fe0c8",
            ])
        }),
        target("capi-path-address", fuzz::path_address, || {
            corpus::texts(&["daos://tank/home/a/b", "azk://tank", "/tank/home/x", "DAOS://t/c//p"])
        }),
    ]
}
