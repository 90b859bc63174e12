//! The table itself, as KCL makes it.

use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TableDescription, TableStatus,
};
use lease_core::{StoreError, StoreErrorKind};

use super::error::{failed, told};
use super::row::LEASE_KEY;
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
        let clock = &self.shared.settings.clock;
        let gives_up = clock.now() + PATIENCE;
        loop {
            match self.describe().await? {
                None => self.create_table().await?,
                Some(found) => {
                    self.check_key(&found)?;
                    let status = found.table_status;
                    if matches!(status, Some(TableStatus::Active | TableStatus::Updating)) {
                        return Ok(());
                    }
                }
            }
            if clock.now() > gives_up {
                let table = &self.shared.requests.table;
                let text = format!("table {table} is not active after {PATIENCE:?}");
                return Err(told(StoreErrorKind::Unavailable, text));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn describe(&self) -> Result<Option<TableDescription>, StoreError> {
        let requests = &self.shared.requests;
        let request = requests.client.describe_table().table_name(&requests.table);
        match requests.within("DescribeTable", request.send()).await? {
            Ok(answer) => Ok(answer.table),
            Err(SdkError::ServiceError(service))
                if service.err().is_resource_not_found_exception() =>
            {
                Ok(None)
            }
            Err(error) => Err(failed("DescribeTable", &requests.table, error)),
        }
    }

    async fn create_table(&self) -> Result<(), StoreError> {
        let requests = &self.shared.requests;
        let attribute = AttributeDefinition::builder()
            .attribute_name(LEASE_KEY)
            .attribute_type(ScalarAttributeType::S)
            .build();
        let hash_key =
            KeySchemaElement::builder().attribute_name(LEASE_KEY).key_type(KeyType::Hash).build();
        let (Ok(attribute), Ok(hash_key)) = (attribute, hash_key) else {
            return Err(told(StoreErrorKind::Misconfigured, "the key could not be described"));
        };
        let request = requests
            .client
            .create_table()
            .table_name(&requests.table)
            .attribute_definitions(attribute)
            .key_schema(hash_key)
            .billing_mode(BillingMode::PayPerRequest);
        match requests.within("CreateTable", request.send()).await? {
            Ok(_) => Ok(()),
            // Another process was faster; its table is checked like any other.
            Err(SdkError::ServiceError(service))
                if service.err().is_resource_in_use_exception() =>
            {
                Ok(())
            }
            Err(error) => Err(failed("CreateTable", &requests.table, error)),
        }
    }

    fn check_key(&self, found: &TableDescription) -> Result<(), StoreError> {
        let type_of = |name: &str| {
            let mut attributes = found.attribute_definitions().iter();
            let attribute = attributes.find(|attribute| attribute.attribute_name() == name);
            attribute.map_or("?", |attribute| attribute.attribute_type().as_str())
        };
        let parts = found.key_schema().iter().map(|part| {
            let name = part.attribute_name();
            format!("{name} {} {}", type_of(name), part.key_type().as_str())
        });
        let described = parts.collect::<Vec<_>>().join(", ");
        if described == "leaseKey S HASH" {
            return Ok(());
        }
        let text = format!(
            "table {} has the key ({described}), and those of KCL have (leaseKey S HASH): this is \
             another program's, so name KCL's own with `with_table(…)`",
            self.shared.requests.table
        );
        Err(told(StoreErrorKind::Misconfigured, text))
    }
}

/// How long a table may take to become active: AWS needs some ten seconds.
const PATIENCE: Duration = Duration::from_mins(5);

const PAUSE: Duration = Duration::from_millis(250);
