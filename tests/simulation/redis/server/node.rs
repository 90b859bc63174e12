//! The data and the clock of one server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::resp::{Bytes, Reply};

/// Commands take no time.
#[derive(Debug, Default, Clone)]
pub(crate) struct Node {
    entries: BTreeMap<Bytes, Entry>,
    run: u128,
    started: u64,
    /// The server's wall clock, in microseconds since 1970, for `TIME` and expiry.
    now: u64,
    /// The difference between the wall clock and the simulated time, in microseconds.
    ahead: i64,
    /// Messages that scripts published and the server has not sent yet.
    pub(crate) published: Vec<(Bytes, Bytes)>,
    pub(crate) subscribers: BTreeMap<Bytes, usize>,
}

#[derive(Debug, Clone)]
struct Entry {
    value: Value,
    /// The last millisecond since 1970 at which the entry exists.
    until: Option<u64>,
}

#[derive(Debug, Clone)]
enum Value {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    List(VecDeque<Bytes>),
    Stream(StreamId),
    /// All scores are 0, so the set is in the order of its names.
    Names(BTreeSet<Bytes>),
}

impl Node {
    pub(crate) fn new(run: u128, ahead: Duration) -> Self {
        let ahead = i64::try_from(ahead.as_micros()).unwrap();
        let started = (EPOCH - DAY).checked_add_signed(ahead).unwrap();
        Self { run, started, ahead, ..Self::default() }
    }

    pub(crate) fn set_time(&mut self, now: Duration) {
        let now = EPOCH + u64::try_from(now.as_micros()).unwrap();
        self.now = now.checked_add_signed(self.ahead).unwrap();
    }

    /// Sets the wall clock back by `by` microseconds, or forward if `by` is negative.
    pub(crate) fn set_back(&mut self, by: i64) {
        self.ahead -= by;
    }

    pub(crate) fn restart(&mut self, run: u128) {
        (self.run, self.started) = (run, self.now);
    }

    pub(crate) fn forget(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn field(&self, key: &[u8], field: &str) -> Option<&str> {
        let bytes = self.hash(key).ok()??.get(field.as_bytes())?;
        std::str::from_utf8(bytes).ok()
    }

    pub(crate) fn text(&self, key: &[u8]) -> Option<&str> {
        let Some(Value::Text(text)) = self.entry(key).map(|entry| &entry.value) else {
            return None;
        };
        std::str::from_utf8(text).ok()
    }

    pub(crate) fn holding(&self, key: &[u8]) -> Option<Holding> {
        if let Some(text) = self.text(key) {
            return match text.chars().next()? {
                'h' | 'x' | 'r' => Holding::on_a_node(text).filter(|held| held.ends >= self.now),
                // The counter of a quorum's node is shorter than a nonce.
                _ => Holding::of_text(text, self.entry(key)?.until? * 1000),
            };
        }
        let ends = self.field(key, "ends")?.parse().unwrap();
        let field = |field| self.field(key, field).map(str::to_owned);
        let (nonce, lessee) = (field("granted")?, field("lessee")?);
        let number = 0;
        (ends > self.now).then_some(Holding { nonce, lessee, number, ends, is_record: true })
    }

    pub(crate) fn execute(&mut self, command: &[Bytes]) -> Reply {
        let name = command[0].to_ascii_uppercase();
        let arguments = &command[1..];
        match self.try_execute(&name, arguments) {
            Ok(reply) => reply,
            Err(WrongType) => Reply::Error("WRONGTYPE Operation against a wrong kind".to_owned()),
        }
    }

    fn try_execute(&mut self, name: &[u8], arguments: &[Bytes]) -> Result<Reply, WrongType> {
        Ok(match (name, arguments) {
            (b"PING", []) => Reply::Status("PONG"),
            (b"PING", [text]) => Reply::Bulk(text.clone()),
            (b"TIME", []) => {
                let (seconds, micros) = (self.now / SECOND, self.now % SECOND);
                Reply::texts(&[&seconds.to_string(), &micros.to_string()])
            }
            (b"INFO", _) => Reply::text(self.info()),
            (b"GET", [key]) => bulk(self.text_of(key)?),
            (b"SET", [key, text, options @ ..]) => self.set(key, text, options)?,
            (b"SETRANGE", [key, start, piece]) => self.set_range(key, start, piece)?,
            (b"PERSIST", [key]) => match self.entry_mut(key) {
                Some(entry) => number(usize::from(entry.until.take().is_some())),
                None => number(0),
            },
            (b"XADD", [key, option, rest @ ..]) if option == b"NOMKSTREAM" => match self.entry(key)
            {
                Some(_) => self.add_to_stream(key, &rest[3])?,
                None => Reply::Nil,
            },
            (b"XADD", [key, _, _, _, id, ..]) => self.add_to_stream(key, id)?,
            (b"EXISTS", [key]) => number(usize::from(self.entry(key).is_some())),
            (b"MGET", keys) => Reply::Array(
                keys.iter().map(|key| bulk(self.text_of(key).ok().flatten())).collect(),
            ),
            (b"DEL", keys) => {
                let there: Vec<_> = keys.iter().filter(|key| self.entry(key).is_some()).collect();
                for key in &there {
                    self.entries.remove(*key);
                }
                number(there.len())
            }
            (b"PEXPIRE", [key, length]) => self.expire(key, length),
            (b"PTTL", [key]) => Reply::Number(match self.entry(key) {
                None => -2,
                Some(Entry { until: None, .. }) => -1,
                Some(Entry { until: Some(until), .. }) => {
                    i64::try_from(until - self.now / 1000).unwrap()
                }
            }),
            (b"HGET", [key, field]) => bulk(self.hash(key)?.and_then(|hash| hash.get(field))),
            (b"HMGET", [key, fields @ ..]) => {
                let hash = self.hash(key)?;
                let value = |field| bulk(hash.and_then(|hash| hash.get(field)));
                Reply::Array(fields.iter().map(value).collect())
            }
            (b"HGETALL", [key]) => {
                let hash = self.hash(key)?.into_iter().flatten();
                let pair = |(name, value): (&Bytes, &Bytes)| [name.clone(), value.clone()];
                Reply::Array(hash.flat_map(pair).map(Reply::Bulk).collect())
            }
            (b"HEXISTS", [key, field]) => {
                let there = self.hash(key)?.is_some_and(|hash| hash.contains_key(field));
                number(usize::from(there))
            }
            (b"HSET", [key, pairs @ ..]) => {
                let hash = self.hash_mut(key)?;
                let before = hash.len();
                for pair in pairs.chunks_exact(2) {
                    hash.insert(pair[0].clone(), pair[1].clone());
                }
                number(hash.len() - before)
            }
            (b"HDEL", [key, fields @ ..]) => {
                if self.hash(key)?.is_none() {
                    return Ok(number(0));
                }
                let hash = self.hash_mut(key)?;
                let removed = fields.iter().filter(|field| hash.remove(*field).is_some()).count();
                if hash.is_empty() {
                    self.entries.remove(key);
                }
                number(removed)
            }
            (b"ZADD", [key, _, name]) => {
                number(usize::from(self.names_mut(key)?.insert(name.clone())))
            }
            (b"ZREM", [key, name]) => number(usize::from(self.names_mut(key)?.remove(name))),
            (b"ZRANGEBYLEX", [key, from, until, ..]) => self.names_between(key, from, until)?,
            (b"PUBLISH", [channel, message]) => {
                self.published.push((channel.clone(), message.clone()));
                number(self.subscribers.get(channel).copied().unwrap_or(0))
            }
            (b"PUBSUB", [_numsub, channel]) => {
                let count = self.subscribers.get(channel).copied().unwrap_or(0);
                Reply::Array(vec![Reply::Bulk(channel.clone()), number(count)])
            }
            (b"RPUSH" | b"LPOP" | b"LREM" | b"LPOS" | b"LRANGE", [key, arguments @ ..]) => {
                self.execute_on_list(name, key, arguments)?
            }
            _ => {
                let name = String::from_utf8_lossy(name);
                Reply::Error(format!("ERR unknown command '{name}', with {arguments:?}"))
            }
        })
    }

    fn expire(&mut self, key: &[u8], length: &[u8]) -> Reply {
        let until = self.now / 1000 + parsed(length);
        let Some(entry) = self.entry_mut(key) else { return number(0) };
        entry.until = Some(until);
        number(1)
    }

    /// `LREM` removes the first occurrence, and `LRANGE` returns the whole list.
    fn execute_on_list(
        &mut self,
        name: &[u8],
        key: &[u8],
        arguments: &[Bytes],
    ) -> Result<Reply, WrongType> {
        if name != b"RPUSH" && self.entry(key).is_none() {
            return Ok(match name {
                b"LREM" => number(0),
                b"LRANGE" => Reply::Array(Vec::new()),
                _ => Reply::Nil,
            });
        }
        let Value::List(list) = self.value_mut(key, || Value::List(VecDeque::new())) else {
            return Err(WrongType);
        };
        let place = |item: &Bytes| list.iter().position(|one| one == item);
        let reply = match (name, arguments) {
            (b"RPUSH", [item]) => {
                list.push_back(item.clone());
                number(list.len())
            }
            (b"LPOP", []) => list.pop_front().map_or(Reply::Nil, Reply::Bulk),
            (b"LREM", [_, item]) => {
                let removed = place(item).and_then(|place| list.remove(place));
                number(usize::from(removed.is_some()))
            }
            (b"LPOS", [item, ..]) => place(item).map_or(Reply::Nil, number),
            (b"LRANGE", _) => Reply::Array(list.iter().cloned().map(Reply::Bulk).collect()),
            _ => Reply::Error("ERR syntax error".to_owned()),
        };
        if list.is_empty() {
            self.entries.remove(key);
        }
        Ok(reply)
    }

    /// As in Redis, the uptime is a difference of whole seconds.
    fn info(&self) -> String {
        let seconds = |micros: u64| i64::try_from(micros / SECOND).unwrap();
        let uptime = seconds(self.now) - seconds(self.started);
        format!(
            "# Server\r\nredis_mode:standalone\r\nredis_version:7.0.15\r\nrun_id:{:040x}\r\nserver_time_usec:{}\r\n\
             uptime_in_seconds:{uptime}\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n\
             cluster_enabled:0\r\n",
            self.run, self.now
        )
    }

    /// The model knows the options NX, GET, PX and KEEPTTL.
    fn set(&mut self, key: &[u8], text: &[u8], options: &[Bytes]) -> Result<Reply, WrongType> {
        let has = |name: &[u8]| options.iter().any(|option| option == name);
        let length = options.iter().position(|option| option == b"PX").map(|at| &options[at + 1]);
        let kept = self.entry(key).and_then(|entry| entry.until).filter(|_| has(b"KEEPTTL"));
        let until = length.map(|length| self.now / 1000 + parsed(length)).or(kept);
        let before = if has(b"GET") { Some(bulk(self.text_of(key)?)) } else { None };
        if has(b"NX") && self.entry(key).is_some() {
            return Ok(before.unwrap_or(Reply::Nil));
        }
        let value = Value::Text(text.to_vec());
        self.entries.insert(key.to_vec(), Entry { value, until });
        Ok(before.unwrap_or(Reply::Status("OK")))
    }

    fn set_range(&mut self, key: &[u8], start: &[u8], piece: &[u8]) -> Result<Reply, WrongType> {
        let start = usize::try_from(parsed(start)).unwrap();
        let Some(text) = self.text_mut(key)? else {
            // Redis would create a key without a ttl. No script may cause this.
            return Ok(Reply::Error("ERR SETRANGE without a key".to_owned()));
        };
        text.splice(start..start + piece.len(), piece.iter().copied());
        Ok(number(text.len()))
    }

    fn add_to_stream(&mut self, key: &[u8], id: &[u8]) -> Result<Reply, WrongType> {
        let now = self.now / 1000;
        let Value::Stream(last) = self.value_mut(key, || Value::Stream(StreamId::default())) else {
            return Err(WrongType);
        };
        let next = if id == b"*" {
            if now > last.millis {
                StreamId { millis: now, number: 0 }
            } else {
                StreamId { number: last.number + 1, ..*last }
            }
        } else {
            let (millis, of_millis) = std::str::from_utf8(id).unwrap().split_once('-').unwrap();
            StreamId { millis: millis.parse().unwrap(), number: of_millis.parse().unwrap() }
        };
        if next <= *last {
            let error = "ERR The ID specified in XADD is equal or smaller than the target stream";
            return Ok(Reply::Error(error.to_owned()));
        }
        *last = next;
        Ok(Reply::text(format!("{}-{}", next.millis, next.number)))
    }

    fn names_between(&mut self, key: &[u8], from: &[u8], until: &[u8]) -> Result<Reply, WrongType> {
        let names = self.names_mut(key)?.iter();
        let after = |name: &&Bytes| match from.split_first() {
            Some((b'(', from)) => name.as_slice() > from,
            Some((_, from)) => name.as_slice() >= from,
            None => true,
        };
        let before = |name: &&Bytes| name.as_slice() < until.get(1..).unwrap_or_default();
        Ok(Reply::Array(names.filter(after).filter(before).cloned().map(Reply::Bulk).collect()))
    }

    fn is_over(&self, entry: &Entry) -> bool {
        entry.until.is_some_and(|until| self.now / 1000 > until)
    }

    fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| !self.is_over(entry))
    }

    fn entry_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.entry(key)?;
        self.entries.get_mut(key)
    }

    fn hash(&self, key: &[u8]) -> Result<Option<&BTreeMap<Bytes, Bytes>>, WrongType> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(WrongType),
        }
    }

    fn text_of(&self, key: &[u8]) -> Result<Option<&Bytes>, WrongType> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WrongType),
        }
    }

    fn text_mut(&mut self, key: &[u8]) -> Result<Option<&mut Bytes>, WrongType> {
        match self.entry_mut(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WrongType),
        }
    }

    fn hash_mut(&mut self, key: &[u8]) -> Result<&mut BTreeMap<Bytes, Bytes>, WrongType> {
        match self.value_mut(key, || Value::Hash(BTreeMap::new())) {
            Value::Hash(hash) => Ok(hash),
            _ => Err(WrongType),
        }
    }

    fn names_mut(&mut self, key: &[u8]) -> Result<&mut BTreeSet<Bytes>, WrongType> {
        match self.value_mut(key, || Value::Names(BTreeSet::new())) {
            Value::Names(names) => Ok(names),
            _ => Err(WrongType),
        }
    }

    fn value_mut(&mut self, key: &[u8], new: fn() -> Value) -> &mut Value {
        if self.entry(key).is_none() {
            self.entries.insert(key.to_vec(), Entry { value: new(), until: None });
        }
        &mut self.entries.get_mut(key).unwrap().value
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Holding {
    pub(crate) nonce: String,
    pub(crate) lessee: String,
    /// The first number in the text of a lock on one server. On a node of a quorum, the token.
    pub(crate) number: u64,
    /// The end of the lease, in microseconds since 1970.
    pub(crate) ends: u64,
    pub(crate) is_record: bool,
}

impl Holding {
    /// Returns `None` if the key is only reserved.
    fn on_a_node(text: &str) -> Option<Self> {
        (!text.starts_with('r')).then(|| Self {
            nonce: text[2..34].to_owned(),
            lessee: text[82..text.len() - 32].split_once(' ').unwrap().1.to_owned(),
            number: text[34..50].parse().unwrap(),
            ends: text[text.len() - 16..].parse().unwrap(),
            is_record: false,
        })
    }

    /// Returns `None` if the key is only reserved.
    pub(crate) fn of_text(text: &str, ends: u64) -> Option<Self> {
        let (nonce, rest) = text.split_at_checked(NONCE)?;
        let (state, rest) = rest.split_at_checked(1)?;
        let mut parts = rest.get(1..)?.splitn(4, ' ');
        let number = parts.next()?.parse().ok()?;
        (state != "r").then(|| Self {
            nonce: nonce.to_owned(),
            lessee: parts.last().unwrap_or_default().to_owned(),
            number,
            ends,
            is_record: false,
        })
    }

    pub(crate) fn nonce_and_state(&self) -> String {
        format!("{}h", self.nonce)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct StreamId {
    millis: u64,
    number: u64,
}

/// The value of the key has another type than the command needs.
struct WrongType;

fn number(number: usize) -> Reply {
    Reply::Number(i64::try_from(number).unwrap())
}

fn bulk(bytes: Option<&Bytes>) -> Reply {
    bytes.map_or(Reply::Nil, |bytes| Reply::Bulk(bytes.clone()))
}

fn parsed(number: &[u8]) -> u64 {
    std::str::from_utf8(number).unwrap().parse().unwrap()
}

/// A counter of a quorum's node with two numbers is about as long.
const NONCE: usize = 32;

const SECOND: u64 = 1_000_000;

const DAY: u64 = 86_400 * SECOND;

/// The simulated time starts on a day in 2026, not at a full second. The unit is a microsecond
/// since 1970.
const EPOCH: u64 = 1_767_225_600_437_000;
