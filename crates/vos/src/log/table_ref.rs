//! What the head of a log says of the table of pages: where it lies.

use serde::{Deserialize, Serialize};

/// Where an image lies, in a table or head.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PlaceDf {
    /// First block and number of blocks.
    pub runs: Vec<(u64, u64)>,
    pub bytes: u32,
    pub crc: u32,
}

/// Where a table lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct TableRefDf {
    /// 0: the places hold the table; n: they hold a list of places of level n - 1.
    pub level: u8,
    pub places: Vec<PlaceDf>,
}
