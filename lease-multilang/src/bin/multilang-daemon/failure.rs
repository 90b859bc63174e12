//! The failure that ends the program, with its message and exit code.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The program has sent no request.
    Usage(Box<dyn Error + Send + Sync>),
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
    /// Writes the error and its sources in one sentence, outermost first.
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

/// Separates the items of a list by `; `, except after a heading.
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
