//! Records that carry attributes and can be listed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;

use crate::attributes::{Attributes, Change, Value};
use crate::conformance::case::{Case, expect_granted, expect_held, name};
use crate::conformance::{Call, Fault, Fixture};
use crate::error::StoreError;
use crate::grant::{Heartbeat, Obtained, Written};
use crate::key::Lessee;
use crate::lost::LossCause;
use crate::store::LockStore;
use crate::table::{LeaseRecord, LeaseTable};

/// A record that was created is read back as it was, held by nobody.
pub async fn a_created_record_is_read_back<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    assert_eq!(case.read().await, None);

    assert!(case.created(&colours()).await);

    let expected = LeaseRecord::new(case.key(), None, None, colours());
    assert_eq!(case.read().await, Some(expected));
}

/// A record that is there is not created again, nor changed by the attempt.
pub async fn a_record_is_created_once<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;

    assert!(!case.created(&Attributes::new()).await);

    assert_eq!(case.attributes().await, colours());
}

/// A record tells its holder and the token, and keeps the token when it is free again.
pub async fn a_held_record_shows_its_holder<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;

    let held = case.read().await;
    case.release(&grant).await;
    let freed = case.read().await;

    let holder = held.and_then(|record| record.holder);
    assert_eq!(
        holder.map(|holder| (holder.lessee, holder.token)),
        Some((grant.lessee, grant.token))
    );
    assert_eq!(freed.map(|record| (record.holder, record.token)), Some((None, Some(grant.token))));
}

/// No lease write touches the attributes.
pub async fn attributes_survive_a_lease<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;

    let grant = case.granted("a").await;
    case.heartbeat(&grant, 1).await;
    let adopted = expect_granted(case.adopt(&grant, &case.claim("b")).await);
    case.release(&adopted).await;

    assert_eq!(case.attributes().await, colours());
}

/// Who obtains a key is told its attributes.
pub async fn attributes_are_told_to_who_obtains<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;

    let Obtained::Granted(_, attributes) = case.ask(&case.claim("a")).await else {
        unreachable!("a created record is free")
    };

    assert_eq!(attributes, colours());
}

/// Who adopts a grant is told its attributes.
pub async fn attributes_are_told_to_who_adopts<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let handed = case.granted("a").await;

    let Obtained::Granted(_, attributes) = case.adopt(&handed, &case.claim("b")).await else {
        unreachable!("a grant that stands can be adopted")
    };

    assert_eq!(attributes, colours());
}

/// Every type of attribute is read back as it was written, to the last digit.
pub async fn every_type_of_attribute_is_read_back<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&every_type()).await;

    assert_eq!(case.attributes().await, every_type());
}

/// An update sets and removes what it names, and leaves the rest.
pub async fn an_update_changes_what_it_names_and_nothing_else<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;

    let change = Change::new().set("sky", "grey").set("sea", "blue").remove("grass").remove("none");
    let written = case.written(case.store.update(&grant, &change)).await;

    assert_eq!(written, Written::Applied);
    let mut expected = colours();
    change.apply(&mut expected);
    assert_eq!(case.attributes().await, expected);
    assert_eq!(case.lessee_of_holder().await, Some(grant.lessee));
}

/// A former holder's update changes nothing, while the key is free and while it is held.
pub async fn an_update_by_a_former_holder_changes_nothing<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let former = case.granted("a").await;
    case.release(&former).await;
    let change = Change::new().set("sky", "black");

    let while_free = case.written(case.store.update(&former, &change)).await;
    case.granted("b").await;
    let while_held = case.written(case.store.update(&former, &change)).await;

    assert!(matches!(while_free, Written::Lost(_)), "{while_free:?}");
    assert_eq!(while_held, Written::Lost(LossCause::Superseded));
    assert_eq!(case.attributes().await, colours());
}

/// A late duplicate of a claim may be granted the key once more, for nobody, after another's grant
/// has come and gone. Updates under the first grant are a former holder's all the same.
pub async fn an_update_under_an_earlier_token_changes_nothing<F: Fixture<Store: LeaseTable>>(
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

    assert_eq!(written, Written::Lost(LossCause::Superseded));
    assert_eq!(case.attributes().await, colours());
}

/// An update under a grant that has run out changes nothing, although nobody took the key.
pub async fn an_update_after_expiry_changes_nothing<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;
    case.pass(case.ttl * 4).await;

    let change = Change::new().set("sky", "black");
    let written = case.written(case.store.update(&grant, &change)).await;

    assert!(matches!(written, Written::Lost(_)), "{written:?}");
    assert_eq!(case.attributes().await, colours());
}

/// An update does not keep a lease alive: heartbeats do.
pub async fn an_update_does_not_extend<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let other = name("conformance/other");
    let grant = case.granted("a").await;
    case.obtain(&case.claim_of(&other, "a")).await;
    case.pass(case.ttl / 2).await;

    let change = Change::new().set("sky", "grey");
    let _ = case.written(case.store.update(&grant, &change)).await;

    case.not_extended(&grant.key, &other).await;
}

/// An update is applied if all is as it expects, and changes nothing if one thing is not.
pub async fn an_update_that_expects_another_value_changes_nothing<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    let first = Attributes::from([
        ("grass".to_owned(), Value::from("green")),
        ("sky".to_owned(), Value::from("1")),
    ]);
    case.created(&first).await;
    let grant = case.granted("a").await;
    let change = Change::new().set("sky", "2").remove("grass");

    for unexpected in [
        change.clone().expecting("sky", "0"),
        change.clone().expecting("sky", 1), // a number, and no text
        change.clone().expecting("sea", "1"),
        change.clone().expecting("grass", "green").expecting("sky", "0"),
        change.clone().expecting("grass", "grey").expecting("sky", "1"),
    ] {
        let written = case.written(case.store.update(&grant, &unexpected)).await;
        assert_eq!(written, Written::Unexpected, "{unexpected:?}");
        assert_eq!(case.attributes().await, first, "{unexpected:?}");
    }

    let expected = change.expecting("grass", "green").expecting("sky", "1");
    let written = case.written(case.store.update(&grant, &expected)).await;
    assert_eq!(written, Written::Applied);
    let second = Attributes::from([("sky".to_owned(), Value::from("2"))]);
    assert_eq!(case.attributes().await, second);
}

/// Whatever can be written can be expected.
pub async fn every_type_of_attribute_can_be_expected<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&every_type()).await;
    let grant = case.granted("a").await;

    for (name, value) in every_type() {
        let change = Change::new().expecting(name.as_str(), value).set("last", name);
        let written = case.written(case.store.update(&grant, &change)).await;
        assert_eq!(written, Written::Applied, "{change:?}");
    }
}

/// That there is no such attribute can be expected, on a record and where there is none yet. One
/// without a value is there.
pub async fn an_absent_attribute_can_be_expected<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let grant = case.granted("a").await;
    let first = Change::new().expecting_none("sky").set("sky", Value::Null);
    let second = Change::new().expecting_none("sky").set("sky", "blue");

    let on_none = case.written(case.store.update(&grant, &first)).await;
    let on_null = case.written(case.store.update(&grant, &second)).await;

    assert_eq!((on_none, on_null), (Written::Applied, Written::Unexpected));
    let expected = Attributes::from([("sky".to_owned(), Value::Null)]);
    assert_eq!(case.attributes().await, expected);
}

/// A request that comes late, after its own repetition and a newer one, changes nothing: nothing
/// that says what it replaces goes back.
pub async fn a_late_update_does_not_undo_a_newer_one<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
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

    assert!(unclear.is_err(), "{unclear:?}");
    assert_eq!((repeated, newer), (Written::Applied, Written::Applied));
    let expected = Attributes::from([("checkpoint".to_owned(), Value::from("2"))]);
    assert_eq!(case.attributes().await, expected);
}

/// Who has lost its grant is told so, whatever it expected.
pub async fn a_lost_grant_is_told_before_what_was_unexpected<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let former = case.granted("a").await;
    case.release(&former).await;
    case.granted("b").await;

    let change = Change::new().expecting("sky", "grey").set("sky", "black");
    let written = case.written(case.store.update(&former, &change)).await;

    assert_eq!(written, Written::Lost(LossCause::Superseded));
    assert_eq!(case.attributes().await, colours());
}

/// A list has every record under its prefix, once, and no other.
pub async fn a_list_has_every_record_of_its_prefix<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let large = Attributes::from([("note".to_owned(), Value::from("x".repeat(20_000)))]);
    let mut expected = BTreeSet::new();
    // More than a megabyte: no service answers that in one page.
    for number in 0..60 {
        let key = name(&format!("list/a/{number:03}"));
        let made = case.store.create(&key, &large).await;
        assert!(matches!(made, Ok(true)), "{made:?}");
        expected.insert(key);
    }
    for other in ["list/b", "list/A/1", "list/aa", "lis"] {
        let made = case.store.create(&name(other), &Attributes::new()).await;
        assert!(matches!(made, Ok(true)), "{made:?}");
    }

    let listed: Vec<_> = case.store.list("list/a/").collect().await;

    let keys: Vec<_> = listed.into_iter().filter_map(|record| Some(record.ok()?.key)).collect();
    assert_eq!(keys.len(), expected.len(), "records listed");
    assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(case.store.list("").collect::<Vec<_>>().await.len(), 64, "records in all");
}

/// A key that was transferred is free for the one it was transferred to.
pub async fn a_transferred_key_is_free_for_one_lessee_alone<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;

    let written = case.transferred(&grant, case.ttl * 4).await;

    assert_eq!(written, Written::Applied);
    for other in ["a", "c"] {
        drop(expect_held(case.ask(&case.claim(other)).await));
    }
    let next = case.granted("b").await;
    assert!(next.token > grant.token);
}

/// A key that nobody takes up is anybody's once its reservation has passed.
pub async fn a_transferred_key_is_free_for_anybody_in_the_end<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;
    let since = case.now();
    let _ = case.transferred(&grant, case.ttl).await;

    let (_, taken) = case.taken_over("c").await;

    case.not_before_ttl(taken, since);
}

/// A former holder cannot transfer the key.
pub async fn a_transfer_by_a_former_holder_changes_nothing<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let former = case.granted("a").await;
    case.release(&former).await;
    let current = case.granted("c").await;

    let written = case.transferred(&former, case.ttl).await;

    assert_eq!(written, Written::Lost(LossCause::Superseded));
    assert_eq!(case.lessee_of_holder().await, Some(current.lessee));
}

/// A watch wakes when the key is transferred: it may be for who watches.
pub async fn a_watch_wakes_on_transfer<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let grant = case.granted("a").await;
    let Ok(freed) = case.store.watch(&grant.key).await else { return };
    if !freed.can_wake() {
        return;
    }

    let _ = case.transferred(&grant, case.ttl).await;

    let woken = tokio::time::timeout(Duration::from_secs(60), freed).await;
    assert!(woken.is_ok(), "not woken within a minute of the transfer");
}

/// A deleted record is not read, not listed, and may be created again.
pub async fn a_deleted_record_is_gone<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;

    let written = case.written(case.store.delete(&grant)).await;

    assert_eq!(written, Written::Applied);
    assert_eq!(case.read().await, None);
    assert_eq!(case.holder().await, None);
    assert_eq!(case.store.list("").collect::<Vec<_>>().await.len(), 0, "records listed");
    assert!(case.created(&Attributes::new()).await);
    assert_eq!(case.attributes().await, Attributes::new());
}

/// A grant after a delete still carries a larger token, and the old grant stays lost.
pub async fn a_deleted_record_remembers_its_token<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let claim = case.claim("a");
    let grant = case.obtain(&claim).await;
    let _ = case.written(case.store.delete(&grant)).await;

    drop(expect_held(case.ask(&claim).await));
    let next = case.granted("b").await;

    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
    assert!(matches!(case.heartbeat(&grant, 1).await, Heartbeat::Lost(_)));
}

/// A former holder cannot delete the record.
pub async fn a_delete_by_a_former_holder_changes_nothing<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let former = case.granted("a").await;
    case.release(&former).await;
    let current = case.granted("b").await;

    let written = case.written(case.store.delete(&former)).await;

    assert_eq!(written, Written::Lost(LossCause::Superseded));
    assert_eq!(case.attributes().await, colours());
    assert_eq!(case.lessee_of_holder().await, Some(current.lessee));
}

pub(super) fn colours() -> Attributes {
    Attributes::from([
        ("sky".to_owned(), Value::from("blue")),
        ("grass".to_owned(), Value::from("green")),
    ])
}

fn every_type() -> Attributes {
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

#[expect(clippy::expect_used, reason = "a promise is broken by panicking")]
impl<F: Fixture<Store: LeaseTable>> Case<F> {
    pub(super) async fn created(&self, attributes: &Attributes) -> bool {
        self.store.create(&self.key(), attributes).await.expect("an answer to a creation")
    }

    async fn read(&self) -> Option<LeaseRecord> {
        self.store.read(&self.key()).await.expect("a record or none")
    }

    async fn attributes(&self) -> Attributes {
        self.read().await.map(|record| record.attributes).expect("a record")
    }

    async fn written(&self, write: impl Future<Output = Result<Written, StoreError>>) -> Written {
        write.await.expect("an answer to a write")
    }

    /// Transfers `grant` to the lessee `b`.
    async fn transferred(&self, grant: &crate::grant::Grant, reserved: Duration) -> Written {
        let to = Lessee::new("b").expect("a lessee");
        self.written(self.store.transfer(grant, &to, reserved)).await
    }
}
