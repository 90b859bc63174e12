//! Single scripts on a quorum's node, with requests in orders that only delays can cause.

use redis::{Connection, FromRedisValue, Script, Value};

use lease_test_servers::redis::{RedisServer, until};

use crate::setting::{servers, uptime};

const DAY: &str = "86400000";
const TTL: &str = "60000";

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
        let whole = Script::new(lease_redis::script(script).unwrap());
        let mut call = whole.key("{job}");
        if ["obtain", "adopt"].contains(&script) {
            call.key("{job}:attributes");
        }
        for argument in arguments {
            call.arg(argument);
        }
        call.invoke(&mut self.connection).unwrap()
    }

    /// The first two words of the answer. The second word of a grant is its token.
    fn obtain(&mut self, nonce: &str, round: &str) -> [String; 2] {
        self.words("obtain", &[nonce, "a", TTL, DAY, round, "0"])
    }

    /// Obtains a new key with a proposed time that is `ahead` microseconds ahead of the node's. Returns the
    /// token and the proposed time.
    fn first_token(&mut self, ahead: i64) -> (u64, u64) {
        let _: () = redis::cmd("FLUSHALL").query(&mut self.connection).unwrap();
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        let proposed = (seconds * 1_000_000 + micros + ahead).to_string();
        let [granted, token] = self.words("obtain", &["n", "a", TTL, DAY, "1", &proposed]);
        assert_eq!(granted, "granted");
        (token.parse().unwrap(), proposed.parse().unwrap())
    }

    fn adopt(&mut self, handed: &str, token: &str, nonce: &str, round: &str) -> [String; 2] {
        self.words("adopt", &[handed, nonce, "b", TTL, DAY, round, token])
    }

    fn words(&mut self, script: &str, arguments: &[&str]) -> [String; 2] {
        let answer: Vec<Value> = self.run(script, arguments);
        let mut words = answer.into_iter().map(|word| redis::from_redis_value(word).unwrap());
        [words.next().unwrap(), words.next().unwrap()]
    }

    fn withdraw(&mut self, nonce: &str, round: &str) -> bool {
        self.run("withdraw", &[nonce, round, "PUBLISH", "freed"])
    }

    fn release(&mut self, nonce: &str, token: &str) -> bool {
        self.run("release", &[nonce, token, "", DAY, "1", "PUBLISH", "freed"])
    }

    /// Releases as on one server, not on a quorum's node.
    fn release_alone(&mut self, nonce: &str) -> bool {
        self.run("release", &[nonce, "1", "", DAY, "0", "PUBLISH", "freed"])
    }

    fn raise(&mut self, nonce: &str, token: &str) -> bool {
        self.run("raise", &[nonce, token, DAY])
    }

    fn expire(&mut self) {
        let mut end = redis::cmd("HSET");
        let _: () = end.arg("{job}").arg("ends").arg(1).query(&mut self.connection).unwrap();
    }

    fn restore(&mut self, nonce: &str, token: &str) -> bool {
        self.run("restore", &[nonce, "a", token, "1", TTL, DAY])
    }

    fn holder(&mut self) -> Option<String> {
        let mut ask = redis::cmd("HMGET");
        let ask = ask.arg("{job}").arg("granted").arg("ends");
        let held: (Option<String>, Option<u64>) = ask.query(&mut self.connection).unwrap();
        // These tests end leases in 1970.
        held.1.filter(|ends| *ends > 1).and(held.0)
    }

    fn holds(&mut self, nonce: &str) -> bool {
        self.holder().as_deref() == Some(nonce)
    }
}

#[test]
fn late_withdrawal_does_not_affect_a_later_round() {
    let Some(mut node) = Node::start() else { return };
    assert_eq!(node.obtain("n1", "1")[0], "granted");
    assert_eq!(node.obtain("n1", "2")[0], "again");

    assert!(!node.withdraw("n1", "1"));
    assert!(node.holds("n1"), "the withdrawal of round 1 has affected round 2");
    assert!(node.withdraw("n1", "2"));
    assert_eq!(node.holder(), None);
    assert_eq!(node.obtain("n1", "3")[0], "granted", "a withdrawn claim was refused");
}

#[test]
fn late_withdrawal_does_not_affect_an_extended_grant() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    let answers: Vec<u32> = node.run("heartbeat", &[DAY, "n1", "1", TTL, &token]);
    assert_eq!(answers, [1]);

    assert!(!node.withdraw("n1", "7"));
    assert!(node.holds("n1"));
}

#[test]
fn repeated_adoption_survives_the_withdrawal_of_its_first_round() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    assert_eq!(node.adopt("n1", &token, "n2", "1")[0], "granted");
    assert_eq!(node.adopt("n1", &token, "n2", "2")[0], "again");

    assert!(!node.withdraw("n2", "1"));
    assert!(node.holds("n2"));
}

#[test]
fn handed_over_grant_is_not_restored_after_a_withdrawal() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    assert_eq!(node.adopt("n1", &token, "n2", "1")[0], "granted");
    assert!(node.withdraw("n2", "1"));

    assert!(!node.restore("n1", &token), "restored after the hand-over");
    assert_eq!(node.obtain("n1", "9")[0], "held", "a late duplicate was granted");
}

#[test]
fn adoption_needs_the_token_of_the_grant() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "0");
    let later = (token.parse::<u64>().unwrap() + 1).to_string();

    assert_eq!(node.adopt("n1", &later, "n2", "0")[0], "held");
    assert_eq!(node.adopt("n1", &token, "n2", "0")[0], "granted");
}

/// On one server, a release records nothing: the next grant records which grant was released before it.
#[test]
fn next_grant_records_the_release_before_it() {
    let Some(mut node) = Node::start() else { return };
    assert_eq!(node.obtain("n1", "0")[0], "granted");
    assert!(node.release_alone("n1"));
    assert!(!node.release_alone("n1"), "released twice");
    assert_eq!(node.obtain("n1", "0")[0], "held", "a late duplicate was granted");
    assert_eq!(node.obtain("n2", "0")[0], "granted");
    assert!(!node.release_alone("n1"), "the key belongs to another grant");
    assert!(node.holds("n2"));
    node.expire();

    assert_eq!(node.obtain("n1", "0")[0], "held", "a late duplicate was granted");
}

/// The claim of the released grant arrives later.
#[test]
fn release_of_an_unknown_grant_is_recorded() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    assert!(node.release("n1", &token));
    let next = (token.parse::<u64>().unwrap() + 1).to_string();
    assert!(node.release("n2", &next));
    assert_eq!(node.obtain("n3", "1")[0], "granted");
    assert!(node.withdraw("n3", "1"));

    assert_eq!(node.obtain("n2", "1")[0], "held", "used after its release");
    assert!(!node.restore("n2", &next), "used after its release");
}

#[test]
fn release_is_recorded_beneath_a_withdrawn_vote() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    // The grant expires on this node alone, which votes for another before the release arrives.
    node.expire();
    assert_eq!(node.obtain("n2", "1")[0], "granted");
    assert!(!node.release("n1", &token), "the key belongs to another grant");
    assert!(node.holds("n2"));
    assert!(node.withdraw("n2", "1"));

    assert!(!node.restore("n1", &token), "used after its release");
    assert_eq!(node.holder(), None);
}

#[test]
fn unreleased_grant_is_restored_after_a_withdrawal() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    node.expire();
    assert_eq!(node.obtain("n2", "1")[0], "granted");
    assert!(!node.restore("n1", &token), "the key belongs to another grant");
    assert!(node.withdraw("n2", "1"));

    assert!(node.restore("n1", &token));
    assert!(node.holds("n1"));
}

#[test]
fn node_counts_from_a_proposed_time_near_its_own() {
    let Some(server) = RedisServer::with_clock() else { return };
    let mut node = Node::on(server);
    // The clock returns to this time at every query.
    node.server.set_clock("2040-01-01 00:00:00");
    until("the server uses that clock", || uptime(&node.server) > 1);

    for ahead in [99_000, 0, -99_000] {
        let (token, proposed) = node.first_token(ahead);
        assert_eq!(token, proposed, "{ahead} us ahead");
    }
    for ahead in [101_000, -101_000] {
        let (token, proposed) = node.first_token(ahead);
        assert_ne!(token, proposed, "{ahead} us ahead");
    }
}

/// The grants that the node forgot at its start may be as recent as the proposed time.
#[test]
fn restarted_node_counts_from_its_own_time() {
    let Some(server) = RedisServer::with_clock() else { return };
    let mut node = Node::on(server);
    node.server.set_clock("2020-01-01 00:00:00");
    until("the uptime is negative", || uptime(&node.server) < 0);

    let (token, proposed) = node.first_token(50_000);

    assert!(token < proposed - 49_000, "{token} is not the node's time, 50 ms before {proposed}");
}

/// Lets a node count further than a grant's token, reports the token to it by `report`, and expects that a
/// later grant can be restored.
fn restored_where_the_counter_ran_ahead(report: impl FnOnce(&mut Node, &str)) {
    let Some(mut node) = Node::start() else { return };
    let [_, counted] = node.obtain("n1", "1");
    let agreed = (counted.parse::<u64>().unwrap() - 10).to_string();
    let next = (counted.parse::<u64>().unwrap() - 9).to_string();
    report(&mut node, &agreed);
    node.expire();

    assert!(node.restore("n2", &next), "a later grant was not restored");
    node.expire();
    assert!(!node.restore("n1", &agreed), "a followed grant was restored");
}

#[test]
fn grant_is_restored_where_the_counter_ran_ahead() {
    restored_where_the_counter_ran_ahead(|node, agreed| {
        node.raise("n1", agreed);
    });
    restored_where_the_counter_ran_ahead(|node, agreed| {
        let answers: Vec<u32> = node.run("heartbeat", &[DAY, "n1", "1", TTL, agreed]);
        assert_eq!(answers, [1]);
    });
    restored_where_the_counter_ran_ahead(|node, agreed| assert!(node.release("n1", agreed)));
    restored_where_the_counter_ran_ahead(|node, agreed| {
        node.expire();
        assert!(node.release("n1", agreed));
    });
    restored_where_the_counter_ran_ahead(|node, agreed| {
        node.raise("n1", agreed);
        node.expire();
        node.obtain("n9", "1");
        assert!(node.withdraw("n9", "1"));
    });
    restored_where_the_counter_ran_ahead(|node, agreed| {
        node.expire();
        node.obtain("n9", "1");
        node.release("n1", agreed);
        assert!(node.withdraw("n9", "1"));
    });
}

#[test]
fn grant_is_not_restored_where_the_token_is_unknown() {
    let Some(mut node) = Node::start() else { return };
    let [_, counted] = node.obtain("n1", "1");
    node.expire();
    let before = (counted.parse::<u64>().unwrap() - 1).to_string();
    assert!(!node.restore("n0", &before), "a grant was restored that may have been followed");
}
