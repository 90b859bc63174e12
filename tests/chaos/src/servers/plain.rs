//! A connection of the judge to a Redis server: a socket and RESP, without driver and retries.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Opens on demand, and closes at the first failure.
#[derive(Debug)]
pub(crate) struct PlainConnection {
    address: SocketAddr,
    timeout: Duration,
    stream: Option<BufReader<TcpStream>>,
}

impl PlainConnection {
    pub(crate) fn to(address: SocketAddr, timeout: Duration) -> Self {
        Self { address, timeout, stream: None }
    }

    /// Returns the values of the reply in order, with nested arrays flattened. An error of the
    /// server is a value that starts with `-`.
    pub(crate) fn ask(&mut self, words: &str) -> io::Result<Vec<String>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        stream.get_mut().write_all(format!("{words}\r\n").as_bytes())?;
        let mut values = Vec::new();
        read_value(&mut stream, &mut values)?;
        // The connection survives only a whole reply. Otherwise the rest would be read as the next
        // reply.
        self.stream = Some(stream);
        Ok(values)
    }

    /// Returns an empty string if the server does not reply.
    pub(crate) fn first(&mut self, words: &str) -> String {
        self.ask(words).unwrap_or_default().into_iter().next().unwrap_or_default()
    }

    fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.address, self.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(BufReader::new(stream))
    }
}

fn read_value(stream: &mut BufReader<TcpStream>, values: &mut Vec<String>) -> io::Result<()> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let count = |text: &str| text.parse::<i64>().map_err(io::Error::other);
    if let Some(length) = line.strip_prefix('$') {
        let Ok(length) = usize::try_from(count(length)?) else {
            values.push(String::new());
            return Ok(());
        };
        let mut text = vec![0; length + 2];
        stream.read_exact(&mut text)?;
        text.truncate(length);
        values.push(String::from_utf8_lossy(&text).into_owned());
    } else if let Some(items) = line.strip_prefix('*') {
        for _ in 0..count(items)? {
            read_value(stream, values)?;
        }
    } else {
        values.push(line.trim_start_matches(['+', ':']).to_owned());
    }
    Ok(())
}
