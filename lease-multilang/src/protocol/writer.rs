//! Lines into a pipe: whole ones.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Writes messages to the other process, each as one line, at once.
///
/// The only one that writes to a pipe: two would mix their lines.
#[derive(Debug)]
pub struct LineWriter<W> {
    sink: W,
    before: &'static str,
    line: Vec<u8>,
    /// Whether a line may have been written in part.
    broken: bool,
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    /// Writes as a daemon does.
    pub fn of_daemon(sink: W) -> Self {
        Self { sink, before: "", line: Vec::new(), broken: false }
    }

    /// Writes as a child does: each line is preceded by a line feed, so that what its code has
    /// printed without one does not share the line.
    pub fn of_child(sink: W) -> Self {
        Self { sink, before: "\n", line: Vec::new(), broken: false }
    }

    /// Writes `message`, which has no line feed in it, as one line, and sees that it arrives.
    ///
    /// # Errors
    ///
    /// Where the pipe does not take it; or where an earlier line was not written to its end.
    ///
    /// # Cancel safety
    ///
    /// Part of the line may be written: from then on, every call fails.
    pub async fn write(&mut self, message: &str) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier line was not written to its end"));
        }
        self.broken = true;
        self.line.clear();
        for part in [self.before, message, "\n"] {
            self.line.extend_from_slice(part.as_bytes());
        }
        self.sink.write_all(&self.line).await?;
        self.sink.flush().await?;
        self.broken = false;
        // A batch of records is long, and there is a writer for each of many children.
        self.line.clear();
        self.line.shrink_to(MOST_KEPT);
        Ok(())
    }

    /// Closes the pipe: the other side reads its end.
    ///
    /// # Errors
    ///
    /// Where the pipe does not take it.
    pub async fn close(&mut self) -> io::Result<()> {
        self.sink.shutdown().await
    }
}

/// Bytes, from one line to the next.
const MOST_KEPT: usize = 4096;
