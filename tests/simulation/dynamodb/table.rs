//! A table: its items and their earlier versions.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_test_servers::simulation::expression::{Bindings, Condition, Item, Refusal};
use serde_json::json;

use super::request::{Change, KEY, Write};

#[derive(Debug, Default)]
pub(crate) struct Table {
    items: BTreeMap<String, Item>,
    versions: Vec<Version>,
}

#[derive(Debug)]
struct Version {
    at: Duration,
    key: String,
    item: Option<Item>,
}

/// The result of an eventually consistent read of a page.
pub(crate) struct Page {
    pub(crate) items: Vec<Item>,
    pub(crate) last: Option<String>,
}

impl Table {
    pub(crate) fn get(&self, key: &str) -> Option<&Item> {
        self.items.get(key)
    }

    pub(crate) fn get_as_of(&self, key: &str, time: Duration) -> Option<&Item> {
        let before = |version: &&Version| version.at <= time && version.key == key;
        self.versions.iter().rev().find(before)?.item.as_ref()
    }

    pub(crate) fn set(&mut self, at: Duration, key: &str, item: Option<Item>) {
        self.versions.push(Version { at, key: key.to_owned(), item: item.clone() });
        match item {
            Some(item) => self.items.insert(key.to_owned(), item),
            None => self.items.remove(key),
        };
    }

    pub(crate) fn allows(&self, write: &Write) -> Result<bool, Refusal> {
        let nothing = Item::new();
        let item = self.items.get(&write.key).unwrap_or(&nothing);
        write.condition.holds(item, &write.bound)
    }

    pub(crate) fn apply(&mut self, at: Duration, write: &Write) -> Result<&Item, Refusal> {
        let mut item = match &write.change {
            Change::Put(item) => item.clone(),
            Change::Update(update) => {
                let mut item = self.items.get(&write.key).cloned().unwrap_or_default();
                update.apply(&mut item, &write.bound)?;
                item
            }
        };
        item.insert(KEY.to_owned(), json!({ "S": write.key }));
        self.set(at, &write.key, Some(item));
        self.items.get(&write.key).ok_or_else(|| "an item was lost".to_owned())
    }

    /// A page has one item, so that every listing has several pages.
    pub(crate) fn page(
        &self,
        filter: Option<&Condition>,
        bound: &Bindings,
        start: Option<&str>,
    ) -> Result<Page, Refusal> {
        let mut after = self.items.iter().filter(|(key, _)| start.is_none_or(|s| key.as_str() > s));
        let Some((key, item)) = after.next() else {
            return Ok(Page { items: Vec::new(), last: None });
        };
        let passes = filter.map_or(Ok(true), |filter| filter.holds(item, bound))?;
        let items = if passes { vec![item.clone()] } else { Vec::new() };
        Ok(Page { items, last: after.next().map(|_| key.clone()) })
    }
}
