//! Observes every script on every server, and records grants in the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use lease_core::conformance::Ledger;
use lease_core::store::{Claim, Grant, Nonce};
use lease_core::{FencingToken, LeaseKey, Lessee};

use super::resp::{Bytes, Reply};

/// Counts the votes of all servers, and records a grant at a majority.
///
/// A vote counts for its ttl by the simulated time, unless it is withdrawn. A client may rely on the vote
/// for that time, even if the server forgets it sooner. The recorder grants a claim with the last vote that
/// the claim needs, before its client knows of the grant and chooses a token. It records the grant with the
/// largest token of the votes, and again for each token that a majority shares later.
#[derive(Debug)]
pub(crate) struct GrantRecorder {
    majority: usize,
    ledger: Ledger,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    /// The votes by key and nonce, then by server.
    votes: BTreeMap<(String, String), BTreeMap<usize, Vote>>,
    /// The number of the last heartbeat of each nonce on each server.
    beats: BTreeMap<(usize, String), u64>,
    /// The nonces and tokens of the grants of a key on a server, in order, without withdrawn grants.
    counted: BTreeMap<(usize, String), Vec<(String, u64)>>,
    /// The token that a holder sent, by nonce: the token of its last heartbeat or, before any heartbeat, the
    /// smallest token that it sent. The counter of a server may be larger.
    sent_tokens: BTreeMap<String, u64>,
    /// The nonce of the last release of a key on a server.
    released: BTreeMap<(usize, String), String>,
}

#[derive(Debug, Clone)]
struct Vote {
    lessee: Lessee,
    /// Includes tokens from before the write-back, since a client may rely on them.
    tokens: BTreeSet<u64>,
    until: Duration,
}

/// A script that was executed.
#[derive(Debug)]
pub(crate) struct Ran<'a> {
    pub(crate) place: usize,
    pub(crate) script: &'static str,
    pub(crate) keys: &'a [Bytes],
    pub(crate) arguments: &'a [Bytes],
    pub(crate) reply: &'a Reply,
    /// The holder of the first key and the expiry of each key before the script.
    pub(crate) before: Before,
    /// The expiry of each key after the script.
    pub(crate) ends: Vec<Option<u64>>,
}

#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) nonce: Option<String>,
    pub(crate) lessee: Option<String>,
    pub(crate) ends: Vec<Option<u64>>,
}

impl GrantRecorder {
    pub(crate) fn new(majority: usize, ledger: Ledger) -> Self {
        Self { majority, ledger, book: Mutex::default() }
    }

    pub(crate) fn record(&self, ran: &Ran<'_>) {
        let key = key_of(&ran.keys[0]);
        let argument = |place: usize| std::str::from_utf8(&ran.arguments[place]).unwrap();
        let done = *ran.reply == Reply::Number(1);
        if matches!(ran.script, "raise" | "release") {
            // Each round sends the largest token of its votes. The last round may have a vote with a
            // larger counter, and fail.
            let sent: u64 = argument(1).parse().unwrap();
            let mut book = self.book.lock().unwrap();
            let known = book.sent_tokens.entry(argument(0).to_owned()).or_insert(sent);
            *known = sent.min(*known);
        }
        match ran.script {
            "obtain" => {
                if ran.reply.word(0) == Some("granted") {
                    self.check_claim(ran.place, &key, argument(0));
                }
                self.vote(ran, &key, argument(0), argument(1), argument(2));
            }
            "adopt" => {
                if ran.reply.word(0) == Some("granted") {
                    self.take_back(ran.place, &key, argument(0));
                }
                self.vote(ran, &key, argument(1), argument(2), argument(3));
            }
            "raise" if done => self.raised(ran.place, &key, argument(0), argument(1)),
            "withdraw" if done => {
                self.take_back(ran.place, &key, argument(0));
                let mut book = self.book.lock().unwrap();
                book.counted.entry((ran.place, key)).or_default().pop();
            }
            "release" => {
                if done {
                    self.take_back(ran.place, &key, argument(0));
                }
                let mut book = self.book.lock().unwrap();
                let counted = book.counted.get(&(ran.place, key.clone()));
                let before = counted.and_then(|counted| counted.iter().nth_back(1));
                // A node of a quorum also stores the release of the grant before a vote, since the vote may
                // be withdrawn. It stores none before a released vote: there, a late duplicate takes the
                // key for a ttl.
                let beneath = ran.before.nonce.is_some()
                    && before.is_some_and(|(nonce, _)| nonce == argument(0));
                if done || beneath && argument(4) == "1" {
                    book.released.insert((ran.place, key), argument(0).to_owned());
                } else if ran.before.lessee.is_none() {
                    book.released.remove(&(ran.place, key));
                }
            }
            "restore" if done => {
                self.check_claim(ran.place, &key, argument(0));
                self.check_restore(ran, &key);
                let beat = argument(3).parse().unwrap();
                let mut book = self.book.lock().unwrap();
                book.beats.insert((ran.place, argument(0).to_owned()), beat);
            }
            "heartbeat" => self.check_beats(ran),
            "update" | "transfer" | "delete" if ran.is_applied() => {
                let lessee = ran.before.lessee.clone().unwrap();
                let lessee = Lessee::new(lessee).unwrap();
                let token = argument(1).parse().unwrap();
                self.ledger.written(&grant(&key, argument(0), &lessee, token));
            }
            _ => (),
        }
    }

    /// Forgets the server, which has lost its data.
    pub(crate) fn forget(&self, place: usize) {
        let mut book = self.book.lock().unwrap();
        book.beats.retain(|(of, _), _| *of != place);
        book.released.retain(|(of, _), _| *of != place);
        book.counted.retain(|(of, _), _| *of != place);
    }

    fn vote(&self, ran: &Ran<'_>, key: &str, nonce: &str, lessee: &str, ttl: &str) {
        let Some(token) = ran.reply.number(1) else { return };
        let until = match ran.reply.word(0) {
            Some("granted") => self.ledger.now() + Duration::from_millis(ttl.parse().unwrap()),
            // A repeated claim does not extend its vote.
            Some("again") => Duration::ZERO,
            _ => return,
        };
        let lessee = Lessee::new(lessee).unwrap();
        let id = (key.to_owned(), nonce.to_owned());
        let mut book = self.book.lock().unwrap();
        if ran.reply.word(0) == Some("granted") {
            let counted = book.counted.entry((ran.place, key.to_owned())).or_default();
            counted.push((nonce.to_owned(), token));
        }
        let votes = book.votes.entry(id).or_default();
        let vote =
            votes.entry(ran.place).or_insert(Vote { lessee, tokens: BTreeSet::new(), until });
        if vote.until < until {
            // A new vote, after the earlier one expired or was forgotten.
            vote.tokens.clear();
            vote.until = until;
        }
        vote.tokens.insert(token);
        self.count(key, nonce, votes);
    }

    fn raised(&self, place: usize, key: &str, nonce: &str, token: &str) {
        let mut book = self.book.lock().unwrap();
        let Some(votes) = book.votes.get_mut(&(key.to_owned(), nonce.to_owned())) else { return };
        if let Some(vote) = votes.get_mut(&place) {
            vote.tokens.insert(token.parse().unwrap());
        }
        self.count(key, nonce, votes);
    }

    fn take_back(&self, place: usize, key: &str, nonce: &str) {
        let mut book = self.book.lock().unwrap();
        if let Some(votes) = book.votes.get_mut(&(key.to_owned(), nonce.to_owned())) {
            votes.remove(&place);
        }
    }

    fn count(&self, key: &str, nonce: &str, votes: &mut BTreeMap<usize, Vote>) {
        let now = self.ledger.now();
        votes.retain(|_, vote| vote.until >= now);
        if votes.len() < self.majority {
            return;
        }
        let tokens: BTreeSet<_> = votes.values().flat_map(|vote| &vote.tokens).copied().collect();
        let votes_for = |token| votes.values().filter(|vote| vote.tokens.contains(token)).count();
        let mut shared: Vec<_> =
            tokens.iter().filter(|token| votes_for(token) >= self.majority).collect();
        if shared.is_empty() {
            shared.extend(tokens.last());
        }
        let lessee = &votes.values().next().unwrap().lessee;
        for token in shared {
            self.ledger.granted(&grant(key, nonce, lessee, *token));
        }
    }

    /// Checks that the claim that was released last is not granted again.
    fn check_claim(&self, place: usize, key: &str, nonce: &str) {
        let mut book = self.book.lock().unwrap();
        if book.released.remove(&(place, key.to_owned())).as_deref() == Some(nonce) {
            self.ledger.violated(format!(
                "a released claim was granted again: server {place} granted {key} to {nonce}"
            ));
        }
    }

    /// Checks that a restored grant replaces no holder, follows no later grant, and shortens no lease.
    fn check_restore(&self, ran: &Ran<'_>, key: &str) {
        let argument = |place: usize| std::str::from_utf8(&ran.arguments[place]).unwrap();
        let (nonce, token) = (argument(0), argument(2).parse().unwrap());
        let restored = format!("{nonce} was restored on server {}", ran.place);
        match &ran.before.nonce {
            Some(holder) if holder != nonce => {
                self.ledger.violated(format!("a held key was taken: {restored}, holder {holder}"));
            }
            Some(_) if ran.ends[0] < ran.before.ends[0] => {
                self.ledger.violated(format!("a late request shortened a lease: {restored}"));
            }
            _ => (),
        }
        let mut book = self.book.lock().unwrap();
        let Book { counted, sent_tokens, .. } = &mut *book;
        let counted = counted.entry((ran.place, key.to_owned())).or_default();
        if let Some((later, counter)) = counted.last()
            && later != nonce
        {
            // The counter of a server may be larger than the token of the grant.
            let later_token = sent_tokens.get(later).unwrap_or(counter).min(counter);
            if *later_token > token {
                self.ledger.violated(format!(
                    "a key was granted without a holder: {restored} under token {token}, after \
                     {later} under token {later_token}"
                ));
            }
        }
        counted.push((nonce.to_owned(), token));
    }

    /// Checks that a late heartbeat does not shorten the lease of a later one.
    fn check_beats(&self, ran: &Ran<'_>) {
        let mut book = self.book.lock().unwrap();
        for place in 0..ran.keys.len() {
            let argument = |number: usize| {
                std::str::from_utf8(&ran.arguments[1 + 4 * place + number]).unwrap()
            };
            if ran.reply.number(place) != Some(1) {
                continue;
            }
            let (nonce, beat) = (argument(0), argument(1).parse().unwrap());
            book.sent_tokens.insert(nonce.to_owned(), argument(3).parse().unwrap());
            let last = book.beats.entry((ran.place, nonce.to_owned())).or_insert(beat);
            if beat < *last && ran.ends[place] < ran.before.ends[place] {
                self.ledger.violated(format!(
                    "a late heartbeat shortened a lease: server {} executed number {beat} of {nonce} \
                     after number {last}",
                    ran.place
                ));
            }
            *last = beat.max(*last);
        }
    }
}

impl Ran<'_> {
    /// Returns whether the script wrote. A repeated request gets the same reply and writes nothing.
    fn is_applied(&self) -> bool {
        let ends = self.script != "update";
        let ended = self.before.ends[0].is_some() && self.ends[0].is_none();
        self.reply.as_text() == Some("applied") && (ended || !ends)
    }
}

fn grant(key: &str, nonce: &str, lessee: &Lessee, token: u64) -> Grant {
    let key = LeaseKey::new(key).unwrap();
    let nonce = Nonce::new(nonce.parse().unwrap());
    let claim = Claim::new(key, lessee.clone(), nonce, Duration::from_millis(100));
    claim.granted(FencingToken::new(token).unwrap())
}

fn key_of(lease: &[u8]) -> String {
    let name = std::str::from_utf8(lease).unwrap();
    name.trim_start_matches("lease:{").trim_end_matches('}').to_owned()
}
