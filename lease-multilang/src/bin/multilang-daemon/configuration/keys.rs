//! The keys of Amazon's daemon that have no effect here.

use super::properties::Properties;

/// The default value of a key of `NEVER_EMPTY` could lose records.
pub(crate) fn refuse_empty(file: &mut Properties) {
    for key in NEVER_EMPTY {
        if file.is_empty(key) {
            file.record_error(format!("{key} has no value: give it one, or delete the line"));
        }
    }
}

pub(crate) fn sort_out(file: &mut Properties) {
    file.refuse(&REFUSED);
    file.have_no_effect(&WITHOUT_EFFECT);
}

/// With an empty value, the daemon would silently use another position, table, region or account than
/// intended.
const NEVER_EMPTY: [&str; 9] = [
    "awsCredentialsProviderDynamoDB",
    "dynamoDBEndpoint",
    "dynamoDBRegionName",
    "initialPositionInStream",
    "initialPositionInStreamExtended",
    "kinesisEndpoint",
    "regionName",
    "tableName",
    "timestampAtInitialPositionInStream",
];

/// Each refused key has the keys to write instead. A key includes its nested keys.
const REFUSED: [(&str, &str); 4] = [
    ("dynamoDBCredentialsProvider", "write AwsCredentialsProvider, which serves both services"),
    ("dynamoDbClient", "write dynamoDBRegionName and dynamoDBEndpoint"),
    ("kinesisClient", "write regionName and kinesisEndpoint"),
    ("kinesisCredentialsProvider", "write AwsCredentialsProvider"),
];

/// Keys of features that this daemon does not have or implements differently. Ignoring these keys loses no
/// record. A key includes its nested keys.
const WITHOUT_EFFECT: [&str; 69] = [
    "allowThroughputOvershoot",
    "awsCredentialsProviderCloudWatch",
    "billingMode",
    "cleanupLeasesUponShardCompletion",
    "clientVersionConfig",
    "cloudWatchClient",
    "cloudWatchCredentialsProvider",
    "cloudWatchRegionName",
    "completedLeaseCleanupIntervalMillis",
    "coordinatorStateBillingMode",
    "coordinatorStateDeletionProtectionEnabled",
    "coordinatorStatePointInTimeRecoveryEnabled",
    "coordinatorStateReadCapacity",
    "coordinatorStateTableName",
    "coordinatorStateTags",
    "coordinatorStateWriteCapacity",
    "dampeningPercentage",
    "disableWorkerMetrics",
    "enablePriorityLeaseAssignment",
    "fanoutConfig.maxDescribeStreamConsumerRetries",
    "fanoutConfig.maxDescribeStreamSummaryRetries",
    "fanoutConfig.registerStreamConsumerRetries",
    "fanoutConfig.retryBackoffMillis",
    "garbageLeaseCleanupIntervalMillis",
    "gracefulLeaseHandoffTimeoutMillis",
    "ignoreUnexpectedChildShards",
    "initialLeaseTableReadCapacity",
    "initialLeaseTableWriteCapacity",
    "inMemoryWorkerMetricsCaptureFrequencyMillis",
    "isGracefulLeaseHandoffEnabled",
    "leaseAssignmentIntervalMillis",
    "leaseCleanupIntervalMillis",
    "leasesRecoveryAuditorExecutionFrequencyMillis",
    "leasesRecoveryAuditorInconsistencyConfidenceThreshold",
    "leaseTableDeletionProtectionEnabled",
    "leaseTablePitrEnabled",
    "listShardsBackoffTimeInMillis",
    "logWarningForTaskAfterMillis",
    "maxActiveThreads",
    "maxGetRecordsThreadPool",
    "maxLeaseRenewalThreads",
    "maxListShardsRetryAttempts",
    "maxThroughputPerHostKBps",
    "metricsEnabledDimensions",
    "metricsLevel",
    "metricsMaxQueueSize",
    "noOfPersistedMetricsPerWorkerMetrics",
    "parentShardPollIntervalMillis",
    "reBalanceThresholdPercentage",
    "retryGetRecordsInSeconds",
    "schedulerInitializationBackoffTimeMillis",
    "shardPrioritization",
    "shardSyncStrategyType",
    "skipShardSyncAtStartup",
    "skipShardSyncAtWorkerInitializationIfLeasesExist",
    "staleWorkerMetricsEntryCleanupDuration",
    "userAgent",
    "validateSequenceNumberBeforeCheckpointing",
    "varianceBalancingFrequency",
    "workerMetricsBillingMode",
    "workerMetricsDeletionProtectionEnabled",
    "workerMetricsEMAAlpha",
    "workerMetricsPointInTimeRecoveryEnabled",
    "workerMetricsReadCapacity",
    "workerMetricsReporterFreqInMillis",
    "workerMetricsTableName",
    "workerMetricsTags",
    "workerMetricsWriteCapacity",
    "workerUtilizationAwareAssignment",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guide_lists_every_key() {
        let guide = include_str!("../../../../../docs/guides/moving-off-the-jvm.md");
        let refused = REFUSED.iter().map(|(key, _)| *key);

        for key in WITHOUT_EFFECT.into_iter().chain(refused) {
            assert!(guide.contains(&format!("`{key}`")), "{key} is not in the guide");
        }
    }

    #[test]
    fn each_key_is_listed_once() {
        let mut keys = WITHOUT_EFFECT.to_vec();
        keys.extend(REFUSED.iter().map(|(key, _)| *key));
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();

        assert_eq!(keys.len(), count);
    }
}
