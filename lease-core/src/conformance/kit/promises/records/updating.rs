//! Updates: attributes change only under the current grant, and only from the expected values.

use crate::conformance::kit::case::{Case, name};
use crate::conformance::kit::promises::table::{REFUSED, SUPERSEDED, colours, every_type};
use crate::conformance::{Call, Fault, Fixture};
use crate::lost::LossCause;
use crate::store::attributes::{Attributes, Change, Value};
use crate::store::grant::Written;
use crate::store::lease_table::LeaseTable;

/// An update sets and removes the attributes that it names, and keeps the rest.
pub async fn update_changes_only_the_named_attributes<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;

    let change = Change::new().set("sky", "grey").set("sea", "blue").remove("grass").remove("none");
    let written = case.written(case.store.update(&grant, &change)).await;

    assert_eq!(written, Written::Applied, "{APPLY}");
    let mut expected = colours();
    change.apply(&mut expected);
    case.attributes_are(&expected, "an update should change only the attributes that it names")
        .await;
    case.has_holder(&grant.lessee, "an update should not change the lease").await;
}

/// A former holder's update changes nothing, whether the key is free or held.
pub async fn update_by_former_holder_changes_nothing<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let former = case.granted("a").await;
    case.release(&former).await;
    let change = Change::new().set("sky", "black");

    let while_free = case.written(case.store.update(&former, &change)).await;
    case.granted("b").await;
    let while_held = case.written(case.store.update(&former, &change)).await;

    assert!(
        matches!(while_free, Written::Lost(_)),
        "the store should refuse an update under a grant that was released: {while_free:?}"
    );
    assert_eq!(while_held, Written::Lost(LossCause::Superseded), "{SUPERSEDED}");
    case.attributes_are(&colours(), REFUSED).await;
}

/// An update under an earlier grant of the same claim is refused. A late duplicate may have been
/// granted again.
pub async fn update_under_an_earlier_token_changes_nothing<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let claim = case.claim("a");
    let former = case.obtain(&claim).await;
    case.release(&former).await;
    let other = case.granted("b").await;
    case.release(&other).await;
    drop(case.ask(&claim).await);

    let change = Change::new().set("sky", "black");
    let written = case.written(case.store.update(&former, &change)).await;

    assert_eq!(written, Written::Lost(LossCause::Superseded), "{SUPERSEDED}");
    case.attributes_are(&colours(), REFUSED).await;
}

/// An update under an expired grant changes nothing, even while the key is free.
pub async fn update_after_expiry_changes_nothing<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;
    case.pass(case.ttl * 4).await;

    let change = Change::new().set("sky", "black");
    let written = case.written(case.store.update(&grant, &change)).await;

    assert!(
        matches!(written, Written::Lost(_)),
        "the store should refuse an update under an expired grant: {written:?}"
    );
    case.attributes_are(&colours(), REFUSED).await;
}

/// An update does not extend the lease: only heartbeats do.
pub async fn update_does_not_extend<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let other = name("conformance/other");
    let grant = case.granted("a").await;
    case.obtain(&case.claim_of(&other, "a")).await;
    case.pass(case.ttl / 2).await;

    let change = Change::new().set("sky", "grey");
    let _ = case.written(case.store.update(&grant, &change)).await;

    case.not_extended(&grant.key, &other).await;
}

/// An update is applied only if all expected values match.
pub async fn update_that_expects_another_value_changes_nothing<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    let first = Attributes::from([
        ("grass".to_owned(), Value::from("green")),
        ("sky".to_owned(), Value::from("1")),
    ]);
    case.created(&first).await;
    let grant = case.obtain(&case.long_claim(&case.key(), "a")).await;
    let change = Change::new().set("sky", "2").remove("grass");

    for unexpected in [
        change.clone().expecting("sky", "0"),
        change.clone().expecting("sky", 1), // a number, not a text
        change.clone().expecting("sea", "1"),
        change.clone().expecting("grass", "green").expecting("sky", "0"),
        change.clone().expecting("grass", "grey").expecting("sky", "1"),
    ] {
        let written = case.written(case.store.update(&grant, &unexpected)).await;
        assert_eq!(
            written,
            Written::Unexpected,
            "the store should refuse an update that expects another value: {unexpected:?}"
        );
        case.attributes_are(&first, REFUSED).await;
    }

    let expected = change.expecting("grass", "green").expecting("sky", "1");
    let written = case.written(case.store.update(&grant, &expected)).await;
    assert_eq!(written, Written::Applied, "{APPLY}");
    let second = Attributes::from([("sky".to_owned(), Value::from("2"))]);
    case.attributes_are(&second, "an update should change only the attributes that it names").await;
}

/// An update can expect a value of each type.
pub async fn every_type_of_attribute_can_be_expected<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&every_type()).await;
    let grant = case.obtain(&case.long_claim(&case.key(), "a")).await;

    for (name, value) in every_type() {
        let change = Change::new().expecting(name.as_str(), value).set("last", name);
        let written = case.written(case.store.update(&grant, &change)).await;
        assert_eq!(
            written,
            Written::Applied,
            "the store should compare values of every type: {change:?}"
        );
    }
}

/// An update can expect an absent attribute. An attribute whose value is null is not absent.
pub async fn absent_attribute_can_be_expected<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let grant = case.granted("a").await;
    let first = Change::new().expecting_none("sky").set("sky", Value::Null);
    let second = Change::new().expecting_none("sky").set("sky", "blue");

    let on_none = case.written(case.store.update(&grant, &first)).await;
    let on_null = case.written(case.store.update(&grant, &second)).await;

    assert_eq!(
        (on_none, on_null),
        (Written::Applied, Written::Unexpected),
        "the store should apply an update that expects an absent attribute where it is absent, \
         and refuse it where the attribute is null"
    );
    let expected = Attributes::from([("sky".to_owned(), Value::Null)]);
    case.attributes_are(&expected, REFUSED).await;
}

/// An update that expects a value cannot undo a newer update: a late duplicate changes nothing.
pub async fn late_update_does_not_undo_a_newer_one<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&Attributes::from([("checkpoint".to_owned(), Value::from("0"))])).await;
    let grant = case.granted("a").await;
    let step =
        |from: &str, to: &str| Change::new().expecting("checkpoint", from).set("checkpoint", to);
    let delay = case.ttl / 4;

    case.store.next(Call::Write, Fault::ApplyLate(delay));
    let unclear = case.store.update(&grant, &step("0", "1")).await;
    let repeated = case.written(case.store.update(&grant, &step("0", "1"))).await;
    let newer = case.written(case.store.update(&grant, &step("1", "2"))).await;
    case.pass(delay * 2).await;

    assert!(unclear.is_err(), "the first update should get an injected error: {unclear:?}");
    assert_eq!((repeated, newer), (Written::Applied, Written::Applied), "{APPLY}");
    let expected = Attributes::from([("checkpoint".to_owned(), Value::from("2"))]);
    case.attributes_are(
        &expected,
        "an update that arrives after a newer update should be refused: its expected value is gone",
    )
    .await;
}

/// An update under a lost grant returns `Lost`, even if an expected value does not match.
pub async fn lost_grant_is_reported_before_unexpected_value<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let former = case.granted("a").await;
    case.release(&former).await;
    case.granted("b").await;

    let change = Change::new().expecting("sky", "grey").set("sky", "black");
    let written = case.written(case.store.update(&former, &change)).await;

    assert_eq!(written, Written::Lost(LossCause::Superseded), "{SUPERSEDED}");
    case.attributes_are(&colours(), REFUSED).await;
}

const APPLY: &str =
    "the store should apply an update under the current grant if all expected values match";
