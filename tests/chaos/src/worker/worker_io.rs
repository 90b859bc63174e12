//! A worker's side of the pipes: it sends messages and receives answers.

use std::collections::HashMap;
use std::io::{Write, stdout};
use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard};

use lease_core::HandOver;
use lease_test_servers::sync::lock;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::{mpsc, oneshot};

use crate::monotonic::Monotonic;
use crate::worker::message::Message;

/// A line in the pipe arrives even if the worker is killed.
#[derive(Debug, Default)]
pub(crate) struct WorkerIo {
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    last: u64,
    open: HashMap<u64, oneshot::Sender<Option<u64>>>,
}

pub(crate) type Offers = mpsc::UnboundedReceiver<(usize, HandOver)>;

impl WorkerIo {
    /// The process exits when its standard input ends.
    pub(crate) fn open() -> (Arc<Self>, Offers) {
        let io = Arc::new(Self::default());
        let (offer, offers) = mpsc::unbounded_channel();
        let listening = Arc::clone(&io);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdin()).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(offered) = listening.receive(&line) {
                    drop(offer.send(offered));
                }
            }
            exit(0);
        });
        (io, offers)
    }

    #[expect(clippy::unused_self, reason = "the standard output belongs to it")]
    pub(crate) fn send(&self, message: &Message) {
        // One write per line, so that a killed process has sent the whole line or nothing.
        if stdout().lock().write_all(format!("{message}\n").as_bytes()).is_err() {
            exit(0);
        }
    }

    /// Afterwards the gate refuses all smaller tokens, so the returned value stays correct.
    pub(crate) async fn open_counter(&self, counter: usize, token: u64) -> Option<u64> {
        self.ask(|request| Message::Open { request, counter, token }).await
    }

    /// Writes `read` plus one. Returns the new value, or `None` if the gate refuses the token.
    pub(crate) async fn write(&self, counter: usize, token: u64, read: u64) -> Option<u64> {
        self.write_late(counter, token, read, Monotonic::now()).await
    }

    /// Writes like [`write`](Self::write), but the write was due at `sent`.
    pub(crate) async fn write_late(
        &self,
        counter: usize,
        token: u64,
        read: u64,
        sent: Monotonic,
    ) -> Option<u64> {
        self.ask(|request| Message::Write { request, counter, token, read, sent }).await
    }

    async fn ask(&self, message: impl FnOnce(u64) -> Message) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        let request = {
            let mut requests = self.requests();
            requests.last += 1;
            let request = requests.last;
            requests.open.insert(request, reply);
            request
        };
        self.send(&message(request));
        answer.await.ok().flatten()
    }

    fn receive(&self, line: &str) -> Option<(usize, HandOver)> {
        let (verb, rest) = line.split_once(' ')?;
        let (number, rest) = rest.split_once(' ')?;
        match verb {
            "answer" => {
                let reply = self.requests().open.remove(&number.parse().ok()?)?;
                // The caller may have stopped waiting.
                let _ = reply.send(rest.parse().ok());
                None
            }
            "resume" => Some((number.parse().ok()?, rest.parse().ok()?)),
            _ => None,
        }
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        lock(&self.requests)
    }
}
