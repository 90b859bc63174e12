//! A worker's side of the pipes: what it says, and what it is told.

use std::collections::HashMap;
use std::io::{Write, stdout};
use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::HandOver;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::{mpsc, oneshot};

use crate::saying::Saying;
use crate::stamp::Stamp;

/// Where a worker speaks to what it works on. A line in the pipe is on its way: it arrives also
/// if its sender is killed.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    last: u64,
    open: HashMap<u64, oneshot::Sender<Option<u64>>>,
}

/// What is handed over to this worker: for which counter, and what.
pub(crate) type Offers = mpsc::UnboundedReceiver<(usize, HandOver)>;

impl Desk {
    /// Opens it on the standard streams. Without an input to listen to, the process ends.
    pub(crate) fn open() -> (Arc<Self>, Offers) {
        let desk = Arc::new(Self::default());
        let (offer, offers) = mpsc::unbounded_channel();
        let listening = Arc::clone(&desk);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdin()).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(offered) = listening.hear(&line) {
                    drop(offer.send(offered));
                }
            }
            exit(0);
        });
        (desk, offers)
    }

    #[expect(clippy::unused_self, reason = "the standard output is this desk's")]
    pub(crate) fn say(&self, saying: &Saying) {
        // One line is one write, so that whoever is killed has said all of it or nothing.
        if stdout().lock().write_all(format!("{saying}\n").as_bytes()).is_err() {
            exit(0);
        }
    }

    /// The first write under a token: from here on the gate refuses all former ones, so that the
    /// value which it answers stays true.
    pub(crate) async fn open_counter(&self, counter: usize, token: u64) -> Option<u64> {
        self.ask(|request| Saying::Open { request, counter, token }).await
    }

    /// Counts on from `read`; answers the new value, or `None` where the token is refused.
    pub(crate) async fn write(&self, counter: usize, token: u64, read: u64) -> Option<u64> {
        self.write_late(counter, token, read, Stamp::now()).await
    }

    /// As [`write`](Self::write), of what was meant to be sent earlier.
    pub(crate) async fn write_late(
        &self,
        counter: usize,
        token: u64,
        read: u64,
        sent: Stamp,
    ) -> Option<u64> {
        self.ask(|request| Saying::Write { request, counter, token, read, sent }).await
    }

    async fn ask(&self, saying: impl FnOnce(u64) -> Saying) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        let request = {
            let mut requests = self.requests();
            requests.last += 1;
            let request = requests.last;
            requests.open.insert(request, reply);
            request
        };
        self.say(&saying(request));
        answer.await.ok().flatten()
    }

    fn hear(&self, line: &str) -> Option<(usize, HandOver)> {
        let (verb, rest) = line.split_once(' ')?;
        let (number, rest) = rest.split_once(' ')?;
        match verb {
            "answer" => {
                let reply = self.requests().open.remove(&number.parse().ok()?)?;
                // Whoever asked may have gone on.
                let _ = reply.send(rest.parse().ok());
                None
            }
            "resume" => Some((number.parse().ok()?, rest.parse().ok()?)),
            _ => None,
        }
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
