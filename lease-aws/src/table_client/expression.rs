//! The expression of one conditional write, with its names and values.
//!
//! Expressions contain placeholders (`#lessee`), never names of columns. So no name can clash with
//! a reserved word of DynamoDB, or be parsed as syntax.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::store::Nonce;

/// The user's attributes, in DynamoDB's types.
pub type Payload = Vec<(String, AttributeValue)>;

/// Builds a conditional write: its conditions and its changes.
#[derive(Debug, Default)]
pub struct Expression {
    set: Vec<&'static str>,
    remove: Vec<&'static str>,
    /// DynamoDB applies the write only if all are true.
    conditions: Vec<Cow<'static, str>>,
    /// Maps each attribute of the user to the number of its placeholder.
    payload: HashMap<String, usize>,
    payload_set: Vec<String>,
    payload_remove: Vec<String>,
    /// The value of each placeholder. A later value replaces an earlier one.
    values: Vec<(Cow<'static, str>, AttributeValue)>,
}

/// An expression as a request contains it.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "for the crates of this repository")]
pub struct RenderedExpression {
    /// The update expression; empty if the write changes nothing.
    pub update: String,
    /// The condition expression.
    pub condition: String,
    /// The column of each placeholder that begins with `#`.
    pub names: HashMap<String, String>,
    /// The value of each placeholder that begins with `:`.
    pub values: HashMap<String, AttributeValue>,
}

impl Expression {
    /// Sets the value of `:placeholder`.
    pub fn value(&mut self, placeholder: &'static str, value: impl IntoValue) {
        self.values.push((placeholder.into(), value.into_value()));
    }

    /// Adds a condition.
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

    /// Sets an attribute of the user.
    pub fn set_payload(&mut self, name: &str, value: AttributeValue) {
        let number = self.payload(name);
        self.payload_set.push(format!("#payload{number} = :payload{number}"));
        self.values.push((format!("payload{number}").into(), value));
    }

    /// Sets attributes of the user.
    pub fn set_all_payload(&mut self, payload: impl IntoIterator<Item = (String, AttributeValue)>) {
        for (name, value) in payload {
            self.set_payload(&name, value);
        }
    }

    /// Removes an attribute of the user.
    pub fn remove_payload(&mut self, name: &str) {
        let number = self.payload(name);
        self.payload_remove.push(format!("#payload{number}"));
    }

    /// Requires that an attribute of the user has one of `values`. `None` stands for an absent
    /// attribute.
    ///
    /// `=` compares values of every type, and numbers by their size.
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
        // DynamoDB refuses redundant parentheses.
        match cases.as_slice() {
            [only] => self.condition(only.clone()),
            _ => self.condition(format!("({})", cases.join(" OR "))),
        }
    }

    /// Returns the condition that an attribute has this value, as part of a larger condition.
    pub fn payload_is(&mut self, name: &str, value: AttributeValue) -> String {
        let number = self.payload(name);
        self.values.push((format!("seen{number}").into(), value));
        format!("#payload{number} = :seen{number}")
    }

    /// Returns the condition that an attribute is absent, as part of a larger condition.
    pub fn payload_is_absent(&mut self, name: &str) -> String {
        format!("attribute_not_exists(#payload{})", self.payload(name))
    }

    fn payload(&mut self, name: &str) -> usize {
        let next = self.payload.len();
        *self.payload.entry(name.to_owned()).or_insert(next)
    }

    /// Renders the expression. `column` returns the name of a placeholder's column.
    pub fn render(self, column: impl Fn(&str) -> Option<String>) -> RenderedExpression {
        let payload_set = self.payload_set.iter().map(String::as_str);
        let payload_remove = self.payload_remove.iter().map(String::as_str);
        let mut update = String::with_capacity(512);
        clause(&mut update, "SET ", self.set.iter().copied().chain(payload_set));
        clause(&mut update, " REMOVE ", self.remove.iter().copied().chain(payload_remove));
        let condition = self.conditions.join(" AND ");
        let payload = self.payload.into_iter();
        let mut names: HashMap<String, String> =
            HashMap::with_capacity(USUAL_COLUMNS + payload.len());
        names.extend(payload.map(|(name, number)| (format!("#payload{number}"), name)));
        for text in [&update, &condition] {
            collect_names(text, &column, &mut names);
        }
        let values = self.values.into_iter();
        let values = values.map(|(placeholder, value)| ([":", &placeholder].concat(), value));
        RenderedExpression { update, condition, names, values: values.collect() }
    }
}

/// Adds a clause of `terms` to an update, if `terms` is not empty.
fn clause(update: &mut String, keyword: &str, terms: impl Iterator<Item: AsRef<str>>) {
    let mut separator = keyword;
    for term in terms {
        update.push_str(separator);
        update.push_str(term.as_ref());
        separator = ", ";
    }
}

/// Adds the column of each placeholder in `text`. DynamoDB refuses names that no expression uses.
fn collect_names(
    text: &str,
    column: impl Fn(&str) -> Option<String>,
    names: &mut HashMap<String, String>,
) {
    for (start, _) in text.match_indices('#') {
        let (_, from) = text.split_at(start);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = from.chars().skip(1).take_while(|c| is_part(*c)).count();
        let (name, _) = from.split_at(1 + length);
        // Expressions name most columns several times.
        if names.contains_key(name) {
            continue;
        }
        if let Some(column) = name.strip_prefix('#').and_then(&column) {
            names.insert(name.to_owned(), column);
        }
    }
}

/// Converts into a value of DynamoDB.
pub trait IntoValue {
    /// Converts into DynamoDB's type.
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

/// Whole milliseconds, rounded up: a lease may last longer, but never shorter.
impl IntoValue for Duration {
    fn into_value(self) -> AttributeValue {
        u64::try_from(self.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).into_value()
    }
}

/// The number of columns that most writes name.
const USUAL_COLUMNS: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_placeholders_are_rendered_with_name_and_value() {
        let mut write = Expression::default();
        write.set(["#beat = :beat", "#ttl_ms = :ttl_ms"]);
        write.remove(["#evicted"]);
        write.set_payload("note", "hello".into_value());
        write.condition("(attribute_not_exists(#beat) OR #beat < :beat)");
        write.value("beat", 1);
        write.value("ttl_ms", 2);

        let rendered = write.render(|placeholder| Some(placeholder.to_uppercase()));

        assert_eq!(
            rendered.update,
            "SET #beat = :beat, #ttl_ms = :ttl_ms, #payload0 = :payload0 REMOVE #evicted"
        );
        let names = [
            ("#beat", "BEAT"),
            ("#ttl_ms", "TTL_MS"),
            ("#evicted", "EVICTED"),
            ("#payload0", "note"),
        ];
        assert_eq!(rendered.names, names.map(|(n, c)| (n.to_owned(), c.to_owned())).into());
        let values = [
            (":beat", 1u64.into_value()),
            (":ttl_ms", 2u64.into_value()),
            (":payload0", "hello".into_value()),
        ];
        assert_eq!(rendered.values, values.map(|(p, v)| (p.to_owned(), v)).into());
    }
}
