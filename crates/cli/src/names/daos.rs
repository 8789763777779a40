//! `daos`: containers, files and pools as their users name them.
//!
//! Options and their spelling as in the manual of DAOS 2.x ("daos" utility).

use super::{Common, Words, assignments};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;

/// The commands of DAOS's 'daos', carried out by Azekura.
#[derive(Parser, Debug)]
#[command(name = "daos", version, max_term_width = 100)]
pub struct Daos {
    #[command(flatten)]
    common: Common,
    /// Accepted for scripts; the system is chosen with --system or AZEKURA_SYSTEM
    #[arg(long, short = 'G', global = true, value_name = "NAME", hide = true)]
    sys_name: Option<String>,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand, Debug)]
enum Noun {
    /// Containers
    #[command(visible_alias = "cont", subcommand)]
    Container(Container),
    /// Pools
    #[command(subcommand)]
    Pool(Pool),
    /// Files in containers
    #[command(alias = "fs", subcommand)]
    Filesystem(Filesystem),
    /// The system
    #[command(subcommand)]
    System(System),
    /// Print the version
    Version,
}

/// A pool, by position or option.
#[derive(Args, Debug)]
struct PoolName {
    /// Pool: label or UUID
    #[arg(required_unless_present = "pool_option")]
    pool: Option<String>,
    /// The same
    #[arg(long = "pool", id = "pool_option", hide = true)]
    pool_option: Option<String>,
}

impl PoolName {
    fn name(&self) -> &str {
        self.pool_option.as_deref().or(self.pool.as_deref()).unwrap_or_default()
    }
}

/// A container, by position or options.
#[derive(Args, Debug)]
struct Which {
    /// Pool: label or UUID
    #[arg(required_unless_present = "pool_option")]
    pool: Option<String>,
    /// Container: label or UUID
    #[arg(required_unless_present = "cont_option")]
    cont: Option<String>,
    /// The same
    #[arg(long = "pool", id = "pool_option", hide = true)]
    pool_option: Option<String>,
    /// The same
    #[arg(long = "cont", id = "cont_option", alias = "label", hide = true)]
    cont_option: Option<String>,
}

impl Which {
    fn pool(&self) -> &str {
        self.pool_option.as_deref().or(self.pool.as_deref()).unwrap_or_default()
    }

    fn cont(&self) -> &str {
        // With `--pool` the first word is the container.
        let word = match self.pool_option {
            Some(_) => self.cont.as_deref().or(self.pool.as_deref()),
            None => self.cont.as_deref(),
        };
        self.cont_option.as_deref().or(word).unwrap_or_default()
    }

    fn words(&self) -> [&str; 3] {
        ["--", self.pool(), self.cont()]
    }
}

#[derive(Subcommand, Debug)]
enum Container {
    /// Create a container
    Create(Create),
    /// List the containers of a pool
    #[command(visible_alias = "ls")]
    List(PoolName),
    /// Show a container
    Query(Which),
    /// Remove a container and all it holds
    Destroy {
        #[command(flatten)]
        which: Which,
        /// Even if it is in use
        #[arg(long, short)]
        force: bool,
    },
    /// Print properties
    GetProp {
        #[command(flatten)]
        which: Which,
        /// Properties to print, separated by commas
        #[arg(long, value_delimiter = ',')]
        properties: Vec<String>,
    },
    /// Change properties
    SetProp {
        #[command(flatten)]
        which: Which,
        /// NAME:VALUE, separated by commas
        #[arg(value_delimiter = ',')]
        values: Vec<String>,
        /// The same
        #[arg(long, value_delimiter = ',', hide = true)]
        properties: Vec<String>,
    },
    /// Print user attributes
    #[command(visible_alias = "list-attr", alias = "list-attrs")]
    GetAttr {
        #[command(flatten)]
        which: Which,
        /// Attribute to print; all when none is given
        attr: Option<String>,
        /// The same
        #[arg(long = "attr", id = "attr_option", hide = true)]
        attr_option: Option<String>,
    },
    /// Set user attributes
    SetAttr(SetAttr),
    /// Remove a user attribute
    DelAttr {
        #[command(flatten)]
        which: Which,
        /// Attribute to remove
        #[arg(required_unless_present = "attr_option")]
        attr: Option<String>,
        /// The same
        #[arg(long = "attr", id = "attr_option", hide = true)]
        attr_option: Option<String>,
    },
    /// Create a snapshot
    #[command(alias = "create-snapshot")]
    CreateSnap {
        #[command(flatten)]
        which: Which,
        /// Its name
        #[arg(long)]
        snap: Option<String>,
    },
    /// List snapshots
    #[command(alias = "list-snapshots", alias = "list-snap")]
    ListSnaps(Which),
    /// Remove a snapshot
    #[command(alias = "destroy-snapshot")]
    DestroySnap {
        #[command(flatten)]
        which: Which,
        /// Its name or epoch
        #[arg(long, visible_alias = "epc")]
        snap: String,
    },
}

#[derive(Args, Debug)]
struct Create {
    /// Pool: label or UUID
    #[arg(required_unless_present = "pool_option")]
    pool: Option<String>,
    /// Its name
    label: Option<String>,
    /// The same
    #[arg(long = "pool", id = "pool_option", hide = true)]
    pool_option: Option<String>,
    /// The same
    #[arg(long = "label", id = "label_option", hide = true)]
    label_option: Option<String>,
    /// What it holds: POSIX (a file system), else objects
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    layout: Option<String>,
    /// Class of objects
    #[arg(long, short, value_name = "CLASS")]
    oclass: Option<String>,
    /// Class of directories
    #[arg(long, short = 'D', value_name = "CLASS")]
    dir_oclass: Option<String>,
    /// Class of files
    #[arg(long, short = 'F', value_name = "CLASS")]
    file_oclass: Option<String>,
    /// Chunk of files
    #[arg(long, short = 'z', value_name = "SIZE")]
    chunk_size: Option<String>,
    /// NAME:VALUE, separated by commas: cksum, srv_cksum, rd_fac, ec_cell_sz
    #[arg(long, value_name = "NAME:VALUE,...")]
    properties: Option<String>,
}

#[derive(Args, Debug)]
struct SetAttr {
    #[command(flatten)]
    which: Which,
    /// NAME:VALUE, separated by commas
    #[arg(value_delimiter = ',')]
    values: Vec<String>,
    /// Its name
    #[arg(long, requires = "value", hide = true)]
    attr: Option<String>,
    /// Its value
    #[arg(long, requires = "attr", hide = true)]
    value: Option<String>,
}

#[derive(Subcommand, Debug)]
enum Pool {
    /// List pools
    #[command(visible_alias = "ls")]
    List,
    /// Show a pool
    Query(PoolName),
    /// List the containers of a pool
    #[command(visible_alias = "list-cont", alias = "list-conts")]
    ListContainers(PoolName),
    /// Print properties
    GetProp(PoolName),
    /// Print user attributes
    #[command(visible_alias = "list-attr", alias = "list-attrs")]
    GetAttr {
        #[command(flatten)]
        pool: PoolName,
        /// Attribute to print; all when none is given
        attr: Option<String>,
    },
    /// Set user attributes
    SetAttr {
        /// Pool: label or UUID
        pool: String,
        /// NAME:VALUE, separated by commas
        #[arg(required = true, value_delimiter = ',')]
        values: Vec<String>,
    },
    /// Remove a user attribute
    DelAttr {
        /// Pool: label or UUID
        pool: String,
        /// Attribute to remove
        attr: String,
    },
}

#[derive(Subcommand, Debug)]
enum Filesystem {
    /// Copy a file or tree between containers and file systems
    Copy {
        /// From: a path or daos://POOL/CONT/PATH
        #[arg(long, short)]
        src: OsString,
        /// To
        #[arg(long, short)]
        dst: OsString,
    },
    /// Check a file system
    Check {
        #[command(flatten)]
        which: Which,
    },
    /// Print the class and chunk size of a file, or of what is made in a directory
    GetAttr(FsPath),
    /// Set the class and chunk size of what is made in a directory
    SetAttr {
        #[command(flatten)]
        path: FsPath,
        /// Class of files and directories
        #[arg(long, short, value_name = "CLASS")]
        oclass: Option<String>,
        /// Chunk of files
        #[arg(long, short = 'z', value_name = "SIZE")]
        chunk_size: Option<String>,
    },
    /// Have what is made in a directory be as its container says again
    ResetAttr(FsPath),
    /// The same for the class alone
    ResetOclass(FsPath),
    /// The same for the chunk size alone
    ResetChunkSize(FsPath),
}

/// A file or directory in a container.
#[derive(Args, Debug)]
struct FsPath {
    /// Pool: label or UUID
    #[arg(required_unless_present_any = ["pool_option", "path"])]
    pool: Option<String>,
    /// Container: label or UUID
    #[arg(required_unless_present_any = ["cont_option", "path"])]
    cont: Option<String>,
    /// The same
    #[arg(long = "pool", id = "pool_option", hide = true)]
    pool_option: Option<String>,
    /// The same
    #[arg(long = "cont", id = "cont_option", hide = true)]
    cont_option: Option<String>,
    /// Path in the container
    #[arg(long, short = 'H', value_name = "PATH", required_unless_present = "path")]
    dfs_path: Option<OsString>,
    /// daos://POOL/CONT/PATH instead
    #[arg(long, conflicts_with_all = ["pool", "cont", "pool_option", "cont_option", "dfs_path"])]
    path: Option<OsString>,
}

impl FsPath {
    fn url(&self) -> OsString {
        if let Some(path) = &self.path {
            return place(path);
        }
        let which = Which {
            pool: self.pool.clone(),
            cont: self.cont.clone(),
            pool_option: self.pool_option.clone(),
            cont_option: self.cont_option.clone(),
        };
        let path = self.dfs_path.clone().unwrap_or_default();
        let slash = if path.as_encoded_bytes().starts_with(b"/") { "" } else { "/" };
        let mut url = OsString::from(format!("azk://{}/{}{slash}", which.pool(), which.cont()));
        url.push(path);
        url
    }
}

#[derive(Subcommand, Debug)]
enum System {
    /// Show engines, pools and space
    Query,
}

impl Daos {
    /// Our own arguments for the same thing.
    pub fn ours(&self) -> Vec<OsString> {
        let (answer, words) = match &self.noun {
            Noun::Container(verb) => verb.ours(),
            Noun::Pool(verb) => verb.ours(),
            Noun::Filesystem(verb) => verb.ours(),
            Noun::System(System::Query) => ("daos-system", Words::new(&["status"])),
            Noun::Version => ("plain", Words::new(&["--version"])),
        };
        self.common.ours(answer, words)
    }
}

impl Container {
    fn ours(&self) -> (&'static str, Words) {
        let verb = |name: &str| Words::new(&["cont", name]);
        match self {
            Container::Create(create) => ("daos-cont-create", create.ours()),
            Container::List(pool) => ("daos-cont-list", verb("list").words(["--", pool.name()])),
            Container::Query(which) => ("daos-cont", verb("query").words(which.words())),
            Container::Destroy { which, force } => {
                ("plain", verb("destroy").flag("force", *force).words(which.words()))
            }
            Container::GetProp { which, properties } => {
                ("plain", verb("get-prop").words(which.words()).words(properties))
            }
            Container::SetProp { which, values, properties } => (
                "plain",
                verb("set-prop")
                    .words(which.words())
                    .words(assignments(values))
                    .words(assignments(properties)),
            ),
            Container::GetAttr { which, attr, attr_option } => (
                "plain",
                verb("get-attr").words(which.words()).words(attr.iter().chain(attr_option)),
            ),
            Container::SetAttr(set) => ("plain", set.ours()),
            Container::DelAttr { which, attr, attr_option } => (
                "plain",
                verb("del-attr").words(which.words()).words(attr.iter().chain(attr_option)),
            ),
            Container::CreateSnap { which, snap } => {
                ("plain", verb("create-snap").words(which.words()).words(snap))
            }
            Container::ListSnaps(which) => ("plain", verb("list-snaps").words(which.words())),
            Container::DestroySnap { which, snap } => {
                ("plain", verb("destroy-snap").words(which.words()).word(snap))
            }
        }
    }
}

impl Create {
    fn ours(&self) -> Words {
        let layout = match self.layout.as_deref() {
            Some(text) if text.eq_ignore_ascii_case("posix") => "posix",
            _ => "plain",
        };
        let pool = self.pool_option.as_ref().or(self.pool.as_ref());
        // With `--pool` the first word is the label.
        let word = match self.pool_option {
            Some(_) => self.label.as_ref().or(self.pool.as_ref()),
            None => self.label.as_ref(),
        };
        // A container always has a label here; one that was not named gets a random one.
        let label = self.label_option.as_ref().or(word).cloned();
        let label = label.unwrap_or_else(|| format!("c-{}", uuid::Uuid::new_v4()));
        Words::new(&["cont", "create"])
            .option("type", Some(layout))
            .option("oclass", self.oclass.as_ref())
            .option("dir-oclass", self.dir_oclass.as_ref())
            .option("file-oclass", self.file_oclass.as_ref())
            .option("chunk-size", self.chunk_size.as_ref())
            .option("properties", self.properties.as_ref())
            .word("--")
            .words(pool)
            .word(label)
    }
}

impl SetAttr {
    fn ours(&self) -> Words {
        let words = Words::new(&["cont", "set-attr"])
            .words(self.which.words())
            .words(assignments(&self.values));
        match (&self.attr, &self.value) {
            (Some(attr), Some(value)) => words.word(format!("{attr}={value}")),
            _ => words,
        }
    }
}

impl Pool {
    fn ours(&self) -> (&'static str, Words) {
        let verb = |name: &str| Words::new(&["pool", name]);
        match self {
            Pool::List => ("daos-pool-list", verb("list")),
            Pool::Query(pool) => ("daos-pool", verb("query").words(["--", pool.name()])),
            Pool::ListContainers(pool) => {
                ("daos-cont-list", Words::new(&["cont", "list", "--", pool.name()]))
            }
            Pool::GetProp(pool) => ("plain", verb("get-prop").words(["--", pool.name()])),
            Pool::GetAttr { pool, attr } => {
                ("plain", verb("get-attr").words(["--", pool.name()]).words(attr))
            }
            Pool::SetAttr { pool, values } => {
                ("plain", verb("set-attr").words(["--", pool]).words(assignments(values)))
            }
            Pool::DelAttr { pool, attr } => {
                ("plain", verb("del-attr").words(["--", pool.as_str(), attr.as_str()]))
            }
        }
    }
}

impl Filesystem {
    fn ours(&self) -> (&'static str, Words) {
        let verb = |name: &str| Words::new(&["fs", name]);
        match self {
            Filesystem::Copy { src, dst } => {
                ("plain", verb("cp").word("-r").word("--").word(place(src)).word(place(dst)))
            }
            Filesystem::Check { which } => (
                "plain",
                verb("check").word("--").word(format!("azk://{}/{}", which.pool(), which.cont())),
            ),
            Filesystem::GetAttr(path) => {
                ("daos-fs-attr", verb("get-attr").word("--").word(path.url()))
            }
            // One class is for both there.
            Filesystem::SetAttr { path, oclass, chunk_size } => (
                "plain",
                verb("set-attr")
                    .option("oclass", oclass.as_ref())
                    .option("dir-oclass", oclass.as_ref())
                    .option("chunk-size", chunk_size.as_ref())
                    .word("--")
                    .word(path.url()),
            ),
            Filesystem::ResetAttr(path) => {
                ("plain", verb("reset-attr").word("--").word(path.url()))
            }
            Filesystem::ResetOclass(path) => (
                "plain",
                verb("reset-attr").words(["--oclass", "--dir-oclass", "--"]).word(path.url()),
            ),
            Filesystem::ResetChunkSize(path) => {
                ("plain", verb("reset-attr").words(["--chunk-size", "--"]).word(path.url()))
            }
        }
    }
}

/// `daos://` is what such paths are called there.
fn place(text: &OsString) -> OsString {
    match text.to_str().and_then(|text| text.strip_prefix("daos://")) {
        Some(rest) => format!("azk://{rest}").into(),
        None => text.clone(),
    }
}
