//! A server that runs the scripts of sessions, with one edited script.

use lease_test_servers::redis::RedisServer;
use redis::{Connection, RedisResult, Script, Value};

use super::replies::{Answer, Read};

const DAY: &str = "86400000";

/// The ttl is in milliseconds, and is longer than any test takes.
const TTL: &str = "600000";

pub(super) const ONE: &str = "11111111111111111111111111111111";
pub(super) const TWO: &str = "22222222222222222222222222222222";
pub(super) const THREE: &str = "33333333333333333333333333333333";

const JOB: &str = "job";

/// Its tokens are small numbers, since no script compares them with others.
const WORKER: &str = "worker";

pub(super) struct Server {
    redis: RedisServer,
    connection: Connection,
    edit: Option<(&'static str, String)>,
}

#[derive(Clone)]
pub(super) struct Claim {
    pub(super) nonce: &'static str,
    pub(super) lessee: &'static str,
    pub(super) seen: Option<u64>,
    pub(super) former: Option<u64>,
    pub(super) session: Option<u64>,
    pub(super) waits: &'static str,
    pub(super) attributes: &'static [&'static str],
}

impl Claim {
    /// The session has the token 7.
    pub(super) fn new(nonce: &'static str, seen: Option<u64>) -> Self {
        let (former, session) = (None, Some(7));
        Self { nonce, lessee: "a", seen, former, session, waits: "0", attributes: &[] }
    }
}

impl Server {
    pub(super) fn start(redis: RedisServer) -> Self {
        let client = redis::Client::open(redis.url()).unwrap();
        Self { connection: client.get_connection().unwrap(), redis, edit: None }
    }

    pub(super) fn edit(&mut self, script: &'static str, from: &str, to: &str) {
        let whole = lease_redis::script(script).unwrap();
        assert!(whole.contains(from), "{script}.lua does not contain {from:?}");
        self.command("FLUSHALL");
        self.edit = Some((script, whole.replace(from, to)));
    }

    pub(super) fn reset(&mut self) {
        self.command("FLUSHALL");
        self.edit = None;
    }

    pub(super) fn listener(&self) -> Connection {
        redis::Client::open(self.redis.url()).unwrap().get_connection().unwrap()
    }

    pub(super) fn command(&self, words: &str) -> String {
        self.redis.command(words)
    }

    fn run(&mut self, script: &str, keys: &[&str], arguments: &[&str]) -> Value {
        self.try_run(script, keys, arguments).unwrap()
    }

    fn try_run(&mut self, script: &str, keys: &[&str], arguments: &[&str]) -> RedisResult<Value> {
        let edited = self.edit.as_ref().filter(|(edited, _)| *edited == script);
        let whole = edited.map_or_else(|| lease_redis::script(script).unwrap(), |(_, text)| text);
        let script = Script::new(whole);
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        for argument in arguments {
            call.arg(*argument);
        }
        call.invoke(&mut self.connection)
    }

    pub(super) fn obtain_under(&mut self, claim: &Claim) -> Answer {
        let number = |token: Option<u64>| token.map(|token| token.to_string()).unwrap_or_default();
        let key = |token: Option<u64>| if token.is_some() { WORKER } else { "" };
        let (seen, former, session) =
            (number(claim.seen), number(claim.former), number(claim.session));
        let mut keys = vec!["lease:{job}", "lease:{job}:attributes", "lease:tokens"];
        let mut arguments = vec![claim.nonce, "1", claim.lessee, TTL, DAY, claim.waits, &seen];
        arguments.extend([key(claim.former), &former, key(claim.session), &session]);
        if !claim.attributes.is_empty() {
            keys.push("lease:index");
            arguments.push(JOB);
            arguments.extend(claim.attributes);
        }
        Answer::read(self.run("obtain_under", &keys, &arguments))
    }

    /// The store sends this claim after a lock has been refused.
    pub(super) fn obtain(&mut self, nonce: &str) -> Answer {
        let keys = ["lease:{job}", "lease:{job}:attributes", "lease:tokens"];
        Answer::read(self.run("obtain", &keys, &[nonce, "1", "a", TTL, DAY, "0"]))
    }

    /// The store sends this claim first.
    pub(super) fn lock(&self, nonce: &str) {
        let text = format!("{nonce}h-1 0 0 a");
        let answer = self.command(&format!("SET lease:{{job}} \"{text}\" NX PX {TTL}"));
        assert_eq!(answer, "OK");
    }

    pub(super) fn adopt(
        &mut self,
        handed: &str,
        token: u64,
        nonce: &str,
        session: Option<u64>,
    ) -> Answer {
        let keys = ["lease:{job}", "lease:{job}:attributes", "lease:tokens"];
        let (token, number) = (token.to_string(), session.unwrap_or_default().to_string());
        let under = if session.is_some() { [WORKER, &number] } else { [""; 2] };
        let [key, number] = under;
        let arguments = [handed, "1", &token, nonce, "1", "b", TTL, DAY, key, number];
        Answer::read(self.run("adopt", &keys, &arguments))
    }

    pub(super) fn heartbeat(&mut self, nonce: &str, token: u64) -> bool {
        let arguments = [DAY, "1", nonce, "1", "1", TTL, &token.to_string()];
        let answer = self.run("heartbeat", &["lease:{job}"], &arguments);
        answer == Value::Array(vec![Value::Int(1)])
    }

    pub(super) fn release(&mut self, nonce: &str) {
        let text = format!("{nonce}h-1 0 0 a");
        self.run("release", &["lease:{job}"], &["PUBLISH", "lease:tokens", &text]);
    }

    pub(super) fn reserve(&mut self, nonce: &str, token: u64) {
        let token = token.to_string();
        let arguments = [nonce, "1", &token, TTL, DAY, "PUBLISH", "freed"];
        assert_eq!(self.run("reserve", &["lease:{job}"], &arguments), Value::Int(1));
    }

    pub(super) fn transfer(&mut self, nonce: &str, token: u64, to: &str) {
        let token = token.to_string();
        let arguments = [nonce, "1", &token, "1", to, TTL, DAY, "PUBLISH", "freed"];
        let answer = self.run("transfer", &["lease:{job}"], &arguments);
        assert_eq!(answer, Value::BulkString(b"applied".to_vec()));
    }

    /// Returns whether the grant of `token` has ended.
    pub(super) fn end(&mut self, token: u64) -> bool {
        let arguments = [&token.to_string(), DAY, "PUBLISH", "freed"];
        match self.run("end_session", &["lease:{job}", "lease:tokens"], &arguments) {
            Value::BulkString(word) if word == b"ended" => true,
            answer => {
                assert!(Answer::read(answer).is_held());
                false
            }
        }
    }

    pub(super) fn read(&mut self) -> Read {
        let keys = ["lease:{job}", "lease:{job}:attributes"];
        let Value::Array(mut records) = self.run("read", &keys, &["1"]) else { panic!() };
        Read::of(records.pop().unwrap())
    }

    pub(super) fn evict(&mut self, nonce: &str) -> Value {
        self.run("evict", &["lease:{job}"], &[nonce])
    }

    pub(super) fn count(&mut self) -> String {
        let keys = ["lease:{job}", "lease:{job}:attributes", "lease:index"];
        match self.try_run("count", &keys, &["n", "0", JOB]) {
            Ok(Value::BulkString(answer)) => String::from_utf8(answer).unwrap(),
            other => format!("{other:?}"),
        }
    }

    /// The milliseconds until the Redis key expires. -1: never. -2: the key does not exist.
    pub(super) fn left(&mut self, key: &str) -> i64 {
        redis::cmd("PTTL").arg(key).query(&mut self.connection).unwrap()
    }

    pub(super) fn expire(&self) {
        self.redis.set_lease_left(JOB, std::time::Duration::ZERO);
    }
}
