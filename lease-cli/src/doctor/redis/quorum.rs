//! The checks of a quorum: independent servers, of which a majority answers.

use std::collections::BTreeMap;

use super::address::Address;
use super::merge::{OfServer, merged};
use super::replicas;
use super::server::{Persistence, Server};
use crate::doctor::{Finding, Grade};

pub(super) async fn examine(address: &Address) -> Vec<Finding> {
    let (mut of_servers, mut absent) = (Vec::new(), Vec::new());
    let mut runs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for host in &address.hosts {
        let mut server = match Server::open(address, host).await {
            Ok(server) => server,
            Err(error) => {
                absent.push(error);
                continue;
            }
        };
        runs.entry(server.text("run_id")).or_default().push(host.clone());
        let mut findings = vec![server.role()];
        findings.extend(server.settings(Persistence::NotNeeded).await);
        findings.extend(independent(&mut server).await);
        findings.push(server.clock().await);
        of_servers.push(OfServer { name: host.clone(), findings });
    }
    let mut findings = vec![majority(address.hosts.len(), &absent)];
    findings.extend(twice(&runs));
    findings.extend(merged(&of_servers));
    findings
}

fn majority(count: usize, absent: &[String]) -> Finding {
    let answering = count - absent.len();
    let missing = absent.join("; ");
    let remedy = "start the servers that do not answer, or repair their network";
    if answering * 2 <= count {
        let found =
            format!("{answering} of {count} servers answer, which is no majority: {missing}");
        return Finding::bad(CHECK, Grade::Problem, found, remedy);
    }
    if !absent.is_empty() {
        let found = format!("{answering} of {count} servers answer: {missing}");
        return Finding::bad(CHECK, Grade::Warning, found, remedy);
    }
    if count.is_multiple_of(2) {
        let found = format!("{count} servers survive no more failures than {}", count - 1);
        return Finding::bad(CHECK, Grade::Warning, found, "use an odd number of servers: 3 or 5");
    }
    let failures = (count - 1) / 2;
    Finding::ok(CHECK, format!("all {count} servers answer, and {failures} of them may fail"))
}

/// Finds hosts that lead to one server: its vote would count twice.
fn twice(runs: &BTreeMap<String, Vec<String>>) -> Vec<Finding> {
    let of_one = runs.iter().filter(|(run, hosts)| !run.is_empty() && hosts.len() > 1);
    of_one
        .map(|(_, hosts)| {
            let found = format!("{} are one server, whose vote counts twice", hosts.join(" and "));
            Finding::bad(CHECK, Grade::Problem, found, "give each server once, by one name")
        })
        .collect()
}

/// A server of a quorum needs no replicas: a promoted one has to wait before it votes, as a restarted one has.
async fn independent(server: &mut Server) -> Option<Finding> {
    let found = replicas::caught_up(server).await?;
    if found.grade != Grade::Ok {
        return Some(found);
    }
    let text = "the server has replicas. A replica that is promoted votes only after max_ttl";
    Some(Finding::ok(replicas::CHECK, text))
}

const CHECK: &str = "quorum";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorum_without_a_majority_is_a_problem() {
        let absent = |count| vec!["a:1: connection refused".to_owned(); count];

        assert_eq!(majority(3, &absent(0)).grade, Grade::Ok);
        assert_eq!(majority(3, &absent(1)).grade, Grade::Warning);
        assert_eq!(majority(3, &absent(2)).grade, Grade::Problem);
        assert_eq!(majority(4, &absent(2)).grade, Grade::Problem);
        assert!(majority(4, &absent(0)).remedy.unwrap().contains("odd"));
    }
}
