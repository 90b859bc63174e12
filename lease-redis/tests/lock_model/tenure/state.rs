//! One state: the server's keys, the claims, and the requests between them.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::setup::Setup;

pub(crate) const MOST_CLAIMS: usize = 4;
const MOST_REQUESTS: usize = 3;
const MOST_BEATS: usize = 2;
const KEYS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) keys: [Key; KEYS],
    pub(crate) claims: [Claim; MOST_CLAIMS],
    pub(crate) stream: u8,
    /// The server's time is larger than this token.
    pub(crate) time: u8,
    pub(crate) lagging: Option<u8>,
    pub(crate) flushes: u8,
    pub(crate) restarts: u8,
    pub(crate) promotions: u8,
    pub(crate) evictions: u8,
    pub(crate) batches: [u8; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Key {
    pub(crate) value: Value,
    pub(crate) lagging: Value,
    pub(crate) accepted: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    pub(crate) claim: u8,
    pub(crate) request: u8,
    pub(crate) beat: u8,
    /// The value expires no earlier than one ttl after this send of its claim. Zero if this ttl has
    /// passed.
    pub(crate) expiry: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Kind {
    #[default]
    Absent,
    Held,
    Evicted,
    Reserved,
}

/// The number of a send becomes zero when one ttl has passed since the send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Claim {
    pub(crate) phase: Phase,
    pub(crate) grant: Grant,
    /// The claim counts its lease from the send with this number.
    pub(crate) deadline: u8,
    pub(crate) handed: Grant,
    pub(crate) asked: u8,
    pub(crate) requests: [Request; MOST_REQUESTS],
    pub(crate) beaten: u8,
    pub(crate) beats: [Beat; MOST_BEATS],
    pub(crate) release: Release,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Asking,
    Holding,
    HandedOver,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Grant {
    /// Nonce and request name a tenure of the key. Zero means no grant.
    pub(crate) request: u8,
    pub(crate) token: u8,
    pub(crate) followed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Request {
    pub(crate) phase: RequestPhase,
    pub(crate) sent: u8,
    pub(crate) batch: u8,
    /// The request's token must be larger.
    pub(crate) floor: u8,
    pub(crate) grant: Grant,
}

/// A request or an answer that may arrive arrives at any time, or never.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum RequestPhase {
    #[default]
    Nothing,
    Sent,
    /// The SET of a pipeline was applied. The XADD may arrive.
    Set,
    /// The SET of a pipeline found a grant of the nonce. The XADD may arrive.
    SetAgain,
    Granted,
    /// The answer that names an earlier request may arrive.
    Again,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Beat {
    pub(crate) phase: BeatPhase,
    pub(crate) sent: u8,
    pub(crate) grant: Grant,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum BeatPhase {
    #[default]
    Nothing,
    Sent,
    Extended,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Release {
    #[default]
    Nothing,
    /// A release of any request may arrive.
    Sent,
    Reserving(u8),
}

impl State {
    pub(crate) fn first(setup: &Setup) -> Self {
        Self {
            keys: Default::default(),
            claims: Default::default(),
            stream: 0,
            time: 0,
            lagging: None,
            flushes: setup.flushes,
            restarts: setup.restarts,
            promotions: setup.promotions,
            evictions: setup.evictions,
            batches: [0; 2],
        }
    }

    pub(crate) fn follow(&mut self, setup: &Setup, place: usize, token: u8) {
        let key = setup.roles[place].key;
        for (other, claim) in self.claims.iter_mut().enumerate() {
            let role = setup.roles[other];
            if other == place || role.key != key {
                continue;
            }
            let handed = claim.handed;
            for grant in claim.grants_mut().filter(|it| it.token != 0 && it.token < token) {
                grant.followed = true;
            }
            // The adopting claim is the successor of the handed-over grant.
            if role.adopts == Some(place) {
                claim.handed = handed;
            }
        }
    }
}

impl Claim {
    pub(crate) fn next_send(&self, key: &Key, place: usize) -> u8 {
        1 + self.sends(key, place).max().unwrap_or(0)
    }

    fn sends(&self, key: &Key, place: usize) -> impl Iterator<Item = u8> {
        let values = [key.value, key.lagging].into_iter();
        let values = values.filter(move |value| usize::from(value.claim) == place);
        let requests = self.requests.into_iter().map(|request| request.sent);
        let beats = self.beats.into_iter().map(|beat| beat.sent);
        values.map(|value| value.expiry).chain(requests).chain(beats).chain([self.deadline])
    }

    pub(crate) fn grants_mut(&mut self) -> impl Iterator<Item = &mut Grant> {
        let requests = self.requests.iter_mut().map(|request| &mut request.grant);
        let beats = self.beats.iter_mut().map(|beat| &mut beat.grant);
        requests.chain(beats).chain([&mut self.grant, &mut self.handed])
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = Grant> {
        let requests = self.requests.into_iter().map(|request| request.grant);
        let beats = self.beats.into_iter().map(|beat| beat.grant);
        requests.chain(beats).chain([self.grant, self.handed])
    }
}

/// Most parts of most states are empty.
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { keys, claims, stream, time, lagging, .. } = self;
        (stream, time, lagging, self.batches).hash(hasher);
        (self.flushes, self.restarts, self.promotions, self.evictions).hash(hasher);
        for key in keys {
            hash_part(key, hasher);
        }
        for claim in claims {
            (claim.phase, claim.deadline, claim.asked, claim.beaten, claim.release).hash(hasher);
            hash_part(&claim.grant, hasher);
            hash_part(&claim.handed, hasher);
            claim.requests.iter().for_each(|request| hash_part(request, hasher));
            claim.beats.iter().for_each(|beat| hash_part(beat, hasher));
        }
    }
}

fn hash_part<T: Default + PartialEq + Hash>(part: &T, hasher: &mut impl Hasher) {
    let empty = *part == T::default();
    empty.hash(hasher);
    if !empty {
        part.hash(hasher);
    }
}

pub(crate) fn change_sends(
    claim: &mut Claim,
    key: &mut Key,
    place: usize,
    mut change: impl FnMut(&mut u8),
) {
    for value in [&mut key.value, &mut key.lagging] {
        if usize::from(value.claim) == place {
            change(&mut value.expiry);
        }
    }
    claim.requests.iter_mut().for_each(|request| change(&mut request.sent));
    claim.beats.iter_mut().for_each(|beat| change(&mut beat.sent));
    change(&mut claim.deadline);
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in &self.keys {
            write!(f, " {}", key.value)?;
        }
        write!(f, " S{}", self.stream)?;
        for (place, claim) in self.claims.iter().enumerate() {
            if claim.phase == Phase::Holding {
                write!(f, " {}:{}", name(place), claim.grant.token)?;
            }
        }
        Ok(())
    }
}

/// `A2` is held by A's second request.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.kind {
            Kind::Absent => return f.write_str(" - "),
            Kind::Held => ' ',
            Kind::Evicted => 'e',
            Kind::Reserved => 'r',
        };
        write!(f, "{}{}{state}", name(usize::from(self.claim)), self.request)
    }
}

pub(crate) fn name(place: usize) -> char {
    ['A', 'B', 'C', 'D'][place]
}
