//! The condition of a write.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;

use super::words::Words;
use super::{Bindings, Item, Operand, Refusal, whole};

/// The condition of a write.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Condition {
    /// No condition.
    Always,
    /// `AND`.
    All(Vec<Self>),
    /// `OR`.
    Any(Vec<Self>),
    /// `NOT`.
    Not(Box<Self>),
    /// A comparison of two operands.
    Compares(Operand, Comparison, Operand),
    /// `attribute_exists`.
    Exists(String),
    /// `attribute_not_exists`.
    IsMissing(String),
    /// `attribute_type`.
    IsOfType(String, Operand),
    /// `begins_with`.
    BeginsWith(String, Operand),
}

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Comparison {
    /// `=`.
    Equal,
    /// `<>`.
    Unequal,
    /// `<`.
    Less,
    /// `<=`.
    AtMost,
    /// `>`.
    More,
    /// `>=`.
    AtLeast,
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    ///
    /// Fails if the condition is invalid or unknown.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut words = Words::of(text)?;
        let condition = words.any()?;
        words.end()?;
        Ok(condition)
    }

    /// Replaces each occurrence of `part` by [`Always`](Self::Always). Returns the number of
    /// replacements.
    pub fn assume(&mut self, part: &Self) -> usize {
        if self == part {
            *self = Self::Always;
            return 1;
        }
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter_mut().map(|p| p.assume(part)).sum(),
            Self::Not(inner) => inner.assume(part),
            _ => 0,
        }
    }

    /// Returns whether `item` satisfies the condition.
    ///
    /// # Errors
    ///
    /// Fails if a placeholder is not defined, or a number is not an integer.
    pub fn holds(&self, item: &Item, bound: &Bindings) -> Result<bool, Refusal> {
        Ok(match self {
            Self::Always => true,
            Self::All(parts) => {
                let mut all = true;
                for part in parts {
                    all &= part.holds(item, bound)?;
                }
                all
            }
            Self::Any(parts) => {
                let mut any = false;
                for part in parts {
                    any |= part.holds(item, bound)?;
                }
                any
            }
            Self::Not(inner) => !inner.holds(item, bound)?,
            Self::Exists(name) => item.contains_key(bound.name(name)?),
            Self::IsMissing(name) => !item.contains_key(bound.name(name)?),
            Self::IsOfType(name, kind) => {
                let kind = kind.of(item, bound)?.and_then(|kind| kind.get("S")).cloned();
                let found = item.get(bound.name(name)?).and_then(type_of);
                found.is_some() && found == kind.as_ref().and_then(Value::as_str)
            }
            Self::BeginsWith(name, start) => {
                let text = item.get(bound.name(name)?).and_then(|value| value.get("S"));
                let start = start.of(item, bound)?.and_then(|start| start.get("S"));
                match (text.and_then(Value::as_str), start.and_then(Value::as_str)) {
                    (Some(text), Some(start)) => text.starts_with(start),
                    _ => false,
                }
            }
            Self::Compares(left, comparison, right) => {
                let (left, right) = (left.of(item, bound)?, right.of(item, bound)?);
                comparison.holds(left, right)?
            }
        })
    }

    pub(super) fn uses(&self, used: &mut BTreeSet<String>) {
        match self {
            Self::Always => (),
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.uses(used)),
            Self::Not(inner) => inner.uses(used),
            Self::Exists(name) | Self::IsMissing(name) => drop(used.insert(name.clone())),
            Self::IsOfType(name, operand) | Self::BeginsWith(name, operand) => {
                used.insert(name.clone());
                used.insert(operand.placeholder().to_owned());
            }
            Self::Compares(left, _, right) => {
                used.extend([left, right].map(|side| side.placeholder().to_owned()));
            }
        }
    }
}

impl Comparison {
    /// If a value is missing, or the types differ, only `<>` is true.
    fn holds(self, left: Option<&Value>, right: Option<&Value>) -> Result<bool, Refusal> {
        let (Some(left), Some(right)) = (left, right) else {
            return Ok(self == Self::Unequal);
        };
        let order = ordered(left, right)?;
        Ok(match self {
            Self::Equal => order.map_or(left == right, |order| order == Ordering::Equal),
            Self::Unequal => order.map_or(left != right, |order| order != Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::More => order == Some(Ordering::Greater),
            Self::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        })
    }
}

/// Compares two values of one type: texts by their bytes, numbers by their value.
fn ordered(left: &Value, right: &Value) -> Result<Option<Ordering>, Refusal> {
    let both = |kind: &str| Some((left.get(kind)?.as_str()?, right.get(kind)?.as_str()?));
    if let Some((left, right)) = both("S") {
        return Ok(Some(left.as_bytes().cmp(right.as_bytes())));
    }
    let Some((left, right)) = both("N") else { return Ok(None) };
    Ok(Some(whole(left)?.cmp(&whole(right)?)))
}

fn type_of(value: &Value) -> Option<&str> {
    value.as_object()?.keys().next().map(String::as_str)
}
