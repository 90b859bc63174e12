//! Reads the fields of one JSON object by the rules of Jackson, the parser of the Kinesis Client Library.
//! Jackson converts numbers to strings and back, and keeps the last field of a name. Jackson ignores text
//! after the object, and refuses unknown fields.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::invalid_message::InvalidMessage;

#[derive(Default)]
pub(super) struct Fields<'a> {
    known: BTreeMap<&'static str, &'a RawValue>,
    unknown: Option<String>,
}

impl<'a> Fields<'a> {
    pub(super) fn read(line: &'a str) -> Result<Self, InvalidMessage> {
        if line.trim().is_empty() {
            return Err(InvalidMessage::Blank);
        }
        Self::deserialize(&mut serde_json::Deserializer::from_str(line)).map_err(|error| {
            if error.is_data() {
                InvalidMessage::NotAnObject
            } else {
                InvalidMessage::not_json(&error)
            }
        })
    }

    pub(super) fn action(&self) -> Result<String, InvalidMessage> {
        self.text("the object", "action")?.ok_or(InvalidMessage::NoAction)
    }

    pub(super) fn check(
        &self,
        action: &'static str,
        allowed: &[&str],
    ) -> Result<(), InvalidMessage> {
        let is_allowed = |field: &str| field == "action" || allowed.contains(&field);
        let not_allowed = self.known.keys().copied().find(|field| !is_allowed(field));
        match self.unknown.as_deref().or(not_allowed) {
            Some(field) => Err(InvalidMessage::unknown_field(action, field)),
            None => Ok(()),
        }
    }

    pub(super) fn text(
        &self,
        action: &'static str,
        field: &str,
    ) -> Result<Option<String>, InvalidMessage> {
        let Some(raw) = self.raw(field) else { return Ok(None) };
        match raw.bytes().next() {
            Some(b'"') => serde_json::from_str(raw)
                .map(Some)
                .map_err(|error| InvalidMessage::bad_field(action, &format!("{field}: {error}"))),
            Some(b'{' | b'[') => {
                Err(InvalidMessage::bad_field(action, &format!("{field} is not a text")))
            }
            // A number may have more digits than an integer type holds.
            _ => Ok(Some(raw.into())),
        }
    }

    pub(super) fn number(
        &self,
        action: &'static str,
        field: &str,
    ) -> Result<Option<i64>, InvalidMessage> {
        let Some(text) = self.text(action, field)? else { return Ok(None) };
        if text.trim().is_empty() {
            return Ok(None);
        }
        let number = text.trim().parse();
        number.map(Some).map_err(|_no_number| {
            InvalidMessage::bad_field(action, &format!("{field} {text:?} is not a whole number"))
        })
    }

    fn raw(&self, field: &str) -> Option<&'a str> {
        self.known.get(field).map(|raw| raw.get()).filter(|raw| *raw != "null")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Fields::default();
        while let Some(Name(name)) = object.next_key()? {
            if let Some(known) = KNOWN.into_iter().find(|known| *known == name) {
                fields.known.insert(known, object.next_value()?);
            } else {
                object.next_value::<IgnoredAny>()?;
                fields.unknown.get_or_insert_with(|| name.into_owned());
            }
        }
        Ok(fields)
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The fields of all generations.
const KNOWN: [&str; 6] =
    ["action", "checkpoint", "sequenceNumber", "subSequenceNumber", "error", "responseFor"];
