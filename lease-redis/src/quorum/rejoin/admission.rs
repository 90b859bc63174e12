//! Checks each new connection to a node of a quorum.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::connection::connector::SharedConnection;
use crate::connection::diagnose::ServerInfo;
use crate::connection::node::Admission;
use crate::connection::server_run::Run;
use crate::error::ServerFault;
use crate::quorum::rejoin::membership::Membership;

pub(crate) struct NodeAdmission {
    pub(crate) node: (usize, String),
    pub(crate) runs: Runs,
    /// `None` without a rejoin delay.
    pub(crate) membership: Option<Membership>,
}

/// Maps the run id of each connected server to the index and name of its node.
pub(crate) type Runs = Arc<Mutex<HashMap<String, (usize, String)>>>;

#[async_trait]
impl Admission for NodeAdmission {
    async fn join(
        &self,
        connection: &SharedConnection,
        info: &ServerInfo,
    ) -> Result<Option<Arc<Run>>, ServerFault> {
        self.refuse_duplicate(&info.run)?;
        let Some(membership) = &self.membership else { return Ok(None) };
        let (_, name) = &self.node;
        membership.join(name, connection, info).await.map(Some)
    }

    async fn admit(
        &self,
        connection: &SharedConnection,
        run: &Run,
        min_run: Duration,
    ) -> Result<(), ServerFault> {
        let Some(membership) = &self.membership else { return Ok(()) };
        let (_, name) = &self.node;
        membership.admit(name, connection, run, min_run).await
    }

    fn rejoin_delay(&self) -> Duration {
        self.membership.as_ref().map_or(Duration::ZERO, |membership| membership.rejoin_delay)
    }
}

impl NodeAdmission {
    /// Refuses a server that is already connected as another node, even under another name.
    fn refuse_duplicate(&self, run: &str) -> Result<(), ServerFault> {
        let (index, name) = &self.node;
        let mut runs = self.runs.lock();
        if let Some((other, other_name)) = runs.get(run)
            && other != index
        {
            return Err(ServerFault::misconfigured(format!(
                "{name} and {other_name} are the same server: a quorum needs independent servers"
            )));
        }
        runs.retain(|_, (other, _)| other != index);
        runs.insert(run.to_owned(), self.node.clone());
        Ok(())
    }
}
