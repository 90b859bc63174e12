//! The scripts of one quorum node, in orders that only delayed requests can cause.

use lease_test_servers::redis::{RedisServer, until};
use redis::{Connection, FromRedisValue, Script, Value};

use crate::setting::servers;

const DAY: &str = "86400000";
const TTL: &str = "60000";

const KEY: &str = "{job}";

const ONE: &str = "11111111111111111111111111111111";
const TWO: &str = "22222222222222222222222222222222";

const FUTURE: u64 = 8_000_000_000_000_000;

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
        let mut call = script.key(KEY);
        for argument in arguments {
            call.arg(argument);
        }
        call.invoke(&mut self.connection).unwrap()
    }

    /// Returns whether the node accepts the proposal `token`.
    fn claim(&mut self, nonce: &str, token: u64) -> bool {
        matches!(self.claim_answer(nonce, token), Value::Int(_))
    }

    fn claim_answer(&mut self, nonce: &str, token: u64) -> Value {
        let [answer]: [Value; 1] = self.run("claim", &[DAY, TTL, &text(nonce, token)]);
        answer
    }

    fn adopt(&mut self, handed: &str, handed_token: u64, nonce: &str, token: u64) -> bool {
        let above = digits(handed_token + 1);
        let answer: Value = self.run("adopt", &[DAY, handed, &above, &text(nonce, token), TTL]);
        matches!(answer, Value::Int(_))
    }

    fn withdraw(&mut self, nonce: &str, token: u64) -> bool {
        self.run("withdraw", &[DAY, nonce, &digits(token), &digits(token + 1)])
    }

    fn release(&mut self, nonce: &str, token: u64) -> bool {
        let usual = &text(nonce, token)[..82];
        let [released]: [bool; 1] = self.run("release", &[DAY, usual, &digits(token + 1)]);
        released
    }

    fn reserve(&mut self, nonce: &str, token: u64) -> bool {
        self.run("reserve", &[DAY, nonce, &digits(token + 1), &digits(token), "a", TTL])
    }

    fn heartbeat(&mut self, nonce: &str, beat: u64, token: u64) -> String {
        let (beat, token) = (beat.to_string(), digits(token));
        let [answer]: [String; 1] = self.run("heartbeat", &[DAY, nonce, &beat, TTL, &token]);
        answer
    }

    fn restore(&mut self, nonce: &str, token: u64) -> bool {
        self.run("restore", &[DAY, nonce, &digits(token), "1", "a", TTL])
    }

    fn expire(&self) {
        self.set_end(1);
    }

    /// The time is in microseconds since 1970.
    fn set_end(&self, end: u64) {
        let length = self.text().len();
        self.server.command(&format!("SETRANGE {KEY} {} {}", length - 16, digits(end)));
    }

    fn text(&self) -> String {
        self.server.command(&format!("GET {KEY}"))
    }

    fn holder(&self) -> (String, u64) {
        let text = self.text();
        let end = text.get(82..).and_then(|rest| rest.get(rest.len() - 16..)?.parse().ok());
        if end.is_none_or(|end: u64| end < 2) {
            return (String::new(), 0);
        }
        (text[2..34].to_owned(), text[34..50].parse().unwrap())
    }

    fn counter(&self) -> String {
        let text = self.text();
        let Some(numbers) = text.get(50..82) else { return text };
        let (count, bound) = numbers.split_at(16);
        if count == bound { count.to_owned() } else { format!("{count} {bound}") }
    }
}

fn text(nonce: &str, token: u64) -> String {
    let token = digits(token);
    format!("h-{nonce}{token}{token}{token}0 a")
}

fn digits(number: u64) -> String {
    format!("{number:016}")
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
    assert!(node.claim(ONE, FUTURE));
    let held = node.text();
    assert!(!node.claim(TWO, FUTURE + 2));
    assert_eq!(node.text(), held);

    let free = format!("{} {}", digits(FUTURE), digits(5));
    node.server.command(&format!("SET {KEY} \"{free}\""));
    assert!(!node.claim(TWO, FUTURE));
    assert_eq!(node.text(), free);
}

#[test]
fn doubled_claim_changes_nothing() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    node.set_end(FUTURE);

    assert!(node.claim(ONE, FUTURE));

    assert!(node.text().ends_with(&digits(FUTURE)), "{}", node.text());
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
    assert_eq!(bound, digits(6));
}

#[test]
fn release_during_another_vote_prevents_a_restore() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    // The node votes for another claim before the release arrives.
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

/// The first proposal may have granted the claim.
#[test]
fn withdrawn_second_vote_prevents_a_restore() {
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

    assert_eq!(node.counter(), digits(0));
    assert_eq!(node.heartbeat(ONE, 2, FUTURE), "1");
    assert_eq!(node.counter(), digits(0));
    assert!(node.withdraw(ONE, FUTURE));
    assert_eq!(node.server.command("DBSIZE"), "0");
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
    assert_eq!(node.server.command(&format!("OBJECT ENCODING {KEY}")), "int");
    assert_eq!(node.server.command("DBSIZE"), "1");
}

/// A node accepts a time that is less than 0.1 s behind its own time.
#[test]
fn claim_of_new_key_may_propose_a_time_near_the_clock() {
    let Some(server) = RedisServer::with_clock() else { return };
    let mut node = Node::on(server);
    // This server clock does not advance.
    node.server.set_clock("2040-01-01 00:00:00");
    let time = |node: &mut Node| {
        let time: (u64, u64) = redis::cmd("TIME").query(&mut node.connection).unwrap();
        time.0 * 1_000_000 + time.1
    };
    until("the server uses the fixed clock", || time(&mut node) > 2_000_000_000_000_000);

    for (behind, is_accepted) in [(101_000, false), (99_000, true), (0, true)] {
        node.server.command("FLUSHALL");
        let proposed = time(&mut node) - behind;
        match node.claim_answer(ONE, proposed) {
            Value::Int(reported) => {
                assert!(is_accepted, "{behind} us behind");
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

#[test]
fn expired_lock_counts_as_no_lock() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));
    node.expire();
    let text = node.text();

    assert_eq!(node.heartbeat(ONE, 1, FUTURE), "expired");
    assert!(!node.adopt(ONE, FUTURE, TWO, FUTURE + 2));
    assert!(!node.withdraw(ONE, FUTURE));
    assert!(!node.run::<bool>("evict", &[ONE]));
    assert!(!node.run::<bool>("mark", &[]));
    assert_eq!(node.run::<[Value; 1]>("holder", &["1"]), [Value::Nil]);
    assert_eq!(node.text(), text);
    assert!(node.restore(ONE, FUTURE));
}

#[test]
fn holder_of_a_lock_is_reported_with_the_time_left() {
    let Some(mut node) = Node::start() else { return };
    assert!(node.claim(ONE, FUTURE));

    let [Value::Array(answer)]: [Value; 1] = node.run("holder", &["1"]) else { panic!() };

    let [Value::BulkString(text), Value::Int(left)] = &answer[..] else { panic!("{answer:?}") };
    assert!(text.starts_with(format!("h-{ONE}").as_bytes()), "{text:?}");
    assert!(*left > 0 && *left <= 60_000, "{left}");
    assert_eq!(node.text().get(..2), Some("hw"), "the lock was not marked");
    assert!(node.release(ONE, FUTURE), "a marked lock was not released");
    assert_eq!(node.text(), digits(FUTURE + 1));
}

/// An earlier version wrote the first text. Another program may write the other texts.
#[test]
fn text_of_another_form_is_refused_and_kept() {
    let Some(mut node) = Node::start() else { return };
    let earlier = format!("{ONE}h-1767225600000000 0 a 1767225500000000");
    for text in [&earlier, "17", "0123456789abcdef", "x-short"] {
        node.server.command(&format!("SET {KEY} \"{text}\""));

        let Value::BulkString(answer) = node.claim_answer(TWO, FUTURE) else { panic!("{text}") };

        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with('!') && answer.contains("WRONGTYPE"), "{text}: {answer}");
        let released: [Value; 1] =
            node.run("release", &[DAY, &text_of_release(TWO), &digits(FUTURE + 1)]);
        assert!(matches!(released, [Value::BulkString(_)]), "{text}: {released:?}");
        assert_eq!(node.text(), text);
    }
}

fn text_of_release(nonce: &str) -> String {
    text(nonce, FUTURE)[..82].to_owned()
}
