//! Workers of another library on the same table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use lease_core::{LeaseKey, Lessee};
use tokio::time::Instant;

use crate::plan::Member;
use crate::position::InitialPosition;

/// Shares the shards of a table with workers of another library, which do not follow the
/// [`plan`](crate::plan).
///
/// At each tick, a worker calls [`plannable`](Self::plannable). If the worker is live and counts in the plan,
/// the worker also calls [`take`](Self::take).
pub trait Coexistence: fmt::Debug + Send + 'static {
    /// Returns the time after which the other library takes a lease over. The ttl must not be longer.
    fn max_ttl(&self) -> Duration;

    /// Returns the start position of the other library's workers. `None` lets the worker use its own setting.
    fn initial_position(&self) -> Option<InitialPosition> {
        None
    }

    /// Returns the shards that the workers of this library plan among themselves, with their holders.
    fn plannable(
        &mut self,
        table: &SharedTable<'_>,
        now: Instant,
    ) -> BTreeMap<LeaseKey, Option<Lessee>>;

    /// Returns the shards that `me` obtains now, whatever the plan says: shards that another worker has assigned
    /// to `me`, and shards that `me` takes from workers of the other library. The implementation must make the
    /// store grant the next claim of `me` for each of these shards.
    fn take(&mut self, table: &SharedTable<'_>, me: &Member, now: Instant) -> Vec<LeaseKey>;
}

/// The shards in one listing of the table.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "tests of an implementation build it")]
pub struct SharedTable<'a> {
    /// The readable shards with their holders.
    pub held: &'a BTreeMap<LeaseKey, Option<Lessee>>,
    /// The holders of all rows. Unlike `held`, this map has shards that have ended or wait for a parent.
    pub owners: &'a BTreeMap<LeaseKey, Lessee>,
    /// The keys of `owners` whose holders are workers of the other library.
    pub foreign: &'a BTreeSet<LeaseKey>,
    /// The workers of this library that count in a plan.
    pub members: &'a [Member],
}
