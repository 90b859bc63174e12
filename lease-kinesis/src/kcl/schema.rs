//! The table itself, as KCL makes it.

use lease_core::StoreError;

use super::store::KclTable;

impl KclTable {
    /// Makes the table as KCL does, if there is none, billed on demand, and waits until it can be
    /// used. A table that is there is checked and left as it is.
    ///
    /// May be called at every start, by many processes at once. Needs the actions
    /// `dynamodb:DescribeTable` and `dynamodb:CreateTable`. KCL 3 adds an index by itself.
    ///
    /// # Errors
    ///
    /// Where a table of that name has another key: the error says what was found. Where DynamoDB
    /// could not be asked. Where the table is not active after five minutes.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time, and called again.
    pub async fn ensure_table(&self) -> Result<(), StoreError> {
        self.shared.requests.ensure_table(&*self.shared.settings.timing.clock).await
    }
}
