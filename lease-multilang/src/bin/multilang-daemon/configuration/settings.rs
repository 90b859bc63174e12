//! What a properties file means.

use std::fmt::Display;
use std::time::Duration;

use lease_core::{LeaseOptions, Lessee};
use lease_kinesis::multilang::daemon::ChildCommand;
use lease_kinesis::{Application, InitialPosition, Retrieval};

use crate::failure::Failure;
use crate::properties::{Ignored, Properties};
use crate::region::AnyName;
use crate::{credentials, keys, region, start, stream, table};

/// What is run, for which stream, and how.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) command: ChildCommand,
    pub(crate) application: String,
    /// Its name, or its ARN.
    pub(crate) stream: String,
    pub(crate) table: String,
    pub(crate) language: Option<String>,
    pub(crate) worker: Option<Lessee>,
    pub(crate) kinesis: Place,
    pub(crate) dynamodb: Place,
    pub(crate) initial: InitialPosition,
    pub(crate) options: LeaseOptions,
    pub(crate) most_shards: Option<usize>,
    /// From workers of the Kinesis Client Library, at one time.
    pub(crate) most_steals: usize,
    pub(crate) sync_interval: Duration,
    pub(crate) retrieval: Retrieval,
    /// By its name, or its ARN.
    pub(crate) consumer: String,
    pub(crate) most_records: u16,
    pub(crate) idle: Duration,
    pub(crate) empty_batches: bool,
    pub(crate) first_backoff: Duration,
    pub(crate) grace: Duration,
    pub(crate) settling: Duration,
    pub(crate) answer_limit: Option<Duration>,
    pub(crate) on_failure: OnChildFailure,
    /// The keys of the file that have no effect.
    pub(crate) ignored: Ignored,
}

/// Where a service is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl Place {
    /// Where it is, and which key says so: for who is told that nobody answers there.
    pub(crate) fn told(&self, key: &str, region: Option<&impl Display>) -> String {
        match (&self.endpoint, region) {
            (Some(endpoint), _) => format!("{key} = {endpoint}"),
            (None, Some(region)) => format!("region {region}"),
            (None, None) => "no region".to_owned(),
        }
    }
}

/// What becomes of the others when a child fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnChildFailure {
    /// Nothing: another one begins at the checkpoint.
    Restart,
    /// All is handed over, and the daemon ends with 1: as Amazon's does, without the handing over.
    Exit,
}

impl Settings {
    pub(crate) fn of(mut file: Properties) -> Result<Self, Failure> {
        let file = &mut file;
        keys::refuse_empty(file);
        let command = file.required("executableName", "the command of a record processor");
        let application = file.required("applicationName", "what its workers have in common");
        if let (false, Err(error)) = (application.is_empty(), application.parse::<Application>()) {
            file.is_wrong(format!("applicationName = {application}: {error}"));
        }
        let table = table::name(file, &application);
        let (stream, stream_region) = stream::named(file);
        credentials::check(file);
        let (kinesis, dynamodb) = places(file, stream_region);
        let worker = file.parsed("workerId", |name| Lessee::new(name));
        let identifier = file.parsed("workerIdentifier", |name| Lessee::new(name));
        let (retrieval, consumer) = retrieval(file);
        let settings = Self {
            // One that is empty was told of above.
            command: command.parse().or_else(|_none| "none".parse()).map_err(Failure::usage)?,
            table,
            consumer: consumer.unwrap_or_else(|| application.clone()),
            application,
            stream,
            language: file.text("processingLanguage"),
            worker: worker.or(identifier),
            kinesis,
            dynamodb,
            initial: start::initial(file, start::now()),
            options: options(file)?,
            most_shards: file
                .number("maxLeasesForWorker", 1..=u64::MAX)
                .map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
            most_steals: file
                .number("maxLeasesToStealAtOneTime", 0..=u64::MAX)
                .map_or(1, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            sync_interval: file.millis("shardSyncIntervalMillis", 1).unwrap_or(MINUTE),
            retrieval,
            most_records: file
                .number("maxRecords", 1..=10_000)
                .and_then(|most| u16::try_from(most).ok())
                .unwrap_or(10_000),
            // As in the Kinesis Client Library, less is taken for the least that there is.
            idle: file
                .millis("idleTimeBetweenReadsInMillis", 0)
                .unwrap_or(Duration::from_secs(1))
                .max(SHORTEST_IDLE),
            empty_batches: file.flag("callProcessRecordsEvenForEmptyRecordList").unwrap_or(false),
            first_backoff: file
                .number("taskBackoffTimeMillis", 1..=60_000)
                .map_or(Duration::from_millis(500), Duration::from_millis),
            grace: file.millis("shutdownGraceMillis", 0).unwrap_or(Duration::from_secs(5)),
            settling: file
                .number("settleMillis", 10..=60_000)
                .map_or(Duration::from_secs(1), Duration::from_millis),
            answer_limit: file.number("timeoutInSeconds", 1..=86_400).map(Duration::from_secs),
            on_failure: file
                .choice(
                    "onChildFailure",
                    &[("restart", OnChildFailure::Restart), ("exit", OnChildFailure::Exit)],
                )
                .unwrap_or(OnChildFailure::Restart),
            ignored: Ignored::default(),
        };
        keys::sort_out(file);
        let ignored = std::mem::take(file).end()?;
        Ok(Self { ignored, ..settings })
    }
}

/// Where Kinesis and DynamoDB are: the region of the stream's ARN counts for Kinesis.
fn places(file: &mut Properties, stream_region: Option<String>) -> (Place, Place) {
    let kinesis = endpoint(file, "kinesisEndpoint");
    let dynamodb = endpoint(file, "dynamoDBEndpoint");
    let of_both = AnyName::with(kinesis.as_ref().and(dynamodb.as_ref()));
    let named = region::named(file, "regionName", of_both);
    let of_table = region::named(file, "dynamoDBRegionName", AnyName::with(dynamodb.as_ref()));
    let region = named.or_else(|| stream_region.clone());
    (
        Place { region: stream_region.or_else(|| region.clone()), endpoint: kinesis },
        Place { region: of_table.or(region), endpoint: dynamodb },
    )
}

fn endpoint(file: &mut Properties, key: &str) -> Option<String> {
    file.parsed(key, |text| match text.split_once("://") {
        Some(("http" | "https", place)) if !place.is_empty() => Ok(text.to_owned()),
        // As before there were URLs there: the name of a host.
        None => Ok(format!("https://{text}")),
        Some(_) => Err("it is a URL, such as https://kinesis.eu-west-1.amazonaws.com"),
    })
}

fn options(file: &mut Properties) -> Result<LeaseOptions, Failure> {
    let options = file.parsed("failoverTimeMillis", |text| {
        let millis =
            text.parse().map_err(|_no| "it is a whole number of milliseconds".to_owned())?;
        LeaseOptions::new(Duration::from_millis(millis)).map_err(|error| error.to_string())
    });
    match options {
        Some(options) => Ok(options),
        None => LeaseOptions::new(Duration::from_secs(10)).map_err(Failure::usage),
    }
}

/// As in the Kinesis Client Library: pushed, unless a key that is about polling is there.
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
            .ok_or("it is arn:aws:kinesis:REGION:ACCOUNT:stream/NAME/consumer/NAME:NUMBER")
    });
    let name = file.text("fanoutConfig.consumerName");
    (retrieval, arn.or(name))
}

const MINUTE: Duration = Duration::from_mins(1);

/// Five reads a second are all that Kinesis has for a shard.
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

    const LEAST: &str = "executableName = python3 app.py\napplicationName = orders\n\
        streamName = clicks\nAwsCredentialsProvider = DefaultCredentialsProvider\n";

    fn settings(more: &str) -> Result<Settings, String> {
        let text = format!("{LEAST}{more}");
        let properties = Properties::parse("test".into(), text.as_bytes()).unwrap();
        Settings::of(properties).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_least_file_has_the_defaults_of_the_kinesis_client_library() {
        let settings = settings("").unwrap();

        assert_eq!(settings.command.to_string(), "python3 app.py");
        assert_eq!((&*settings.stream, &*settings.table), ("clicks", "orders"));
        assert_eq!(settings.options.ttl(), Duration::from_secs(10));
        assert_eq!(settings.initial, InitialPosition::Latest);
        assert_eq!(settings.retrieval, Retrieval::FanOut);
        assert_eq!(settings.consumer, "orders");
        assert_eq!(settings.most_steals, 1);
        assert_eq!(settings.most_records, 10_000);
        assert_eq!(settings.idle, Duration::from_secs(1));
        assert_eq!(settings.answer_limit, None);
        assert_eq!(settings.on_failure, OnChildFailure::Restart);
        assert_eq!(settings.ignored, Ignored::default());
    }

    #[test]
    fn an_empty_file_lacks_what_is_required_and_is_told_all_of_it() {
        let properties = Properties::parse("test".into(), &b""[..]).unwrap();

        let told = Settings::of(properties).unwrap_err().to_string();

        for key in ["executableName", "applicationName", "streamName", "AwsCredentialsProvider"] {
            assert!(told.contains(&format!("{key} ")), "{key} in {told}");
        }
    }

    #[test]
    fn a_value_that_is_wrong_is_refused_with_its_key_and_what_is_allowed() {
        for (line, told) in [
            ("maxRecords = 0", "maxRecords = 0: it is a whole number from 1 to 10000"),
            ("maxRecords = many", "maxRecords = many: it is a whole number"),
            ("failoverTimeMillis = 5", "failoverTimeMillis = 5: ttl 5ms is out of range"),
            ("failoverTimeMillis = soon", "it is a whole number of milliseconds"),
            ("initialPositionInStream = FIRST", "it is one of LATEST, TRIM_HORIZON, AT_TIMESTAMP"),
            (
                "initialPositionInStream = AT_TIMESTAMP",
                "initialPositionInStreamExtended says which",
            ),
            ("initialPositionInStreamExtended = today", "it is a whole number"),
            ("retrievalMode = push", "it is one of FANOUT, POLLING, DEFAULT"),
            ("streamArn = orders", "it is arn:aws:kinesis:REGION:ACCOUNT:stream/NAME"),
            ("streamName = a/b", "it is 1 to 128 letters"),
            ("streamName = arn:aws:kinesis:eu-west-1:1:stream/a", "and stands under streamArn"),
            (
                "streamArn = arn:aws:kinesis:eu-west-1:12345:stream/a",
                "an account is 12 digits, and here it is 12345",
            ),
            (
                "streamArn = arn:aws:kinesis:eu-west-1:123456789012:stream/a/consumer/b:1",
                "it is a consumer's, and stands under fanoutConfig.consumerArn",
            ),
            (
                "streamArn = arn:aws:kinesis:Paris:123456789012:stream/a",
                "Paris is not the code of a region",
            ),
            (
                "streamArn = arn:aws:kinesis:eu-west-1:123456789012:stream/",
                "it is arn:aws:kinesis:REGION:ACCOUNT:stream/NAME",
            ),
            ("tableName = ab", "tableName = ab: a table's name is 3 to 247 letters"),
            ("tableName = a/b", "tableName = a/b: a table's name is 3 to 247 letters"),
            (
                "initialPositionInStreamExtended = 1636609142000",
                "it is seconds since 1970, and in the future; in milliseconds, it would be \
                 1636609142 here",
            ),
            (
                "initialPositionInStreamExtended = 9223372036854775",
                "it is seconds since 1970, and in the future",
            ),
            ("kinesisEndpoint = ftp://x", "it is a URL"),
            ("regionName = Paris", "regionName = Paris: it is the code of a region"),
            ("dynamoDBRegionName = eu_west_1", "dynamoDBRegionName = eu_west_1: it is the code"),
            ("onChildFailure = ignore", "it is one of restart, exit"),
            ("timeoutInSeconds = -1", "it is a whole number from 1 to 86400"),
            ("applicationName = a b", "application name \"a b\" is not valid"),
            ("AwsCredentialsProvider = Mine", "awsCredentialsProvider = Mine: "),
            ("fanoutConfig.consumerArn = x", "it is arn:aws:kinesis"),
        ] {
            let refused = settings(line).unwrap_err();
            assert!(refused.contains(told), "{line}: {refused}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_stream_is_told_once() {
        for (file, told) in [
            (LEAST.replace("clicks", "a/b"), "streamName = a/b: it is 1 to 128"),
            (LEAST.replace("streamName = clicks", "streamArn = a"), "streamArn = a: it is arn:"),
            (LEAST.replace("clicks", ""), "streamName or streamArn is missing"),
        ] {
            let properties = Properties::parse("test".into(), file.as_bytes()).unwrap();

            let refused = Settings::of(properties).unwrap_err().to_string();

            assert!(refused.contains(told), "{refused}");
            assert_eq!(refused.lines().count(), 2, "{refused}");
        }
    }

    #[test]
    fn an_arn_comes_before_a_name_and_tells_the_region() {
        let arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders";
        let settings = settings(&format!("streamArn = {arn}\nregionName = us-east-1")).unwrap();

        assert_eq!(settings.stream, arn);
        assert_eq!(settings.kinesis.region.as_deref(), Some("eu-west-1"));
        assert_eq!(settings.dynamodb.region.as_deref(), Some("us-east-1"));
    }

    #[test]
    fn where_a_key_is_about_polling_records_are_polled_unless_the_mode_says_otherwise() {
        let retrieval = |more| settings(more).unwrap().retrieval;

        assert_eq!(retrieval("maxRecords = 100"), Retrieval::Polling);
        assert_eq!(retrieval("retryGetRecordsInSeconds = 1"), Retrieval::Polling);
        assert_eq!(retrieval("retrievalMode = default"), Retrieval::FanOut);
        assert_eq!(retrieval("maxRecords = 100\nretrievalMode = fanout"), Retrieval::FanOut);
        assert_eq!(retrieval("RetrievalMode = POLLING"), Retrieval::Polling);
    }

    #[test]
    fn an_application_that_no_table_can_be_called_like_names_one() {
        let file = LEAST.replace("= orders", "= ab");
        let of =
            |text: &str| Settings::of(Properties::parse("test".into(), text.as_bytes()).unwrap());

        let refused = of(&file).unwrap_err().to_string();

        assert!(
            refused.contains("applicationName = ab: the table is called like that"),
            "{refused}"
        );
        let settings = of(&format!("{file}tableName = orders")).unwrap();
        assert_eq!((&*settings.application, &*settings.table), ("ab", "orders"));
        let long = of(&LEAST.replace("= orders", &format!("= {}", "x".repeat(248)))).unwrap_err();
        assert!(long.to_string().contains("3 to 247"), "{long}");
    }

    #[test]
    fn flags_are_read_as_java_reads_them_and_other_words_are_refused() {
        let of = |word: &str| {
            let line = format!("callProcessRecordsEvenForEmptyRecordList = {word}");
            settings(&line).map(|settings| settings.empty_batches)
        };

        assert_eq!(of("yes"), Ok(true));
        assert_eq!(of("TRUE"), Ok(true));
        assert_eq!(of("0"), Ok(false));
        assert!(of("maybe").unwrap_err().contains("it is one of true, false"));
    }

    #[test]
    fn worker_identifier_is_known_beside_worker_id() {
        let settings = settings("workerId = a\nworkerIdentifier = b").unwrap();

        assert_eq!(settings.worker.unwrap().as_str(), "a");
        assert_eq!(settings.ignored, Ignored::default());
    }
}
