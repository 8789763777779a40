//! Starting points: released encodings of the wire, and texts that parsers accept.

/// The golden file of the `wire` crate, so that every new message is fuzzed from the day it has
/// a sample.
const MESSAGES: &str = include_str!("../../wire/tests/golden/messages.hex");

/// Golden messages whose name begins with one of `prefixes`; all of them for `""`.
///
/// # Panics
///
/// When the golden file is malformed or holds no such message: a fuzz target without seeds
/// would pass without testing anything.
pub fn messages(prefixes: &[&str]) -> Vec<Vec<u8>> {
    let seeds: Vec<Vec<u8>> = MESSAGES
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("wire_version"))
        .filter_map(|line| line.split_once(" = "))
        .filter(|(name, _)| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, hex)| from_hex(hex).unwrap_or_else(|| panic!("golden {name}: not hex")))
        .collect();
    assert!(!seeds.is_empty(), "no golden message begins with one of {prefixes:?}");
    seeds
}

/// Bytes of a text.
pub fn texts(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Reads hex digits; `None` when they are not.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim().as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |digit: u8| (digit as char).to_digit(16);
    digits.chunks(2).map(|pair| Some((value(pair[0])? * 16 + value(pair[1])?) as u8)).collect()
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_goes_both_ways_and_nonsense_is_refused() {
        assert_eq!(from_hex(&to_hex(&[0, 15, 255])), Some(vec![0, 15, 255]));
        for bad in ["0", "0g", "+1", "é"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_golden_file_has_seeds_of_every_kind() {
        let kinds = ["header", "link", "hello.", "hello_reply", "request", "control.", "notice"];
        for kind in kinds {
            assert!(!messages(&[kind]).is_empty());
        }
        assert!(messages(&[""]).len() > 80);
    }
}
