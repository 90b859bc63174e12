//! One connection between a process and a server, with latency. The connection keeps the order of
//! packets.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Call, Fault, Ledger, NetworkFaults};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::resp::{Bytes, next_command};
use super::scripts::{Script, known_as};
use super::{Mail, Sent, Server, Then};
use crate::redis::shared_random::SharedRandom;

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: u64,
    pub(crate) process: usize,
    pub(crate) faults: NetworkFaults,
    pub(crate) ledger: Ledger,
    pub(crate) random: SharedRandom,
    /// The longest silence before a connection breaks.
    pub(crate) longest_silence: Duration,
    /// Half of the calls of these scripts have the fault, for a random part of its duration.
    pub(crate) mishaps: &'static [(&'static str, Fault)],
}

impl Link {
    fn fault_of(&self, words: &[Bytes]) -> Option<Fault> {
        let name = script_of(words).map(|script| script.name).or_else(|| transaction_of(words));
        match self.mishaps.iter().find(|(script, _)| name == Some(*script)) {
            Some((_, fault)) if self.random.is_even() => Some(match *fault {
                Fault::ApplyLate(longest) => Fault::ApplyLate(self.random.part_of(longest)),
                Fault::DelayRequest(longest) => Fault::DelayRequest(self.random.part_of(longest)),
                other => other,
            }),
            _ => self.faults.next_fault(call_of(words)?),
        }
    }
}

/// Carries commands and replies until either side or a fault ends the connection.
///
/// Runs on the network's runtime, so that sent commands arrive even if their sender has ended.
pub(crate) async fn carry(stream: DuplexStream, server: Arc<Server>, link: Link) {
    let (client, sent) = mpsc::unbounded_channel();
    if !server.accept(link.connection, link.process, client) {
        // The return drops the stream, so the client sees a closed connection.
        return sleep(link.random.latency() * 2).await;
    }
    let connection = link.connection;
    let wire = Wire {
        stream,
        server: Arc::clone(&server),
        sent,
        link,
        read: Bytes::new(),
        leaving: VecDeque::new(),
        last_arrival: Duration::ZERO,
        last_leaving: Duration::ZERO,
        cut_off: false,
        hears: true,
        answers: true,
        breaks_at: None,
    };
    wire.carry().await;
    server.leave(connection);
}

struct Wire {
    stream: DuplexStream,
    server: Arc<Server>,
    sent: mpsc::UnboundedReceiver<Sent>,
    link: Link,
    read: Bytes,
    leaving: VecDeque<(Duration, Bytes)>,
    last_arrival: Duration,
    last_leaving: Duration,
    cut_off: bool,
    hears: bool,
    answers: bool,
    breaks_at: Option<Duration>,
}

struct Broken;

impl Wire {
    async fn carry(mut self) {
        loop {
            let now = self.link.ledger.now();
            let leaving = self.leaving.front().filter(|_| !self.cut_off).map(|(at, _)| *at);
            let result = select! {
                // Polls messages first: a cut-off or a close takes effect before the next packet
                // leaves.
                biased;
                Some(sent) = self.sent.recv() => self.receive(sent),
                () = until(self.breaks_at, now) => Err(Broken),
                () = until(leaving, now) => {
                    let (_, bytes) = self.leaving.pop_front().unwrap();
                    self.stream.write_all(&bytes).await.map_err(|_| Broken)
                }
                read = self.stream.read_buf(&mut self.read) => match read {
                    Ok(0) | Err(_) => Err(Broken),
                    Ok(_) => self.send_all(),
                },
            };
            if result.is_err() {
                return;
            }
        }
    }

    fn receive(&mut self, sent: Sent) -> Result<(), Broken> {
        match sent {
            Sent::Reply(reply, Then::Answer) | Sent::Push(reply) => {
                self.answer(reply, Duration::ZERO);
            }
            Sent::Reply(reply, Then::AnswerAfter(late)) => self.answer(reply, late),
            Sent::Reply(_, Then::Break) | Sent::Closed => return Err(Broken),
            Sent::Reply(_, Then::FallSilent) => self.fall_silent(),
            Sent::CutOff => self.cut_off = true,
            Sent::Reached => self.cut_off = false,
        }
        Ok(())
    }

    fn send_all(&mut self) -> Result<(), Broken> {
        while let Some(words) = next_command(&mut self.read) {
            self.send(words)?;
        }
        Ok(())
    }

    fn send(&mut self, words: Vec<Bytes>) -> Result<(), Broken> {
        if !self.hears {
            return Ok(());
        }
        let fault = self.link.fault_of(&words);
        let (late, then) = match fault {
            Some(Fault::Fail) => return Err(Broken),
            Some(Fault::Hang) => {
                self.hears = false;
                self.fall_silent();
                return Ok(());
            }
            Some(Fault::LoseReply) => (Duration::ZERO, Then::Break),
            Some(Fault::HangReply) => (Duration::ZERO, Then::FallSilent),
            Some(Fault::DelayRequest(late) | Fault::ApplyLate(late)) => (late, Then::Answer),
            Some(Fault::DelayReply(late)) => (Duration::ZERO, Then::AnswerAfter(late)),
            // A connection duplicates no command. Duplicates come from retries of the client.
            _ => (Duration::ZERO, Then::Answer),
        };
        let at = self.link.ledger.now() + self.link.random.latency() + late;
        self.last_arrival = self.last_arrival.max(at);
        let (connection, process) = (self.link.connection, self.link.process);
        self.server.post(self.last_arrival, connection, Mail { process, words, then });
        match fault {
            Some(Fault::ApplyLate(_)) => Err(Broken),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, reply: Bytes, late: Duration) {
        if !self.answers {
            return;
        }
        let at = self.link.ledger.now() + self.link.random.latency() + late;
        self.last_leaving = self.last_leaving.max(at);
        self.leaving.push_back((self.last_leaving, reply));
    }

    fn fall_silent(&mut self) {
        self.answers = false;
        self.leaving.clear();
        let breaks_at =
            self.link.ledger.now() + self.link.random.part_of(self.link.longest_silence);
        self.breaks_at.get_or_insert(breaks_at);
    }
}

async fn until(at: Option<Duration>, now: Duration) {
    match at {
        Some(at) => sleep(at.saturating_sub(now)).await,
        None => pending().await,
    }
}

fn call_of(words: &[Bytes]) -> Option<Call> {
    if words[0] == b"SUBSCRIBE" {
        return Some(Call::Read);
    }
    if transaction_of(words).is_some() {
        return Some(Call::Obtain);
    }
    Some(script_of(words)?.call)
}

/// The last command of a transaction has the faults of the whole transaction.
fn transaction_of(words: &[Bytes]) -> Option<&'static str> {
    (words[0] == b"EXEC").then_some("claims")
}

fn script_of(words: &[Bytes]) -> Option<&'static Script> {
    match (words[0].as_slice(), words) {
        (b"EVALSHA" | b"EVAL", [_, script, ..]) => known_as(script),
        _ => None,
    }
}
