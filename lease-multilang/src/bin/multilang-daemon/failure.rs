//! The failure that ends the program, with its message and exit code.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// The failure that ends the program.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the properties are invalid. The program has sent no request.
    Usage(Box<dyn Error + Send + Sync>),
    /// Any other failure.
    Other(Box<dyn Error + Send + Sync>),
}

impl Failure {
    pub(crate) fn usage(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Usage(cause.into())
    }

    pub(crate) fn other(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(cause.into())
    }
}

impl fmt::Display for Failure {
    /// Writes one sentence with the error and its sources, outermost first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(cause) | Self::Other(cause)) = self;
        let mut source = Some(&**cause as &dyn Error);
        let mut separator = "";
        while let Some(error) = source {
            write!(f, "{separator}{error}")?;
            (source, separator) = (error.source(), ": ");
        }
        Ok(())
    }
}

/// Joins the lines of a text into one line. Separates the items of a list by `; `, except after a heading.
#[cfg(any(feature = "aws", test))]
pub(crate) fn in_one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        line.push_str(match line.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        });
        line.push_str(part.trim_start_matches("- "));
    }
    line
}

/// Prints the failure, and returns the exit code for it.
#[expect(clippy::print_stderr, reason = "a program reports its failure on stderr")]
pub(crate) fn report(failure: &Failure) -> ExitCode {
    eprintln!("multilang-daemon: {failure}");
    match failure {
        Failure::Usage(_) => ExitCode::from(2),
        Failure::Other(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_joined_after_its_heading() {
        let text = "no credentials\nAttempted:\n  - Environment: not set\n\n  - Profile: none\n";

        let line = in_one_line(text);

        assert_eq!(line, "no credentials; Attempted: Environment: not set; Profile: none");
    }
}
