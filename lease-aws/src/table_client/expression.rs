//! The text of one conditional write, with its names and values.
//!
//! Every column goes in by a placeholder (`#lessee`), never by its name, so no name can clash
//! with a reserved word or be mistaken for syntax.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::Nonce;

/// What a write requires and what it changes.
#[derive(Debug, Default)]
pub struct Expression {
    set: Vec<&'static str>,
    remove: Vec<&'static str>,
    /// All of them must hold.
    conditions: Vec<Cow<'static, str>>,
    /// Attributes of the user's, each with the number of its placeholder.
    payload: HashMap<String, usize>,
    payload_set: Vec<String>,
    payload_remove: Vec<String>,
    /// What each placeholder stands for, where one was said twice the later.
    values: Vec<(Cow<'static, str>, AttributeValue)>,
}

/// An expression as DynamoDB reads it.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "for the tables of this repository")]
pub struct Written {
    pub update: String,
    pub condition: String,
    pub names: HashMap<String, String>,
    pub values: HashMap<String, AttributeValue>,
}

impl Expression {
    /// Says what `:placeholder` stands for.
    pub fn value(&mut self, placeholder: &'static str, value: impl IntoValue) {
        self.values.push((placeholder.into(), value.into_value()));
    }

    /// Requires one more thing.
    pub fn condition(&mut self, condition: impl Into<Cow<'static, str>>) {
        self.conditions.push(condition.into());
    }

    /// Sets columns: `#beat = :beat`.
    pub fn set(&mut self, terms: impl IntoIterator<Item = &'static str>) {
        self.set.extend(terms);
    }

    /// Removes columns: `#beat`.
    pub fn remove(&mut self, placeholders: impl IntoIterator<Item = &'static str>) {
        self.remove.extend(placeholders);
    }

    /// Sets an attribute of the user's.
    pub fn set_payload(&mut self, name: &str, value: AttributeValue) {
        let number = self.payload(name);
        self.payload_set.push(format!("#payload{number} = :payload{number}"));
        self.values.push((format!("payload{number}").into(), value));
    }

    /// Removes an attribute of the user's.
    pub fn remove_payload(&mut self, name: &str) {
        let number = self.payload(name);
        self.payload_remove.push(format!("#payload{number}"));
    }

    /// Requires that an attribute of the user's is one of `values`, or absent where they have a
    /// `None`.
    ///
    /// `=` compares values of every type, numbers by their size.
    /// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Condition.html>
    pub fn expect_payload(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = Option<AttributeValue>>,
    ) {
        let number = self.payload(name);
        let mut cases = Vec::new();
        for (place, value) in values.into_iter().enumerate() {
            let Some(value) = value else {
                cases.push(format!("attribute_not_exists(#payload{number})"));
                continue;
            };
            cases.push(format!("#payload{number} = :expected{number}_{place}"));
            self.values.push((format!("expected{number}_{place}").into(), value));
        }
        // One pair of parentheses where there is something in it to part: DynamoDB refuses
        // redundant ones.
        match cases.as_slice() {
            [only] => self.condition(only.clone()),
            _ => self.condition(format!("({})", cases.join(" OR "))),
        }
    }

    /// The condition that an attribute has this value, to be part of a larger condition.
    pub fn payload_is(&mut self, name: &str, value: AttributeValue) -> String {
        let number = self.payload(name);
        self.values.push((format!("seen{number}").into(), value));
        format!("#payload{number} = :seen{number}")
    }

    fn payload(&mut self, name: &str) -> usize {
        let next = self.payload.len();
        *self.payload.entry(name.to_owned()).or_insert(next)
    }

    /// The whole, where `behind` tells the column behind each placeholder.
    pub fn written(self, behind: impl Fn(&str) -> Option<String>) -> Written {
        let payload_set = self.payload_set.iter().map(String::as_str);
        let payload_remove = self.payload_remove.iter().map(String::as_str);
        let mut update = String::with_capacity(512);
        clause(&mut update, "SET ", self.set.iter().copied().chain(payload_set));
        clause(&mut update, " REMOVE ", self.remove.iter().copied().chain(payload_remove));
        let condition = self.conditions.join(" AND ");
        let payload = self.payload.into_iter();
        let mut names: HashMap<String, String> = HashMap::with_capacity(MANY + payload.len());
        names.extend(payload.map(|(name, number)| (format!("#payload{number}"), name)));
        for text in [&update, &condition] {
            gather_names(text, &behind, &mut names);
        }
        let values = self.values.into_iter();
        let values = values.map(|(placeholder, value)| ([":", &placeholder].concat(), value));
        Written { update, condition, names, values: values.collect() }
    }
}

/// Adds `terms` to an update, if there are any, after the `word` that says what becomes of them.
fn clause(update: &mut String, word: &str, terms: impl Iterator<Item: AsRef<str>>) {
    let mut before = word;
    for term in terms {
        update.push_str(before);
        update.push_str(term.as_ref());
        before = ", ";
    }
}

/// Adds the column behind each placeholder in `text`: DynamoDB refuses one that is not used.
fn gather_names(
    text: &str,
    behind: impl Fn(&str) -> Option<String>,
    names: &mut HashMap<String, String>,
) {
    for (start, _) in text.match_indices('#') {
        let (_, from) = text.split_at(start);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = from.chars().skip(1).take_while(|c| is_part(*c)).count();
        let (name, _) = from.split_at(1 + length);
        // Most are there already: a column stands in several places.
        if names.contains_key(name) {
            continue;
        }
        if let Some(column) = name.strip_prefix('#').and_then(&behind) {
            names.insert(name.to_owned(), column);
        }
    }
}

/// A value that a placeholder stands for.
pub trait IntoValue {
    /// As DynamoDB keeps it.
    fn into_value(self) -> AttributeValue;
}

impl IntoValue for &str {
    fn into_value(self) -> AttributeValue {
        AttributeValue::S(self.to_owned())
    }
}

impl IntoValue for u64 {
    fn into_value(self) -> AttributeValue {
        AttributeValue::N(self.to_string())
    }
}

impl IntoValue for bool {
    fn into_value(self) -> AttributeValue {
        AttributeValue::Bool(self)
    }
}

impl IntoValue for Nonce {
    fn into_value(self) -> AttributeValue {
        AttributeValue::S(self.to_string())
    }
}

/// Whole milliseconds, rounded up: a lease may last longer, never shorter.
impl IntoValue for Duration {
    fn into_value(self) -> AttributeValue {
        u64::try_from(self.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).into_value()
    }
}

/// As many columns as most writes name.
const MANY: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placeholder_is_written_with_what_is_behind_it_and_no_other() {
        let mut write = Expression::default();
        write.set(["#beat = :beat", "#ttl_ms = :ttl_ms"]);
        write.remove(["#evicted"]);
        write.set_payload("note", "hello".into_value());
        write.condition("(attribute_not_exists(#beat) OR #beat < :beat)");
        write.value("beat", 1);
        write.value("ttl_ms", 2);

        let written = write.written(|placeholder| Some(placeholder.to_uppercase()));

        assert_eq!(
            written.update,
            "SET #beat = :beat, #ttl_ms = :ttl_ms, #payload0 = :payload0 REMOVE #evicted"
        );
        let names = [
            ("#beat", "BEAT"),
            ("#ttl_ms", "TTL_MS"),
            ("#evicted", "EVICTED"),
            ("#payload0", "note"),
        ];
        assert_eq!(written.names, names.map(|(n, c)| (n.to_owned(), c.to_owned())).into());
        let values = [
            (":beat", 1u64.into_value()),
            (":ttl_ms", 2u64.into_value()),
            (":payload0", "hello".into_value()),
        ];
        assert_eq!(written.values, values.map(|(p, v)| (p.to_owned(), v)).into());
    }
}
