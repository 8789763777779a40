//! A whole system on this machine, in the background: `up`, `down`, `status`.
//!
//! | file below the system's directory | what it is |
//! |---|---|
//! | `setup.toml` | what it was made with; written once |
//! | `system.json` | how clients reach it; written by every `up` |
//! | `token` | shared secret, readable by its owner only |
//! | `up.lock` | held while `up` or `down` works |
//! | `engineN/engine.toml` | configuration; made once, may be edited |
//! | `engineN/engine.log` | what the engine said; `engine.log.1` is the part before |
//! | `engineN/engine.pid` | who runs it; written by the engine itself |
//! | `engineN/targetM/` | data |
//! | `etcd/` | of a system made with `--etcd`: its etcd, with `etcd.log` |

pub mod catalog;
pub mod dir;
pub mod down;
pub mod drain;
pub mod erase;
pub mod etcd;
pub mod events;
pub mod measure;
pub mod members;
pub mod process;
pub mod recover;
pub mod reload;
pub mod status;
pub mod stop;
pub mod up;
pub mod upgrade;
