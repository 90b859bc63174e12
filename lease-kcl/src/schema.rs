//! Creates the table as KCL creates it.

use lease_core::StoreError;

use crate::store::KclTable;

impl KclTable {
    /// Creates a missing table as KCL does, billed on demand, and waits until it is active. Does not change
    /// an existing table. Needs the actions `dynamodb:DescribeTable` and `dynamodb:CreateTable`.
    ///
    /// # Errors
    ///
    /// If the existing table has another key, or a request fails. If the table is not active after five
    /// minutes.
    ///
    /// # Cancel safety
    ///
    /// Safe: call it again.
    pub async fn ensure_table(&self) -> Result<(), StoreError> {
        self.shared.requests.ensure_table(&*self.shared.settings.timing.clock).await
    }
}
