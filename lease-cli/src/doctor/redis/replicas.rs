//! The checks of replicas: whether they follow their master, and keep what it keeps.

use lease_core::store::{BootClock, Clock};
use redis::{InfoDict, RedisResult, cmd};
use tokio::time::sleep;

use super::address::Address;
use super::merge::OfServer;
use super::server::{Persistence, Server};
use crate::doctor::{Finding, Grade, PATIENCE, POLL};

/// Waits until the replicas of `master` have acknowledged all writes of the master. Reports each replica that takes
/// longer than [`PATIENCE`]. Returns `None` if the master has no replica.
pub(super) async fn caught_up(master: &mut Server) -> Option<Finding> {
    let clock = BootClock::new();
    let start = clock.now();
    // A write by this check itself is not needed: the cycle of all stores has written.
    let written: u64 = master.info.get("master_repl_offset").unwrap_or(0);
    loop {
        let mut ask = cmd("INFO");
        let info: RedisResult<InfoDict> =
            ask.arg("replication").query_async(&mut master.connection).await;
        let info = match info {
            Ok(info) => info,
            Err(error) => return Some(Finding::unknown(CHECK, error)),
        };
        let replicas = linked(&info);
        let have_acknowledged = replicas.iter().all(|replica| replica.has(written));
        if have_acknowledged || clock.now().since(start) > PATIENCE {
            return judge(&replicas, written);
        }
        sleep(POLL).await;
    }
}

/// Asks a replica itself, which a failover would make the master.
pub(super) async fn ask(address: &Address, host: &str) -> OfServer {
    let findings = match Server::open(address, host).await {
        Ok(mut replica) => {
            let mut findings = vec![link(&replica)];
            findings.extend(replica.settings(Persistence::Needed).await);
            findings
        }
        Err(error) => {
            let found = format!("the replica does not answer ({error}): a failover to it fails");
            vec![Finding::bad(
                CHECK,
                Grade::Warning,
                found,
                "start the replica, or repair its network",
            )]
        }
    };
    OfServer { name: host.to_owned(), findings }
}

fn link(replica: &Server) -> Finding {
    if replica.is_master() {
        let found = "the server was listed as a replica, and is a master now";
        return Finding::bad(
            CHECK,
            Grade::Warning,
            found,
            "run this check again, after the failover",
        );
    }
    let state = replica.text("master_link_status");
    if state == "up" {
        return Finding::ok(CHECK, "the replica is linked to its master");
    }
    let (host, port) = (replica.text("master_host"), replica.text("master_port"));
    let since: i64 = replica.info.get("master_link_down_since_seconds").unwrap_or(-1);
    let since = if since < 0 { String::new() } else { format!(" for {since} s") };
    Finding::bad(
        CHECK,
        Grade::Warning,
        format!(
            "the link to the master {host}:{port} is {state}{since}: a failover forgets leases"
        ),
        "look for the reason in the replica's log: wrong masterauth, a full disk, or the network",
    )
}

/// A replica, as its master sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Replica {
    name: String,
    is_online: bool,
    acknowledged: u64,
}

impl Replica {
    fn has(&self, written: u64) -> bool {
        self.is_online && self.acknowledged >= written
    }
}

/// Reads `slave0:ip=127.0.0.1,port=7001,state=online,offset=42,lag=0` and so on.
fn linked(info: &InfoDict) -> Vec<Replica> {
    let count: usize = info.get("connected_slaves").unwrap_or(0);
    (0..count)
        .filter_map(|number| {
            let state: String = info.get(&format!("slave{number}"))?;
            let field = |name: &str| {
                state.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
            };
            Some(Replica {
                name: format!("{}:{}", field("ip")?, field("port")?),
                is_online: field("state") == Some("online"),
                acknowledged: field("offset")?.parse().ok()?,
            })
        })
        .collect()
}

fn judge(replicas: &[Replica], written: u64) -> Option<Finding> {
    if replicas.is_empty() {
        return None;
    }
    let lagging: Vec<String> = replicas
        .iter()
        .filter(|replica| !replica.has(written))
        .map(|replica| {
            let bytes = written.saturating_sub(replica.acknowledged);
            format!("{} is {bytes} bytes behind", replica.name)
        })
        .collect();
    if lagging.is_empty() {
        return Some(Finding::ok(CHECK, format!("{} follow", replicas.len())));
    }
    let found = format!(
        "{}, and has not caught up within {} s: a failover forgets leases",
        lagging.join(", "),
        PATIENCE.as_secs()
    );
    Some(Finding::bad(CHECK, Grade::Warning, found, "repair the replicas, or their network"))
}

pub(super) const CHECK: &str = "replicas";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_that_lags_is_named() {
        let info = "connected_slaves:2\r\n\
            slave0:ip=10.0.0.1,port=7001,state=online,offset=100,lag=0\r\n\
            slave1:ip=10.0.0.2,port=7002,state=online,offset=60,lag=9\r\n";
        let replicas = linked(&InfoDict::new(info));

        let found = judge(&replicas, 100).unwrap();

        assert_eq!(found.grade, Grade::Warning);
        assert!(found.found.starts_with("10.0.0.2:7002 is 40 bytes behind,"), "{found:?}");
        assert_eq!(judge(&replicas, 60).unwrap().grade, Grade::Ok);
        assert_eq!(judge(&[], 60), None);
    }

    #[test]
    fn replica_that_is_not_online_lags() {
        let info =
            "connected_slaves:1\r\nslave0:ip=a,port=1,state=wait_bgsave,offset=100,lag=0\r\n";

        assert_eq!(judge(&linked(&InfoDict::new(info)), 100).unwrap().grade, Grade::Warning);
    }
}
