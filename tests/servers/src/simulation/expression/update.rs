//! The changes of a write.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::words::Words;
use super::{Bindings, Item, Operand, Refusal, whole};

/// The changes of a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Update {
    set: Vec<(String, Term)>,
    remove: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    Is(Operand),
    IfNotExists(String, Operand),
    Sum(Box<Self>, Box<Self>),
}

impl Update {
    /// Parses an update.
    ///
    /// # Errors
    ///
    /// Fails if the update is invalid or unknown.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut words = Words::of(text)?;
        let mut update = Self::default();
        if words.next_is("SET") {
            loop {
                let name = words.name()?;
                words.expect("=")?;
                update.set.push((name, words.term()?));
                if !words.next_is(",") {
                    break;
                }
            }
        }
        if words.next_is("REMOVE") {
            loop {
                update.remove.push(words.name()?);
                if !words.next_is(",") {
                    break;
                }
            }
        }
        words.end()?;
        let names = update.set.iter().map(|(name, _)| name).chain(&update.remove);
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.into_iter().find(|name| !seen.insert(*name)) {
            return Err(format!("{twice} is changed twice"));
        }
        Ok(update)
    }

    /// Returns whether the update sets the placeholder `name`.
    pub fn sets(&self, name: &str) -> bool {
        self.set.iter().any(|(set, _)| set == name)
    }

    /// Applies the update to `item`. Each term reads the item from before the update.
    ///
    /// # Errors
    ///
    /// Fails if a placeholder is not defined, or a term has no value.
    pub fn apply(&self, item: &mut Item, bound: &Bindings) -> Result<(), Refusal> {
        let before = item.clone();
        for (name, term) in &self.set {
            item.insert(bound.name(name)?.to_owned(), term.of(&before, bound)?);
        }
        for name in &self.remove {
            item.remove(bound.name(name)?);
        }
        Ok(())
    }

    pub(super) fn uses(&self, used: &mut BTreeSet<String>) {
        for (name, term) in &self.set {
            used.insert(name.clone());
            term.uses(used);
        }
        used.extend(self.remove.iter().cloned());
    }
}

impl Term {
    fn of(&self, item: &Item, bound: &Bindings) -> Result<Value, Refusal> {
        let missing = || format!("{self:?} is missing");
        match self {
            Self::Is(operand) => operand.of(item, bound)?.cloned().ok_or_else(missing),
            Self::IfNotExists(name, operand) => match item.get(bound.name(name)?) {
                Some(value) => Ok(value.clone()),
                None => operand.of(item, bound)?.cloned().ok_or_else(missing),
            },
            Self::Sum(left, right) => {
                let number = |term: &Self| -> Result<i128, Refusal> {
                    let value = term.of(item, bound)?;
                    let digits = value.get("N").and_then(Value::as_str);
                    whole(digits.ok_or_else(|| format!("{value} is not a number"))?)
                };
                Ok(json!({ "N": (number(left)? + number(right)?).to_string() }))
            }
        }
    }

    fn uses(&self, used: &mut BTreeSet<String>) {
        match self {
            Self::Is(operand) => drop(used.insert(operand.placeholder().to_owned())),
            Self::IfNotExists(name, operand) => {
                used.extend([name.clone(), operand.placeholder().to_owned()]);
            }
            Self::Sum(left, right) => {
                left.uses(used);
                right.uses(used);
            }
        }
    }
}
