//! The view of switches, each of which turns the work of a fleet on or off.

use std::collections::BTreeMap;
use std::sync::Arc;

use lease_core::{StoreError, StoreErrorKind, TableSwitch};
use serde_json::json;

use crate::serve::feed::View;
use crate::serve::rows::Rows;

/// The switches of the command line, by key.
pub(crate) type ByKey = Arc<BTreeMap<String, TableSwitch>>;

#[derive(Debug)]
pub(crate) struct Switches {
    switches: ByKey,
}

impl Switches {
    pub(crate) fn new(switches: ByKey) -> Self {
        Self { switches }
    }
}

impl View for Switches {
    async fn read(&mut self) -> Result<Arc<Rows>, StoreError> {
        let mut rows = Rows::now();
        for (key, switch) in &*self.switches {
            let fields = match switch.state().await {
                Ok(on) => json!({ "on": on }),
                // Another use of this key hides no other switch.
                Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                    json!({ "on": null, "error": error.to_string() })
                }
                Err(error) => return Err(error),
            };
            rows.add(key, None, fields);
        }
        Ok(Arc::new(rows))
    }
}
