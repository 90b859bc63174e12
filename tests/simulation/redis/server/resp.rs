//! The protocol of a connection: commands to the server, replies to the client.

pub(crate) type Bytes = Vec<u8>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(&'static str),
    Error(String),
    Number(i64),
    Bulk(Bytes),
    Nil,
    Array(Vec<Self>),
}

impl Reply {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Bulk(text.into().into_bytes())
    }

    pub(crate) fn texts(texts: &[&str]) -> Self {
        Self::Array(texts.iter().map(|text| Self::text(*text)).collect())
    }

    pub(crate) fn word(&self, place: usize) -> Option<&str> {
        let Self::Array(items) = self else { return None };
        items.get(place)?.as_text()
    }

    /// The number at `place` of an array, also if the number is text.
    pub(crate) fn number(&self, place: usize) -> Option<u64> {
        let Self::Array(items) = self else { return None };
        match items.get(place)? {
            Self::Number(number) => u64::try_from(*number).ok(),
            other => other.as_text()?.parse().ok(),
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        let Self::Bulk(bytes) = self else { return None };
        std::str::from_utf8(bytes).ok()
    }

    pub(crate) fn write(&self, out: &mut Bytes) {
        let line = |out: &mut Bytes, kind: char, rest: &str| {
            out.extend_from_slice(format!("{kind}{rest}\r\n").as_bytes());
        };
        match self {
            Self::Status(text) => line(out, '+', text),
            Self::Error(text) => line(out, '-', text),
            Self::Number(number) => line(out, ':', &number.to_string()),
            Self::Nil => line(out, '$', "-1"),
            Self::Bulk(bytes) => {
                line(out, '$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Array(items) => {
                line(out, '*', &items.len().to_string());
                for item in items {
                    item.write(out);
                }
            }
        }
    }
}

/// Removes the next complete command, an array of strings, from the bytes read so far.
pub(crate) fn next_command(read: &mut Bytes) -> Option<Vec<Bytes>> {
    let (count, mut at) = number_after(read, 0, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, start) = number_after(read, at, b'$')?;
        words.push(read.get(start..start + length)?.to_vec());
        at = start + length + 2;
    }
    if at > read.len() {
        return None;
    }
    read.drain(..at);
    Some(words)
}

fn number_after(read: &[u8], start: usize, kind: u8) -> Option<(usize, usize)> {
    let line = read.get(start..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(line[0], kind, "no command: {}", String::from_utf8_lossy(line));
    let number = std::str::from_utf8(&line[1..end]).unwrap().parse().unwrap();
    Some((number, start + end + 2))
}
