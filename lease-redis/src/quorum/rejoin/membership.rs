//! Admits a client to the votes of one node. All clients of the node must have the same settings. The node
//! votes only after the rejoin delay, when each lease that it may have forgotten has expired.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lease_core::StoreErrorKind;
use lease_core::store::Clock;
use parking_lot::Mutex;
use redis::Value;

use crate::connection::connector::SharedConnection;
use crate::connection::diagnose::ServerInfo;
use crate::connection::request::{Asking, Request};
use crate::connection::server_run::Run;
use crate::error::ServerFault;
use crate::quorum::scripts;
use crate::scripts::{millis, text};

#[derive(Debug)]
pub(crate) struct Membership {
    settings: QuorumSettings,
    pub(crate) rejoin_delay: Duration,
    record: String,
    last: Mutex<Option<Arc<Run>>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuorumSettings {
    pub(crate) max_ttl: Duration,
    pub(crate) timeout: Duration,
}

impl Membership {
    pub(crate) fn new(
        settings: QuorumSettings,
        rejoin_delay: Duration,
        record: String,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { settings, rejoin_delay, record, last: Mutex::default(), clock }
    }

    pub(crate) async fn join(
        &self,
        server: &str,
        connection: &SharedConnection,
        health: &ServerInfo,
    ) -> Result<Arc<Run>, ServerFault> {
        let run = self.run_of(health);
        self.share(server, connection, &run).await?;
        Ok(run)
    }

    pub(crate) async fn admit(
        &self,
        server: &str,
        connection: &SharedConnection,
        run: &Run,
        least: Duration,
    ) -> Result<(), ServerFault> {
        let lasted = run.lasted();
        if lasted < least {
            return Err(ServerFault::unavailable(format!(
                "{server} restarted, or is new here, and may have forgotten leases: it was first \
                 seen {lasted:.1?} ago, and votes again in {:.1?}",
                least.saturating_sub(lasted)
            )));
        }
        // Writes the age to the record, so that later clients need not wait even after a backward clock step.
        if lasted >= self.rejoin_delay && !run.is_shared() {
            match self.share(server, connection, run).await {
                Err(fault) if fault.kind == StoreErrorKind::Misconfigured => return Err(fault),
                // Ignores the error, because the request itself detects a broken connection.
                Ok(()) | Err(_) => (),
            }
        }
        Ok(())
    }

    /// A server in another run gets a new run.
    fn run_of(&self, health: &ServerInfo) -> Arc<Run> {
        let mut last = self.last.lock();
        let id = format!("{}:{}", health.run, health.replication);
        let run = match last.take() {
            Some(run) if run.id == id => {
                run.note(self.clock.now(), health.uptime);
                run
            }
            _ => Arc::new(Run::new(id, health.uptime, Arc::clone(&self.clock))),
        };
        *last = Some(Arc::clone(&run));
        run
    }

    async fn share(
        &self,
        server: &str,
        connection: &SharedConnection,
        run: &Run,
    ) -> Result<(), ServerFault> {
        let QuorumSettings { max_ttl, timeout } = self.settings;
        let lasted = u64::try_from(run.lasted().as_millis()).unwrap_or(u64::MAX);
        let call = scripts::JOIN
            .on([&self.record])
            .arg(&run.id)
            .number(lasted)
            .arg(format!("{FORM}{}", millis(max_ttl)))
            .number(millis(timeout));
        let answer = connection.send(Request::Script(&call), Asking::No).await;
        let answer = answer.map_err(|error| ServerFault::from_redis(server, &error))?;
        match JoinAnswer::read(&answer) {
            Some(JoinAnswer::Joined(lasted)) => {
                // Counts from the answer, because the run has the reported age when the server answers.
                run.note(self.clock.now(), lasted);
                if lasted >= self.rejoin_delay {
                    run.mark_shared();
                }
                Ok(())
            }
            Some(JoinAnswer::Other(theirs)) => Err(ServerFault::misconfigured(format!(
                "{server} has clients with {theirs}, but this one has {ours}: give all clients the same. \
                 To change the settings of a quorum, stop all its clients, send `DEL {record}` to each \
                 node, and start the clients again",
                ours = self.settings,
                record = self.record,
            ))),
            Some(JoinAnswer::Earlier) => Err(ServerFault::misconfigured(format!(
                "{server} has clients of an earlier version, whose locks have another form: stop all \
                 clients of the quorum, send `DEL {record}` to each node, and start clients of one version",
                record = self.record,
            ))),
            None => Err(ServerFault::corrupt(format!(
                "{server}: {} is not the record of a quorum's clients: another program writes keys with \
                 this prefix",
                self.record
            ))),
        }
    }
}

/// The format of the locks precedes `max_ttl` in the record. Earlier clients cannot parse this text, and
/// refuse to connect.
const FORM: &str = "form 2, ";

enum JoinAnswer {
    Joined(Duration),
    Other(QuorumSettings),
    /// Clients of an earlier version have written the record.
    Earlier,
}

impl JoinAnswer {
    fn read(answer: &Value) -> Option<Self> {
        let Value::Array(items) = answer else { return None };
        let length = |index: usize| {
            let number = items.get(index).and_then(text)?.parse().ok()?;
            Some(Duration::from_millis(number))
        };
        match text(items.first()?)?.as_str() {
            "joined" => Some(Self::Joined(length(1)?)),
            "other" => {
                let max_ttl = items.get(1).and_then(text)?;
                let Some(millis) = max_ttl.strip_prefix(FORM) else {
                    return max_ttl.parse::<u64>().ok().map(|_| Self::Earlier);
                };
                let max_ttl = Duration::from_millis(millis.parse().ok()?);
                Some(Self::Other(QuorumSettings { max_ttl, timeout: length(2)? }))
            }
            _ => None,
        }
    }
}

impl fmt::Display for QuorumSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "max_ttl {:?} and timeout {:?}", self.max_ttl, self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use redis::aio::MultiplexedConnection;
    use redis::{AsyncConnectionConfig, RedisConnectionInfo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::connection::server_run::tests::ManualClock;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn slow_answer_does_not_shorten_the_rejoin_delay() {
        let clock = Arc::new(ManualClock::default());
        let (near, far) = duplex(1 << 16);
        let server = tokio::spawn(answer_after(far, 30 * SECOND, Arc::clone(&clock)));
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let connection = MultiplexedConnection::new_with_config(&login, near, config).await;
        let (connection, driver) = connection.unwrap();
        tokio::spawn(driver);
        let settings = QuorumSettings { max_ttl: 60 * SECOND, timeout: SECOND };
        let membership = Membership::new(
            settings,
            60 * SECOND,
            "lease:quorum".to_owned(),
            Arc::clone(&clock) as Arc<dyn Clock>,
        );
        let health = ServerInfo {
            run: "a".to_owned(),
            replication: String::new(),
            uptime: Duration::ZERO,
            time: None,
            sets_and_gets: true,
        };

        let run =
            membership.join("a:1", &SharedConnection::Direct(connection), &health).await.unwrap();

        server.await.unwrap();
        assert_eq!(run.lasted(), 40 * SECOND);
    }

    async fn answer_after(mut stream: DuplexStream, delay: Duration, clock: Arc<ManualClock>) {
        let mut request = Vec::new();
        while !request.windows(7).any(|word| word == b"EVALSHA") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "no request arrived");
        }
        clock.0.store(u64::try_from(delay.as_nanos()).unwrap(), Ordering::Relaxed);
        stream.write_all(b"*2\r\n$6\r\njoined\r\n:40000\r\n").await.unwrap();
        // Keeps the stream open until the client closes it.
        drop(stream.read_buf(&mut request).await);
    }
}
