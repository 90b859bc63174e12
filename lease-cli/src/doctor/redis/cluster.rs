//! The checks of a Redis Cluster: all slots are served, and each node keeps its data.

use redis::{InfoDict, cmd};

use super::address::Address;
use super::merge::{OfServer, merged};
use super::replicas;
use super::server::{Persistence, Server, connect};
use crate::doctor::{Finding, Grade};

/// A node, in the words of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    id: String,
    /// `HOST:PORT`.
    place: String,
    /// The id of its master; `None` for a master.
    master: Option<String>,
    has_failed: bool,
    has_slots: bool,
}

/// What one node says about the Cluster.
struct View {
    nodes: Vec<Node>,
    info: InfoDict,
}

pub(super) async fn examine(address: &Address) -> Vec<Finding> {
    let mut errors = Vec::new();
    let mut view = None;
    for host in &address.hosts {
        match ask(address, host).await {
            Ok(found) => {
                view = Some(found);
                break;
            }
            Err(error) => errors.push(error),
        }
    }
    let Some(View { nodes, info }) = view else {
        return vec![Finding::unanswered(errors.join("; "))];
    };
    let text = |name: &str| info.get::<String>(name).unwrap_or_default();
    let mut findings = vec![judge(&text("cluster_state"), &text("cluster_slots_ok"), &nodes)];
    findings.extend(unreplicated(&nodes));
    let mut servers = Vec::new();
    for node in nodes.iter().filter(|node| node.master.is_none() && node.has_slots) {
        servers.push(master(address, &node.place).await);
    }
    for node in nodes.iter().filter(|node| node.master.is_some()) {
        servers.push(replicas::ask(address, &node.place).await);
    }
    findings.extend(merged(&servers));
    findings
}

async fn ask(address: &Address, host: &str) -> Result<View, String> {
    let mut connection = connect(address, host).await?;
    let view = async {
        let nodes: String = cmd("CLUSTER").arg("NODES").query_async(&mut connection).await?;
        let info: InfoDict = cmd("CLUSTER").arg("INFO").query_async(&mut connection).await?;
        Ok::<View, redis::RedisError>(View {
            nodes: nodes.lines().filter_map(|line| node(line, host)).collect(),
            info,
        })
    };
    view.await.map_err(|error| format!("{host}: {error}"))
}

async fn master(address: &Address, host: &str) -> OfServer {
    let findings = match Server::open(address, host).await {
        Ok(mut master) => {
            let mut findings = master.settings(Persistence::Needed).await;
            findings.extend(replicas::caught_up(&mut master).await);
            findings.push(master.clock().await);
            findings
        }
        Err(error) => {
            let found = format!("the master does not answer: {error}");
            let remedy = "start the node, or repair its network";
            vec![Finding::bad(CHECK, Grade::Problem, found, remedy)]
        }
    };
    OfServer { name: host.to_owned(), findings }
}

/// Parses `ID HOST:PORT@PORT,NAME FLAGS MASTER PING PONG EPOCH LINK SLOT…`. Without a host, a node has that of the URL.
fn node(line: &str, asked: &str) -> Option<Node> {
    let mut fields = line.split(' ');
    let (id, place, flags, master) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let (host, port) = place.split('@').next()?.rsplit_once(':')?;
    let host = if host.is_empty() { asked.rsplit_once(':')?.0 } else { host };
    let is = |flag: &str| flags.split(',').any(|other| other == flag);
    if is("handshake") || is("noaddr") {
        return None;
    }
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    let place = if is_bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    Some(Node {
        id: id.to_owned(),
        place,
        master: is("slave").then(|| master.to_owned()),
        has_failed: is("fail") || is("fail?"),
        has_slots: fields.nth(4).is_some(),
    })
}

fn judge(state: &str, served: &str, nodes: &[Node]) -> Finding {
    let failed: Vec<_> =
        nodes.iter().filter(|node| node.has_failed).map(|node| node.place.as_str()).collect();
    let masters = nodes.iter().filter(|node| node.master.is_none() && node.has_slots).count();
    let replicas = nodes.iter().filter(|node| node.master.is_some()).count();
    let remedy = "start the failed nodes, and look at CLUSTER NODES";
    if state != "ok" || served != SLOTS {
        let failed = if failed.is_empty() { "none".to_owned() } else { failed.join(", ") };
        let found = format!(
            "the state is {state}, and {served} of {SLOTS} slots are served: the keys of the others cannot be \
             obtained. Failed nodes: {failed}"
        );
        return Finding::bad(CHECK, Grade::Problem, found, remedy);
    }
    if !failed.is_empty() {
        let found = format!("failed nodes: {}", failed.join(", "));
        return Finding::bad(CHECK, Grade::Warning, found, remedy);
    }
    let found = format!("{masters} masters with {replicas} replicas serve all {SLOTS} slots");
    Finding::ok(CHECK, found)
}

/// Finds masters whose failure stops their slots.
fn unreplicated(nodes: &[Node]) -> Option<Finding> {
    let has_replica = |master: &Node| {
        let mut replicas = nodes.iter().filter(|node| !node.has_failed);
        replicas.any(|node| node.master.as_ref() == Some(&master.id))
    };
    let alone = nodes.iter().filter(|node| node.master.is_none() && node.has_slots);
    let alone: Vec<_> =
        alone.filter(|node| !has_replica(node)).map(|node| node.place.as_str()).collect();
    if alone.is_empty() {
        return None;
    }
    let found = format!("no replica can replace {}: its failure stops its keys", alone.join(", "));
    let remedy = "add replicas: redis-cli --cluster add-node HOST:PORT HOST:PORT --cluster-slave";
    Some(Finding::bad(replicas::CHECK, Grade::Warning, found, remedy))
}

const CHECK: &str = "cluster";
/// The number of slots of every Cluster.
const SLOTS: &str = "16384";

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
id1 10.0.0.1:7001@17001 myself,master - 0 0 1 connected 0-5460
id2 10.0.0.2:7002@17002,name.example.com master - 0 1 2 connected 5461-10922
id3 :7003@17003 master,fail - 0 1 3 connected 10923-16383
id4 ::1:7004@17004 slave id1 0 1 1 connected
id5 :0@0 master,noaddr - 0 1 1 disconnected
";

    fn nodes() -> Vec<Node> {
        NODES.lines().filter_map(|line| node(line, "host:7000")).collect()
    }

    #[test]
    fn nodes_are_read() {
        let nodes = nodes();

        let places: Vec<_> = nodes.iter().map(|node| node.place.as_str()).collect();
        assert_eq!(places, ["10.0.0.1:7001", "10.0.0.2:7002", "host:7003", "[::1]:7004"]);
        assert_eq!(nodes[3].master.as_deref(), Some("id1"));
        assert!(nodes[2].has_failed && nodes[2].has_slots && !nodes[3].has_slots);
    }

    #[test]
    fn failed_nodes_are_found() {
        assert_eq!(judge("ok", SLOTS, &nodes()).grade, Grade::Warning);
        let down = judge("fail", "10923", &nodes());
        assert_eq!(down.grade, Grade::Problem);
        assert!(down.found.contains("Failed nodes: host:7003"), "{down:?}");
        assert_eq!(judge("ok", SLOTS, &nodes()[..2]).grade, Grade::Ok);
    }

    #[test]
    fn master_without_a_replica_is_found() {
        let found = unreplicated(&nodes()).unwrap();

        assert!(found.found.contains("10.0.0.2:7002, host:7003"), "{found:?}");
    }
}
