//! Waiting in turn: each row has a queue of claims, and a release grants the key to the first of them.

use async_trait::async_trait;
use lease_core::StoreError;
use lease_core::store::{Claim, Enqueued, InTurn, Notices, Obtained, Place};

use crate::connection::database::Lane;
use crate::error::ServerFault;
use crate::hand_on::hand_on;
use crate::reply::{Reply, column};
use crate::statements;
use crate::store::{PostgresStore, READS_OF_A_CHANGING_ROW, obtained, refuse_child};

#[async_trait]
impl InTurn for PostgresStore {
    /// Where notifications do not arrive, waiters poll.
    async fn listen(&self, claim: &Claim) -> Result<Notices, StoreError> {
        let notices = self.listener.listen(&self.database, claim).await?;
        Ok(notices.unwrap_or_else(Notices::never))
    }

    async fn enqueue(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        for _ in 0..READS_OF_A_CHANGING_ROW {
            if let Some(enqueued) = self.place(claim, Joining::Allowed).await? {
                return Ok(enqueued);
            }
            // The key has no row, so nobody waits for it.
            if let Obtained::Granted(grant, attributes) = self.obtain_in_any_state(claim).await? {
                return Ok(Enqueued::Granted(grant, attributes));
            }
        }
        Err(self.changes_too_fast(&claim.key).into())
    }

    async fn renew(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        Ok(self.place(claim, Joining::Refused).await?.unwrap_or(Enqueued::Gone))
    }

    async fn leave(&self, claim: &Claim) -> Result<(), StoreError> {
        // A late request of the claim may join the queue again at any time after this request.
        self.listener.grants().note_left(claim);
        Ok(hand_on(&self.database, &claim.key, claim.nonce, None).await.map(drop)?)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joining {
    Allowed,
    Refused,
}

impl PostgresStore {
    /// Returns `None` if the key has no row.
    async fn place(
        &self,
        claim: &Claim,
        joining: Joining,
    ) -> Result<Option<Enqueued>, ServerFault> {
        refuse_child(claim)?;
        if !claim.attributes.is_empty() {
            return Ok(Some(Enqueued::NoQueue));
        }
        let call = self.claiming(statements::PLACE, claim);
        let call = call.optional_text(self.listener.channel_of_grants());
        let call = call.number(i64::from(joining == Joining::Allowed));
        let call = call.text(self.database.lock_timeout());
        let rows = self.database.run(Lane::Claims, call).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let reply = Reply::read(row)?;
        Ok(Some(match reply.verdict.as_str() {
            "gone" => Enqueued::Gone,
            "race" => Enqueued::NoQueue,
            "queued" => {
                self.queued.insert(&claim.key);
                let ahead: i64 = column(row, "ahead")?;
                Enqueued::Queued(Place::new(u64::try_from(ahead).ok(), reply.remaining()))
            }
            _ => match obtained(claim, &reply)? {
                Some(Obtained::Granted(grant, attributes)) => Enqueued::Granted(grant, attributes),
                _ => return Ok(None),
            },
        }))
    }
}
