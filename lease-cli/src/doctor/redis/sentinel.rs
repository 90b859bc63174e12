//! The checks of a master behind Sentinels: the Sentinels agree, and each server keeps its data.

use std::collections::{BTreeMap, BTreeSet};

use redis::{RedisResult, cmd};

use super::address::Address;
use super::merge::{OfServer, merged};
use super::replicas;
use super::server::{Persistence, Server, connect};
use crate::doctor::{Finding, Grade};

/// What one Sentinel says about the master.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    sentinel: String,
    /// `HOST:PORT`.
    master: String,
    replicas: BTreeSet<String>,
    /// How many Sentinels it knows, with itself.
    sentinels: usize,
    /// Why the Sentinels could not replace the master now.
    no_quorum: Option<String>,
}

pub(super) async fn examine(address: &Address) -> Vec<Finding> {
    // The store has refused the URL.
    if address.master.is_empty() {
        return Vec::new();
    }
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    for sentinel in &address.hosts {
        match ask(address, sentinel).await {
            Ok(answer) => answers.push(answer),
            Err(error) => errors.push(error),
        }
    }
    let mut findings = vec![judge(&answers, &errors, &address.master)];
    let Some(answer) = answers.first() else { return findings };
    let mut servers = vec![master(address, &answer.master).await];
    let replicas: BTreeSet<&String> = answers.iter().flat_map(|answer| &answer.replicas).collect();
    for replica in replicas.into_iter().filter(|replica| **replica != answer.master) {
        servers.push(replicas::ask(address, replica).await);
    }
    if servers.len() == 1 {
        let found = "the master has no replica that could replace it";
        let remedy = "add a replica, on another machine: REPLICAOF HOST PORT";
        findings.push(Finding::bad(replicas::CHECK, Grade::Warning, found, remedy));
    }
    findings.extend(merged(&servers));
    findings
}

async fn master(address: &Address, host: &str) -> OfServer {
    let findings = match Server::open(address, host).await {
        Ok(mut master) => {
            let mut findings = vec![if master.is_master() {
                Finding::ok("role", "the server is the master")
            } else {
                let found = "the Sentinels name this server as the master, but it is a replica";
                let remedy = "wait for the end of the failover, and run this check again";
                Finding::bad("role", Grade::Problem, found, remedy)
            }];
            findings.extend(master.settings(Persistence::Needed).await);
            findings.extend(replicas::caught_up(&mut master).await);
            findings.push(master.clock().await);
            findings
        }
        Err(error) => {
            let found = format!("the master does not answer: {error}");
            let remedy =
                "start it, or repair its network. The login of the URL is also that of the master";
            vec![Finding::bad("role", Grade::Problem, found, remedy)]
        }
    };
    OfServer { name: host.to_owned(), findings }
}

async fn ask(address: &Address, sentinel: &str) -> Result<Answer, String> {
    let mut connection = connect(address, sentinel).await?;
    let name = &address.master;
    let answer = async {
        let master: BTreeMap<String, String> =
            cmd("SENTINEL").arg("MASTER").arg(name).query_async(&mut connection).await?;
        let listed: Vec<BTreeMap<String, String>> =
            cmd("SENTINEL").arg("REPLICAS").arg(name).query_async(&mut connection).await?;
        let others = master.get("num-other-sentinels").and_then(|number| number.parse().ok());
        let checked: RedisResult<String> =
            cmd("SENTINEL").arg("CKQUORUM").arg(name).query_async(&mut connection).await;
        Ok::<Answer, redis::RedisError>(Answer {
            sentinel: sentinel.to_owned(),
            master: place(&master),
            replicas: listed.iter().map(place).collect(),
            sentinels: others.unwrap_or(0_usize) + 1,
            no_quorum: checked.err().map(|error| error.to_string()),
        })
    };
    answer.await.map_err(|error| format!("{sentinel}: {error}"))
}

fn place(fields: &BTreeMap<String, String>) -> String {
    let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
    if field("ip").contains(':') {
        return format!("[{}]:{}", field("ip"), field("port"));
    }
    format!("{}:{}", field("ip"), field("port"))
}

fn judge(answers: &[Answer], errors: &[String], name: &str) -> Finding {
    let bad = |grade, found: String, remedy: &str| Finding::bad(CHECK, grade, found, remedy);
    let Some(first) = answers.first() else {
        let remedy = "give the addresses of the Sentinels (port 26379 by default), and the name that \
                      `sentinel monitor` has in their configuration";
        let found = format!("no Sentinel names a master {name:?}: {}", errors.join("; "));
        return bad(Grade::Problem, found, remedy);
    };
    if answers.iter().any(|answer| answer.master != first.master) {
        let named = |answer: &Answer| format!("{} names {}", answer.sentinel, answer.master);
        let named: Vec<_> = answers.iter().map(named).collect();
        let remedy =
            "wait for the end of a failover. If it lasts, repair the network between the Sentinels";
        return bad(
            Grade::Problem,
            format!("the Sentinels disagree: {}", named.join(", ")),
            remedy,
        );
    }
    if let Some(answer) = answers.iter().find(|answer| answer.no_quorum.is_some()) {
        let reason = answer.no_quorum.as_deref().unwrap_or_default();
        let found = format!("{}: no failover is possible: {reason}", answer.sentinel);
        return bad(Grade::Warning, found, "start the Sentinels that do not answer");
    }
    if !errors.is_empty() {
        let found = format!("{} Sentinels of the URL fail: {}", errors.len(), errors.join("; "));
        return bad(Grade::Warning, found, "start them, or remove them from the URL");
    }
    let fewest = answers.iter().map(|answer| answer.sentinels).min().unwrap_or_default();
    if fewest < 3 {
        let found =
            format!("{fewest} Sentinels know each other: the failure of one prevents a failover");
        return bad(Grade::Warning, found, "run three Sentinels, on three machines");
    }
    Finding::ok(CHECK, format!("{fewest} Sentinels name {} as the master {name}", first.master))
}

const CHECK: &str = "sentinels";

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sentinel: &str, master: &str) -> Answer {
        Answer {
            sentinel: sentinel.to_owned(),
            master: master.to_owned(),
            replicas: BTreeSet::new(),
            sentinels: 3,
            no_quorum: None,
        }
    }

    #[test]
    fn sentinels_that_disagree_are_a_problem() {
        let found = judge(&[answer("a:1", "m:1"), answer("b:1", "m:2")], &[], "leases");

        assert_eq!(found.grade, Grade::Problem);
        assert!(found.found.contains("a:1 names m:1, b:1 names m:2"), "{found:?}");
    }

    #[test]
    fn fewer_than_three_sentinels_are_a_warning() {
        let two = Answer { sentinels: 2, ..answer("a:1", "m:1") };

        assert_eq!(judge(&[answer("a:1", "m:1")], &[], "leases").grade, Grade::Ok);
        assert_eq!(judge(&[two], &[], "leases").grade, Grade::Warning);
        assert_eq!(
            judge(&[answer("a:1", "m:1")], &["b:1: refused".to_owned()], "leases").grade,
            Grade::Warning
        );
        assert_eq!(judge(&[], &[], "leases").grade, Grade::Problem);
    }
}
