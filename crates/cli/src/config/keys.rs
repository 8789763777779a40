//! Every key of an engine's configuration file, for people.

use serde::Serialize;

/// A key, and what may be given for it.
#[derive(Serialize)]
pub struct Key {
    /// The section it is in; empty: before all sections.
    pub section: &'static str,
    pub key: &'static str,
    /// Kind of value, with unit and range.
    pub value: &'static str,
    pub default: &'static str,
    pub meaning: &'static str,
}

const fn key(
    section: &'static str,
    key: &'static str,
    value: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key { section, key, value, default, meaning }
}

pub const KEYS: &[Key] = &[
    key("", "dir", "directory", "-", "the engine's identity, Unix socket, catalog or its copy"),
    key("", "listen", "HOST:PORT", "127.0.0.1:0", "TCP address; port 0 chooses one"),
    key("", "advertise", "HOST:PORT", "listen", "address that others are to use"),
    key(
        "",
        "join",
        "list of HOST:PORT",
        "[]",
        "engines to join; empty: this one holds the catalog",
    ),
    key("", "domain", "list of names", "[host name]", "fault domain, from the outside in"),
    key("", "token_file", "file", "none", "shared secret of the system"),
    key(
        "",
        "admin_token_file",
        "file",
        "none",
        "secret of engines and administrators alone; without it token_file is for them, too",
    ),
    key("", "insecure", "true, false", "false", "listen beyond this machine without a secret"),
    key(
        "",
        "message_memory",
        "size, from 64MiB",
        "1/4 of memory, up to 4GiB",
        "for messages under way",
    ),
    key("", "down_after_s", "seconds, 2 to 86400", "5", "silent for so long, an engine is down"),
    key(
        "",
        "failover",
        "true, false",
        "true",
        "copies go on without the targets of one that is down",
    ),
    key(
        "",
        "rebuild_after_s",
        "seconds, up to 31536000",
        "60",
        "down so long, others get its copies; 0: never",
    ),
    key("metrics", "listen", "HOST:PORT", "-", "figures for Prometheus, over HTTP"),
    key(
        "metrics",
        "insecure",
        "true, false",
        "false",
        "tell them beyond this machine: there is no secret",
    ),
    key("catalog", "kind", "embedded, etcd", "embedded", "where the catalog is"),
    key("catalog", "endpoints", "list of URLs", "-", "etcd's members: http(s)://HOST:PORT"),
    key("catalog", "prefix", "letters, digits, -_./", "azekura", "beginning of this system's keys"),
    key("catalog", "ca", "file (PEM)", "Mozilla's", "who signs etcd's certificates"),
    key("catalog", "cert", "file (PEM)", "none", "this engine's certificate, with 'key'"),
    key("catalog", "key", "file (PEM)", "none", "its key; for nobody else to read"),
    key("catalog", "user", "name", "none", "at etcd, with 'password_file'"),
    key("catalog", "password_file", "file", "none", "for nobody else to read"),
    key("store", "nvme", "list of devices", "[]", "data devices of the targets that name none"),
    key("store", "inline_bytes_max", "size, 512 to 64KiB", "4KiB", "smaller values go to the log"),
    key("store", "aggregation", "true, false", "true", "join small extents in the background"),
    key("store", "discard", "true, false", "block devices only", "tell data devices what is free"),
    key("store", "metadata_cache", "size, from 1MiB", "1GiB", "memory for the index of a target"),
    key("store", "data_cache_percent", "0 to 80", "10", "of memory, for data read from devices"),
    key(
        "store",
        "write_queue_ms",
        "0 to 10000",
        "10",
        "what devices get to write at a time; 0: all",
    ),
    key("store", "measure", "size", "64MiB", "written and read to measure devices; 0: not"),
    key("store", "measure_every_h", "hours", "24", "again, when nobody works; 0: not"),
    key("target", "device", "directory, device", "-", "everything on one; or 'scm' and 'nvme'"),
    key("target", "scm", "directory, device", "-", "index and log"),
    key("target", "nvme", "list of devices", "those of [store]", "data, striped over them"),
    key("target", "rate_max", "size, from 1MiB", "none", "most read and written a second"),
    key("target", "cores", "list of numbers", "[]", "where its thread runs; empty: anywhere"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use engine::EngineConfig;
    use std::collections::BTreeSet;

    /// All that can be set, as far as it goes together.
    const FULL: [&str; 2] = [
        "dir = '/a'\nlisten = 'h:1'\nadvertise = 'h:1'\njoin = []\ndomain = ['r']\ntoken_file = '/t'\nadmin_token_file = '/u'\n\
         insecure = true\nmessage_memory = '1GiB'\ndown_after_s = 9\nfailover = false\nrebuild_after_s = 9\n\
         [catalog]\nkind = 'etcd'\nendpoints = ['http://h:2379']\nprefix = 'p'\nca = '/ca'\ncert = '/c'\n\
         key = '/k'\nuser = 'u'\npassword_file = '/p'\n\
         [metrics]\nlisten = '127.0.0.1:1'\ninsecure = true\n\
         [store]\ninline_bytes_max = '8KiB'\naggregation = true\ndiscard = true\nmetadata_cache = '1GiB'\ndata_cache_percent = 5\nmeasure = '1MiB'\nmeasure_every_h = 1\nwrite_queue_ms = 5\n\
         nvme = ['/n1']\n[[target]]\nscm = '/s'\ncores = [1]\nrate_max = '1MiB'\n",
        "dir = '/a'\n[[target]]\ndevice = '/d'\n[[target]]\nscm = '/s'\nnvme = ['/n']\n",
    ];

    #[test]
    fn every_key_is_told_of_and_no_other() {
        let mut known = BTreeSet::new();
        for text in FULL {
            let config = EngineConfig::parse(text, "x").unwrap();
            let again = toml::to_string(&config).unwrap();
            let top: toml::Table = again.parse().unwrap();
            for (name, value) in top {
                let sections: Vec<toml::Value> = match value {
                    toml::Value::Table(_) => vec![value],
                    toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => items,
                    _ => {
                        known.insert((String::new(), name));
                        continue;
                    }
                };
                for section in sections {
                    let keys = section.as_table().unwrap().keys();
                    known.extend(keys.map(|key| (name.clone(), key.clone())));
                }
            }
        }
        let told: BTreeSet<(String, String)> =
            KEYS.iter().map(|key| (key.section.to_string(), key.key.to_string())).collect();
        assert_eq!(told, known);
        assert_eq!(told.len(), KEYS.len());
    }
}
