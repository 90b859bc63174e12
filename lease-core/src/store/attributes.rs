//! The attributes of a record, and changes to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::invalid::InvalidInput;

/// Named values on a record, in the order of their names. A claim without attributes and a release do not
/// change the attributes of the record.
pub type Attributes = BTreeMap<String, Value>;

/// The value of an attribute.
///
/// The types are those of `DynamoDB`, since no other store has more types. So columns of an existing table
/// are read without a conversion. Serialized, a value is a map of one entry from the name of its type, such as
/// `{"text": "a"}` in JSON.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Value {
    /// Text.
    Text(String),
    /// A number, kept as it was written. `DynamoDB` is exact to 38 digits.
    Number(Number),
    /// True or false.
    Bool(bool),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Present, without a value.
    Null,
    /// Values in order.
    List(Vec<Self>),
    /// Named values.
    Map(BTreeMap<String, Self>),
    /// A set of texts. `DynamoDB` stores no empty set.
    TextSet(BTreeSet<String>),
    /// A set of numbers. `DynamoDB` stores no empty set.
    NumberSet(BTreeSet<Number>),
    /// A set of byte strings. `DynamoDB` stores no empty set.
    BytesSet(BTreeSet<Vec<u8>>),
}

impl Value {
    /// The text, if the value is a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is written as an integer in the range of an `i64`.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.as_str().parse().ok(),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

macro_rules! whole_numbers {
    ($($number:ty)*) => {
        $(
            impl From<$number> for Value {
                fn from(number: $number) -> Self {
                    Self::Number(Number(number.to_string()))
                }
            }
        )*
    };
}

whole_numbers!(i32 i64 u32 u64 usize);

/// A decimal number, kept as it was written, so that no digit is lost.
///
/// Equality and order are those of the text: `1` and `1.0` are different.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Number(String);

impl Number {
    /// The number as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Number {
    type Err = InvalidInput;

    /// Reads an optional sign, digits with an optional point, and an optional exponent.
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (text, None),
        };
        let digits = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let exponent_is_whole = exponent.is_none_or(|exponent| {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !digits.is_empty() && all_digits(digits)
        });

        let count = whole.len() + fraction.len();
        let well_formed = all_digits(whole) && all_digits(fraction) && exponent_is_whole;
        if count == 0 || count > 100 || !well_formed {
            return Err(InvalidInput::new(format!(
                "{:?} is not a decimal number of up to 100 digits",
                text.chars().take(40).collect::<String>()
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Number {
    type Error = InvalidInput;

    fn try_from(text: String) -> Result<Self, InvalidInput> {
        text.parse()
    }
}

impl From<Number> for String {
    fn from(number: Number) -> Self {
        number.0
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A fenced write to a record's attributes, and the values that it expects there.
///
/// A grant excludes writes of other holders, but not earlier requests of its own holder. A request whose
/// answer was lost may be applied after a newer request. So a value that must never decrease, such as a
/// checkpoint, needs an expectation.
///
/// # Examples
///
/// ```
/// use lease_core::{Attributes, Change, Value};
///
/// let change = Change::new()
///     .expecting("checkpoint", "49590338271490256607")
///     .set("checkpoint", "49590338271490256608")
///     .remove("pending");
/// assert_eq!(change.removed().collect::<Vec<_>>(), ["pending"]);
///
/// let found = Attributes::from([("checkpoint".to_owned(), Value::from("49590338271490256609"))]);
/// assert!(!change.fits(&found), "a newer checkpoint is there");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "a change does nothing until a table applies it"]
pub struct Change {
    values: BTreeMap<String, Option<Value>>,
    expected: BTreeMap<String, Option<Value>>,
}

impl Change {
    /// Makes an empty change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `name` to `value`.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.values.insert(name.into(), Some(value.into()));
        self
    }

    /// Removes `name`, if the record has it.
    pub fn remove(mut self, name: impl Into<String>) -> Self {
        self.values.insert(name.into(), None);
        self
    }

    /// Applies the change only if `name` is `value`. All expectations must hold; a second expectation of one
    /// name replaces the first.
    ///
    /// Expect a value that was written or read before. Values of different types are never equal,
    /// not even a text and a number with the same digits. `DynamoDB` compares numbers by value, so
    /// `1` equals `1.0`; other stores compare them as they were written. A store cannot notice that
    /// a value was replaced and then restored. So expect a value that never returns, such as a
    /// growing checkpoint.
    pub fn expecting(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.expected.insert(name.into(), Some(value.into()));
        self
    }

    /// Applies the change only if the record has no attribute `name`, not even a [`Value::Null`].
    pub fn expecting_none(mut self, name: impl Into<String>) -> Self {
        self.expected.insert(name.into(), None);
        self
    }

    /// The attributes that are set, in the order of their names.
    pub fn assigned(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_ref()?)))
    }

    /// The names that are removed, in order.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.as_str())
    }

    /// The expectations, in the order of their names; `None` means that the attribute must not
    /// exist.
    pub fn expected(&self) -> impl Iterator<Item = (&str, Option<&Value>)> {
        self.expected.iter().map(|(name, value)| (name.as_str(), value.as_ref()))
    }

    /// Whether `attributes` meet all expectations. Compares numbers as they were written.
    pub fn fits(&self, attributes: &Attributes) -> bool {
        self.expected().all(|(name, value)| attributes.get(name) == value)
    }

    /// Applies the change in memory, without a check of the expectations.
    pub fn apply(&self, attributes: &mut Attributes) {
        for (name, value) in &self.values {
            match value {
                Some(value) => attributes.insert(name.clone(), value.clone()),
                None => attributes.remove(name),
            };
        }
    }
}

/// Makes a change that sets each of the attributes.
impl From<Attributes> for Change {
    fn from(attributes: Attributes) -> Self {
        let values = attributes.into_iter().map(|(name, value)| (name, Some(value))).collect();
        Self { values, expected: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_keeps_every_digit() {
        let digits = "12345678901234567890123456789012345678";
        assert_eq!(digits.parse::<Number>().unwrap().as_str(), digits);
        for good in ["0", "-1.5", "+1", ".5", "5.", "1e10", "1.5E-3"] {
            assert!(good.parse::<Number>().is_ok(), "{good}");
        }
        for bad in ["", ".", "-", "1e", "e5", "1.2.3", "0x1", "NaN", "1 ", "１"] {
            assert!(bad.parse::<Number>().is_err(), "{bad}");
        }
    }
}
