//! The expression of one conditional write, with its names and values.
//!
//! A store builds expressions from placeholders (`#lessee`). All names stay placeholders in the request,
//! except names that the store declares as safe.

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
    conditions: Vec<Cow<'static, str>>,
    payload: HashMap<String, usize>,
    payload_set: Vec<String>,
    payload_remove: Vec<String>,
    /// A later value replaces an earlier value.
    values: Vec<(Cow<'static, str>, AttributeValue)>,
}

/// The column of a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "for the crates of this repository")]
pub enum ColumnName {
    /// The column has the placeholder's name, and the request contains this name itself.
    Plain,
    /// The column has this name, and the request contains the placeholder.
    Renamed(String),
}

/// An expression as a request contains it.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "for the crates of this repository")]
pub struct RenderedExpression {
    /// The update expression. Empty if the write changes nothing.
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

    /// Adds one to an attribute of the user, which must be a number or absent.
    pub fn count_payload(&mut self, name: &str) {
        let number = self.payload(name);
        let payload = format!("#payload{number}");
        self.conditions.push(
            format!("(attribute_not_exists({payload}) OR attribute_type({payload}, :number))")
                .into(),
        );
        self.payload_set.push(format!("{payload} = if_not_exists({payload}, :zero) + :one"));
        self.value("number", "N");
        self.value("zero", 0);
        self.value("one", 1);
    }

    /// Requires that an attribute of the user has one of `values`. `None` is an absent attribute.
    ///
    /// `=` compares numbers by their size:
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

    fn payload(&mut self, name: &str) -> usize {
        let next = self.payload.len();
        *self.payload.entry(name.to_owned()).or_insert(next)
    }

    /// Renders the expression. `column` returns the column of a placeholder.
    pub fn render(self, column: impl Fn(&str) -> Option<ColumnName>) -> RenderedExpression {
        let payload_set = self.payload_set.iter().map(String::as_str);
        let payload_remove = self.payload_remove.iter().map(String::as_str);
        let mut update = String::with_capacity(512);
        clause(&mut update, "SET ", self.set.iter().copied().chain(payload_set));
        clause(&mut update, " REMOVE ", self.remove.iter().copied().chain(payload_remove));
        let condition = self.conditions.join(" AND ");
        let payload = self.payload.into_iter();
        let mut names: HashMap<String, String> =
            payload.map(|(name, number)| (format!("#payload{number}"), name)).collect();
        let update = with_names(&update, &column, &mut names);
        let condition = with_names(&condition, &column, &mut names);
        let values = self.values.into_iter();
        let values = values.map(|(placeholder, value)| ([":", &placeholder].concat(), value));
        RenderedExpression { update, condition, names, values: values.collect() }
    }
}

fn clause(update: &mut String, keyword: &str, terms: impl Iterator<Item: AsRef<str>>) {
    let mut separator = keyword;
    for term in terms {
        update.push_str(separator);
        update.push_str(term.as_ref());
        separator = ", ";
    }
}

/// Replaces each placeholder in `text` whose column has a plain name. Adds only the columns of the remaining
/// placeholders to `names`, because DynamoDB refuses names that no expression uses.
fn with_names(
    text: &str,
    column: impl Fn(&str) -> Option<ColumnName>,
    names: &mut HashMap<String, String>,
) -> String {
    let mut parts = text.split('#');
    let mut written = String::with_capacity(text.len());
    written.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = part.find(|c| !is_part(c)).unwrap_or(part.len());
        let (placeholder, _) = part.split_at(end);
        match column(placeholder) {
            Some(ColumnName::Plain) => (),
            Some(ColumnName::Renamed(name)) => {
                written.push('#');
                names.insert(format!("#{placeholder}"), name);
            }
            // An attribute of the user, which `names` contains.
            None => written.push('#'),
        }
        written.push_str(part);
    }
    written
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

/// Rounds up to whole milliseconds. A lease may last longer, but never shorter.
impl IntoValue for Duration {
    fn into_value(self) -> AttributeValue {
        u64::try_from(self.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).into_value()
    }
}

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

        let rendered = write.render(|placeholder| match placeholder {
            "beat" => Some(ColumnName::Plain),
            "payload0" => None,
            other => Some(ColumnName::Renamed(other.to_uppercase())),
        });

        assert_eq!(
            rendered.update,
            "SET beat = :beat, #ttl_ms = :ttl_ms, #payload0 = :payload0 REMOVE #evicted"
        );
        assert_eq!(rendered.condition, "(attribute_not_exists(beat) OR beat < :beat)");
        let names = [("#ttl_ms", "TTL_MS"), ("#evicted", "EVICTED"), ("#payload0", "note")];
        assert_eq!(rendered.names, names.map(|(n, c)| (n.to_owned(), c.to_owned())).into());
        let values = [
            (":beat", 1u64.into_value()),
            (":ttl_ms", 2u64.into_value()),
            (":payload0", "hello".into_value()),
        ];
        assert_eq!(rendered.values, values.map(|(p, v)| (p.to_owned(), v)).into());
    }
}
