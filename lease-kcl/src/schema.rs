//! Creates the table as KCL creates it.

use lease_core::StoreError;

use crate::store::KclTable;

impl KclTable {
    /// If the table does not exist, creates it as KCL does, billed on demand, and waits until it is active.
    /// Checks an existing table, and does not change it.
    ///
    /// Many processes may call it at every start. Needs the actions `dynamodb:DescribeTable` and
    /// `dynamodb:CreateTable`. KCL 3 adds an index itself.
    ///
    /// # Errors
    ///
    /// If the existing table has another key, which the error names; if a request fails; if the table is not
    /// active after five minutes.
    ///
    /// # Cancel safety
    ///
    /// Safe: call it again.
    pub async fn ensure_table(&self) -> Result<(), StoreError> {
        self.shared.requests.ensure_table(&*self.shared.settings.timing.clock).await
    }
}
