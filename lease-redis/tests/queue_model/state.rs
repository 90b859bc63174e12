//! One state: the server's data, the clients, and the messages between them.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::queue::Queue;
use crate::setup::Setup;

pub(crate) const MOST_CLIENTS: usize = 3;
pub(crate) const MOST_REQUESTS: u8 = 3;
/// The number of a renewal after the last fault.
pub(crate) const FRESH: u8 = MOST_REQUESTS + 1;
const NUMBERS: usize = 4;
const MOST_NEWS: usize = 5;
const MOST_BEATS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) data: Data,
    pub(crate) lagging: Option<Data>,
    pub(crate) clients: [Client; MOST_CLIENTS],
    /// The server's time is larger than this token.
    pub(crate) time: u8,
    pub(crate) accepted: u8,
    pub(crate) flushes: u8,
    pub(crate) promotions: u8,
    pub(crate) evictions: u8,
    pub(crate) kills: u8,
    pub(crate) cuts: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Data {
    pub(crate) lock: Lock,
    pub(crate) queue: Queue,
    pub(crate) stream: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Lock {
    pub(crate) kind: Kind,
    pub(crate) client: u8,
    /// The token is zero until a heartbeat or a script writes it.
    pub(crate) grant: Grant,
    pub(crate) beat: u8,
    /// The lock expires no earlier than one ttl after this send of its client. Zero if this ttl has
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
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    pub(crate) grant: Grant,
    /// The client counts its lease from the send with this number.
    pub(crate) deadline: u8,
    pub(crate) handed: Grant,
    pub(crate) asked: u8,
    /// One bit for each number of a request that may arrive.
    pub(crate) flying: u8,
    pub(crate) sent: [u8; NUMBERS],
    pub(crate) floor: [u8; NUMBERS],
    /// An answer or a message may report these grants to the client, at any time or never.
    pub(crate) news: [News; MOST_NEWS],
    pub(crate) beaten: u8,
    pub(crate) beats: [Beat; MOST_BEATS],
    pub(crate) end: End,
    pub(crate) deaf: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Waiting,
    Holding,
    HandedOver,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Grant {
    /// Zero means no grant.
    pub(crate) number: u8,
    pub(crate) token: u8,
    pub(crate) plain: bool,
    pub(crate) followed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct News {
    pub(crate) grant: Grant,
    /// Zero means that the news came by a message.
    pub(crate) answers: u8,
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

/// The last request of a nonce may arrive at any time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum End {
    #[default]
    Nothing,
    Leave,
    Release,
    Reserve(Grant),
}

impl State {
    pub(crate) fn first(setup: &Setup) -> Self {
        Self {
            data: Data::default(),
            lagging: None,
            clients: Default::default(),
            time: 0,
            accepted: 0,
            flushes: setup.flushes,
            promotions: setup.promotions,
            evictions: setup.evictions,
            kills: setup.kills,
            cuts: setup.cuts,
        }
    }

    pub(crate) fn all_data(&self) -> impl Iterator<Item = &Data> {
        [&self.data].into_iter().chain(&self.lagging)
    }

    pub(crate) fn all_data_mut(&mut self) -> impl Iterator<Item = &mut Data> {
        [&mut self.data].into_iter().chain(&mut self.lagging)
    }

    pub(crate) fn grants_mut(&mut self) -> impl Iterator<Item = (usize, &mut Grant)> {
        let data = [&mut self.data].into_iter().chain(&mut self.lagging);
        let locks = data.map(|data| (usize::from(data.lock.client), &mut data.lock.grant));
        let clients = self.clients.iter_mut().enumerate();
        let theirs =
            clients.flat_map(|(place, client)| client.grants_mut().map(move |it| (place, it)));
        locks.chain(theirs).filter(|(_, grant)| grant.token != 0)
    }

    pub(crate) fn change_sends(&mut self, place: usize, mut change: impl FnMut(&mut u8)) {
        for data in self.all_data_mut() {
            if usize::from(data.lock.client) == place {
                change(&mut data.lock.expiry);
            }
        }
        let client = &mut self.clients[place];
        client.sent.iter_mut().for_each(&mut change);
        client.beats.iter_mut().for_each(|beat| change(&mut beat.sent));
        change(&mut client.deadline);
    }

    pub(crate) fn next_send(&self, place: usize) -> u8 {
        let (mut last, mut copy) = (0, *self);
        copy.change_sends(place, |sent| last = last.max(*sent));
        last + 1
    }
}

impl Lock {
    pub(crate) fn is_held_by(self, place: usize) -> bool {
        self.kind == Kind::Held && usize::from(self.client) == place
    }

    pub(crate) fn is_of(self, place: usize) -> bool {
        matches!(self.kind, Kind::Held | Kind::Evicted) && usize::from(self.client) == place
    }
}

impl Client {
    fn grants_mut(&mut self) -> impl Iterator<Item = &mut Grant> {
        let news = self.news.iter_mut().map(|news| &mut news.grant);
        let beats = self.beats.iter_mut().map(|beat| &mut beat.grant);
        let end = match &mut self.end {
            End::Reserve(grant) => Some(grant),
            _ => None,
        };
        news.chain(beats).chain(end).chain([&mut self.grant, &mut self.handed])
    }

    pub(crate) fn tell(&mut self, news: News) {
        if !self.news.contains(&news) {
            let free = self.news.iter().position(|other| *other == News::default());
            self.news[free.unwrap()] = news;
        }
    }
}

/// Most parts of most states are empty.
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.time, self.accepted, self.lagging.is_some()).hash(hasher);
        (self.flushes, self.promotions, self.evictions, self.kills, self.cuts).hash(hasher);
        for data in self.all_data() {
            hash_part(&data.lock, hasher);
            (data.stream, data.queue.places().len()).hash(hasher);
            data.queue.places().iter().for_each(|place| place.hash(hasher));
        }
        for client in &self.clients {
            let Client { phase, deadline, asked, flying, beaten, end, deaf, .. } = client;
            (phase, deadline, asked, flying, beaten, end, deaf).hash(hasher);
            (client.sent, client.floor == [0; NUMBERS]).hash(hasher);
            if client.floor != [0; NUMBERS] {
                client.floor.hash(hasher);
            }
            hash_part(&client.grant, hasher);
            hash_part(&client.handed, hasher);
            client.news.iter().for_each(|news| hash_part(news, hasher));
            client.beats.iter().for_each(|beat| hash_part(beat, hasher));
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

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for data in self.all_data() {
            let Lock { kind, client, grant, .. } = data.lock;
            let sign = [" ", " ", "e", "r"][kind as usize];
            match kind {
                Kind::Absent => f.write_str(" -   ")?,
                _ => write!(f, " {}{}:{}{sign}", name(client.into()), grant.number, grant.token)?,
            }
            f.write_str("[")?;
            for place in data.queue.places() {
                let sign = if place.dead { "+" } else { "" };
                write!(f, "{}{}{sign} ", name(place.client.into()), place.number)?;
            }
            f.write_str("]")?;
        }
        for (place, client) in self.clients.iter().enumerate() {
            if client.phase == Phase::Holding {
                write!(f, " {} holds {}", name(place), client.grant.token)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn name(place: usize) -> char {
    ['A', 'B', 'C'][place]
}
