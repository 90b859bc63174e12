//! The attributes of a claim are set once, together with its grant.

use futures_util::StreamExt;

use crate::conformance::Fixture;
use crate::conformance::kit::case::Case;
use crate::conformance::kit::promises::table::{REFUSED, colours, every_type};
use crate::store::attributes::{Attributes, Change, Value};
use crate::store::grant::{Grant, Obtained, Written};
use crate::store::lease_table::LeaseTable;
use crate::store::lock_store::LockStore;

/// A grant sets the attributes of its claim, keeps all other attributes, and returns all of them.
pub async fn attributes_of_claim_are_set_with_grant<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let claim = case.claim("a").with_attributes(grey_and_every_type());

    let answer = case.ask(&claim).await;

    assert_eq!(returned(answer), Some(over_colours(&claim.attributes)), "{RETURN}");
    case.attributes_are(&over_colours(&claim.attributes), SET).await;
    case.has_holder(&claim.lessee, "its claim was granted").await;
}

/// If a claim with attributes creates the record, the record remains after the lease.
pub async fn record_lasts_after_claim_with_attributes<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    let grant = case.obtain(&case.claim("a").with_attributes(step("1"))).await;
    case.release(&grant).await;
    case.pass(case.ttl * 6).await;

    let listed = case.store.list("").filter_map(async |record| record.ok());
    let listed: Vec<_> = listed.map(|record| (record.key, record.attributes)).collect().await;

    assert_eq!(
        listed,
        [(case.key(), step("1"))],
        "the store should list a record that has attributes, also after its lease has ended"
    );
    let grant = case.granted("b").await;
    case.release(&grant).await;
    case.attributes_are(&step("1"), "a claim without attributes should set none").await;
}

/// A refused claim changes no attributes: of a held key, of a reserved key, or as a late duplicate.
pub async fn refused_claim_sets_no_attributes<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let first = case.long_claim(&case.key(), "a").with_attributes(colours());
    let refused = case.claim("b").with_attributes(grey_and_every_type());
    let grant = case.obtain(&first).await;

    let while_held = case.ask(&refused).await;
    case.has_set_nothing(&while_held, &colours()).await;

    updated(&case, &grant, &Change::new().set("sky", "red")).await;
    let reserved = case.store.release(&grant, Some(case.fixture.long_ttl())).await;
    let red = case.attributes().await;
    let while_reserved = case.ask(&refused).await;
    case.has_set_nothing(&while_reserved, &red).await;
    let late_duplicate = case.ask(&first).await;
    case.has_set_nothing(&late_duplicate, &red).await;
    assert!(reserved.is_ok(), "the store should answer a release: {reserved:?}");
}

/// A repeated claim does not set its attributes again: the holder may have updated them since.
pub async fn repeated_claim_does_not_undo_update<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let claim = case.long_claim(&case.key(), "a").with_attributes(step("1"));
    let grant = case.obtain(&claim).await;
    updated(&case, &grant, &Change::from(step("2"))).await;

    let answer = case.ask(&claim).await;

    assert_eq!(returned(answer), Some(step("2")), "{RETURN}");
    case.attributes_are(&step("2"), REPEATED).await;
}

/// An adoption sets the attributes of its claim, keeps all other attributes, and returns all of them.
pub async fn attributes_of_adopting_claim_are_set_with_grant<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let handed = case.granted("a").await;
    let claim = case.claim("b").with_attributes(grey_and_every_type());

    let answer = case.adopt(&handed, &claim).await;

    assert_eq!(returned(answer), Some(over_colours(&claim.attributes)), "{RETURN}");
    case.attributes_are(&over_colours(&claim.attributes), SET).await;
    case.has_holder(&claim.lessee, "it adopted the grant").await;
}

/// A late adoption is refused, and changes no attributes.
pub async fn refused_adoption_sets_no_attributes<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let handed = case.obtain(&case.long_claim(&case.key(), "a")).await;
    case.adopted(&handed, &case.long_claim(&case.key(), "b")).await;
    let claim = case.claim("c").with_attributes(grey_and_every_type());

    let answer = case.adopt(&handed, &claim).await;

    case.has_set_nothing(&answer, &colours()).await;
}

/// A repeated adoption, as after a lost reply, does not set its attributes again.
pub async fn repeated_adoption_does_not_undo_update<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let handed = case.granted("a").await;
    let claim = case.long_claim(&case.key(), "b").with_attributes(step("1"));
    let grant = case.adopted(&handed, &claim).await;
    updated(&case, &grant, &Change::from(step("2"))).await;

    let answer = case.adopt(&handed, &claim).await;

    assert_eq!(returned(answer), Some(step("2")), "{RETURN}");
    case.attributes_are(&step("2"), REPEATED).await;
}

impl<F: Fixture<Store: LeaseTable>> Case<F> {
    /// Checks nothing if the claim was granted: another promise fails then.
    async fn has_set_nothing(&self, answer: &Obtained, before: &Attributes) {
        if let Obtained::Held(_) = answer {
            self.attributes_are(before, REFUSED).await;
        }
    }
}

async fn updated<F: Fixture<Store: LeaseTable>>(case: &Case<F>, grant: &Grant, change: &Change) {
    let written = case.written(case.store.update(grant, change)).await;
    assert_eq!(written, Written::Applied, "the store should apply an update of the holder");
}

fn returned(answer: Obtained) -> Option<Attributes> {
    match answer {
        Obtained::Granted(_, attributes) => Some(attributes),
        Obtained::Held(_) => None,
    }
}

fn grey_and_every_type() -> Attributes {
    let mut attributes = every_type();
    attributes.insert("sky".to_owned(), Value::from("grey"));
    attributes
}

fn over_colours(claimed: &Attributes) -> Attributes {
    let mut attributes = colours();
    attributes.extend(claimed.clone());
    attributes
}

fn step(number: &str) -> Attributes {
    Attributes::from([("step".to_owned(), Value::from(number))])
}

const SET: &str = "a grant should set the attributes of its claim, and keep all other attributes";
const RETURN: &str = "a grant should return all attributes that the record has now";
const REPEATED: &str = "a repeated claim should not set its attributes again";
