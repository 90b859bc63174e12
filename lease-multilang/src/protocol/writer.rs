//! Writes whole lines to a pipe.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Writes each message as one line, with one write. A pipe may have only one writer.
#[derive(Debug)]
pub struct LineWriter<W> {
    sink: W,
    before: &'static str,
    line: Vec<u8>,
    /// Whether the last line may be incomplete in the pipe.
    broken: bool,
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    /// Returns a writer for a daemon, which ends each line with a line feed.
    pub fn for_daemon(sink: W) -> Self {
        Self { sink, before: "", line: Vec::new(), broken: false }
    }

    /// Returns a writer for a child, which also puts a line feed before each line. The child's code may have
    /// printed text without a line feed.
    pub fn for_child(sink: W) -> Self {
        Self { sink, before: "\n", line: Vec::new(), broken: false }
    }

    /// Writes `message` as one line and flushes it. `message` must not contain a line feed.
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
        // A daemon may have many children, and a writer for each.
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

/// The number of bytes of memory that a writer keeps between two lines.
const MOST_KEPT: usize = 4096;
