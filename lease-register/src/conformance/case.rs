//! The context of one promise: two handles on an empty register, and records to write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use lease_core::store::{Beat, Nonce, RequestNumber};
use lease_core::{Attributes, FencingToken, LeaseKey, Lessee, Value};

use crate::conformance::Fixture;
use crate::record::{Former, Held, Record, Reservation};
use crate::register::{Register, Replaced, Version, Versioned};

/// The register of one test, and a second handle on its data.
pub struct Case<F: Fixture> {
    fixture: F,
    pub(crate) register: F::Register,
    pub(crate) other: F::Register,
}

#[expect(clippy::expect_used, clippy::panic, reason = "a panic reports a broken promise")]
impl<F: Fixture> Case<F> {
    pub(crate) async fn new(fixture: F) -> Self {
        let register = fixture.register().await;
        let other = fixture.another(&register).await;
        Self { fixture, register, other }
    }

    pub(crate) async fn read(&self, key: &LeaseKey) -> Option<Versioned> {
        self.register.read(key).await.expect("the register should answer a read")
    }

    pub(crate) async fn read_by_other(&self, key: &LeaseKey) -> Option<Versioned> {
        self.other.read(key).await.expect("the register should answer a read")
    }

    pub(crate) async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Replaced {
        let replaced = self.register.replace(key, expected, record).await;
        replaced.expect("the register should answer a replacement")
    }

    /// Writes a record that must be written. Returns its version.
    pub(crate) async fn write(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Version {
        match self.replace(key, expected, record).await {
            Replaced::Done(version) => version,
            Replaced::Conflict => panic!(
                "the register should replace {key}, whose version is {expected:?}, but it answered \
                 Conflict"
            ),
        }
    }

    /// Creates a record of `key`. Returns its version.
    pub(crate) async fn create(&self, key: &LeaseKey) -> Version {
        self.write(key, None, &record()).await
    }

    /// Fails unless the register answers a conflict, and keeps what it has.
    pub(crate) async fn conflicts(&self, key: &LeaseKey, expected: Option<&Version>, why: &str) {
        let before = self.read(key).await;
        let replaced = self.replace(key, expected, &record()).await;
        assert_eq!(replaced, Replaced::Conflict, "the register should refuse {why}");
        assert_eq!(self.read(key).await, before, "a conflict should change nothing: {why}");
    }

    /// Deletes the record by hand. Returns false if the fixture cannot.
    pub(crate) async fn delete(&self, key: &LeaseKey) -> bool {
        self.fixture.delete(&self.register, key).await
    }
}

impl<F: Fixture> fmt::Debug for Case<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("register", &self.register).finish_non_exhaustive()
    }
}

#[expect(clippy::expect_used, reason = "the kit's own names are valid")]
pub(crate) fn name(key: &str) -> LeaseKey {
    LeaseKey::new(key).expect("a valid key")
}

#[expect(clippy::expect_used, reason = "the kit's own names are valid")]
pub(crate) fn lessee(name: &str) -> Lessee {
    Lessee::new(name).expect("a valid name")
}

/// A record with a new mark, and nothing else.
pub(crate) fn record() -> Record {
    Record { exists: true, ..Record::blank(Nonce::random().get()) }
}

#[expect(clippy::expect_used, reason = "a small number is a token")]
fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a token")
}

/// Records in which each field has a value that is easily lost.
pub(crate) fn full_records() -> Vec<Record> {
    let held = Held {
        lessee: lessee("host-1, \"zwölf\""),
        nonce: Nonce::random(),
        token: token((1 << 53) - 1),
        request: RequestNumber::new(3),
        beat: Beat::new(u64::MAX),
        ttl: Duration::new(30, 1),
        expires_at: Some(1_800_000_000_001),
        evicted: true,
    };
    let former = Former { lessee: lessee("b"), nonce: Nonce::random(), token: token(0) };
    let length = Duration::from_millis(1);
    let (only, until) = (Some(lessee("c")), Some(1_800_000_000_002));
    let reserved = Reservation { only, length, until };
    let for_none = Reservation { only: None, length, until: None };
    let plain = Held { expires_at: None, evicted: false, ..held.clone() };
    vec![
        Record { holder: Some(held), former: Some(former.clone()), ..record() },
        Record { former: Some(former), reserved: Some(reserved), ..record() },
        Record { holder: Some(plain), attributes: every_type(), ..record() },
        Record { reserved: Some(for_none), exists: false, ..record() },
    ]
}

pub(crate) fn every_type() -> Attributes {
    let number = |digits: &str| digits.parse().map_or(Value::Null, Value::Number);
    let list = Value::List(vec![Value::from("x"), Value::from(-1_i64), Value::Bool(false)]);
    let values = [
        ("text", Value::from("zwölf \"Boxkämpfer\"\n\u{0}")),
        ("", Value::from("")),
        ("digits", number("12345678901234567890123456789012345678")),
        ("decimals", number("1.0")),
        ("true", Value::Bool(true)),
        ("bytes", Value::Bytes(vec![0, 255, 10])),
        ("null", Value::Null),
        ("list", list.clone()),
        ("map", Value::Map(BTreeMap::from([("inner".to_owned(), list)]))),
        ("texts", Value::TextSet(BTreeSet::from(["a", "ä", ""].map(str::to_owned)))),
        ("numbers", Value::NumberSet(["1", "2"].iter().flat_map(|n| n.parse()).collect())),
        ("byte sets", Value::BytesSet(BTreeSet::from([vec![1], vec![2, 3]]))),
    ];
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
