//! Lines out of a pipe, in bounded memory.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads lines from the other process, which may write anything.
///
/// It has at most the limit and 64 KiB in memory, whatever comes.
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    /// The most bytes of a line, without its end.
    limit: usize,
    buffer: Vec<u8>,
    /// Where in the buffer the next line begins.
    start: usize,
    /// How many bytes of it have no line feed among them.
    searched: usize,
    /// How many bytes of a line that is too long have been dropped.
    dropped: u64,
}

/// What came out of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a line is one of these")]
pub enum Line<'a> {
    /// A line, without its `\n` or `\r\n`.
    Whole(&'a str),
    /// The last line: the pipe ended before its line feed. It may be all of a message, or the half.
    Unended(&'a str),
    /// A line that is longer than the limit, and was dropped: how many bytes came before its `\n`.
    TooLong(u64),
    /// A line that is not UTF-8.
    NotUtf8(&'a [u8]),
    /// The pipe has ended, between two lines.
    End,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines of at most `limit` bytes from `source`.
    pub fn new(source: R, limit: usize) -> Self {
        Self { source, limit, buffer: Vec::new(), start: 0, searched: 0, dropped: 0 }
    }

    /// The next line.
    ///
    /// After [`Line::End`] and [`Line::Unended`], and where a pipe ends in a line that is reported
    /// otherwise, further calls answer [`Line::End`].
    ///
    /// # Errors
    ///
    /// Where the pipe cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost where the future is dropped: the next call goes on.
    pub async fn next(&mut self) -> io::Result<Line<'_>> {
        loop {
            let pending = self.buffer.get(self.start + self.searched..).unwrap_or_default();
            if let Some(found) = pending.iter().position(|byte| *byte == b'\n') {
                let length = self.searched + found;
                return Ok(self.line(length, Line::Whole));
            }
            self.searched += pending.len();
            if self.dropped > 0 || self.searched > self.limit.saturating_add(RETURN) {
                self.dropped += self.searched as u64;
                (self.start, self.searched) = (0, 0);
                self.buffer.clear();
            }
            if self.fill().await? == 0 {
                if self.searched == 0 && self.dropped == 0 {
                    return Ok(Line::End);
                }
                return Ok(self.line(self.searched, Line::Unended));
            }
        }
    }

    /// How many bytes of memory it has now.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// The line of `length` bytes that the buffer has next; taken out of it, with its end.
    fn line<'a>(&'a mut self, length: usize, whole: fn(&'a str) -> Line<'a>) -> Line<'a> {
        let begin = self.start;
        self.start = (begin + length + 1).min(self.buffer.len());
        self.searched = 0;
        let dropped = std::mem::take(&mut self.dropped);
        let bytes = self.buffer.get(begin..begin + length).unwrap_or_default();
        let text = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if dropped > 0 || text.len() > self.limit {
            return Line::TooLong(dropped + bytes.len() as u64);
        }
        str::from_utf8(text).map_or(Line::NotUtf8(text), whole)
    }

    async fn fill(&mut self) -> io::Result<usize> {
        drop(self.buffer.drain(..self.start));
        self.start = 0;
        // Little at first: of a hundred children that say nothing, each has a reader.
        let chunk = (self.buffer.capacity() / 2).clamp(LEAST, CHUNK);
        let needed = self.buffer.len() + chunk;
        if needed > self.buffer.capacity() {
            // Doubled, so that a long line is not copied with every chunk, but not beyond what the
            // longest line needs.
            let doubled = self.buffer.capacity().saturating_mul(2);
            let most = self.limit.saturating_add(RETURN + CHUNK);
            self.buffer.reserve_exact(doubled.min(most).max(needed) - self.buffer.len());
        }
        (&mut self.source).take(CHUNK as u64).read_buf(&mut self.buffer).await
    }
}

/// Read at once, at most: what a pipe holds on Linux.
const CHUNK: usize = 64 * 1024;

/// Room for what a child says in one piece.
const LEAST: usize = 4 * 1024;

/// A `\r` before the line feed is none of the line's bytes.
const RETURN: usize = 1;
