//! Requests and events over a plain connection. No client library would send a wrong `Host`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::site::{PATIENT, Site, TOKEN};

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn of(mut stream: TcpStream) -> Self {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }
}

impl Site {
    /// Sends a request with exactly these headers.
    pub(crate) fn request(&self, start: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = self.connect();
        send(&mut stream, &format!("{start} HTTP/1.1"), headers, body);
        Answer::of(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request(&format!("GET {path}"), &[("host", &self.host)], "")
    }

    /// Sends a change with [`TOKEN`], as the page does.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.start_post(path, body))
    }

    /// Sends a change, and does not wait for its answer.
    pub(crate) fn start_post(&self, path: &str, body: &Value) -> TcpStream {
        let origin = format!("http://{}", self.host);
        let headers = [("host", &*self.host), ("origin", &*origin), ("lease-token", TOKEN), JSON];
        let mut stream = self.connect();
        send(&mut stream, &format!("POST {path} HTTP/1.1"), &headers, &body.to_string());
        stream
    }

    /// Opens the events of a view.
    pub(crate) fn events(&self, view: &str) -> Events {
        let mut stream = self.connect();
        // Without chunks, whose sizes would be lines of their own.
        let start = format!("GET /events/{view} HTTP/1.0");
        send(&mut stream, &start, &[("host", &self.host)], "");
        Events { stream: BufReader::new(stream) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(PATIENT)).unwrap();
        stream
    }
}

fn send(stream: &mut TcpStream, start: &str, headers: &[(&str, &str)], body: &str) {
    let lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let lines = lines.concat();
    let length = body.len();
    let text =
        format!("{start}\r\n{lines}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).unwrap();
}

/// Server-sent events.
#[derive(Debug)]
pub(crate) struct Events {
    stream: BufReader<TcpStream>,
}

impl Events {
    /// Waits for the next event `rows`.
    pub(crate) fn rows(&mut self) -> Value {
        // Each read of the store, twice per second, has a few lines.
        for _ in 0..1000 {
            let line = self.line();
            if line == "event: rows" {
                let data = self.line();
                return serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            }
        }
        panic!("no row changes");
    }

    /// Waits until an event has a row with this id.
    pub(crate) fn row(&mut self, id: &str, mut is_wanted: impl FnMut(&Value) -> bool) -> Value {
        for _ in 0..1000 {
            let event = self.rows();
            let mut rows = event["rows"].as_array().unwrap().iter();
            if let Some(row) = rows.find(|row| row[0] == id && is_wanted(&row[2])) {
                return row.clone();
            }
        }
        panic!("{id} does not change as wanted");
    }

    /// Reads the first line of the answer.
    pub(crate) fn status(&mut self) -> u16 {
        self.line().split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.stream.read_line(&mut line).unwrap(), 0, "the events have ended");
        line.trim_end().to_owned()
    }
}

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");
