//! Sizes as people write them: `4096`, `4k`, `4KiB`, `1.5GiB`, `2TB`.
//!
//! `K`, `KiB` and `KB` are all 1,024-based, as storage tools have it.

use crate::{Error, Result};

const UNITS: [(&str, u32); 6] = [("k", 10), ("m", 20), ("g", 30), ("t", 40), ("p", 50), ("e", 60)];

/// Parses a size in bytes.
pub fn parse(text: &str) -> Result<u64> {
    let bad = || Error::inval(format!("'{text}' is not a size (examples: 4096, 4KiB, 1.5GiB)"));
    let trimmed = text.trim().to_ascii_lowercase();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let unit = unit.trim();
    let shift = match unit {
        "" | "b" => 0,
        _ => {
            let stem = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(unit);
            UNITS.iter().find(|(name, _)| *name == stem).ok_or_else(bad)?.1
        }
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(bad);
    }
    let value = number.parse::<f64>().map_err(|_| bad())? * (1u64 << shift) as f64;
    if !value.is_finite() || value >= u64::MAX as f64 {
        return Err(bad());
    }
    Ok(value.round() as u64)
}

/// Formats a size with the largest unit that keeps it exact to two digits: `1.50 GiB`. What is
/// formatted parses: the last numbers below 16 EiB, which is too much, are not rounded up to it.
pub fn format(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let exponent = (63 - bytes.leading_zeros()) / 10;
    let value = bytes as f64 / (1u64 << (10 * exponent)) as f64;
    let value = if exponent == 6 { value.min(15.99) } else { value };
    let unit = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][exponent as usize];
    if value.fract() == 0.0 { format!("{value} {unit}") } else { format!("{value:.2} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_people_type() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4KB", 4096),
            ("4 KiB", 4096),
            ("1.5GiB", 3 << 29),
            ("2t", 2 << 40),
            ("15e", 15 << 60),
        ] {
            assert_eq!(parse(text).unwrap(), bytes, "{text}");
        }
        for bad in ["", "x", "-1", "1.2.3", "4Q", "16e", "k", "99999999999999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(format(4096), "4 KiB");
        assert_eq!(format(3 << 29), "1.50 GiB");
        assert_eq!(format(10), "10 B");
    }

    /// "16 EiB" was written for the greatest numbers, and refused when it was read again.
    #[test]
    fn the_greatest_sizes_parse_as_written() {
        for bytes in [u64::MAX, u64::MAX - (1 << 53), (15 << 60) + (1 << 59)] {
            let shown = format(bytes);
            assert!(parse(&shown).is_ok_and(|again| again.abs_diff(bytes) <= 1 << 54), "{shown}");
        }
    }
}
