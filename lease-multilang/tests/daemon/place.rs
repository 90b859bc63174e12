//! The stream, the table and the folder of a test.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lease_test_servers::stream::Stream;
use lease_test_servers::tools::tool;
use lease_test_servers::{dynamodb, kinesis};
use tokio::time::sleep;

use crate::daemon::Daemon;
use crate::notes::Notes;

pub(crate) struct Place {
    pub(crate) stream: Stream,
    table: dynamodb::Server,
    pub(crate) folder: PathBuf,
    command: String,
    properties: String,
    environment: Vec<(&'static str, String)>,
}

impl Place {
    pub(crate) async fn of_shards(count: i32, command: impl Into<String>) -> Self {
        static PLACES: AtomicU32 = AtomicU32::new(0);

        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("multilang-{}-{number}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("notes"), "").unwrap();
        let stream = Stream::of_shards(count).await;
        let table = dynamodb::Server::dynoxide().await;
        let (command, properties, environment) = (command.into(), String::new(), Vec::new());
        Self { stream, table, folder, command, properties, environment }
    }

    pub(crate) fn with(mut self, properties: &str) -> Self {
        self.properties.push_str(properties);
        self.properties.push('\n');
        self
    }

    pub(crate) fn with_variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    pub(crate) fn with_fault(self, name: &str) -> Self {
        let file = self.fault_file().display().to_string();
        let place = self.with_variable("FAULT", name).with_variable("FAULT_SHARD", "0");
        place.with_variable("FAULT_FILE", file)
    }

    pub(crate) fn fault_file(&self) -> PathBuf {
        self.folder.join("fault")
    }

    pub(crate) fn run_by(&mut self, command: impl Into<String>) {
        self.command = command.into();
    }

    /// The daemon's timeouts tolerate a machine that pauses for several seconds.
    pub(crate) fn properties(&self, name: &str) -> PathBuf {
        let (kinesis, dynamodb) = (self.stream.address(), self.table.address());
        let Self { command, properties, .. } = self;
        let text = format!(
            "executableName = {command}\napplicationName = shop\nstreamName = orders\n\
             AwsCredentialsProvider = DefaultCredentialsProvider\nregionName = us-east-1\n\
             kinesisEndpoint = http://{kinesis}\ndynamoDBEndpoint = http://{dynamodb}\n\
             initialPositionInStream = TRIM_HORIZON\nworkerId = {name}\n\
             failoverTimeMillis = 20000\nidleTimeBetweenReadsInMillis = 200\n\
             shutdownGraceMillis = 60000\nsettleMillis = 200\n{properties}"
        );
        let file = self.folder.join(format!("{name}.properties"));
        fs::write(&file, text).unwrap();
        file
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let own = [
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            ("HOME", self.folder.display().to_string()),
            ("NOTES", self.folder.join("notes").display().to_string()),
            ("RUST_LOG", "info,lease_kinesis=debug".to_owned()),
        ];
        own.into_iter().chain(self.environment.iter().cloned()).collect()
    }

    pub(crate) fn start(&self, name: &str) -> Daemon {
        let file = self.properties(name);
        let arguments = ["--properties-file".to_owned(), file.display().to_string()];
        Daemon::start(BINARY, &arguments, self.environment())
    }

    pub(crate) async fn put(&self, partition_key: &str, bytes: usize) {
        let client = kinesis::client_of(self.stream.address());
        let request = client.put_record().stream_name("orders").partition_key(partition_key);
        request.data("x".repeat(bytes).into_bytes().into()).send().await.unwrap();
    }

    pub(crate) fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        self.table.client()
    }

    pub(crate) fn dynamodb_address(&self) -> String {
        self.table.address().to_string()
    }

    pub(crate) fn notes(&self) -> Notes {
        Notes::read(&self.folder.join("notes"))
    }

    pub(crate) async fn until(
        &self,
        what: &str,
        daemons: &[&Daemon],
        so: impl Fn(&Notes) -> bool,
    ) -> Notes {
        for _ in 0..LOOKS {
            let notes = self.notes();
            if so(&notes) {
                return notes;
            }
            sleep(BETWEEN_LOOKS).await;
        }
        let logs: Vec<_> = daemons.iter().map(|daemon| daemon.log()).collect();
        panic!("timed out: {what}\n{}\n{}", self.notes(), logs.join("\n"));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}

pub(crate) fn script(name: &str) -> String {
    format!("{}/tests/children/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// `raw.py` speaks the protocol without a library.
pub(crate) fn raw() -> Option<String> {
    let python = tool("python3", &[])?;
    Some(format!("{} -S -E -u {}", python.display(), script("raw.py")))
}

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_multilang-daemon");

pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Five minutes, which is enough on busy machines.
pub(crate) const LOOKS: u32 = 15_000;
