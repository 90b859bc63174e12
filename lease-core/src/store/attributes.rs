//! What a record carries besides its lease.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::invalid::InvalidInput;

/// Named values on a record, in the order of their names. They survive every lease write.
pub type Attributes = BTreeMap<String, Value>;

/// One attribute.
///
/// The types are `DynamoDB`'s, since its tables are the richest that stores here read:
/// an existing table's columns come back as they are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
    /// A set of texts. `DynamoDB` keeps no empty ones.
    TextSet(BTreeSet<String>),
    /// A set of numbers. `DynamoDB` keeps no empty ones.
    NumberSet(BTreeSet<Number>),
    /// A set of byte strings. `DynamoDB` keeps no empty ones.
    BytesSet(BTreeSet<Vec<u8>>),
}

impl Value {
    /// The text, where this is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number as an integer, where this is one.
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

/// A decimal number, kept as it was written, so that no digit is lost on the way.
///
/// Equality and order are those of the text: `1` and `1.0` are different.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// What one fenced write does to a record's attributes, and what it expects to find there.
///
/// A grant keeps others from writing, but not an earlier request of its own holder's: one whose
/// answer was lost may be applied after a newer one. What must never go back says what it
/// replaces.
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
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `name` to `value`, whatever it was.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.values.insert(name.into(), Some(value.into()));
        self
    }

    /// Removes `name`, if it is there.
    pub fn remove(mut self, name: impl Into<String>) -> Self {
        self.values.insert(name.into(), None);
        self
    }

    /// Does nothing unless `name` is `value`. Whatever is expected must hold, and of one name the
    /// last that was said.
    ///
    /// Expect what was written or read before. Values of different types differ, and so do
    /// numbers of different sizes; whether `1` and `1.0` do is the store's affair: `DynamoDB`
    /// compares numbers by their size, others as they were written. A value that was replaced and
    /// has come back is as expected, so expect one that never does, as a checkpoint that grows.
    pub fn expecting(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.expected.insert(name.into(), Some(value.into()));
        self
    }

    /// Does nothing if there is any `name`, be it [`Value::Null`].
    pub fn expecting_none(mut self, name: impl Into<String>) -> Self {
        self.expected.insert(name.into(), None);
        self
    }

    /// What is set, in the order of the names.
    pub fn assigned(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_ref()?)))
    }

    /// What is removed, in the order of the names.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.as_str())
    }

    /// What is expected, in the order of the names; `None` where there must be no such attribute.
    pub fn expected(&self) -> impl Iterator<Item = (&str, Option<&Value>)> {
        self.expected.iter().map(|(name, value)| (name.as_str(), value.as_ref()))
    }

    /// Whether `attributes` are as expected, numbers as they were written.
    pub fn fits(&self, attributes: &Attributes) -> bool {
        self.expected().all(|(name, value)| attributes.get(name) == value)
    }

    /// Makes the change in memory, whatever is expected.
    pub fn apply(&self, attributes: &mut Attributes) {
        for (name, value) in &self.values {
            match value {
                Some(value) => attributes.insert(name.clone(), value.clone()),
                None => attributes.remove(name),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_every_digit_and_nothing_else_passes() {
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
