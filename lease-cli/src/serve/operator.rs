//! Who changes something, and why.

use serde::Deserialize;

use crate::output::messages::say;

/// A change says who asks for it and why. The log has both.
#[derive(Debug, Deserialize)]
pub(super) struct Operator {
    who: String,
    why: String,
}

impl Operator {
    /// Returns who and why on one line. An error says what is missing.
    pub(super) fn line(&self) -> Result<String, &'static str> {
        match (short(&self.who), short(&self.why)) {
            (who, _) if who.is_empty() => Err("who asks for this?"),
            (_, why) if why.is_empty() => Err("why?"),
            (who, why) => Ok(format!("{who}: {why}")),
        }
    }
}

/// Writes a change and its result to the log.
pub(super) fn record(change: &str, by: &str, result: &str) {
    // Whole, since the key and the grant say what is changed.
    say(&one_line(&format!("{change}, by {by}: {result}")));
}

fn short(text: &str) -> String {
    one_line(text).trim().chars().take(LONGEST).collect()
}

/// A text of a browser must not start a line of its own in the log, or control a terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

/// In characters.
const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(who: &str, why: &str) -> Result<String, &'static str> {
        Operator { who: who.to_owned(), why: why.to_owned() }.line()
    }

    #[test]
    fn operator_is_one_line_without_control_characters() {
        assert_eq!(line(" ann ", "a\nb\x1b[1m"), Ok("ann: a b [1m".to_owned()));
        assert!(line("ann", &"x".repeat(1000)).unwrap().len() < 250);
        assert!(line(" ", "x").is_err() && line("ann", "\n\x1b \0").is_err());
        assert_eq!(line("\0 ann\0", "\x07x"), Ok("ann: x".to_owned()));
    }
}
