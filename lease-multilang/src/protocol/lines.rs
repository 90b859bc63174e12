//! Reads lines from a pipe in bounded memory.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads lines from the other process. The buffer exceeds the limit of a line by at most 64 KiB and one byte.
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    /// The maximum length of a line in bytes, without the line feed.
    limit: usize,
    buffer: Vec<u8>,
    /// The offset of the next line in the buffer.
    start: usize,
    /// The number of bytes of the next line that were already searched for a line feed.
    searched: usize,
    /// The number of dropped bytes of a line that is too long.
    dropped: u64,
}

/// One line from a pipe, or the end of the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a line is one of these")]
pub enum Line<'a> {
    /// A line, without its `\n` or `\r\n`.
    Whole(&'a str),
    /// The last line, if the pipe ended before a line feed. It may be a whole message or a part of one.
    Unterminated(&'a str),
    /// The number of bytes before the `\n` of a line that was dropped, because it is longer than the limit.
    TooLong(u64),
    /// A line that is not UTF-8.
    NotUtf8(&'a [u8]),
    /// The pipe ended after a line feed.
    End,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines of at most `limit` bytes from `source`.
    pub fn new(source: R, limit: usize) -> Self {
        Self { source, limit, buffer: Vec::new(), start: 0, searched: 0, dropped: 0 }
    }

    /// Returns the next line. After the last line, every call returns [`Line::End`].
    ///
    /// # Errors
    ///
    /// If reading from the pipe fails.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next call continues where the dropped call stopped.
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
                return Ok(self.line(self.searched, Line::Unterminated));
            }
        }
    }

    /// Returns the size of the buffer in bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// `length` counts the line's bytes without its line feed.
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
        // A daemon may have a hundred silent children, and a reader for each.
        let chunk = (self.buffer.capacity() / 2).clamp(LEAST, CHUNK);
        let needed = self.buffer.len() + chunk;
        if needed > self.buffer.capacity() {
            // The buffer doubles, so that a long line is not copied for every chunk.
            let doubled = self.buffer.capacity().saturating_mul(2);
            let most = self.limit.saturating_add(RETURN + CHUNK);
            self.buffer.reserve_exact(doubled.min(most).max(needed) - self.buffer.len());
        }
        (&mut self.source).take(CHUNK as u64).read_buf(&mut self.buffer).await
    }
}

/// The capacity of a pipe on Linux.
const CHUNK: usize = 64 * 1024;

/// A message of a child has fewer bytes.
const LEAST: usize = 4 * 1024;

/// A `\r` before the line feed does not count towards the limit.
const RETURN: usize = 1;
