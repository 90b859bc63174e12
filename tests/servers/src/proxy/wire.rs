//! Splits a stream of bytes into messages.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The protocol of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// HTTP/1.1: a head, and a body of the length that the head states.
    Http,
    /// RESP 2 or 3: one value is one message.
    Redis,
}

impl Wire {
    /// Reads the next request. A transaction of Redis, from MULTI to EXEC, is one request.
    pub(super) async fn read_request(
        self,
        stream: &mut (impl AsyncRead + Unpin),
        read: &mut Vec<u8>,
    ) -> io::Result<Vec<u8>> {
        let mut request = self.read(stream, read).await?;
        if self == Self::Redis && request == MULTI {
            while !request.ends_with(EXEC) {
                request.extend(self.read(stream, read).await?);
            }
        }
        Ok(request)
    }

    /// Reads the reply to `request`. The reply to a transaction is one message per command.
    pub(super) async fn read_reply(
        self,
        request: &[u8],
        stream: &mut (impl AsyncRead + Unpin),
        read: &mut Vec<u8>,
    ) -> io::Result<Vec<u8>> {
        let mut reply = self.read(stream, read).await?;
        if self == Self::Redis && request.starts_with(MULTI) {
            let mut at = redis_value(request).unwrap_or(request.len());
            while let Some(length) = request.get(at..).and_then(redis_value) {
                reply.extend(self.read(stream, read).await?);
                at += length;
            }
        }
        Ok(reply)
    }

    /// Reads the next whole message. All other bytes stay in `read`, also after a drop.
    pub(super) async fn read(
        self,
        stream: &mut (impl AsyncRead + Unpin),
        read: &mut Vec<u8>,
    ) -> io::Result<Vec<u8>> {
        loop {
            let length = match self {
                Self::Redis => redis_value(read),
                Self::Http => http_message(read),
            };
            if let Some(length) = length {
                let rest = read.split_off(length);
                return Ok(std::mem::replace(read, rest));
            }
            if stream.read_buf(read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn http_message(read: &[u8]) -> Option<usize> {
    let head = find(read, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(read.get(..head)?).to_ascii_lowercase();
    let header = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    if header("transfer-encoding") == Some("chunked") {
        return find(read.get(head..)?, b"0\r\n\r\n").map(|end| head + end + 5);
    }
    let body: usize = header("content-length").map_or(Some(0), |length| length.parse().ok())?;
    (read.len() >= head + body).then_some(head + body)
}

fn redis_value(read: &[u8]) -> Option<usize> {
    let head = find(read, b"\r\n")? + 2;
    let (kind, count) = read.get(..head - 2)?.split_first()?;
    let count: usize = match kind {
        b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' => {
            // A length of -1 means a null value.
            let count = String::from_utf8_lossy(count).parse::<i64>().ok()?;
            let Ok(count) = count.try_into() else { return Some(head) };
            count
        }
        _ => return Some(head),
    };
    let items = match kind {
        b'$' | b'!' | b'=' => {
            let whole = head + count + 2;
            return (read.len() >= whole).then_some(whole);
        }
        b'%' => 2 * count,
        _ => count,
    };
    (0..items).try_fold(head, |at, _| Some(at + redis_value(read.get(at..)?)?))
}

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";

const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

pub(super) fn contains(bytes: &[u8], text: &[u8]) -> bool {
    find(bytes, text).is_some()
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return Some(0);
    }
    bytes.windows(text.len()).position(|window| window == text)
}
