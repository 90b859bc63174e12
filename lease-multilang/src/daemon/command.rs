//! The command of a child.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The program that runs in a child process, and its arguments.
///
/// A text is split at spaces, without quoting, as Amazon's daemon splits `executableName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildCommand {
    program: String,
    arguments: Vec<String>,
}

/// A command that names no program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the command names no program")]
#[non_exhaustive]
pub struct NoProgram;

impl ChildCommand {
    /// Returns the program: a path, or a name to find on the `PATH`.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Returns the arguments.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Returns a command that runs `program` with `arguments`, followed by this whole command.
    #[must_use]
    pub fn run_by(
        self,
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = String>,
    ) -> Self {
        let arguments = arguments.into_iter().chain([self.program]).chain(self.arguments).collect();
        Self { program: program.into(), arguments }
    }
}

impl FromStr for ChildCommand {
    type Err = NoProgram;

    fn from_str(text: &str) -> Result<Self, NoProgram> {
        let mut words = text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned);
        let program = words.next().ok_or(NoProgram)?;
        Ok(Self { program, arguments: words.collect() })
    }
}

impl fmt::Display for ChildCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_split_at_spaces_and_keeps_quotes() {
        let command: ChildCommand = "  python3  -c 'a b' ".parse().unwrap();

        assert_eq!(command.program(), "python3");
        assert_eq!(command.arguments(), ["-c", "'a", "b'"]);
        assert_eq!(command.to_string(), "python3 -c 'a b'");
        assert_eq!("  ".parse::<ChildCommand>(), Err(NoProgram));
    }

    #[test]
    fn run_by_appends_the_whole_command() {
        let command: ChildCommand = "node app.js".parse().unwrap();

        let run = command.run_by("env", ["-u".to_owned(), "HOME".to_owned()]);

        assert_eq!(run.to_string(), "env -u HOME node app.js");
    }
}
