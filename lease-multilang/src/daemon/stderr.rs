//! Copies a child's stderr to the log, at a limited rate.

use std::time::Duration;

use lease_kinesis::ShardId;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

/// Reads to the end, so that the child never waits for a full pipe. Logs a long line in pieces. After a
/// second, logs a line without its line feed.
pub(super) async fn drain(mut stderr: impl AsyncRead + Unpin, shard: ShardId) {
    let mut rate = Rate::new(now());
    let mut pending = Vec::with_capacity(LONGEST_PIECE);
    loop {
        let room = LONGEST_PIECE - pending.len();
        let mut source = (&mut stderr).take(room as u64);
        let read = source.read_buf(&mut pending);
        let more = match timeout(SECOND, read).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(_)) => true,
            Err(_elapsed) => false,
        };
        let mut pieces = pending.split_inclusive(|byte| *byte == b'\n').peekable();
        let mut logged = 0;
        while let Some(piece) = pieces.next() {
            let is_whole = pieces.peek().is_some() || piece.ends_with(b"\n");
            if is_whole || !more || pending.len() == LONGEST_PIECE && logged == 0 {
                logged += piece.len();
                rate.log(piece, &shard);
            }
        }
        drop(pending.drain(..logged));
    }
    rate.log(&pending, &shard);
    rate.log_dropped(&shard);
}

struct Rate {
    since: Instant,
    lines: u64,
    dropped: u64,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self { since: now, lines: 0, dropped: 0 }
    }

    fn log(&mut self, piece: &[u8], shard: &ShardId) {
        let text = String::from_utf8_lossy(piece);
        let text = text.trim_end();
        if text.is_empty() || self.is_too_high(now()) {
            return;
        }
        self.log_dropped(shard);
        info!(%shard, "child: {text}");
    }

    fn log_dropped(&mut self, shard: &ShardId) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            warn!(%shard, lines = dropped, "child writes too much to stderr, lines dropped");
        }
    }

    fn is_too_high(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= SECOND {
            (self.since, self.lines) = (now, 0);
        }
        self.lines += 1;
        let is_too_high = self.lines > LINES_PER_SECOND;
        self.dropped += u64::from(is_too_high);
        is_too_high
    }
}

/// Reads tokio's clock, which tests can pause.
#[expect(clippy::disallowed_methods, reason = "limits a log rate; no lease depends on it")]
fn now() -> Instant {
    Instant::now()
}

/// The maximum length of a piece, in bytes.
const LONGEST_PIECE: usize = 4 * 1024;

/// Per child. A long stack trace stays below the limit, but the log cannot fill a disk quickly.
const LINES_PER_SECOND: u64 = 500;

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_above_the_rate_are_dropped_and_counted() {
        let begin = now();
        let mut rate = Rate::new(begin);

        let passed = (0..5_000).filter(|_| !rate.is_too_high(begin)).count();

        assert_eq!(passed, 500);
        assert!(!rate.is_too_high(begin + SECOND));
        assert_eq!(rate.dropped, 4_500);
    }

    #[tokio::test]
    async fn endless_line_is_read_in_bounded_memory() {
        let endless = tokio::io::repeat(b'x').take(1 << 20);

        drain(endless, "shardId-0".parse().unwrap()).await;
    }
}
