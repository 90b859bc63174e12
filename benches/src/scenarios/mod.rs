//! The scenarios.

mod bytes;
mod canned;
mod contestants;
mod crash;
mod cycles;
mod hand_off;
mod held;
mod latency;
mod memory;
mod processor;
mod requests;

use std::pin::Pin;

pub(crate) use held::hold;

use crate::report::Table;

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    run: fn(usize) -> Tables,
}

type Tables = Pin<Box<dyn Future<Output = Vec<Table>>>>;

impl Scenario {
    pub(crate) async fn run(&self, rounds: usize) -> Vec<Table> {
        (self.run)(rounds).await
    }
}

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "redis",
        what: "1 and 64 tasks obtain and release a free key on one Redis server",
        run: |rounds| Box::pin(cycles::on_redis(rounds)),
    },
    Scenario {
        name: "quorum",
        what: "1, 64 and 256 tasks obtain and release a free key on 5 independent Redis servers",
        run: |rounds| Box::pin(cycles::on_a_quorum(rounds)),
    },
    Scenario {
        name: "metrics",
        what: "64 tasks obtain and release a free key on one Redis server, with and without metrics",
        run: |rounds| Box::pin(cycles::with_metrics(rounds)),
    },
    Scenario {
        name: "latency",
        what: "1 to 1,024 tasks obtain and release a free key on one Redis server: p50, p99, cycles",
        run: |rounds| Box::pin(latency::by_tasks(rounds)),
    },
    Scenario {
        name: "processor",
        what: "processor time of Redis servers per obtain and release: one server, 5 servers",
        run: |rounds| Box::pin(processor::of_servers(rounds)),
    },
    Scenario {
        name: "bytes",
        what: "memory of Redis servers per released key: one server, 5 servers, a Cluster",
        run: |_| Box::pin(bytes::after_release()),
    },
    Scenario {
        name: "missing",
        what: "a key is obtained on 5 Redis servers with 5 ms of latency: all up, one hung, one dead",
        run: |rounds| Box::pin(cycles::with_one_missing(rounds)),
    },
    Scenario {
        name: "dynamodb",
        what: "1 and 64 tasks obtain and release a free key on DynamoDB",
        run: |rounds| Box::pin(cycles::on_dynamodb(rounds)),
    },
    Scenario {
        name: "dynamodb-far",
        what: "a free key is obtained on DynamoDB with 5 ms of latency",
        run: |rounds| Box::pin(cycles::on_dynamodb_from_afar(rounds)),
    },
    Scenario {
        name: "canned",
        what: "client's processor time, bytes and requests on DynamoDB, with canned replies",
        run: |rounds| Box::pin(canned::on_canned_replies(rounds)),
    },
    Scenario {
        name: "requests",
        what: "requests per operation",
        run: |_| Box::pin(requests::of_each()),
    },
    Scenario {
        name: "hand-off",
        what: "one of 8 or 64 waiters obtains a released key, on Redis with 10 ms of latency and on DynamoDB without and with 5 ms",
        run: |rounds| Box::pin(hand_off::between_waiters(rounds)),
    },
    Scenario {
        name: "hand-off-near",
        what: "one of 8 waiters obtains a released key, on Redis",
        run: |rounds| Box::pin(hand_off::between_near_waiters(rounds)),
    },
    Scenario {
        name: "crash",
        what: "time until the key of a dead holder is obtained, on Redis and on DynamoDB without and with 5 ms",
        run: |_| Box::pin(crash::of_a_holder()),
    },
    Scenario {
        name: "held",
        what: "10,000 and 100,000 leases in one process: processor time, bytes per lease",
        run: |rounds| Box::pin(async move { held::in_one_process(rounds) }),
    },
    Scenario {
        name: "memory",
        what: "the store in memory compared with tokio's Mutex",
        run: |rounds| Box::pin(memory::beside_a_mutex(rounds)),
    },
];

/// Returns all scenarios if `names` is empty.
pub(crate) fn named(names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|it| it.name != **name)) {
        let known: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
        return Err(format!(
            "unknown scenario {unknown:?}: the scenarios are {}",
            known.join(", ")
        ));
    }
    let chosen =
        |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(ALL.iter().filter(chosen).collect())
}
