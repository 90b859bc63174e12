//! A real Prometheus server that scrapes one target.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::port::free_port;
use crate::tools::process::Process;
use crate::tools::tool;

/// The server's files are removed when it is dropped.
#[derive(Debug)]
pub struct PrometheusServer {
    process: Process,
    folder: PathBuf,
    address: SocketAddr,
}

impl PrometheusServer {
    /// Starts a server that scrapes `target` every second. Returns `None` if Prometheus is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub async fn scraping(target: SocketAddr) -> Option<Self> {
        Self::start(target, None).await
    }

    /// Starts a server as [`scraping`](Self::scraping) does, which also evaluates the file `rules` every second.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start, for example because it cannot load the rules.
    pub async fn scraping_with_rules(target: SocketAddr, rules: &Path) -> Option<Self> {
        Self::start(target, Some(rules)).await
    }

    async fn start(target: SocketAddr, rules: Option<&Path>) -> Option<Self> {
        let program = tool("prometheus", &[])?;
        let port = free_port();
        let name = format!("prometheus-{}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a folder for the server");
        let rules = rules.map(|file| file.canonicalize().expect("the file of the rules"));
        let settings = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: {:?}\n\
             scrape_configs: [{{ job_name: test, static_configs: [{{ targets: ['{target}'] }}] }}]\n",
            rules.as_slice()
        );
        std::fs::write(folder.join("settings.yml"), settings).expect("the settings of the server");
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", folder.join("settings.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::listening(command, port).await;
        let mut server = Self { process, folder, address: ([127, 0, 0, 1], port).into() };
        // It listens before it loads its rules, and before it can answer.
        let ready = async {
            while server.answer("1").await.is_none() {
                assert!(!server.process.has_ended(), "the server has ended: are the rules valid?");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(5), ready).await.expect("the server is ready");
        Some(server)
    }

    /// Returns the values of an expression, one for each time series. Empty if there are none.
    ///
    /// # Panics
    ///
    /// Panics if the server does not answer, or cannot evaluate the expression.
    pub async fn query(&self, expression: &str) -> Vec<f64> {
        let json = self.answer(expression).await.expect("the server evaluates the expression");
        let series = json.pointer("/data/result").and_then(Value::as_array).expect("a vector");
        series.iter().filter_map(|one| one.pointer("/value/1")?.as_str()?.parse().ok()).collect()
    }

    /// Returns `None` if the server is not ready, or reports an error.
    async fn answer(&self, expression: &str) -> Option<Value> {
        let body = format!("query={}", encoded(expression));
        let request = format!(
            "POST /api/v1/query HTTP/1.0\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (_, json) = answer.split_once("\r\n\r\n")?;
        let json: Value = serde_json::from_str(json).ok()?;
        (json.get("status") == Some(&Value::from("success"))).then_some(json)
    }

    /// Waits until a query returns values that are `right`.
    ///
    /// # Panics
    ///
    /// Panics if this takes more than a minute. The message has the last values.
    pub async fn wait_for(&self, expression: &str, right: impl Fn(&[f64]) -> bool + Send + Sync) {
        let mut last = Vec::new();
        let waiting = async {
            loop {
                last = self.query(expression).await;
                if right(&last) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(1), waiting).await;
        assert!(waited.is_ok(), "{expression} is {last:?}");
    }
}

impl Drop for PrometheusServer {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Encodes a value of a form: everything but letters and digits.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
