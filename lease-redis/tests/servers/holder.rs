//! A child process that holds the key, for tests that pause and kill it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use lease_core::FencingToken;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::setting::{key, locker, one_at, quorum_at};

pub(crate) const SHORT: Duration = Duration::from_secs(2);

pub(crate) struct Holder {
    pub(crate) token: FencingToken,
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    pub(crate) async fn start(urls: &[String], environment: &[(&str, PathBuf)]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "holder::holds_the_key", "--ignored", "--nocapture"])
            .env(URLS, urls.join(","))
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut holder = Self { token: FencingToken::MAX, process, lines };
        let obtained = holder.line("obtained under token ").await;
        let token = obtained.rsplit(' ').next().unwrap().parse().unwrap();
        holder.token = FencingToken::new(token).unwrap();
        holder
    }

    pub(crate) async fn line(&mut self, word: &str) -> String {
        let wait = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.starts_with(word) {
                    return line;
                }
            }
            panic!("the process ended without the line {word}");
        };
        timeout(Duration::from_secs(120), wait).await.unwrap()
    }

    pub(crate) async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_millis(1), self.lines.next_line()).await.is_err()
    }

    pub(crate) async fn pause(&self) {
        self.signal("-STOP").await;
    }

    pub(crate) async fn go_on(&self) {
        self.signal("-CONT").await;
    }

    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    async fn signal(&self, signal: &str) {
        let process = self.process.id().unwrap().to_string();
        let sent = Command::new("kill").args([signal, &process]).status().await;
        assert!(sent.unwrap().success());
    }
}

#[ignore = "the child process of other tests"]
#[tokio::test]
async fn holds_the_key() {
    let Ok(urls) = std::env::var(URLS) else { return };
    let urls: Vec<_> = urls.split(',').map(str::to_owned).collect();
    let locker = if let [url] = &urls[..] {
        locker(one_at(url.clone()).await, SHORT)
    } else {
        locker(quorum_at(urls).await, SHORT)
    };

    let lease = locker.wait_until_obtained(&key()).await.unwrap();

    // The test harness has already begun a line.
    println!("\nobtained under token {}", lease.token());
    println!("lost: {}", lease.lost().await);
}

const URLS: &str = "LEASE_TEST_HOLDER_OF";
