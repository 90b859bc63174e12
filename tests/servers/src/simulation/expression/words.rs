//! Parses an expression, word by word.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::update::Term;
use super::{Comparison, Condition, Operand, Refusal};

pub(super) struct Words(Peekable<IntoIter<String>>);

impl Words {
    pub(super) fn of(text: &str) -> Result<Self, Refusal> {
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

    pub(super) fn next_is(&mut self, word: &str) -> bool {
        self.0.next_if(|next| next == word).is_some()
    }

    pub(super) fn expect(&mut self, word: &str) -> Result<(), Refusal> {
        if self.next_is(word) {
            return Ok(());
        }
        Err(format!("{:?} where {word:?} is expected", self.0.peek()))
    }

    pub(super) fn end(&mut self) -> Result<(), Refusal> {
        match self.0.next() {
            Some(word) => Err(format!("{word:?} where the expression ends")),
            None => Ok(()),
        }
    }

    pub(super) fn name(&mut self) -> Result<String, Refusal> {
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

    pub(super) fn any(&mut self) -> Result<Condition, Refusal> {
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

    pub(super) fn term(&mut self) -> Result<Term, Refusal> {
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

/// Whether `word` may name an attribute. `DynamoDB` refuses reserved words. This parser knows the
/// keywords, and the reserved word that also names a column of a store.
fn is_plain_name(word: &str) -> bool {
    const RESERVED: [&str; 9] =
        ["AND", "OR", "NOT", "IN", "BETWEEN", "SET", "REMOVE", "ADD", "TOKEN"];
    word.starts_with(|first: char| first.is_ascii_alphabetic())
        && !RESERVED.contains(&word.to_ascii_uppercase().as_str())
        && !FUNCTIONS.contains(&word)
}

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
