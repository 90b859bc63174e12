//! The settings of the daemon, read from the properties file.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use lease_core::{LeaseOptions, Lessee};
use lease_kinesis::{Application, InitialPosition, Retrieval};
use lease_multilang::daemon::ChildCommand;

use super::properties::{Ignored, Properties};
use super::region::AnyName;
use super::{credentials, keys, region, start, stream, table};
use crate::failure::Failure;
use crate::metrics::target::{EmfSettings, Target};

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) command: ChildCommand,
    pub(crate) application: String,
    /// The name or the ARN.
    pub(crate) stream: String,
    pub(crate) table: String,
    pub(crate) language: Option<String>,
    pub(crate) worker: Option<Lessee>,
    pub(crate) kinesis: ServiceAddress,
    pub(crate) dynamodb: ServiceAddress,
    pub(crate) initial: InitialPosition,
    pub(crate) options: LeaseOptions,
    pub(crate) max_shards: Option<usize>,
    /// The maximum number of leases that are stolen at one time from workers of KCL.
    pub(crate) max_steals: usize,
    pub(crate) sync_interval: Duration,
    pub(crate) retrieval: Retrieval,
    /// The name or the ARN.
    pub(crate) consumer: String,
    pub(crate) max_records: u16,
    pub(crate) idle: Duration,
    pub(crate) empty_batches: bool,
    pub(crate) first_backoff: Duration,
    pub(crate) grace: Duration,
    pub(crate) settling: Duration,
    pub(crate) answer_timeout: Option<Duration>,
    pub(crate) on_failure: OnChildFailure,
    /// `None` without a property. The command line overrides it.
    pub(crate) metrics: Option<Target>,
    /// Whether Prometheus gets the lag of each shard.
    pub(crate) shard_metrics: bool,
    pub(crate) emf: EmfSettings,
    pub(crate) ignored: Ignored,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceAddress {
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl ServiceAddress {
    /// Returns the address for error messages.
    pub(crate) fn describe(&self, key: &str, region: Option<&impl Display>) -> String {
        match (&self.endpoint, region) {
            (Some(endpoint), _) => format!("{key} = {endpoint}"),
            (None, Some(region)) => format!("region {region}"),
            (None, None) => "no region".to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnChildFailure {
    /// The daemon starts a new child at the checkpoint.
    Restart,
    /// The daemon hands over all shards, and exits with code 1.
    Exit,
}

impl Settings {
    /// Returns every error of the file in one text.
    pub(crate) fn read(mut file: Properties) -> Result<Self, Failure> {
        let file = &mut file;
        keys::refuse_empty(file);
        let command = file.required("executableName", "the command of a record processor");
        let application = application(file);
        let table = table::name(file, &application);
        let (stream, stream_region) = stream::named(file);
        credentials::check(file);
        let (kinesis, dynamodb) = addresses(file, stream_region);
        let (retrieval, consumer) = retrieval(file);
        let on_failure = [("restart", OnChildFailure::Restart), ("exit", OnChildFailure::Exit)];
        let settings = Self {
            // If the command is empty, an error is already recorded. So this placeholder is never used.
            command: command.parse().or_else(|_none| "none".parse()).map_err(Failure::usage)?,
            table,
            consumer: consumer.unwrap_or_else(|| application.clone()),
            application,
            stream,
            language: file.text("processingLanguage"),
            worker: worker(file),
            kinesis,
            dynamodb,
            initial: start::initial(file, start::now()),
            options: options(file)?,
            max_shards: count(file, "maxLeasesForWorker", 1),
            max_steals: count(file, "maxLeasesToStealAtOneTime", 0).unwrap_or(1),
            sync_interval: file.millis("shardSyncIntervalMillis", 1).unwrap_or(MINUTE),
            retrieval,
            max_records: max_records(file),
            idle: idle(file),
            empty_batches: file.flag("callProcessRecordsEvenForEmptyRecordList").unwrap_or(false),
            first_backoff: millis(file, "taskBackoffTimeMillis", 1..=60_000, 500),
            grace: file.millis("shutdownGraceMillis", 0).unwrap_or(Duration::from_secs(5)),
            settling: millis(file, "settleMillis", 10..=60_000, 1000),
            answer_timeout: file.number("timeoutInSeconds", 1..=86_400).map(Duration::from_secs),
            on_failure: file
                .choice("onChildFailure", &on_failure)
                .unwrap_or(OnChildFailure::Restart),
            metrics: file.parsed("metrics", str::parse),
            shard_metrics: file.flag("metricsPerShard").unwrap_or(false),
            emf: EmfSettings::read(file),
            ignored: Ignored::default(),
        };
        keys::sort_out(file);
        let ignored = std::mem::take(file).end()?;
        Ok(Self { ignored, ..settings })
    }
}

fn application(file: &mut Properties) -> String {
    let application = file.required("applicationName", "the name that its workers share");
    if let (false, Err(error)) = (application.is_empty(), application.parse::<Application>()) {
        file.record_error(format!("applicationName = {application}: {error}"));
    }
    application
}

fn worker(file: &mut Properties) -> Option<Lessee> {
    let worker = file.parsed("workerId", |name| Lessee::new(name));
    let identifier = file.parsed("workerIdentifier", |name| Lessee::new(name));
    worker.or(identifier)
}

fn count(file: &mut Properties, key: &str, min: u64) -> Option<usize> {
    file.number(key, min..=u64::MAX).map(|count| usize::try_from(count).unwrap_or(usize::MAX))
}

fn millis(file: &mut Properties, key: &str, range: RangeInclusive<u64>, default: u64) -> Duration {
    Duration::from_millis(file.number(key, range).unwrap_or(default))
}

fn max_records(file: &mut Properties) -> u16 {
    let max = file.number("maxRecords", 1..=10_000);
    max.and_then(|max| u16::try_from(max).ok()).unwrap_or(10_000)
}

/// Raises a pause below the minimum, as the Kinesis Client Library does.
fn idle(file: &mut Properties) -> Duration {
    let idle = file.millis("idleTimeBetweenReadsInMillis", 0).unwrap_or(Duration::from_secs(1));
    idle.max(SHORTEST_IDLE)
}

/// The region of the stream's ARN overrides `regionName` for Kinesis.
fn addresses(
    file: &mut Properties,
    stream_region: Option<String>,
) -> (ServiceAddress, ServiceAddress) {
    let kinesis = endpoint(file, "kinesisEndpoint");
    let dynamodb = endpoint(file, "dynamoDBEndpoint");
    let of_both = AnyName::with(kinesis.as_ref().and(dynamodb.as_ref()));
    let named = region::named(file, "regionName", of_both);
    let of_table = region::named(file, "dynamoDBRegionName", AnyName::with(dynamodb.as_ref()));
    let region = named.or_else(|| stream_region.clone());
    (
        ServiceAddress { region: stream_region.or_else(|| region.clone()), endpoint: kinesis },
        ServiceAddress { region: of_table.or(region), endpoint: dynamodb },
    )
}

fn endpoint(file: &mut Properties, key: &str) -> Option<String> {
    file.parsed(key, |text| match text.split_once("://") {
        Some(("http" | "https", host)) if !host.is_empty() => Ok(text.to_owned()),
        // Old files contain only the name of a host.
        None => Ok(format!("https://{text}")),
        Some(_) => Err("must be a URL, such as https://kinesis.eu-west-1.amazonaws.com"),
    })
}

fn options(file: &mut Properties) -> Result<LeaseOptions, Failure> {
    let options = file.parsed("failoverTimeMillis", |text| {
        let millis =
            text.parse().map_err(|_no| "must be a whole number of milliseconds".to_owned())?;
        LeaseOptions::new(Duration::from_millis(millis)).map_err(|error| error.to_string())
    });
    match options {
        Some(options) => Ok(options),
        None => LeaseOptions::new(Duration::from_secs(10)).map_err(Failure::usage),
    }
}

/// Selects fan-out unless the file has a key for polling, as KCL does.
fn retrieval(file: &mut Properties) -> (Retrieval, Option<String>) {
    let polls = POLLING.iter().any(|key| file.has(key));
    let by_default = if polls { Retrieval::Polling } else { Retrieval::FanOut };
    let words =
        [("FANOUT", Retrieval::FanOut), ("POLLING", Retrieval::Polling), ("DEFAULT", by_default)];
    let retrieval = file.choice("retrievalMode", &words).unwrap_or(by_default);
    let arn = file.parsed("fanoutConfig.consumerArn", |arn| {
        let valid = arn.starts_with("arn:") && arn.contains("/consumer/");
        valid
            .then(|| arn.to_owned())
            .ok_or("must be arn:aws:kinesis:REGION:ACCOUNT:stream/NAME/consumer/NAME:NUMBER")
    });
    let name = file.text("fanoutConfig.consumerName");
    (retrieval, arn.or(name))
}

const MINUTE: Duration = Duration::from_mins(1);

/// Kinesis allows five reads per second for a shard.
const SHORTEST_IDLE: Duration = Duration::from_millis(200);

const POLLING: [&str; 4] = [
    "maxRecords",
    "idleTimeBetweenReadsInMillis",
    "retryGetRecordsInSeconds",
    "maxGetRecordsThreadPool",
];

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "executableName = python3 app.py\napplicationName = orders\n\
        streamName = clicks\nAwsCredentialsProvider = DefaultCredentialsProvider\n";

    fn settings(more: &str) -> Result<Settings, String> {
        let text = format!("{MINIMAL}{more}");
        let properties = Properties::parse("test".into(), text.as_bytes()).unwrap();
        Settings::read(properties).map_err(|failure| failure.to_string())
    }

    #[test]
    fn minimal_file_has_the_defaults_of_kcl() {
        let settings = settings("").unwrap();

        assert_eq!(settings.command.to_string(), "python3 app.py");
        assert_eq!((&*settings.stream, &*settings.table), ("clicks", "orders"));
        assert_eq!(settings.options.ttl(), Duration::from_secs(10));
        assert_eq!(settings.initial, InitialPosition::Latest);
        assert_eq!(settings.retrieval, Retrieval::FanOut);
        assert_eq!(settings.consumer, "orders");
        assert_eq!(settings.max_steals, 1);
        assert_eq!(settings.max_records, 10_000);
        assert_eq!(settings.idle, Duration::from_secs(1));
        assert_eq!(settings.answer_timeout, None);
        assert_eq!(settings.on_failure, OnChildFailure::Restart);
        assert_eq!(settings.ignored, Ignored::default());
    }

    #[test]
    fn empty_file_reports_every_required_key() {
        let properties = Properties::parse("test".into(), &b""[..]).unwrap();

        let errors = Settings::read(properties).unwrap_err().to_string();

        for key in ["executableName", "applicationName", "streamName", "AwsCredentialsProvider"] {
            assert!(errors.contains(&format!("{key} ")), "{key} in {errors}");
        }
    }

    const INVALID: &[(&str, &str)] = &[
        ("maxRecords = 0", "maxRecords = 0: must be a whole number from 1 to 10000"),
        ("maxRecords = many", "maxRecords = many: must be a whole number"),
        ("failoverTimeMillis = 5", "failoverTimeMillis = 5: ttl 5ms is out of range"),
        ("failoverTimeMillis = soon", "must be a whole number of milliseconds"),
        ("initialPositionInStream = FIRST", "must be one of LATEST, TRIM_HORIZON, AT_TIMESTAMP"),
        ("initialPositionInStream = AT_TIMESTAMP", "initialPositionInStreamExtended, the time in"),
        ("initialPositionInStreamExtended = today", "must be a whole number"),
        ("retrievalMode = push", "must be one of FANOUT, POLLING, DEFAULT"),
        ("streamArn = orders", "must be arn:aws:kinesis:REGION:ACCOUNT:stream/NAME"),
        ("streamName = a/b", "must be 1 to 128 letters"),
        ("streamName = arn:aws:kinesis:eu-west-1:1:stream/a", "an ARN belongs under streamArn"),
        (
            "streamArn = arn:aws:kinesis:eu-west-1:12345:stream/a",
            "an account has 12 digits, this one is 12345",
        ),
        (
            "streamArn = arn:aws:kinesis:eu-west-1:123456789012:stream/a/consumer/b:1",
            "the ARN of a consumer belongs under fanoutConfig.consumerArn",
        ),
        (
            "streamArn = arn:aws:kinesis:Paris:123456789012:stream/a",
            "Paris is not the code of a region",
        ),
        (
            "streamArn = arn:aws:kinesis:eu-west-1:123456789012:stream/",
            "must be arn:aws:kinesis:REGION:ACCOUNT:stream/NAME",
        ),
        ("tableName = ab", "tableName = ab: a table's name is 3 to 247 letters"),
        ("tableName = a/b", "tableName = a/b: a table's name is 3 to 247 letters"),
        (
            "initialPositionInStreamExtended = 1636609142000",
            "must be in seconds since 1970 and not in the future; if it is in milliseconds, set \
                 1636609142",
        ),
        (
            "initialPositionInStreamExtended = 9223372036854775",
            "must be in seconds since 1970 and not in the future",
        ),
        ("kinesisEndpoint = ftp://x", "must be a URL"),
        ("regionName = Paris", "regionName = Paris: must be the code of a region"),
        ("dynamoDBRegionName = eu_west_1", "dynamoDBRegionName = eu_west_1: must be the code"),
        ("onChildFailure = ignore", "must be one of restart, exit"),
        ("timeoutInSeconds = -1", "must be a whole number from 1 to 86400"),
        ("metrics = localhost", "metrics = localhost: write a port, as in 9464, an IP address"),
        ("metricsDimensions = Team", "write up to 28 pairs, as in Team=orders,Stage=test"),
        ("metricsNamespace = :a", "metricsNamespace = :a: a namespace of CloudWatch has"),
        ("applicationName = a b", "application name \"a b\" is not valid"),
        ("AwsCredentialsProvider = Mine", "awsCredentialsProvider = Mine: "),
        ("fanoutConfig.consumerArn = x", "must be arn:aws:kinesis"),
    ];

    #[test]
    fn invalid_value_is_refused_with_its_key_and_the_rule() {
        for (line, rule) in INVALID {
            let refused = settings(line).unwrap_err();
            assert!(refused.contains(rule), "{line}: {refused}");
        }
    }

    #[test]
    fn error_of_a_stream_is_reported_once() {
        for (file, error) in [
            (MINIMAL.replace("clicks", "a/b"), "streamName = a/b: must be 1 to 128"),
            (
                MINIMAL.replace("streamName = clicks", "streamArn = a"),
                "streamArn = a: must be arn:",
            ),
            (MINIMAL.replace("clicks", ""), "streamName or streamArn is missing"),
        ] {
            let properties = Properties::parse("test".into(), file.as_bytes()).unwrap();

            let refused = Settings::read(properties).unwrap_err().to_string();

            assert!(refused.contains(error), "{refused}");
            assert_eq!(refused.lines().count(), 2, "{refused}");
        }
    }

    #[test]
    fn arn_overrides_the_name_and_sets_the_region() {
        let arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders";
        let settings = settings(&format!("streamArn = {arn}\nregionName = us-east-1")).unwrap();

        assert_eq!(settings.stream, arn);
        assert_eq!(settings.kinesis.region.as_deref(), Some("eu-west-1"));
        assert_eq!(settings.dynamodb.region.as_deref(), Some("us-east-1"));
    }

    #[test]
    fn polling_key_selects_polling_unless_a_mode_is_set() {
        let retrieval = |more| settings(more).unwrap().retrieval;

        assert_eq!(retrieval("maxRecords = 100"), Retrieval::Polling);
        assert_eq!(retrieval("retryGetRecordsInSeconds = 1"), Retrieval::Polling);
        assert_eq!(retrieval("retrievalMode = default"), Retrieval::FanOut);
        assert_eq!(retrieval("maxRecords = 100\nretrievalMode = fanout"), Retrieval::FanOut);
        assert_eq!(retrieval("RetrievalMode = POLLING"), Retrieval::Polling);
    }

    #[test]
    fn application_with_an_invalid_table_name_needs_a_table_name() {
        let file = MINIMAL.replace("= orders", "= ab");
        let of =
            |text: &str| Settings::read(Properties::parse("test".into(), text.as_bytes()).unwrap());

        let refused = of(&file).unwrap_err().to_string();

        assert!(
            refused.contains("applicationName = ab: it is also the name of the table"),
            "{refused}"
        );
        let settings = of(&format!("{file}tableName = orders")).unwrap();
        assert_eq!((&*settings.application, &*settings.table), ("ab", "orders"));
        let long = of(&MINIMAL.replace("= orders", &format!("= {}", "x".repeat(248)))).unwrap_err();
        assert!(long.to_string().contains("3 to 247"), "{long}");
    }

    #[test]
    fn flag_accepts_the_words_of_java() {
        let of = |word: &str| {
            let line = format!("callProcessRecordsEvenForEmptyRecordList = {word}");
            settings(&line).map(|settings| settings.empty_batches)
        };

        assert_eq!(of("yes"), Ok(true));
        assert_eq!(of("TRUE"), Ok(true));
        assert_eq!(of("0"), Ok(false));
        assert!(of("maybe").unwrap_err().contains("must be one of true, false"));
    }

    #[test]
    fn worker_identifier_is_a_known_key() {
        let settings = settings("workerId = a\nworkerIdentifier = b").unwrap();

        assert_eq!(settings.worker.unwrap().as_str(), "a");
        assert_eq!(settings.ignored, Ignored::default());
    }
}
