//! What a child says on its stderr: into the log, however much it is.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::shard::ShardId;
use crate::time::now;

/// Reads `stderr` to its end: a child that writes there never waits.
///
/// A line that is very long comes in pieces, and so does one whose end is not written for a while:
/// some programs never write any.
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
        let mut told = 0;
        while let Some(piece) = pieces.next() {
            let is_whole = pieces.peek().is_some() || piece.ends_with(b"\n");
            if is_whole || !more || pending.len() == LONGEST_PIECE && told == 0 {
                told += piece.len();
                rate.tell(piece, &shard);
            }
        }
        drop(pending.drain(..told));
    }
    rate.tell(&pending, &shard);
    rate.tell_dropped(&shard);
}

/// How many lines there may be yet.
struct Rate {
    since: Instant,
    lines: u64,
    dropped: u64,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self { since: now, lines: 0, dropped: 0 }
    }

    fn tell(&mut self, piece: &[u8], shard: &ShardId) {
        let text = String::from_utf8_lossy(piece);
        let text = text.trim_end();
        if text.is_empty() || self.is_too_high(now()) {
            return;
        }
        self.tell_dropped(shard);
        info!(%shard, "child: {text}");
    }

    fn tell_dropped(&mut self, shard: &ShardId) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            warn!(%shard, lines = dropped, "child says too much on its stderr, lines are dropped");
        }
    }

    fn is_too_high(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= SECOND {
            (self.since, self.lines) = (now, 0);
        }
        self.lines += 1;
        let is = self.lines > LINES_PER_SECOND;
        self.dropped += u64::from(is);
        is
    }
}

/// Bytes. What is longer is no text for people.
const LONGEST_PIECE: usize = 4 * 1024;

/// Of one child: enough for a stack trace of any length, and little enough for a disk.
const LINES_PER_SECOND: u64 = 500;

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_so_many_lines_a_second_and_the_rest_is_counted() {
        let begin = now();
        let mut rate = Rate::new(begin);

        let passed = (0..5_000).filter(|_| !rate.is_too_high(begin)).count();

        assert_eq!(passed, 500);
        assert!(!rate.is_too_high(begin + SECOND));
        assert_eq!(rate.dropped, 4_500);
    }

    #[tokio::test]
    async fn what_has_no_end_of_line_is_read_to_its_end_in_bounded_memory() {
        let endless = tokio::io::repeat(b'x').take(1 << 20);

        drain(endless, "shardId-0".parse().unwrap()).await;
    }
}
