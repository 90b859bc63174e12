//! Reads and writes lines over a pipe, in pieces of any size.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use lease_multilang::protocol::{Line, LineReader, LineWriter};
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, duplex};
use tokio::runtime::Builder;

async fn lines_of(bytes: &[u8], limit: usize) -> Vec<String> {
    read_lines(bytes, limit).await
}

/// Each returned text begins with the kind of line.
async fn read_lines(input: impl AsyncRead + Unpin, limit: usize) -> Vec<String> {
    let mut reader = LineReader::new(input, limit);
    let mut lines = Vec::new();
    loop {
        lines.push(match reader.next().await.unwrap() {
            Line::Whole(text) => format!("whole {text}"),
            Line::Unterminated(text) => format!("unended {text}"),
            Line::TooLong(length) => format!("too long {length}"),
            Line::NotUtf8(bytes) => format!("not UTF-8 {bytes:?}"),
            Line::End => return lines,
        });
    }
}

#[tokio::test]
async fn line_ends_at_a_line_feed() {
    let bytes = b"one\ntwo\r\n\n\r\nfi\rve\n";

    assert_eq!(
        lines_of(bytes, 100).await,
        ["whole one", "whole two", "whole ", "whole ", "whole fi\rve"]
    );
}

#[tokio::test]
async fn end_within_a_line_differs_from_end_after_a_line() {
    assert_eq!(lines_of(b"", 100).await, [""; 0]);
    assert_eq!(lines_of(b"one\n", 100).await, ["whole one"]);
    assert_eq!(lines_of(b"one\ntw", 100).await, ["whole one", "unended tw"]);
}

#[tokio::test]
async fn line_over_the_limit_is_skipped() {
    let bytes = b"12345\n12345\r\n123456\n123456\r\n1234567890123\nrest\n123456";

    assert_eq!(
        lines_of(bytes, 5).await,
        [
            "whole 12345",
            "whole 12345",
            "too long 6",
            "too long 7",
            "too long 13",
            "whole rest",
            "too long 6"
        ]
    );
}

#[tokio::test]
async fn line_that_is_not_utf8_does_not_affect_the_next_line() {
    let bytes = b"\xff\n\xc3\xa9\n\xc3\n";

    assert_eq!(lines_of(bytes, 100).await, ["not UTF-8 [255]", "whole \u{e9}", "not UTF-8 [195]"]);
}

struct Endless {
    left: usize,
}

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining().min(self.left);
        buffer.initialize_unfilled_to(room).fill(b'x');
        buffer.advance(room);
        self.left -= room;
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn endless_line_uses_memory_up_to_the_limit() {
    const LIMIT: usize = 1024 * 1024;
    let mut reader = LineReader::new(Endless { left: 100 * LIMIT }, LIMIT);

    assert_eq!(reader.next().await.unwrap(), Line::TooLong(100 * LIMIT as u64));

    assert!(reader.capacity() <= LIMIT + 64 * 1024 + 1, "{}", reader.capacity());
}

#[tokio::test]
async fn reader_of_short_lines_needs_little_memory() {
    let (mut there, here) = duplex(1024);
    let mut reader = LineReader::new(here, 1024 * 1024);
    let line = format!("{}\n", "x".repeat(299));

    for _ in 0..50 {
        there.write_all(line.repeat(2).as_bytes()).await.unwrap();
        there.write_all(&line.as_bytes()[..100]).await.unwrap();
        assert_eq!(reader.next().await.unwrap(), Line::Whole(line.trim_end()));
        assert_eq!(reader.next().await.unwrap(), Line::Whole(line.trim_end()));
        there.write_all(&line.as_bytes()[100..]).await.unwrap();
        assert_eq!(reader.next().await.unwrap(), Line::Whole(line.trim_end()));
    }

    assert!(reader.capacity() <= 8 * 1024, "{}", reader.capacity());
}

#[tokio::test]
async fn dropped_read_continues_in_the_next_call() {
    let (mut there, here) = duplex(1024);
    let mut reader = LineReader::new(here, 100);

    there.write_all(b"on").await.unwrap();
    tokio::select! {
        biased;
        line = reader.next() => panic!("half a line: {line:?}"),
        () = std::future::ready(()) => (),
    }
    there.write_all(b"e\n").await.unwrap();

    assert_eq!(reader.next().await.unwrap(), Line::Whole("one"));
}

#[derive(Default)]
struct Writes {
    of: Vec<Vec<u8>>,
    flushed: usize,
}

impl AsyncWrite for Writes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.of.push(bytes.into());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushed = self.of.len();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn message_is_one_write_with_line_feeds() {
    let (mut of_daemon, mut of_child) = (Writes::default(), Writes::default());

    LineWriter::for_daemon(&mut of_daemon).write("{}").await.unwrap();
    LineWriter::for_child(&mut of_child).write("{}").await.unwrap();

    assert_eq!((of_daemon.of, of_daemon.flushed), (vec![b"{}\n".to_vec()], 1));
    assert_eq!((of_child.of, of_child.flushed), (vec![b"\n{}\n".to_vec()], 1));
}

#[tokio::test]
async fn writer_fails_after_half_a_line() {
    let (here, mut there) = duplex(4);
    let mut writer = LineWriter::for_daemon(here);

    tokio::select! {
        biased;
        written = writer.write("0123456789") => panic!("it does not fit: {written:?}"),
        () = std::future::ready(()) => (),
    }
    let next = writer.write("next").await;

    assert!(next.is_err());
    drop(writer);
    let mut arrived = String::new();
    there.read_to_string(&mut arrived).await.unwrap();
    assert_eq!(arrived, "0123");
}

proptest! {
    /// A simple parser of the whole text must return the same lines.
    #[test]
    fn lines_do_not_depend_on_chunks(
        text in "([a-c]{0,7}\r?\n){0,6}[a-c]{0,7}",
        pieces in prop::collection::vec(1_usize..9, 1..60),
    ) {
        let limit = 5;
        let (ended, rest) = text
            .rsplit_once('\n')
            .map_or((None, &*text), |(ended, rest)| (Some(ended), rest));
        let said = |line: &str, word| {
            let text = line.strip_suffix('\r').unwrap_or(line);
            if text.len() > limit {
                format!("too long {}", line.len())
            } else {
                format!("{word} {text}")
            }
        };
        let ended = ended.into_iter().flat_map(|ended| ended.split('\n'));
        let mut expected: Vec<_> = ended.map(|line| said(line, "whole")).collect();
        if !rest.is_empty() {
            expected.push(said(rest, "unended"));
        }

        let runtime = Builder::new_current_thread().build().unwrap();
        let lines = runtime.block_on(async {
            let (mut there, here) = duplex(16);
            let write = async {
                let mut rest = text.as_bytes();
                for piece in pieces.into_iter().cycle() {
                    if rest.is_empty() {
                        break;
                    }
                    let (now, later) = rest.split_at(piece.min(rest.len()));
                    there.write_all(now).await.unwrap();
                    tokio::task::yield_now().await;
                    rest = later;
                }
                drop(there);
            };
            tokio::join!(write, read_lines(here, limit)).1
        });

        prop_assert_eq!(lines, expected);
    }
}
