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
        match (one_line(&self.who), one_line(&self.why)) {
            (who, _) if who.is_empty() => Err("who asks for this?"),
            (_, why) if why.is_empty() => Err("why?"),
            (who, why) => Ok(format!("{who}: {why}")),
        }
    }
}

/// Writes a change and its result to the log.
pub(super) fn record(change: &str, by: &str, result: &str) {
    say(&format!("{}, by {by}: {result}", one_line(change)));
}

/// A text of a browser must not start a line of its own in the log, or control a terminal.
fn one_line(text: &str) -> String {
    let text = text.trim().chars().take(LONGEST);
    text.map(|one| if one.is_control() { ' ' } else { one }).collect()
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
        assert!(line(" ", "x").is_err() && line("ann", "\n").is_err());
    }
}
