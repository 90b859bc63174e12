//! The text of one conditional write, with its names and values.
//!
//! Every column goes in by a placeholder (`#lessee`), never by its name, so no name can clash
//! with a reserved word or be mistaken for syntax.

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
    conditions: Vec<String>,
    /// Attributes of the user's, each with the number of its placeholder.
    payload: HashMap<String, usize>,
    payload_set: Vec<String>,
    payload_remove: Vec<String>,
    values: HashMap<String, AttributeValue>,
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
        self.values.insert(format!(":{placeholder}"), value.into_value());
    }

    /// Requires one more thing.
    pub fn condition(&mut self, condition: impl Into<String>) {
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
        self.values.insert(format!(":payload{number}"), value);
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
            self.values.insert(format!(":expected{number}_{place}"), value);
        }
        // One pair of parentheses where there is something in it to part: DynamoDB refuses
        // redundant ones.
        match cases.as_slice() {
            [only] => self.condition(only.clone()),
            _ => self.condition(format!("({})", cases.join(" OR "))),
        }
    }

    fn payload(&mut self, name: &str) -> usize {
        let next = self.payload.len();
        *self.payload.entry(name.to_owned()).or_insert(next)
    }

    /// The whole, where `behind` tells the column behind each placeholder.
    pub fn written(self, behind: impl Fn(&str) -> Option<String>) -> Written {
        let payload_set = self.payload_set.iter().map(String::as_str);
        let set: Vec<&str> = self.set.iter().copied().chain(payload_set).collect();
        let payload_remove = self.payload_remove.iter().map(String::as_str);
        let remove: Vec<&str> = self.remove.iter().copied().chain(payload_remove).collect();
        let mut update = String::with_capacity(512);
        if !set.is_empty() {
            update.push_str("SET ");
            update.push_str(&set.join(", "));
        }
        if !remove.is_empty() {
            update.push_str(" REMOVE ");
            update.push_str(&remove.join(", "));
        }
        let condition = self.conditions.join(" AND ");
        let mut names: HashMap<String, String> = self
            .payload
            .into_iter()
            .map(|(name, number)| (format!("#payload{number}"), name))
            .collect();
        for text in [&update, &condition] {
            gather_names(text, &behind, &mut names);
        }
        Written { update, condition, names, values: self.values }
    }
}

/// Adds the column behind each placeholder in `text`: DynamoDB refuses one that is not used.
fn gather_names(
    text: &str,
    behind: impl Fn(&str) -> Option<String>,
    names: &mut HashMap<String, String>,
) {
    for after in text.split('#').skip(1) {
        let end =
            after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let (placeholder, _) = after.split_at(end);
        if let Some(name) = behind(placeholder) {
            names.insert(format!("#{placeholder}"), name);
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
