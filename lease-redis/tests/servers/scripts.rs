//! What a node of a quorum does with requests that arrive late, each script by itself: no client
//! sends them in such an order on purpose.

use redis::{Connection, FromRedisValue, Script, Value};

use lease_tests::redis::{RedisServer, until};

use crate::setting::{servers, uptime};

const DAY: &str = "86400000";
const TTL: &str = "60000";

/// One node, and what it is sent about one key.
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

    /// The first two words of the answer; the second of a grant is its token.
    fn obtain(&mut self, nonce: &str, round: &str) -> [String; 2] {
        self.words("obtain", &[nonce, "a", TTL, DAY, round, "0", "0"])
    }

    /// The token that a new key's first grant is given, where a time is proposed that is so many
    /// microseconds ahead of the node's own; and that time.
    fn first_token(&mut self, ahead: i64) -> (u64, u64) {
        let _: () = redis::cmd("FLUSHALL").query(&mut self.connection).unwrap();
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        let proposed = (seconds * 1_000_000 + micros + ahead).to_string();
        let [granted, token] = self.words("obtain", &["n", "a", TTL, DAY, "1", "0", &proposed]);
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

    /// As one server is asked, and not one of several.
    fn release_alone(&mut self, nonce: &str) -> bool {
        self.run("release", &[nonce, "1", "", DAY, "0", "PUBLISH", "freed"])
    }

    fn raise(&mut self, nonce: &str, token: &str) -> bool {
        self.run("raise", &[nonce, token, DAY])
    }

    fn run_out(&mut self) {
        let mut end = redis::cmd("HSET");
        let _: () = end.arg("{job}").arg("ends").arg(1).query(&mut self.connection).unwrap();
    }

    fn put_back(&mut self, nonce: &str, token: &str) -> bool {
        self.run("put_back", &[nonce, "a", token, "1", TTL, DAY, "0"])
    }

    fn holder(&mut self) -> Option<String> {
        let mut ask = redis::cmd("HMGET");
        let ask = ask.arg("{job}").arg("granted").arg("ends");
        let held: (Option<String>, Option<u64>) = ask.query(&mut self.connection).unwrap();
        // What has ended here ended long ago.
        held.1.filter(|ends| *ends > 1).and(held.0)
    }

    fn holds(&mut self, nonce: &str) -> bool {
        self.holder().as_deref() == Some(nonce)
    }
}

#[test]
fn a_late_withdrawal_leaves_a_later_round_alone() {
    let Some(mut node) = Node::start() else { return };
    assert_eq!(node.obtain("n1", "1")[0], "granted");
    assert_eq!(node.obtain("n1", "2")[0], "again");

    assert!(!node.withdraw("n1", "1"));
    assert!(node.holds("n1"), "the vote of round 2 was taken back by the withdrawal of round 1");
    assert!(node.withdraw("n1", "2"));
    assert_eq!(node.holder(), None);
    assert_eq!(node.obtain("n1", "3")[0], "granted", "what was withdrawn may be asked for again");
}

#[test]
fn a_late_withdrawal_leaves_a_grant_that_was_extended_alone() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    let answers: Vec<u32> = node.run("heartbeat", &[DAY, "n1", "1", TTL, &token]);
    assert_eq!(answers, [1]);

    assert!(!node.withdraw("n1", "7"));
    assert!(node.holds("n1"));
}

#[test]
fn an_adoption_that_is_asked_for_twice_outlives_the_withdrawal_of_its_first_round() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    assert_eq!(node.adopt("n1", &token, "n2", "1")[0], "granted");
    assert_eq!(node.adopt("n1", &token, "n2", "2")[0], "again");

    assert!(!node.withdraw("n2", "1"));
    assert!(node.holds("n2"));
}

#[test]
fn who_handed_over_is_not_put_back_after_the_adoption_was_withdrawn() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    assert_eq!(node.adopt("n1", &token, "n2", "1")[0], "granted");
    assert!(node.withdraw("n2", "1"));

    assert!(!node.put_back("n1", &token), "it was handed over here");
    assert_eq!(node.obtain("n1", "9")[0], "held", "a late duplicate of what was handed over");
}

#[test]
fn one_server_hands_over_the_grant_of_that_token_alone() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "0");
    let later = (token.parse::<u64>().unwrap() + 1).to_string();

    assert_eq!(node.adopt("n1", &later, "n2", "0")[0], "held");
    assert_eq!(node.adopt("n1", &token, "n2", "0")[0], "granted");
}

/// A release notes nothing on one server: the next grant does, of what it finds given up.
#[test]
fn one_server_remembers_what_was_released_beneath_the_next_grant() {
    let Some(mut node) = Node::start() else { return };
    assert_eq!(node.obtain("n1", "0")[0], "granted");
    assert!(node.release_alone("n1"));
    assert!(!node.release_alone("n1"), "it was released before");
    assert_eq!(node.obtain("n1", "0")[0], "held", "a late duplicate of what was released");
    assert_eq!(node.obtain("n2", "0")[0], "granted");
    assert!(!node.release_alone("n1"), "the key is another's");
    assert!(node.holds("n2"));
    node.run_out();

    assert_eq!(node.obtain("n1", "0")[0], "held", "a late duplicate of what was released");
}

/// Its claim has not come yet, and will be late.
#[test]
fn a_release_of_what_a_node_did_not_grant_is_remembered_beneath_a_later_vote() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    assert!(node.release("n1", &token));
    let next = (token.parse::<u64>().unwrap() + 1).to_string();
    assert!(node.release("n2", &next));
    assert_eq!(node.obtain("n3", "1")[0], "granted");
    assert!(node.withdraw("n3", "1"));

    assert_eq!(node.obtain("n2", "1")[0], "held", "it was released");
    assert!(!node.put_back("n2", &next), "it was released");
}

#[test]
fn a_release_is_remembered_beneath_a_vote_that_is_withdrawn() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    // It runs out on this node alone, which votes for another before the release arrives.
    node.run_out();
    assert_eq!(node.obtain("n2", "1")[0], "granted");
    assert!(!node.release("n1", &token), "the key is another's");
    assert!(node.holds("n2"));
    assert!(node.withdraw("n2", "1"));

    assert!(!node.put_back("n1", &token), "it was released");
    assert_eq!(node.holder(), None);
}

#[test]
fn a_grant_that_was_not_released_is_put_back_after_the_vote_was_withdrawn() {
    let Some(mut node) = Node::start() else { return };
    let [_, token] = node.obtain("n1", "1");
    node.run_out();
    assert_eq!(node.obtain("n2", "1")[0], "granted");
    assert!(!node.put_back("n1", &token), "the key is another's");
    assert!(node.withdraw("n2", "1"));

    assert!(node.put_back("n1", &token));
    assert!(node.holds("n1"));
}

#[test]
fn a_node_counts_from_the_time_that_is_proposed_to_all_where_it_is_near_its_own() {
    let Some(server) = RedisServer::with_clock() else { return };
    let mut node = Node::on(server);
    // Its clock goes back to that, at every look.
    node.server.set_clock("2040-01-01 00:00:00");
    until("it goes by that clock", || uptime(&node.server) > 1);

    for ahead in [99_000, 0, -99_000] {
        let (token, proposed) = node.first_token(ahead);
        assert_eq!(token, proposed, "{ahead} us ahead");
    }
    for ahead in [101_000, -101_000] {
        let (token, proposed) = node.first_token(ahead);
        assert_ne!(token, proposed, "{ahead} us ahead");
    }
}

/// What it has forgotten when it started may be as near as that.
#[test]
fn a_node_that_may_have_just_started_counts_from_its_own_time() {
    let Some(server) = RedisServer::with_clock() else { return };
    let mut node = Node::on(server);
    node.server.set_clock("2020-01-01 00:00:00");
    until("it has been up for less than nothing", || uptime(&node.server) < 0);

    let (token, proposed) = node.first_token(50_000);

    assert!(token < proposed - 49_000, "{token} is not its time, 50 ms before {proposed}");
}

/// How a node is told what token the grant is under that it counted further for.
fn given_back_after_it_counted_further(tell: impl FnOnce(&mut Node, &str)) {
    let Some(mut node) = Node::start() else { return };
    let [_, counted] = node.obtain("n1", "1");
    let agreed = (counted.parse::<u64>().unwrap() - 10).to_string();
    let next = (counted.parse::<u64>().unwrap() - 9).to_string();
    tell(&mut node, &agreed);
    node.run_out();

    assert!(node.put_back("n2", &next), "it came after what was granted here");
    node.run_out();
    assert!(!node.put_back("n1", &agreed), "it was followed here");
}

#[test]
fn a_grant_is_put_back_on_a_node_that_counted_further_for_the_one_before() {
    given_back_after_it_counted_further(|node, agreed| {
        node.raise("n1", agreed);
    });
    given_back_after_it_counted_further(|node, agreed| {
        let answers: Vec<u32> = node.run("heartbeat", &[DAY, "n1", "1", TTL, agreed]);
        assert_eq!(answers, [1]);
    });
    given_back_after_it_counted_further(|node, agreed| assert!(node.release("n1", agreed)));
    given_back_after_it_counted_further(|node, agreed| {
        node.run_out();
        assert!(node.release("n1", agreed));
    });
    given_back_after_it_counted_further(|node, agreed| {
        node.raise("n1", agreed);
        node.run_out();
        node.obtain("n9", "1");
        assert!(node.withdraw("n9", "1"));
    });
    given_back_after_it_counted_further(|node, agreed| {
        node.run_out();
        node.obtain("n9", "1");
        node.release("n1", agreed);
        assert!(node.withdraw("n9", "1"));
    });
}

#[test]
fn a_grant_is_not_put_back_on_a_node_that_counted_further_and_was_told_nothing() {
    let Some(mut node) = Node::start() else { return };
    let [_, counted] = node.obtain("n1", "1");
    node.run_out();
    let before = (counted.parse::<u64>().unwrap() - 1).to_string();
    assert!(!node.put_back("n0", &before), "it may have been followed");
}
