//! The part of DynamoDB's expression grammar that the stores use. The parser refuses all other expressions,
//! so that a model never guesses.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use serde_json::{Map, Value, json};

/// An item in DynamoDB's JSON: names, and values with their type.
pub type Item = Map<String, Value>;

/// The reason why an expression is invalid or unknown.
pub type Refusal = String;

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

/// An attribute, or a placeholder.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Operand {
    /// `#name`, or the name itself.
    Attribute(String),
    /// `:value`.
    Given(String),
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

/// The changes of a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Update {
    set: Vec<(String, Term)>,
    remove: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Term {
    Is(Operand),
    IfNotExists(String, Operand),
    Sum(Box<Self>, Box<Self>),
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

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    ///
    /// If the condition is invalid or unknown.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut words = Words::of(text)?;
        let condition = words.any()?;
        words.end()?;
        Ok(condition)
    }

    /// Replaces each occurrence of `part` by [`Always`](Self::Always). Returns their number.
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
    /// If a placeholder is not defined, or a number is not a whole one.
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

    /// Adds the placeholders of the condition to `used`.
    fn uses(&self, used: &mut BTreeSet<String>) {
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
    /// A comparison with a missing value is false, except `<>`. So is a comparison of different types.
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

fn whole(digits: &str) -> Result<i128, Refusal> {
    digits.parse().map_err(|_| format!("{digits} is not a whole number"))
}

fn type_of(value: &Value) -> Option<&str> {
    value.as_object()?.keys().next().map(String::as_str)
}

impl Operand {
    fn placeholder(&self) -> &str {
        match self {
            Self::Attribute(name) | Self::Given(name) => name,
        }
    }

    fn of<'a>(&self, item: &'a Item, bound: &'a Bindings) -> Result<Option<&'a Value>, Refusal> {
        match self {
            Self::Attribute(name) => Ok(item.get(bound.name(name)?)),
            Self::Given(value) => match bound.values.get(value) {
                Some(value) => Ok(Some(value)),
                None => Err(format!("{value} is not defined")),
            },
        }
    }
}

impl Update {
    /// Parses an update.
    ///
    /// # Errors
    ///
    /// If the update is invalid or unknown.
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
    /// If a placeholder is not defined, or a term has no value.
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

    fn uses(&self, used: &mut BTreeSet<String>) {
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

impl Bindings {
    /// Binds `names` and `values`.
    pub fn new(names: Map<String, Value>, values: Item) -> Self {
        Self { names, values }
    }

    fn name<'a>(&'a self, placeholder: &'a str) -> Result<&'a str, Refusal> {
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
    /// If a placeholder is not used.
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

/// The words of an expression that are not parsed yet.
struct Words(Peekable<IntoIter<String>>);

impl Words {
    fn of(text: &str) -> Result<Self, Refusal> {
        let mut words: Vec<String> = Vec::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let length = match first {
                '#' | ':' => 1 + rest[1..].find(|c| !is_part(c)).unwrap_or(rest.len() - 1),
                c if is_part(c) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
                '<' if rest.starts_with("<>") || rest.starts_with("<=") => 2,
                '>' if rest.starts_with(">=") => 2,
                '<' | '>' | '=' | '(' | ')' | ',' | '+' => 1,
                _ => return Err(format!("{first:?} in {text:?}")),
            };
            let (word, after) = rest.split_at(length);
            words.push(word.to_owned());
            rest = after.trim_start();
        }
        Ok(Self(words.into_iter().peekable()))
    }

    fn next_is(&mut self, word: &str) -> bool {
        self.0.next_if(|next| next == word).is_some()
    }

    fn expect(&mut self, word: &str) -> Result<(), Refusal> {
        if self.next_is(word) {
            return Ok(());
        }
        Err(format!("{:?} where {word:?} is expected", self.0.peek()))
    }

    fn end(&mut self) -> Result<(), Refusal> {
        match self.0.next() {
            Some(word) => Err(format!("{word:?} where the expression ends")),
            None => Ok(()),
        }
    }

    fn name(&mut self) -> Result<String, Refusal> {
        match self.operand()? {
            Operand::Attribute(name) => Ok(name),
            Operand::Given(value) => Err(format!("{value} where a name is expected")),
        }
    }

    fn operand(&mut self) -> Result<Operand, Refusal> {
        match self.0.next() {
            Some(word) if word.starts_with('#') || is_plain_name(&word) => {
                Ok(Operand::Attribute(word))
            }
            Some(word) if word.starts_with(':') => Ok(Operand::Given(word)),
            other => Err(format!("{other:?} where an attribute or a value is expected")),
        }
    }

    fn any(&mut self) -> Result<Condition, Refusal> {
        let mut parts = vec![self.all()?];
        while self.next_is("OR") {
            parts.push(self.all()?);
        }
        Ok(one_of(parts, Condition::Any))
    }

    fn all(&mut self) -> Result<Condition, Refusal> {
        let mut parts = vec![self.one()?];
        while self.next_is("AND") {
            parts.push(self.one()?);
        }
        Ok(one_of(parts, Condition::All))
    }

    fn one(&mut self) -> Result<Condition, Refusal> {
        if self.next_is("NOT") {
            return Ok(Condition::Not(Box::new(self.one()?)));
        }
        if self.next_is("(") {
            let inner = self.any()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if let Some(function) = self.0.next_if(|word| FUNCTIONS.contains(&word.as_str())) {
            return self.call(&function);
        }
        let left = self.operand()?;
        let comparison = match self.0.next().as_deref() {
            Some("=") => Comparison::Equal,
            Some("<>") => Comparison::Unequal,
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::AtMost,
            Some(">") => Comparison::More,
            Some(">=") => Comparison::AtLeast,
            other => return Err(format!("{other:?} where a comparison is expected")),
        };
        Ok(Condition::Compares(left, comparison, self.operand()?))
    }

    fn call(&mut self, function: &str) -> Result<Condition, Refusal> {
        self.expect("(")?;
        let name = self.name()?;
        let condition = match function {
            "attribute_exists" => Condition::Exists(name),
            "attribute_not_exists" => Condition::IsMissing(name),
            "attribute_type" => {
                self.expect(",")?;
                Condition::IsOfType(name, self.operand()?)
            }
            "begins_with" => {
                self.expect(",")?;
                Condition::BeginsWith(name, self.operand()?)
            }
            _ => return Err(format!("{function} is not known here")),
        };
        self.expect(")")?;
        Ok(condition)
    }

    fn term(&mut self) -> Result<Term, Refusal> {
        let first = if self.next_is("if_not_exists") {
            self.expect("(")?;
            let name = self.name()?;
            self.expect(",")?;
            let operand = self.operand()?;
            self.expect(")")?;
            Term::IfNotExists(name, operand)
        } else {
            Term::Is(self.operand()?)
        };
        if self.next_is("+") {
            return Ok(Term::Sum(Box::new(first), Box::new(self.term()?)));
        }
        Ok(first)
    }
}

/// Whether `word` names an attribute without a placeholder. `DynamoDB` refuses reserved words; these are the
/// keywords, and the one reserved word that a column of a store has.
fn is_plain_name(word: &str) -> bool {
    const RESERVED: [&str; 9] =
        ["AND", "OR", "NOT", "IN", "BETWEEN", "SET", "REMOVE", "ADD", "TOKEN"];
    word.starts_with(|first: char| first.is_ascii_alphabetic())
        && !RESERVED.contains(&word.to_ascii_uppercase().as_str())
        && !FUNCTIONS.contains(&word)
}

/// The functions of conditions.
const FUNCTIONS: [&str; 4] =
    ["attribute_exists", "attribute_not_exists", "attribute_type", "begins_with"];

fn one_of(mut parts: Vec<Condition>, many: fn(Vec<Condition>) -> Condition) -> Condition {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only;
    }
    many(parts)
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
