//! Single scripts of a quorum's node, with requests in orders that only delays can cause.

use lease_test_servers::redis::{RedisServer, until};
use redis::{Connection, FromRedisValue, Script, Value};

use crate::setting::servers;

const DAY: &str = "86400000";
const TTL: &str = "60000";

const LOCK: &str = "{job}";
const COUNTER: &str = "{job}:counter";

/// Two claims.
const ONE: &str = "11111111111111111111111111111111";
const TWO: &str = "22222222222222222222222222222222";

/// A token that is larger than the time of every node.
const FUTURE: u64 = 8_000_000_000_000_000;

/// One node, and requests to it for one key.
struct Node {
    connection: Connection,
    server: RedisServer,
}

impl Node {
    fn start() -> Option<Self> {
        let [server] = servers()?;
        Some(Self::on(server))
    }

    fn on(server: RedisServer) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        Self { connection: client.get_connection().unwrap(), server }
    }

    fn run<T: FromRedisValue>(&mut self, script: &str, arguments: &[&str]) -> T {
        let script = Script::new(lease_redis::script(&format!("quorum/{script}")).unwrap());
        let mut call = script.key(LOCK);
        call.key(COUNTER);
        for argument in arguments {
            call.arg(argument);
        }
        call.invoke(&mut self.connection).unwrap()
    }

    /// Whether the node accepts a proposal.
    fn claim(&mut self, nonce: &str, token: u64) -> bool {
        matches!(self.claim_answer(nonce, token), Value::Int(_))
    }

    fn claim_answer(&mut self, nonce: &str, token: u64) -> Value {
        let (text, token) = (format!("{nonce}h-{token} 0 a"), token.to_string());
        let [answer]: [Value; 1] = self.run("claim", &[DAY, &text, &token, TTL, "0"]);
        answer
    }

    fn adopt(&mut self, handed: &str, handed_token: u64, nonce: &str, token: u64) -> bool {
        let above = (handed_token + 1).to_string();
        let (text, token) = (format!("{nonce}h-{token} 0 b"), token.to_string());
        let answer: Value = self.run("adopt", &[DAY, handed, &above, &text, &token, TTL]);
        matches!(answer, Value::Int(_))
    }

    fn withdraw(&mut self, nonce: &str, token: u64) -> bool {
        self.run("withdraw", &[nonce, &token.to_string(), &(token + 1).to_string()])
    }

    fn release(&mut self, nonce: &str, token: u64) -> bool {
        let (usual, above) = (format!("{nonce}h-{token} "), (token + 1).to_string());
        let [released]: [bool; 1] = self.run("release", &[DAY, &usual, &above]);
        released
    }

    fn reserve(&mut self, nonce: &str, token: u64) -> bool {
        let above = (token + 1).to_string();
        self.run("reserve", &[DAY, nonce, &above, &token.to_string(), "a", TTL])
    }

    fn heartbeat(&mut self, nonce: &str, beat: u64, token: u64) -> String {
        let (beat, token) = (beat.to_string(), token.to_string());
        let [answer]: [String; 1] = self.run("heartbeat", &[DAY, nonce, &beat, TTL, &token]);
        answer
    }

    fn restore(&mut self, nonce: &str, token: u64) -> bool {
        let text = format!("{nonce}hw{token} 1 a");
        self.run("restore", &[&text, &token.to_string(), TTL])
    }

    fn expire(&self) {
        self.server.command(&format!("DEL {LOCK}"));
    }

    /// The nonce and the token of the lock. Empty if the key is free.
    fn holder(&self) -> (String, u64) {
        let lock = self.server.command(&format!("GET {LOCK}"));
        let token = lock.get(34..).and_then(|rest| rest.split(' ').next()?.parse().ok());
        (lock.get(..32).unwrap_or_default().to_owned(), token.unwrap_or(0))
    }

    fn counter(&self) -> String {
        self.server.command(&format!("GET {COUNTER}"))
    }
}

#[test]
fn only_larger_proposals_are_accepted() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    node.expire();

    for smaller in [FUTURE - 1, FUTURE] {
        let answer = node.claim_answer(TWO, smaller);
        assert_eq!(answer, Value::BulkString(format!("<{FUTURE}").into_bytes()));
    }
    assert_eq!(node.holder().0, "", "a refused proposal was written");
    assert_eq!(node.counter(), FUTURE.to_string());
    assert!(node.claim(TWO, FUTURE + 1));
}

#[test]
fn refused_claim_leaves_the_counter_as_it_was() {
    let Some(mut node) = Node::start() else { return };
    node.server.command(&format!("SET {LOCK} \"{ONE}h-{FUTURE} 0 a 0\" PX 60000"));

    assert!(!node.claim(TWO, FUTURE + 2));
    assert_eq!(node.counter(), "");

    node.server.command(&format!("SET {COUNTER} \"{FUTURE} 5\""));
    assert!(!node.claim(TWO, FUTURE + 2));
    assert_eq!(node.counter(), format!("{FUTURE} 5"));
    assert!(node.server.command(&format!("PTTL {COUNTER}")).parse::<i64>().unwrap() > 0);
}

/// A doubled request is accepted once. Its lease is not extended.
#[test]
fn doubled_claim_changes_nothing() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    node.server.command(&format!("PEXPIRE {LOCK} 20000"));

    assert!(node.claim(ONE, FUTURE));

    let left: u64 = node.server.command(&format!("PTTL {LOCK}")).parse().unwrap();
    assert!(left <= 20_000, "{left}");
}

#[test]
fn late_withdrawal_does_not_affect_a_larger_proposal() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    assert!(node.claim(ONE, FUTURE + 2));

    assert!(!node.withdraw(ONE, FUTURE));
    assert_eq!(node.holder(), (ONE.to_owned(), FUTURE + 2));
    assert!(node.withdraw(ONE, FUTURE + 2));
    assert_eq!(node.holder().0, "");
    assert!(node.claim(ONE, FUTURE + 4), "a withdrawn claim was refused");
}

#[test]
fn late_withdrawal_does_not_affect_an_extended_grant() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    assert_eq!(node.heartbeat(ONE, 1, FUTURE + 2), "1");

    assert!(!node.withdraw(ONE, FUTURE));
    assert_eq!(node.holder(), (ONE.to_owned(), FUTURE + 2));
}

#[test]
fn heartbeat_with_a_smaller_token_is_refused() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE + 2));

    assert_eq!(node.heartbeat(ONE, 1, FUTURE), "superseded");
    assert_eq!(node.holder(), (ONE.to_owned(), FUTURE + 2));
}

#[test]
fn handed_over_grant_is_not_restored_after_a_release() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    assert!(node.adopt(ONE, FUTURE, TWO, FUTURE + 2));
    assert_eq!(node.heartbeat(ONE, 1, FUTURE), "superseded");
    assert!(node.release(TWO, FUTURE + 2));

    assert!(!node.restore(ONE, FUTURE), "restored after the hand-over");
    assert!(!node.claim(ONE, FUTURE), "a late duplicate was accepted");
}

#[test]
fn adoption_takes_no_later_grant_of_the_same_claim() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    assert!(node.claim(ONE, FUTURE + 2));

    assert!(!node.adopt(ONE, FUTURE, TWO, FUTURE + 4));
    assert!(node.adopt(ONE, FUTURE + 2, TWO, FUTURE + 4));
    assert_eq!(node.holder(), (TWO.to_owned(), FUTURE + 4));
}

#[test]
fn repeated_adoption_survives_the_withdrawal_of_its_first_proposal() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    assert!(node.adopt(ONE, FUTURE, TWO, FUTURE + 2));
    assert!(node.adopt(ONE, FUTURE, TWO, FUTURE + 4));

    assert!(!node.withdraw(TWO, FUTURE + 2));
    assert_eq!(node.holder(), (TWO.to_owned(), FUTURE + 4));
}

/// The claim of the released grant arrives later.
#[test]
fn release_of_an_unknown_grant_is_recorded() {
    let Some(mut node) = Node::start() else { return };

    assert!(!node.release(ONE, FUTURE));

    assert_eq!(node.counter(), (FUTURE + 1).to_string());
    assert!(!node.claim(ONE, FUTURE), "used after its release");
    assert!(!node.restore(ONE, FUTURE), "used after its release");
}

#[test]
fn release_without_a_counter_keeps_the_time() {
    let Some(mut node) = Node::start() else { return };

    assert!(!node.release(ONE, 5));

    let counter = node.counter();
    let (count, bound) = counter.split_once(' ').unwrap();
    assert!(count.parse::<u64>().unwrap() > 1_000_000_000_000_000, "{counter}");
    assert_eq!(bound, "6");
}

#[test]
fn release_is_recorded_beneath_a_withdrawn_vote() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    // The grant expires on this node alone, which votes for another before the release arrives.
    node.expire();
    assert!(node.claim(TWO, FUTURE + 9));
    assert!(!node.release(ONE, FUTURE), "the key belongs to another grant");
    assert!(node.withdraw(TWO, FUTURE + 9));

    assert!(!node.restore(ONE, FUTURE), "used after its release");
    assert_eq!(node.holder().0, "");
}

#[test]
fn unreleased_grant_is_restored_after_a_withdrawal() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    node.expire();
    assert!(node.claim(TWO, FUTURE + 2));
    assert!(!node.restore(ONE, FUTURE), "the key belongs to another grant");
    assert!(node.withdraw(TWO, FUTURE + 2));

    assert_eq!(node.counter(), format!("{} {FUTURE}", FUTURE + 2));
    assert!(node.restore(ONE, FUTURE));
    assert_eq!(node.holder(), (ONE.to_owned(), FUTURE));
    assert!(!node.claim(TWO, FUTURE + 1), "the counter was lost");
}

/// The claim may have been granted by its first proposal, so its second vote leaves a trace.
#[test]
fn withdrawn_second_vote_leaves_a_trace() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    node.expire();
    assert!(node.claim(TWO, FUTURE + 2));
    assert!(node.claim(TWO, FUTURE + 4));
    assert!(node.withdraw(TWO, FUTURE + 4));

    assert!(!node.restore(ONE, FUTURE));
}

#[test]
fn restore_writes_no_counter() {
    let Some(mut node) = Node::start() else { return };

    assert!(node.restore(ONE, FUTURE));

    assert_eq!(node.counter(), "");
    assert_eq!(node.heartbeat(ONE, 2, FUTURE), "1");
}

#[test]
fn reservation_is_refused_after_a_later_grant() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    node.expire();
    assert!(node.claim(TWO, FUTURE + 9));
    node.expire();

    assert!(!node.reserve(ONE, FUTURE));
    assert!(node.reserve(TWO, FUTURE + 9));
    assert!(!node.claim(ONE, FUTURE + 20), "the key is reserved");
    assert_eq!(node.heartbeat(TWO, 1, FUTURE + 9), "revoked");
    assert!(!node.withdraw(TWO, FUTURE + 9), "the reservation was withdrawn");
}

#[test]
fn counter_of_a_released_key_is_one_number() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    assert!(node.release(ONE, FUTURE));

    assert_eq!(node.counter(), (FUTURE + 1).to_string());
    assert_eq!(node.server.command(&format!("OBJECT ENCODING {COUNTER}")), "int");
    assert_eq!(node.server.command("DBSIZE"), "1");
}

/// A node without a counter accepts a time that is a little behind its own.
#[test]
fn new_key_accepts_a_time_near_its_own() {
    let Some(server) = RedisServer::with_clock() else { return };
    let mut node = Node::on(server);
    // The clock returns to this time at every query.
    node.server.set_clock("2040-01-01 00:00:00");
    let time = |node: &mut Node| {
        let time: (u64, u64) = redis::cmd("TIME").query(&mut node.connection).unwrap();
        time.0 * 1_000_000 + time.1
    };
    until("the server uses that clock", || time(&mut node) > 2_000_000_000_000_000);

    for (behind, is_accepted) in [(101_000, false), (99_000, true), (0, true)] {
        node.server.command("FLUSHALL");
        let proposed = time(&mut node) - behind;
        match node.claim_answer(ONE, proposed) {
            Value::Int(reported) => {
                assert!(is_accepted, "{behind} us behind");
                // The fixed clock returns to its time.
                assert!(reported > 0);
            }
            answer => {
                assert!(!is_accepted, "{behind} us behind");
                let Value::BulkString(answer) = answer else { panic!("{answer:?}") };
                assert!(answer.starts_with(b"@"), "{answer:?}");
            }
        }
    }
}
