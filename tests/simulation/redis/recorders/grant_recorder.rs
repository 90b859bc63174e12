//! Observes every script on every node of a quorum, and records grants in the ledger.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use lease_core::conformance::Ledger;
use lease_core::store::{Claim, Grant, Nonce};
use lease_core::{FencingToken, LeaseKey, Lessee};

use super::{Ran, Recorder, Transaction, key_of};
use crate::redis::server::node::Holding;
use crate::redis::server::resp::Reply;

/// Counts the votes of all nodes, and records a grant once a majority has accepted one proposal.
///
/// A vote counts for its ttl by the simulated time, unless withdrawn. A client may rely on the vote
/// for this time, even if the node forgets the vote sooner. Only the last proposal of a claim
/// counts, since its client ignores votes for earlier proposals.
#[derive(Debug)]
pub(crate) struct GrantRecorder {
    majority: usize,
    ledger: Ledger,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    proposals: BTreeMap<Name, Proposal>,
    /// The last beat by node, key and token.
    beats: BTreeMap<(usize, String, u64), u64>,
    /// The proposals that were not granted, according to their client, by nonce.
    ungranted: BTreeMap<String, (u64, u64)>,
    /// The proposals and releases that each node has executed, by node and key.
    nodes: BTreeMap<(usize, String), NodePage>,
}

type Name = (String, String);

#[derive(Debug, Default)]
struct Proposal {
    token: u64,
    /// The time until which each node's vote counts.
    votes: BTreeMap<usize, Duration>,
}

#[derive(Debug, Default)]
struct NodePage {
    accepted: Vec<(String, u64)>,
    released: Vec<(String, u64)>,
}

struct Asked<'a> {
    key: &'a str,
    text: &'a str,
    token: u64,
    ttl: Duration,
    /// The claim's proposals from this one on were not granted, according to its client.
    ungranted: Option<u64>,
}

impl Book {
    fn is_ungranted(&self, nonce: &str, token: u64) -> bool {
        let least_and_next = self.ungranted.get(nonce);
        least_and_next.is_some_and(|(least, next)| (*least..*next).contains(&token))
    }
}

impl GrantRecorder {
    pub(crate) fn new(majority: usize, ledger: Ledger) -> Self {
        Self { majority, ledger, book: Mutex::default() }
    }
}

impl Recorder for GrantRecorder {
    fn record(&self, ran: &Ran<'_>) {
        self.check_errors(ran);
        let key = ran.keys.first().map(|lock| key_of(lock)).unwrap_or_default();
        let argument = |place| ran.argument(place);
        let done = *ran.reply == Reply::Number(1);
        match ran.script {
            "quorum/claim" => {
                for place in 0..ran.keys.len() {
                    let (ttl, text) = (argument(1), argument(2 + place));
                    let key = key_of(&ran.keys[place]);
                    let (ttl, ungranted) = match ttl.split_once(' ') {
                        Some((ttl, least)) => (ttl, Some(parsed(least))),
                        None => (ttl, None),
                    };
                    let ttl = millis(ttl.trim_start_matches('w'));
                    let asked = Asked { key: &key, text, token: token_in(text), ttl, ungranted };
                    let is_accepted = ran.reply.number(place).is_some();
                    self.asked(ran, &asked, is_accepted, ran.before[place].as_ref());
                }
            }
            "quorum/adopt" => {
                let (text, ttl) = (argument(3), millis(argument(4)));
                let asked = Asked { key: &key, text, token: token_in(text), ttl, ungranted: None };
                let is_accepted = matches!(ran.reply, Reply::Number(_));
                if is_accepted {
                    self.take_back(ran.place, &key, argument(1), u64::MAX);
                }
                self.asked(ran, &asked, is_accepted, ran.before[0].as_ref());
            }
            "quorum/withdraw" if done => {
                let (nonce, token) = (argument(1), parsed(argument(2)));
                self.take_back(ran.place, &key, nonce, token);
                let mut book = self.book.lock().unwrap();
                let page = book.nodes.entry((ran.place, key)).or_default();
                page.accepted.retain(|vote| *vote != (nonce.to_owned(), token));
            }
            "quorum/release" => {
                for place in 0..ran.keys.len() {
                    let (text, above) = (argument(1 + 2 * place), argument(2 + 2 * place));
                    let key = key_of(&ran.keys[place]);
                    self.released(ran, place, &key, &text[2..34], parsed(above) - 1);
                }
            }
            "quorum/restore" if done => self.restored(ran, &key),
            "quorum/heartbeat" => self.check_beats(ran),
            _ => (),
        }
    }

    fn record_transaction(&self, _executed: &Transaction<'_>) {}

    fn forget(&self, place: usize) {
        let mut book = self.book.lock().unwrap();
        book.beats.retain(|(of, ..), _| *of != place);
        book.nodes.retain(|(of, _), _| *of != place);
    }

    /// The nodes of a quorum have no replicas.
    fn promote(&self, place: usize) {
        self.forget(place);
    }
}

impl GrantRecorder {
    fn check_errors(&self, ran: &Ran<'_>) {
        for place in 0..ran.keys.len() {
            if let Some(error) = ran.reply.word(place).filter(|word| word.starts_with('!')) {
                self.ledger.violated(format!("the script {} failed: {error}", ran.script));
            }
        }
    }

    /// If a request arrives twice, the second arrival does not extend the lock or the vote.
    fn asked(&self, ran: &Ran<'_>, asked: &Asked<'_>, accepted: bool, before: Option<&Holding>) {
        let nonce = &asked.text[2..34];
        let (_beat, lessee) = asked.text[82..].split_once(' ').unwrap();
        let mut book = self.book.lock().unwrap();
        let Book { proposals, nodes, ungranted, .. } = &mut *book;
        if let Some(least) = asked.ungranted {
            ungranted.insert(nonce.to_owned(), (least, asked.token));
        }
        let proposal = proposals.entry((asked.key.to_owned(), nonce.to_owned())).or_default();
        if asked.token > proposal.token {
            *proposal = Proposal { token: asked.token, votes: BTreeMap::new() };
        }
        let vote = (nonce.to_owned(), asked.token);
        let is_double =
            before.is_some_and(|held| (held.nonce.as_str(), held.number) == (nonce, asked.token));
        if !accepted || is_double {
            return;
        }
        let page = nodes.entry((ran.place, asked.key.to_owned())).or_default();
        if page.released.iter().any(|(of, token)| of == nonce && *token >= asked.token) {
            self.ledger.violated(format!(
                "a released claim was granted again: server {} granted {} to {nonce}",
                ran.place, asked.key
            ));
        }
        if let Some(least) = asked.ungranted {
            page.accepted.retain(|(of, token)| of != nonce || *token < least);
        }
        page.accepted.push(vote);
        if asked.token < proposal.token {
            return;
        }
        let now = self.ledger.now();
        proposal.votes.insert(ran.place, now + asked.ttl);
        proposal.votes.retain(|_, until| *until >= now);
        if proposal.votes.len() >= self.majority {
            let lessee = Lessee::new(lessee).unwrap();
            self.ledger.granted(&grant(asked.key, nonce, &lessee, asked.token));
        }
    }

    fn take_back(&self, place: usize, key: &str, nonce: &str, token: u64) {
        let mut book = self.book.lock().unwrap();
        let proposal = book.proposals.get_mut(&(key.to_owned(), nonce.to_owned()));
        if let Some(proposal) = proposal.filter(|proposal| proposal.token <= token) {
            proposal.votes.remove(&place);
        }
    }

    fn released(&self, ran: &Ran<'_>, place: usize, key: &str, nonce: &str, token: u64) {
        if ran.reply.number(place) == Some(1) {
            self.take_back(ran.place, key, nonce, token);
        }
        let mut book = self.book.lock().unwrap();
        let page = book.nodes.entry((ran.place, key.to_owned())).or_default();
        page.released.push((nonce.to_owned(), token));
    }

    /// Checks that a restored grant replaces no holder, and follows no later grant and no release.
    fn restored(&self, ran: &Ran<'_>, key: &str) {
        let (nonce, token) = (ran.argument(1), parsed(ran.argument(2)));
        let restored = format!("{nonce} was restored on server {}", ran.place);
        if let Some(held) = &ran.before[0] {
            let holder = &held.nonce;
            self.ledger.violated(format!("a held key was taken: {restored}, holder {holder}"));
        }
        let mut book = self.book.lock().unwrap();
        if book.is_ungranted(nonce, token) {
            self.ledger.violated(format!("a proposal that was given up is in use: {restored}"));
        }
        let page = book.nodes.entry((ran.place, key.to_owned())).or_default();
        if page.released.iter().any(|(of, released)| of == nonce && *released >= token) {
            self.ledger.violated(format!("a released claim was granted again: {restored}"));
        }
        if let Some((later, larger)) = page.accepted.iter().find(|(_, larger)| *larger > token) {
            self.ledger.violated(format!(
                "a key was granted without a holder: {restored} under token {token}, after {later} \
                 under token {larger}"
            ));
        }
    }

    /// Checks that a late heartbeat does not shorten a lease, and extends no later grant.
    fn check_beats(&self, ran: &Ran<'_>) {
        let mut book = self.book.lock().unwrap();
        for place in 0..ran.keys.len() {
            if ran.reply.number(place) != Some(1) {
                continue;
            }
            let argument = |number: usize| ran.argument(1 + 4 * place + number);
            let (nonce, beat, token) = (argument(0), parsed(argument(1)), parsed(argument(3)));
            if book.is_ungranted(nonce, token) {
                let node = ran.place;
                self.ledger.violated(format!(
                    "a proposal that was given up is in use: server {node} extended {nonce} under {token}"
                ));
            }
            let (before, after) = (&ran.before[place], &ran.after[place]);
            let last = book.beats.entry((ran.place, nonce.to_owned(), token)).or_insert(beat);
            let ends = |held: &Option<Holding>| held.as_ref().map(|held| held.ends);
            if beat < *last && ends(after) < ends(before) {
                self.ledger.violated(format!(
                    "a late heartbeat shortened a lease: server {} executed number {beat} of {nonce} \
                     after number {last}",
                    ran.place
                ));
            }
            *last = beat.max(*last);
            if let Some(held) = before.as_ref().filter(|held| held.number > token) {
                self.ledger.violated(format!(
                    "a heartbeat under token {token} of {nonce} extended the grant of token {}",
                    held.number
                ));
            }
        }
    }
}

pub(crate) fn grant(key: &str, nonce: &str, lessee: &Lessee, token: u64) -> Grant {
    let key = LeaseKey::new(key).unwrap();
    let nonce = Nonce::new(nonce.parse().unwrap());
    let claim = Claim::new(key, lessee.clone(), nonce, Duration::from_millis(100));
    claim.granted(FencingToken::new(token).unwrap())
}

fn token_in(text: &str) -> u64 {
    parsed(&text[34..50])
}

fn parsed(number: &str) -> u64 {
    number.parse().unwrap()
}

fn millis(number: &str) -> Duration {
    Duration::from_millis(parsed(number))
}
