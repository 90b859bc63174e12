//! Observes one server, and records grants in the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use lease_core::conformance::Ledger;

use super::grant_recorder::grant;
use super::{Ran, Recorder, Transaction, key_of};
use crate::redis::server::node::Holding;
use crate::redis::server::resp::Reply;

/// Records each grant when the server makes the grant, before the client receives the answer.
///
/// The answer to a repeated claim offers another token, which counts from the first heartbeat under
/// this token. Until then, the client may still use its earlier token.
#[derive(Debug)]
pub(crate) struct LockRecorder {
    ledger: Ledger,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    beats: BTreeMap<(String, String), u64>,
    /// For each key, the number of the server's execution that made the grant, and the token.
    granted: BTreeMap<String, Vec<(u64, u64)>>,
    /// The token of the last grant of each key, unless a promoted replica may lack it.
    latest: BTreeMap<String, u64>,
    /// The tokens that answers to repeated claims offered, by nonce.
    offered: BTreeSet<(String, u64)>,
    released: BTreeMap<String, String>,
}

impl LockRecorder {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { ledger, book: Mutex::default() }
    }

    fn granted(&self, key: &str, nonce: &str, lessee: &str, token: u64) {
        self.ledger.granted(&grant(key, nonce, &lessee.parse().unwrap(), token));
    }

    /// Tokens grow in the order of the grants, which depends on no clock.
    fn check_order(&self, key: &str, at: u64, token: u64) {
        let mut book = self.book.lock().unwrap();
        let grants = book.granted.entry(key.to_owned()).or_default();
        if let Some((_, other)) =
            grants.iter().find(|(other_at, other)| (*other_at < at) != (*other < token))
        {
            self.ledger.violated(format!(
                "tokens do not grow in the order of the grants of {key}: {token} and {other}"
            ));
        }
        grants.push((at, token));
        book.latest.insert(key.to_owned(), token);
    }

    fn claimed(&self, ran: &Ran<'_>, first: usize) {
        let is_new = ran.reply.word(0) == Some("granted");
        if !is_new && ran.reply.word(0) != Some("again") {
            return;
        }
        let (nonce, lessee) = (ran.argument(first), ran.argument(first + 2));
        let (key, token) = (key_of(&ran.keys[0]), ran.reply.number(1).unwrap());
        if is_new {
            self.check_claim(&key, nonce);
            self.check_order(&key, ran.at, token);
            self.granted(&key, nonce, lessee, token);
        } else {
            self.book.lock().unwrap().offered.insert((nonce.to_owned(), token));
        }
    }

    /// A record does not grant the last released claim again. A lock does not store its releases.
    fn check_claim(&self, key: &str, nonce: &str) {
        let released = self.book.lock().unwrap().released.remove(key);
        if released.as_deref() == Some(nonce) {
            self.ledger.violated(format!(
                "a released claim was granted again: {key} was granted to {nonce}"
            ));
        }
    }

    fn released(&self, ran: &Ran<'_>) {
        for (place, key) in ran.keys.iter().enumerate() {
            let before = &ran.before[place];
            let is_record = before.as_ref().is_some_and(|held| held.is_record);
            if ran.reply.number(place) == Some(1) && is_record {
                let nonce = ran.argument(2 + place)[..32].to_owned();
                self.book.lock().unwrap().released.insert(key_of(key), nonce);
            }
        }
    }

    /// Checks that a late heartbeat neither shortens a lease nor extends a later grant.
    fn check_beats(&self, ran: &Ran<'_>) {
        let mut book = self.book.lock().unwrap();
        for place in 0..ran.keys.len() {
            if ran.reply.number(place) != Some(1) {
                continue;
            }
            let argument = |number: usize| ran.argument(2 + 5 * place + number);
            let (nonce, beat) = (argument(0), argument(2).parse().unwrap());
            let tenure = (nonce.to_owned(), argument(1).to_owned());
            let last = book.beats.entry(tenure).or_insert(beat);
            let ends = |held: &Option<Holding>| held.as_ref().map(|held| held.ends);
            if beat < *last && ends(&ran.after[place]) < ends(&ran.before[place]) {
                self.ledger.violated(format!(
                    "a late heartbeat shortened a lease: the server executed number {beat} of {nonce} \
                     after number {last}"
                ));
            }
            *last = beat.max(*last);
            let token: u64 = argument(4).parse().unwrap();
            let key = key_of(&ran.keys[place]);
            if let Some(later) = book.latest.get(&key).filter(|later| **later > token) {
                self.ledger.violated(format!(
                    "a heartbeat under token {token} of {key} extended the grant of token {later}"
                ));
            }
            if let Some(held) = &ran.after[place]
                && book.offered.remove(&(nonce.to_owned(), token))
            {
                self.granted(&key, nonce, &held.lessee, token);
            }
        }
    }

    /// A script publishes each grant that it does not answer.
    fn granted_in_turn(&self, ran: &Ran<'_>) {
        for (_channel, message) in ran.published {
            let mut parts = std::str::from_utf8(message).unwrap().splitn(4, ' ');
            let (Some(nonce), Some(_), Some(token), Some(lease)) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let place = ran.keys.iter().position(|key| key == lease.as_bytes()).unwrap();
            let held = ran.after[place].as_ref().filter(|held| held.nonce == nonce);
            if let Some(held) = held {
                let (key, token) = (key_of(&ran.keys[place]), token.parse().unwrap());
                self.check_order(&key, ran.at, token);
                self.granted(&key, nonce, &held.lessee, token);
            }
        }
    }

    fn enqueued(&self, ran: &Ran<'_>) {
        let before = ran.before[0].as_ref();
        if ran.reply.word(0) != Some("granted") {
            return;
        }
        let (nonce, lessee) = (ran.argument(0), ran.argument(2));
        let (key, token) = (key_of(&ran.keys[0]), ran.reply.number(1).unwrap());
        if before.is_none_or(|held| held.nonce != nonce) {
            self.check_order(&key, ran.at, token);
            self.granted(&key, nonce, lessee, token);
        } else {
            self.book.lock().unwrap().offered.insert((nonce.to_owned(), token));
        }
    }

    fn written(&self, ran: &Ran<'_>) {
        if !ran.is_applied() {
            return;
        }
        let Some(held) = &ran.before[0] else { return };
        let (nonce, token) = (ran.argument(0), ran.argument(2).parse().unwrap());
        let key = key_of(&ran.keys[0]);
        self.ledger.written(&grant(&key, nonce, &held.lessee.parse().unwrap(), token));
    }
}

impl Recorder for LockRecorder {
    fn record(&self, ran: &Ran<'_>) {
        self.granted_in_turn(ran);
        match ran.script {
            "obtain" | "obtain_under" => self.claimed(ran, 0),
            "adopt" => self.claimed(ran, 3),
            "enqueue" => self.enqueued(ran),
            "heartbeat" => self.check_beats(ran),
            "release" => self.released(ran),
            "update" | "transfer" | "delete" => self.written(ran),
            _ => (),
        }
    }

    /// The grants of a batch share one token.
    fn record_transaction(&self, executed: &Transaction<'_>) {
        // If the transaction has returned no token, the client releases the grants.
        let Some(Reply::Bulk(id)) = executed.replies.last() else { return };
        let (millis, number) = std::str::from_utf8(id).unwrap().split_once('-').unwrap();
        let (millis, number): (u64, u64) = (millis.parse().unwrap(), number.parse().unwrap());
        assert!(number < 1000, "number out of range: the client takes another token");
        let commands = executed.commands.iter().zip(executed.replies).zip(executed.at);
        for ((command, reply), at) in commands {
            if command[0] != b"SET" {
                continue;
            }
            let text = Holding::of_text(std::str::from_utf8(&command[2]).unwrap(), 0).unwrap();
            let token = millis * 1000 + number;
            if *reply == Reply::Nil {
                self.check_order(&key_of(&command[1]), *at, token);
                self.granted(&key_of(&command[1]), &text.nonce, &text.lessee, token);
            } else if reply.as_text().is_some_and(|held| held[..33] == text.nonce_and_state()) {
                self.book.lock().unwrap().offered.insert((text.nonce, token));
            }
        }
    }

    fn forget(&self, _place: usize) {
        *self.book.lock().unwrap() = Book::default();
    }

    /// Keeps the order of the grants, which the replica's clock continues. Keeps the offered
    /// tokens, since clients may still receive them.
    fn promote(&self, _place: usize) {
        let mut book = self.book.lock().unwrap();
        let Book { granted, offered, .. } = std::mem::take(&mut *book);
        *book = Book { granted, offered, ..Book::default() };
    }
}
