//! Captured log lines, for tests that assert on warnings.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::dispatcher::set_default;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Level};

/// A second subscriber of tracing, which discards all lines.
///
/// With only one subscriber, tracing enables each log statement by the first thread that reaches
/// the statement. A thread without a subscriber would then disable the statement for all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// Makes `subscriber` the one of this thread until the guard is dropped.
pub fn listen_by(subscriber: impl Into<Dispatch>) -> DefaultGuard {
    LazyLock::force(&SECOND);
    set_default(&subscriber.into())
}

/// Captures the log lines of this thread.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<u8>>>);

impl Warnings {
    /// Captures warnings and errors until the guard is dropped.
    pub fn listen() -> (Self, DefaultGuard) {
        Self::listen_from(Level::WARN)
    }

    /// Captures the lines of `level` and of more severe levels until the guard is dropped.
    pub fn listen_from(level: Level) -> (Self, DefaultGuard) {
        let warnings = Self::default();
        let writer = warnings.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (warnings, listen_by(subscriber))
    }

    /// Returns the lines so far.
    ///
    /// # Panics
    ///
    /// Panics if a thread panicked while it wrote a line.
    pub fn lines(&self) -> Vec<String> {
        let text = self.0.lock().expect("no thread panics while it writes").clone();
        let text = String::from_utf8(text).expect("a log is text");
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the lines so far as one text.
    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// Returns how many lines so far contain `words`.
    pub fn count(&self, words: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(words)).count()
    }
}

impl Write for Warnings {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no thread panics while it writes").write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
