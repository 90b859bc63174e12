//! Records that have attributes and can be listed.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, name};
use crate::store::attributes::{Attributes, Value};
use crate::store::grant::Obtained;
use crate::store::lease_table::{LeaseRecord, LeaseTable};

/// A created record is read back with its attributes and without a holder.
pub async fn created_record_is_read_back<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.has_no_record("no creation").await;

    assert!(case.created(&colours()).await, "{CREATE}");

    let expected = LeaseRecord::new(case.key(), None, None, colours());
    assert_eq!(
        case.read().await,
        Some(expected),
        "the store should return a record as it was created, without a holder"
    );
}

/// An existing record is not created again, and the attempt changes nothing.
pub async fn record_is_created_once<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;

    assert!(
        !case.created(&Attributes::new()).await,
        "the store should not create a record that exists"
    );

    case.attributes_are(&colours(), "a refused creation should change nothing").await;
}

/// A record shows its holder and token, and keeps the token after the release.
pub async fn held_record_shows_its_holder<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;

    let held = case.read().await;
    case.release(&grant).await;
    let freed = case.read().await;

    let holder = held.and_then(|record| record.holder);
    assert_eq!(
        holder.map(|holder| (holder.lessee, holder.token)),
        Some((grant.lessee, Some(grant.token))),
        "the record of a held key should show the lessee and the token of its grant"
    );
    assert_eq!(
        freed.map(|record| (record.holder, record.token)),
        Some((None, Some(grant.token))),
        "the record of a released key should show no holder, and the last token"
    );
}

/// Grants, heartbeats, adoptions and releases do not change attributes.
pub async fn attributes_survive_a_lease<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;

    let grant = case.granted("a").await;
    case.heartbeat(&grant, 1).await;
    let adopted = case.adopted(&grant, &case.claim("b")).await;
    case.release(&adopted).await;

    case.attributes_are(&colours(), "grants, heartbeats and releases should not change attributes")
        .await;
}

/// A grant returns the record's attributes.
pub async fn obtain_returns_attributes<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;

    let Obtained::Granted(_, attributes) = case.ask(&case.claim("a")).await else {
        unreachable!("a created record is free")
    };

    assert_eq!(attributes, colours(), "the store should return the record's attributes");
}

/// An adoption returns the record's attributes.
pub async fn adoption_returns_attributes<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let handed = case.granted("a").await;

    let Obtained::Granted(_, attributes) = case.adopt(&handed, &case.claim("b")).await else {
        unreachable!("the current grant can be adopted")
    };

    assert_eq!(attributes, colours(), "the store should return the record's attributes");
}

/// Each type of attribute is read back exactly as it was written.
pub async fn every_type_of_attribute_is_read_back<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&every_type()).await;

    case.attributes_are(&every_type(), "each type should be read back as written").await;
}

/// A list contains each record under its prefix once, and no other record.
pub async fn list_has_every_record_of_its_prefix<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let large = Attributes::from([("note".to_owned(), Value::from("x".repeat(20_000)))]);
    let mut expected = BTreeSet::new();
    // More than a megabyte in total: no service returns so much in one page.
    for number in 0..60 {
        let key = name(&format!("list/a/{number:03}"));
        let made = case.store.create(&key, &large).await;
        assert!(matches!(made, Ok(true)), "{CREATE}: {made:?}");
        expected.insert(key);
    }
    for other in ["list/b", "list/A/1", "list/aa", "lis"] {
        let made = case.store.create(&name(other), &Attributes::new()).await;
        assert!(matches!(made, Ok(true)), "{CREATE}: {made:?}");
    }

    let listed: Vec<_> = case.store.list("list/a/").collect().await;

    let keys: Vec<_> = listed.into_iter().filter_map(|record| Some(record.ok()?.key)).collect();
    assert_eq!(
        keys.len(),
        expected.len(),
        "the store should list each record under the prefix once, over all pages"
    );
    assert_eq!(
        keys.into_iter().collect::<BTreeSet<_>>(),
        expected,
        "the store should list the records whose keys start with the prefix, and no others"
    );
    let all = case.store.list("").collect::<Vec<_>>().await.len();
    assert_eq!(all, 64, "the store should list every record under the empty prefix");
}

pub(in crate::conformance::kit::promises) fn colours() -> Attributes {
    Attributes::from([
        ("sky".to_owned(), Value::from("blue")),
        ("grass".to_owned(), Value::from("green")),
    ])
}

pub(super) fn every_type() -> Attributes {
    let digits = "12345678901234567890123456789012345678".parse().map(Value::Number);
    let list = Value::List(vec![Value::from("x"), Value::from(-1_i64), Value::Bool(false)]);
    let texts = ["a", "ä", ""].map(str::to_owned);
    let values = [
        ("text", Value::from("zwölf \"Boxkämpfer\"\n\u{0}")),
        ("empty text", Value::from("")),
        ("number", Value::from(-42_i64)),
        ("digits", digits.unwrap_or(Value::Null)),
        ("true", Value::Bool(true)),
        ("bytes", Value::Bytes(vec![0, 255, 10])),
        ("null", Value::Null),
        ("empty list", Value::List(Vec::new())),
        ("map", Value::Map(BTreeMap::from([("inner".to_owned(), list.clone())]))),
        ("list", list),
        ("texts", Value::TextSet(BTreeSet::from(texts))),
        ("numbers", Value::NumberSet(["1", "2"].iter().flat_map(|n| n.parse()).collect())),
        ("byte sets", Value::BytesSet(BTreeSet::from([vec![1], vec![2, 3]]))),
    ];
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) const CREATE: &str = "the store should create a record where there is none";
pub(super) const REFUSED: &str = "a refused write should change nothing";
pub(super) const SUPERSEDED: &str =
    "the store should refuse a write under a grant whose key was granted again since";
