//! A claim of a key whose last grant was released.

use lease_core::store::Claim;
use lease_core::{Attributes, FencingToken};
use tokio_postgres::Row;

use crate::connection::batches::Batched;
use crate::connection::database::{Database, Lane};
use crate::error::ServerFault;
use crate::reply::read_granted;
use crate::statements::{self, Call, micros, number};

/// Without an answer, the key is new, held, reserved, locked or expired, or the claim is late.
pub(crate) struct FreeClaim(pub(crate) Claim);

impl Batched for FreeClaim {
    type Answer = (FencingToken, Attributes);
    const LANE: Lane = Lane::Claims;

    fn single(&self, database: &Database) -> Call {
        let Self(claim) = self;
        let call = database.statements.call(statements::OBTAIN_RELEASED);
        call.claim(claim).text(database.lock_timeout())
    }

    fn batch(claims: &[Self], database: &Database) -> Call {
        let claims = || claims.iter().map(|Self(claim)| claim);
        let call = database.statements.call(statements::OBTAIN_RELEASED_ALL);
        let call = call.texts(claims().map(|claim| claim.key.as_str().to_owned()).collect());
        let call = call.nonces(claims().map(|claim| claim.nonce));
        let call = call.texts(claims().map(|claim| claim.lessee.as_str().to_owned()).collect());
        let call = call.numbers(claims().map(|claim| micros(claim.ttl)).collect());
        let call = call.numbers(claims().map(|claim| number(claim.request.get())).collect());
        call.text(database.lock_timeout())
    }

    fn answer(&self, row: &Row) -> Result<Self::Answer, ServerFault> {
        read_granted(row, self.0.key.as_str())
    }
}
