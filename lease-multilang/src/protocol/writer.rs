//! Writes whole lines to a pipe.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Writes messages to the other process, each as one line in one write.
///
/// Only one writer may write to a pipe: two would mix their lines.
#[derive(Debug)]
pub struct LineWriter<W> {
    sink: W,
    before: &'static str,
    line: Vec<u8>,
    /// Whether a line may be written in part.
    broken: bool,
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    /// Writes to `sink` as a daemon does.
    pub fn for_daemon(sink: W) -> Self {
        Self { sink, before: "", line: Vec::new(), broken: false }
    }

    /// Writes to `sink` as a child does: a line feed precedes each line. So text that the child's code
    /// printed without a line feed does not share the line.
    pub fn for_child(sink: W) -> Self {
        Self { sink, before: "\n", line: Vec::new(), broken: false }
    }

    /// Writes `message`, which must have no line feed, as one line, and flushes it.
    ///
    /// # Errors
    ///
    /// If writing fails, or an earlier line was not written completely.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have written a part of the line. Every later call then fails.
    pub async fn write(&mut self, message: &str) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier line was not written completely"));
        }
        self.broken = true;
        self.line.clear();
        for part in [self.before, message, "\n"] {
            self.line.extend_from_slice(part.as_bytes());
        }
        self.sink.write_all(&self.line).await?;
        self.sink.flush().await?;
        self.broken = false;
        // A batch of records is long, and each of many children has a writer.
        self.line.clear();
        self.line.shrink_to(MOST_KEPT);
        Ok(())
    }

    /// Closes the pipe.
    ///
    /// # Errors
    ///
    /// If flushing fails.
    ///
    /// # Cancel safety
    ///
    /// Safe: call it again.
    pub async fn close(&mut self) -> io::Result<()> {
        self.sink.shutdown().await
    }
}

/// The bytes of memory that it keeps between two lines.
const MOST_KEPT: usize = 4096;
