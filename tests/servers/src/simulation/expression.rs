//! The part of DynamoDB's expression grammar that the stores use. The parser refuses all other
//! expressions, so that a model never guesses.

mod condition;
mod update;
mod words;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

pub use self::condition::{Comparison, Condition};
pub use self::update::Update;

/// An item in DynamoDB's JSON: names, and values with their type.
pub type Item = Map<String, Value>;

/// The reason why the model refuses an expression.
pub type Refusal = String;

/// An attribute, or a placeholder.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Operand {
    /// `#name`, or the name itself.
    Attribute(String),
    /// `:value`.
    Given(String),
}

/// The values of the placeholders of one request.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Bindings {
    /// `ExpressionAttributeNames`.
    pub names: Map<String, Value>,
    /// `ExpressionAttributeValues`.
    pub values: Item,
}

impl Operand {
    pub(super) fn placeholder(&self) -> &str {
        match self {
            Self::Attribute(name) | Self::Given(name) => name,
        }
    }

    pub(super) fn of<'a>(
        &self,
        item: &'a Item,
        bound: &'a Bindings,
    ) -> Result<Option<&'a Value>, Refusal> {
        match self {
            Self::Attribute(name) => Ok(item.get(bound.name(name)?)),
            Self::Given(value) => match bound.values.get(value) {
                Some(value) => Ok(Some(value)),
                None => Err(format!("{value} is not defined")),
            },
        }
    }
}

impl Bindings {
    /// Binds `names` and `values`.
    pub fn new(names: Map<String, Value>, values: Item) -> Self {
        Self { names, values }
    }

    pub(super) fn name<'a>(&'a self, placeholder: &'a str) -> Result<&'a str, Refusal> {
        if !placeholder.starts_with('#') {
            return Ok(placeholder);
        }
        let name = self.names.get(placeholder).and_then(Value::as_str);
        name.ok_or_else(|| format!("{placeholder} is not defined"))
    }

    /// Checks that the expressions use all placeholders, as `DynamoDB` does.
    ///
    /// # Errors
    ///
    /// Fails if a placeholder is not used.
    pub fn are_used(
        &self,
        condition: Option<&Condition>,
        update: Option<&Update>,
    ) -> Result<(), Refusal> {
        let mut used = BTreeSet::new();
        if let Some(condition) = condition {
            condition.uses(&mut used);
        }
        if let Some(update) = update {
            update.uses(&mut used);
        }
        let mut given = self.names.keys().chain(self.values.keys());
        match given.find(|placeholder| !used.contains(*placeholder)) {
            Some(unused) => Err(format!("{unused} is defined and not used")),
            None => Ok(()),
        }
    }
}

fn whole(digits: &str) -> Result<i128, Refusal> {
    digits.parse().map_err(|_| format!("{digits} is not a whole number"))
}

#[cfg(test)]
mod tests {
    use super::{Condition, Update};

    #[test]
    fn unknown_expression_is_refused() {
        for text in [
            "size(#a) < :b",
            "#a IN (:b)",
            "#a BETWEEN :b AND :c",
            "contains(#a, :b)",
            "#a.b = :c",
            "token = :b",
            "(#a = :b",
            "#a = :b #c",
            "",
        ] {
            assert!(Condition::parse(text).is_err(), "{text}");
        }
        for text in ["ADD #a :b", "SET #a = #b - :c", "SET #a = :b, #a = :c", "DELETE #a :b"] {
            assert!(Update::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn and_binds_closer_than_or() {
        let loose = Condition::parse("#a = :a OR #b = :b AND NOT #c = :c").unwrap();
        let tight = Condition::parse("#a = :a OR (#b = :b AND (NOT #c = :c))").unwrap();

        assert_eq!(loose, tight);
    }
}
