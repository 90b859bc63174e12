//! Measures how far the standbys of a primary are behind.

use lease_core::store::{BootClock, Clock};
use tokio::time::sleep;
use tokio_postgres::{Client, Error};

use crate::doctor::{Finding, Grade, PATIENCE, POLL};

/// A standby, as its primary sees it.
#[derive(Debug, Clone, PartialEq)]
struct Standby {
    name: String,
    is_synchronous: bool,
    /// The bytes that the primary had written when the check began, and that the standby has not replayed yet. `None`
    /// if the standby has not reported what it has replayed.
    behind: Option<f64>,
}

/// Waits until all standbys have replayed what the primary has written. Reports each standby that takes longer than
/// [`PATIENCE`].
///
/// The lag in time that the primary shows is not used: it stays the same while a standby is paused, and is empty
/// if there are few writes.
pub(super) async fn standbys(client: &Client) -> Vec<Finding> {
    match measured(client).await {
        Ok(Some(standbys)) if standbys.is_empty() => Vec::new(),
        Ok(Some(standbys)) => vec![judge(&standbys)],
        Ok(None) => vec![Finding::bad(
            CHECK,
            Grade::Unknown,
            "the server has standbys, but does not show this user how far they are behind",
            "GRANT pg_monitor TO this user, or run this check as a user with that role",
        )],
        Err(error) => vec![Finding::unknown(CHECK, crate::exit::sentence(&error))],
    }
}

/// `None` if the user may not see the state of the standbys.
async fn measured(client: &Client) -> Result<Option<Vec<Standby>>, Error> {
    let clock = BootClock::new();
    let start = clock.now();
    let written = client.query_one("SELECT pg_current_wal_lsn()::text", &[]).await?;
    let written: String = written.get(0);
    loop {
        let rows = client.query(STANDBYS, &[&written]).await?;
        if rows.iter().any(|row| row.get::<_, Option<&str>>(1).is_none()) {
            return Ok(None);
        }
        let standbys: Vec<Standby> = rows
            .iter()
            .map(|row| Standby {
                name: row.get(0),
                is_synchronous: row.get::<_, &str>(1) != "async",
                behind: row.get(2),
            })
            .collect();
        let have_replayed = standbys.iter().all(Standby::has_replayed);
        if have_replayed || clock.now().since(start) > PATIENCE {
            return Ok(Some(standbys));
        }
        sleep(POLL).await;
    }
}

impl Standby {
    fn has_replayed(&self) -> bool {
        self.behind.is_some_and(|bytes| bytes <= 0.0)
    }
}

fn judge(standbys: &[Standby]) -> Finding {
    let lagging: Vec<String> = standbys
        .iter()
        .filter(|standby| !standby.has_replayed())
        .map(|standby| match standby.behind {
            Some(bytes) => format!("{} is {bytes} bytes behind", standby.name),
            None => format!("{} has replayed nothing", standby.name),
        })
        .collect();
    if !lagging.is_empty() {
        let found = format!(
            "{}, and has not caught up within {} s: a failover forgets leases",
            lagging.join(", "),
            PATIENCE.as_secs()
        );
        let remedy = "repair the standby: look for a paused replay, long queries, a full disk or a slow network";
        return Finding::bad(CHECK, Grade::Warning, found, remedy);
    }
    if standbys.iter().all(|standby| !standby.is_synchronous) {
        let found = "no standby is synchronous: a failover may forget the last leases";
        return Finding::bad(CHECK, Grade::Warning, found, "set synchronous_standby_names");
    }
    let names: Vec<_> = standbys.iter().map(|standby| standby.name.as_str()).collect();
    Finding::ok(CHECK, format!("{} follow, and one is synchronous", names.join(", ")))
}

const CHECK: &str = "standbys";

// Programs that only receive the log, such as pg_receivewal and pg_basebackup, replay nothing. A user without the
// right to monitor sees rows without a state.
const STANDBYS: &str = "SELECT \
    coalesce(nullif(application_name, ''), 'a standby') || coalesce(' at ' || host(client_addr), ''), sync_state, \
    pg_wal_lsn_diff($1::text::pg_lsn, replay_lsn)::float8 FROM pg_stat_replication \
    WHERE state IS NULL OR replay_lsn IS NOT NULL OR state IN ('startup', 'catchup')";

#[cfg(test)]
mod tests {
    use super::*;

    fn standby(is_synchronous: bool, behind: Option<f64>) -> Standby {
        Standby { name: "one".to_owned(), is_synchronous, behind }
    }

    #[test]
    fn standby_that_lags_is_named() {
        let found = judge(&[standby(true, Some(0.0)), standby(true, Some(4096.0))]);

        assert_eq!(found.grade, Grade::Warning);
        assert!(found.found.contains("one is 4096 bytes behind"), "{found:?}");
        assert_eq!(judge(&[standby(true, None)]).grade, Grade::Warning);
    }

    #[test]
    fn one_synchronous_standby_is_enough() {
        let both = [standby(true, Some(-8.0)), standby(false, Some(0.0))];

        assert_eq!(judge(&both).grade, Grade::Ok);
        assert!(judge(&both[1..]).remedy.unwrap().contains("synchronous_standby_names"));
    }
}
