//! A release without a reservation.

use std::time::Duration;

use lease_core::store::Grant;
use tokio_postgres::Row;

use crate::connection::batches::Batched;
use crate::connection::database::{Database, Lane};
use crate::error::ServerFault;
use crate::statements::{self, Call, micros, number};

/// Without an answer, claims are queued for the key, its row is locked, or the grant has ended.
pub(crate) struct PlainRelease(pub(crate) Grant);

impl PlainRelease {
    pub(crate) fn reserving(
        grant: &Grant,
        reserved: Option<Duration>,
        database: &Database,
    ) -> Call {
        let call = database.statements.call(statements::RELEASE).grant(grant);
        let call = call.optional_number(reserved.map(micros));
        call.text(database.statements.table().channel()).text(database.lock_timeout())
    }
}

impl Batched for PlainRelease {
    type Answer = ();
    const LANE: Lane = Lane::Holders;

    fn single(&self, database: &Database) -> Call {
        Self::reserving(&self.0, None, database)
    }

    fn batch(releases: &[Self], database: &Database) -> Call {
        let grants = || releases.iter().map(|Self(grant)| grant);
        let call = database.statements.call(statements::RELEASE_ALL);
        let call = call.texts(grants().map(|grant| grant.key.as_str().to_owned()).collect());
        let call = call.nonces(grants().map(|grant| grant.nonce));
        let call = call.numbers(grants().map(|grant| number(grant.token.get())).collect());
        call.text(database.statements.table().channel()).text(database.lock_timeout())
    }

    fn answer(&self, _row: &Row) -> Result<(), ServerFault> {
        Ok(())
    }
}
