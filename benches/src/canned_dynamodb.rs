//! Answers each DynamoDB request at once with a canned reply, so that a measurement contains no
//! work of a database.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, thread};

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use lease_core::store::micros_since_1970;

#[derive(Clone, Copy)]
pub(crate) struct Received {
    pub(crate) requests: u64,
    /// The bytes include HTTP headers.
    pub(crate) bytes: u64,
}

impl Received {
    pub(crate) fn parse(line: &str) -> Self {
        let (requests, bytes) = line.split_once(' ').unwrap();
        Self { requests: requests.parse().unwrap(), bytes: bytes.parse().unwrap() }
    }
}

/// Serves until standard input ends. Prints the address first. Then answers each input line with
/// the numbers of requests and bytes that were [received](Received).
pub(crate) fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // An error ends the connection.
            thread::spawn(move || drop(answer_all(stream)));
        }
    });
    for line in io::stdin().lines() {
        line?;
        println!("{} {}", REQUESTS.load(Ordering::SeqCst), BYTES.load(Ordering::SeqCst));
    }
    Ok(())
}

fn answer_all(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    let mut part = vec![0; 65_536];
    loop {
        while let Some(length) = length_of_request(&read) {
            let request: Vec<_> = read.drain(..length).collect();
            REQUESTS.fetch_add(1, Ordering::SeqCst);
            BYTES.fetch_add(u64::try_from(length).unwrap(), Ordering::SeqCst);
            stream.write_all(reply_to(&String::from_utf8_lossy(&request)).as_bytes())?;
        }
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Ok(());
        }
        read.extend_from_slice(&part[..count]);
    }
}

fn length_of_request(read: &[u8]) -> Option<usize> {
    let head = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&read[..head]);
    let length: usize = header(&text, "content-length").map_or(0, |it| it.parse().unwrap());
    (read.len() >= head + length).then_some(head + length)
}

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

fn reply_to(request: &str) -> String {
    let (_, operation) = header(request, "x-amz-target").unwrap().split_once('.').unwrap();
    let body = match operation {
        "UpdateItem" if request.contains("ALL_NEW") => LEASE,
        "DescribeTable" => TABLE,
        "DescribeTimeToLive" => TTL,
        // A write that returns no item, or a read of an absent item.
        _ => "{}",
    };
    let seconds = i64::try_from(micros_since_1970() / 1_000_000).unwrap();
    let date = DateTime::from_secs(seconds).fmt(DateTimeFormat::HttpDate).unwrap();
    format!(
        "HTTP/1.1 200 OK\r\nServer: Server\r\nDate: {date}\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\
         Connection: keep-alive\r\n\
         x-amzn-RequestId: 0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ABCDEF\r\n\r\n{body}",
        body.len()
    )
}

static REQUESTS: AtomicU64 = AtomicU64::new(0);

static BYTES: AtomicU64 = AtomicU64::new(0);

/// An item of this library's table, as after a grant.
const LEASE: &str = r#"{"Attributes":{"lease_key":{"S":"key-0"},"lessee":{"S":"bench"},"nonce":{"S":"0123456789abcdef0123456789abcdef"},"token":{"N":"1800000000000001"},"beat":{"N":"0"},"ttl_ms":{"N":"10000"},"expires_at":{"N":"4102444800000"},"purge_at":{"N":"4102444800"}}}"#;

/// The crate `dynamodb-lease` checks this description.
const TABLE: &str = r#"{"Table":{"TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"key","KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":"key","AttributeType":"S"}]}}"#;

const TTL: &str =
    r#"{"TimeToLiveDescription":{"AttributeName":"lease_expiry","TimeToLiveStatus":"ENABLED"}}"#;
