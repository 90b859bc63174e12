//! One connection between a process and a server: packets take time, and their order is kept.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Call, Fault, Ledger, NetworkFaults};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::chance::Chance;
use super::resp::{Bytes, next_command};
use super::scripts::{Script, known_as};
use super::server::{Mail, Sent, Server, Then};

/// From where, and through what faults.
#[derive(Debug)]
pub(crate) struct Way {
    /// Counted over all connections of a trial.
    pub(crate) connection: u64,
    /// Which process, counted by their starts.
    pub(crate) process: usize,
    pub(crate) faults: NetworkFaults,
    pub(crate) ledger: Ledger,
    /// Of this connection alone: what others draw, and when, makes no difference.
    pub(crate) chance: Chance,
    /// For how long a connection is silent at most before it breaks.
    pub(crate) longest_silence: Duration,
    /// Scripts of which every other meets a fault, whatever the faults, for up to so long.
    pub(crate) mishaps: &'static [(&'static str, Fault)],
}

impl Way {
    /// What befalls a command.
    fn befalls(&self, words: &[Bytes]) -> Option<Fault> {
        let name = script_of(words).map(|script| script.name);
        match self.mishaps.iter().find(|(script, _)| name == Some(*script)) {
            Some((_, fault)) if self.chance.is_even() => Some(match *fault {
                Fault::ApplyLate(longest) => Fault::ApplyLate(self.chance.part_of(longest)),
                Fault::DelayRequest(longest) => Fault::DelayRequest(self.chance.part_of(longest)),
                other => other,
            }),
            _ => self.faults.next_fault(call_of(words)?),
        }
    }
}

/// Carries what is said over `stream`, until either side ends it or the faults does. Runs where
/// the network lives. What is on its way then arrives, although nobody waits for the answer.
pub(crate) async fn carry(stream: DuplexStream, server: Arc<Server>, way: Way) {
    let (client, sent) = mpsc::unbounded_channel();
    if !server.accept(way.connection, way.process, client) {
        // The stream is dropped.
        return sleep(way.chance.latency() * 2).await;
    }
    let connection = way.connection;
    let wire = Wire {
        stream,
        server: Arc::clone(&server),
        sent,
        way,
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
    way: Way,
    read: Bytes,
    leaving: VecDeque<(Duration, Bytes)>,
    last_arrival: Duration,
    last_leaving: Duration,
    cut_off: bool,
    hears: bool,
    answers: bool,
    breaks_at: Option<Duration>,
}

/// The connection is no more.
struct Broken;

impl Wire {
    async fn carry(mut self) {
        loop {
            let now = self.way.ledger.now();
            let leaving = self.leaving.front().filter(|_| !self.cut_off).map(|(at, _)| *at);
            let go_on = select! {
                // What the server says comes first, then what is oldest.
                biased;
                Some(sent) = self.sent.recv() => self.hear(sent),
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
            if go_on.is_err() {
                return;
            }
        }
    }

    fn hear(&mut self, sent: Sent) -> Result<(), Broken> {
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

    /// Sends a command on its way, through the faults.
    fn send(&mut self, words: Vec<Bytes>) -> Result<(), Broken> {
        if !self.hears {
            return Ok(());
        }
        let fault = self.way.befalls(&words);
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
            // Nothing is doubled on a connection but by its client, who asks again.
            _ => (Duration::ZERO, Then::Answer),
        };
        let at = self.way.ledger.now() + self.way.chance.latency() + late;
        self.last_arrival = self.last_arrival.max(at);
        let (connection, process) = (self.way.connection, self.way.process);
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
        let at = self.way.ledger.now() + self.way.chance.latency() + late;
        self.last_leaving = self.last_leaving.max(at);
        self.leaving.push_back((self.last_leaving, reply));
    }

    fn fall_silent(&mut self) {
        self.answers = false;
        self.leaving.clear();
        let breaks_at = self.way.ledger.now() + self.way.chance.part_of(self.way.longest_silence);
        self.breaks_at.get_or_insert(breaks_at);
    }
}

async fn until(at: Option<Duration>, now: Duration) {
    match at {
        Some(at) => sleep(at.saturating_sub(now)).await,
        None => pending().await,
    }
}

/// What the faults takes a command for; nothing, where a connection is only set up.
fn call_of(words: &[Bytes]) -> Option<Call> {
    if words[0] == b"SUBSCRIBE" {
        return Some(Call::Read);
    }
    Some(script_of(words)?.call)
}

fn script_of(words: &[Bytes]) -> Option<&'static Script> {
    match (words[0].as_slice(), words) {
        (b"EVALSHA" | b"EVAL", [_, script, ..]) => known_as(script),
        _ => None,
    }
}
