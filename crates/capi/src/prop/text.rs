//! Container properties as text: `label:mine;rd_fac:2;cksum:crc32`.

use super::{Value, cont};
use crate::errno::DER_INVAL;
use crate::gurt::Outcome;
use types::limits::LABEL_BYTES_MAX;

type Names = &'static [&'static str];

const CSUMS: Names = &["off", "crc16", "crc32", "crc64", "sha1", "sha256", "sha512", "adler32"];
const SWITCH: Names = &["off", "on"];
const DEDUPS: Names = &["off", "memcmp", "hash"];
const COMPRESSIONS: Names =
    &["off", "lz4", "deflate", "deflate1", "deflate2", "deflate3", "deflate4"];
const ENCRYPTIONS: Names = &[
    "off",
    "aes-xts128",
    "aes-xts256",
    "aes-cbc128",
    "aes-cbc192",
    "aes-cbc256",
    "aes-gcm128",
    "aes-gcm256",
];
const FACTORS: Names = &["0", "1", "2", "3", "4"];

/// How the value of a property is written.
enum Form {
    Label,
    Number,
    Named(Names),
}

/// Properties that may be given as text, with older names.
const PROPERTIES: [(&str, u32, Form); 14] = [
    ("label", cont::LABEL, Form::Label),
    ("cksum", cont::CSUM, Form::Named(CSUMS)),
    ("cksum_size", cont::CSUM_CHUNK_SIZE, Form::Number),
    ("srv_cksum", cont::CSUM_SERVER_VERIFY, Form::Named(SWITCH)),
    ("dedup", cont::DEDUP, Form::Named(DEDUPS)),
    ("dedup_threshold", cont::DEDUP_THRESHOLD, Form::Number),
    ("compression", cont::COMPRESS, Form::Named(COMPRESSIONS)),
    ("encryption", cont::ENCRYPT, Form::Named(ENCRYPTIONS)),
    ("rd_fac", cont::REDUN_FAC, Form::Named(FACTORS)),
    ("rf", cont::REDUN_FAC, Form::Named(FACTORS)),
    ("ec_cell_sz", cont::EC_CELL_SZ, Form::Number),
    ("ec_pda", cont::EC_PDA, Form::Number),
    ("rp_pda", cont::RP_PDA, Form::Number),
    ("perf_domain", cont::PERF_DOMAIN, Form::Number),
];

/// A number in decimal, `0x` hexadecimal, or `0` octal, as C takes it.
fn number(text: &str) -> Outcome<u64> {
    let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(&text[1..], 8),
        None => text.parse(),
    };
    parsed.map_err(|_| DER_INVAL)
}

/// Reads `name:value` parts, separated by `;`. `Inval` for a name that is not known or read-only,
/// for a value that has no meaning, and when there is no part at all.
pub(super) fn parse(text: &str) -> Outcome<Vec<(u32, Value)>> {
    let mut found = Vec::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once(':').ok_or(DER_INVAL)?;
        let known = PROPERTIES.iter().find(|known| known.0 == name).ok_or(DER_INVAL)?;
        let value = match known.2 {
            Form::Label if value.is_empty() || value.len() > LABEL_BYTES_MAX => {
                return Err(DER_INVAL);
            }
            Form::Label => Value::Text(value.to_owned()),
            Form::Number => Value::Number(number(value)?),
            Form::Named(names) => {
                let at = names.iter().position(|name| *name == value);
                Value::Number(at.ok_or(DER_INVAL)? as u64)
            }
        };
        found.push((known.1, value));
    }
    if found.is_empty() { Err(DER_INVAL) } else { Ok(found) }
}
