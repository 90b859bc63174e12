//! The text of one conditional write, with its names and values.
//!
//! Every column goes in by a placeholder (`#lessee`), never by its name, so no name can clash
//! with a reserved word or be mistaken for syntax.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::column::Columns;

/// A value that a placeholder stands for.
pub(crate) trait IntoValue {
    fn into_value(self) -> AttributeValue;
}

#[derive(Debug, Default)]
pub(crate) struct Expression {
    pub(crate) set: Vec<&'static str>,
    pub(crate) remove: Vec<&'static str>,
    /// All of them must hold.
    pub(crate) conditions: Vec<String>,
    /// Attributes of the user's, each with the number of its placeholder.
    payload: HashMap<String, usize>,
    payload_set: Vec<String>,
    payload_remove: Vec<String>,
    values: HashMap<String, AttributeValue>,
}

impl Expression {
    pub(crate) fn value(&mut self, placeholder: &'static str, value: impl IntoValue) {
        self.values.insert(format!(":{placeholder}"), value.into_value());
    }

    pub(crate) fn values(&self) -> &HashMap<String, AttributeValue> {
        &self.values
    }

    pub(crate) fn condition(&mut self, condition: impl Into<String>) {
        self.conditions.push(condition.into());
    }

    pub(crate) fn set_payload(&mut self, name: &str, value: AttributeValue) {
        let number = self.payload(name);
        self.payload_set.push(format!("#payload{number} = :payload{number}"));
        self.values.insert(format!(":payload{number}"), value);
    }

    pub(crate) fn remove_payload(&mut self, name: &str) {
        let number = self.payload(name);
        self.payload_remove.push(format!("#payload{number}"));
    }

    /// `=` compares values of every type, numbers by their size.
    /// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Condition.html>
    pub(crate) fn expect_payload(&mut self, name: &str, value: Option<AttributeValue>) {
        let number = self.payload(name);
        let Some(value) = value else {
            return self.condition(format!("attribute_not_exists(#payload{number})"));
        };
        self.condition(format!("#payload{number} = :expected{number}"));
        self.values.insert(format!(":expected{number}"), value);
    }

    fn payload(&mut self, name: &str) -> usize {
        let next = self.payload.len();
        *self.payload.entry(name.to_owned()).or_insert(next)
    }

    pub(crate) fn written(self, columns: &Columns) -> Written {
        let set: Vec<&str> =
            self.set.iter().copied().chain(self.payload_set.iter().map(String::as_str)).collect();
        let remove: Vec<&str> = self
            .remove
            .iter()
            .copied()
            .chain(self.payload_remove.iter().map(String::as_str))
            .collect();
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
            gather_names(text, columns, &mut names);
        }
        Written { update, condition, names, values: self.values }
    }
}

/// An expression as DynamoDB reads it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) update: String,
    pub(crate) condition: String,
    pub(crate) names: HashMap<String, String>,
    pub(crate) values: HashMap<String, AttributeValue>,
}

/// Adds the column behind each placeholder in `text`: DynamoDB refuses one that is not used.
pub(crate) fn gather_names(text: &str, columns: &Columns, names: &mut HashMap<String, String>) {
    for after in text.split('#').skip(1) {
        let end =
            after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let placeholder = after.get(..end).unwrap_or_default();
        if let Some(name) = columns.behind(placeholder) {
            names.insert(format!("#{placeholder}"), name.to_owned());
        }
    }
}

impl IntoValue for &str {
    fn into_value(self) -> AttributeValue {
        AttributeValue::S(self.to_owned())
    }
}

impl IntoValue for String {
    fn into_value(self) -> AttributeValue {
        AttributeValue::S(self)
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
