//! Properties and user attributes of pools and containers: the four (with `del-attr` five)
//! verbs both nouns share.

use crate::exit::Outcome;
use crate::output::{Output, write_pairs};
use crate::session::Session;
use client::Client;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use types::{Code, Error, Result};
use wire::control::{ControlReply, ControlRequest, Subject};

/// `NAME=VALUE`, as typed.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Before the first `=`.
    pub name: String,
    /// After it; may be empty.
    pub value: String,
}

impl std::str::FromStr for Assignment {
    type Err = Error;
    fn from_str(text: &str) -> Result<Assignment> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Assignment { name: name.to_string(), value: value.to_string() })
            }
            _ => Err(Error::inval(format!("'{text}' is not NAME=VALUE"))),
        }
    }
}

/// Prints properties: all, or those named.
///
/// Errors: `Inval` for a name that is none, with the names there are.
pub fn show_props(out: Output, all: &[(&str, String)], wanted: &[String]) -> Outcome {
    let mut chosen = Vec::new();
    for want in wanted {
        let want = property_name(want);
        match all.iter().find(|(name, _)| *name == want) {
            Some(known) => chosen.push(known.clone()),
            None => {
                let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
                return Err(Error::inval(format!(
                    "no property '{want}' (there are: {})",
                    names.join(", ")
                ))
                .into());
            }
        }
    }
    let chosen = if wanted.is_empty() { all.to_vec() } else { chosen };
    let json: Map<String, Value> =
        chosen.iter().map(|(name, value)| (name.to_string(), value.clone().into())).collect();
    out.show(&json, |to| match (&chosen[..], wanted.len()) {
        // One value alone is what a script wants.
        ([(_, value)], 1) => writeln!(to, "{value}"),
        _ => write_pairs(to, &chosen),
    })
}

/// Names are written with `_` or `-`.
fn property_name(text: &str) -> String {
    text.replace('-', "_").to_ascii_lowercase()
}

pub fn set_props(session: &Session, subject: Subject, changes: &[Assignment]) -> Outcome {
    let props = changes.iter().map(|to| (property_name(&to.name), to.value.clone())).collect();
    run(session, ControlRequest::SetProps { subject, props })?;
    session.out.done("Changed.")
}

/// Prints user attributes: all, or those named.
///
/// Errors: `NoAttr` for one that is not there.
pub fn show_attrs(session: &Session, subject: Subject, wanted: &[String]) -> Outcome {
    let attrs = match run(session, ControlRequest::GetAttrs { subject })? {
        ControlReply::Attrs(attrs) => attrs,
        _ => return Err(wrong_reply().into()),
    };
    let mut chosen: Vec<(&str, String)> = Vec::new();
    for want in wanted {
        let value = attrs
            .get(want)
            .ok_or_else(|| Error::new(Code::NoAttr, format!("there is no attribute '{want}'")))?;
        chosen.push((want, attr_text(value)));
    }
    if wanted.is_empty() {
        chosen = attrs.iter().map(|(name, value)| (name.as_str(), attr_text(value))).collect();
    }
    let json: Map<String, Value> =
        chosen.iter().map(|(name, value)| (name.to_string(), value.clone().into())).collect();
    session.out.show(&json, |to| match (&chosen[..], wanted.len()) {
        ([(_, value)], 1) => writeln!(to, "{value}"),
        _ => write_pairs(to, &chosen),
    })
}

pub fn set_attrs(session: &Session, subject: Subject, changes: &[Assignment]) -> Outcome {
    let attrs: BTreeMap<_, _> =
        changes.iter().map(|to| (to.name.clone(), Some(to.value.clone().into_bytes()))).collect();
    run(session, ControlRequest::SetAttrs { subject, attrs })?;
    session.out.done("Changed.")
}

pub fn del_attrs(session: &Session, subject: Subject, names: &[String]) -> Outcome {
    let attrs = names.iter().map(|name| (name.clone(), None)).collect();
    run(session, ControlRequest::SetAttrs { subject, attrs })?;
    session.out.done("Removed.")
}

/// Asks the control service.
pub fn run(session: &Session, request: ControlRequest) -> Result<ControlReply> {
    let client = session.connect()?;
    client.block_on(client.control(&request)).map_err(|error| match error.code {
        Code::Unreach | Code::TimedOut | Code::Closed => error.context(away(&client)),
        _ => error,
    })
}

/// Why an order is not heard, as far as is known.
fn away(client: &Client) -> &'static str {
    match client.block_on(client.system_query()) {
        Ok(info) if info.leader.is_none() => {
            "no engine leads: start the engine that holds the catalog, or have another one take its place with 'azekura system recover'"
        }
        _ => "the control service",
    }
}

/// An answer of the wrong kind.
pub fn wrong_reply() -> Error {
    Error::new(Code::Proto, "the control service gave an answer of the wrong kind")
}

/// An attribute's value for people: text as it is, other bytes in hex after `0x`.
pub fn attr_text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') => {
            text.to_string()
        }
        _ => {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{digits}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_split_at_the_first_equals_sign() {
        let to: Assignment = "a=b=c".parse().unwrap();
        assert_eq!((to.name.as_str(), to.value.as_str()), ("a", "b=c"));
        assert_eq!("a=".parse::<Assignment>().unwrap().value, "");
        for bad in ["a", "=b", ""] {
            assert!(bad.parse::<Assignment>().unwrap_err().to_string().contains("NAME=VALUE"));
        }
    }

    #[test]
    fn values_that_are_not_text_are_shown_in_hex() {
        assert_eq!(attr_text(b"plain"), "plain");
        assert_eq!(attr_text(b"\x00\xff"), "0x00ff");
    }
}
