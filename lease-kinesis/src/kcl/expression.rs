//! The text of one conditional write, with its names and values.
//!
//! Every attribute goes in by a placeholder (`#leaseOwner`), never by its name, so that none can be
//! mistaken for a reserved word.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::Nonce;

#[derive(Debug, Default)]
pub(super) struct Expression {
    set: Vec<String>,
    remove: Vec<String>,
    /// All of them must hold.
    conditions: Vec<String>,
    values: HashMap<String, AttributeValue>,
    /// Attributes that are not the lease's own, each with the number of its placeholder.
    others: HashMap<String, usize>,
}

/// An expression as DynamoDB reads it.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) update: String,
    pub(super) condition: String,
    pub(super) names: HashMap<String, String>,
    pub(super) values: HashMap<String, AttributeValue>,
}

impl Expression {
    pub(super) fn value(&mut self, placeholder: &str, value: impl IntoValue) {
        self.values.insert(format!(":{placeholder}"), value.into_value());
    }

    pub(super) fn condition(&mut self, condition: impl Into<String>) {
        self.conditions.push(condition.into());
    }

    pub(super) fn set<const N: usize>(&mut self, terms: [&str; N]) {
        self.set.extend(terms.map(str::to_owned));
    }

    pub(super) fn remove<const N: usize>(&mut self, names: [&str; N]) {
        self.remove.extend(names.map(str::to_owned));
    }

    pub(super) fn set_other(&mut self, name: &str, value: AttributeValue) {
        let number = self.other(name);
        self.set.push(format!("#other{number} = :other{number}"));
        self.values.insert(format!(":other{number}"), value);
    }

    pub(super) fn remove_other(&mut self, name: &str) {
        let number = self.other(name);
        self.remove.push(format!("#other{number}"));
    }

    /// That the attribute is one of `values`, or is absent where they have a `None`.
    pub(super) fn expect_other(&mut self, name: &str, values: Vec<Option<AttributeValue>>) {
        let number = self.other(name);
        let mut cases = Vec::new();
        for (place, value) in values.into_iter().enumerate() {
            match value {
                None => cases.push(format!("attribute_not_exists(#other{number})")),
                Some(value) => {
                    cases.push(format!("#other{number} = :expected{number}_{place}"));
                    self.values.insert(format!(":expected{number}_{place}"), value);
                }
            }
        }
        match cases.as_slice() {
            [only] => self.condition(only.clone()),
            _ => self.condition(format!("({})", cases.join(" OR "))),
        }
    }

    fn other(&mut self, name: &str) -> usize {
        let next = self.others.len();
        *self.others.entry(name.to_owned()).or_insert(next)
    }

    pub(super) fn written(self) -> Written {
        let mut update = String::with_capacity(512);
        if !self.set.is_empty() {
            update.push_str("SET ");
            update.push_str(&self.set.join(", "));
        }
        if !self.remove.is_empty() {
            update.push_str(" REMOVE ");
            update.push_str(&self.remove.join(", "));
        }
        let condition = self.conditions.join(" AND ");
        let mut names: HashMap<String, String> = self
            .others
            .into_iter()
            .map(|(name, number)| (format!("#other{number}"), name))
            .collect();
        for text in [&update, &condition] {
            gather_names(text, &mut names);
        }
        Written { update, condition, names, values: self.values }
    }
}

/// Adds what is behind each placeholder in `text`: the lease's own attributes are called like their
/// placeholders.
fn gather_names(text: &str, names: &mut HashMap<String, String>) {
    for after in text.split('#').skip(1) {
        let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        let name = after.get(..end).unwrap_or_default();
        names.entry(format!("#{name}")).or_insert_with(|| name.to_owned());
    }
}

/// A value that a placeholder stands for.
pub(super) trait IntoValue {
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
