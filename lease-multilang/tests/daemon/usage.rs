//! Errors of the command line and of the properties.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::place::BINARY;

fn run(arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(BINARY);
    command.envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]);
    finish(command.args(arguments))
}

/// Stops a daemon that waits for DynamoDB.
fn finish(command: &mut Command) -> (Output, String) {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let id = Pid::from_child(&process);
    let mut stderr = String::new();
    for line in BufReader::new(process.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains("daemon not started, retrying") {
            kill_process(id, Signal::TERM).unwrap();
        }
        stderr.push_str(&line);
        stderr.push('\n');
    }
    let mut stdout = Vec::new();
    process.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    let status = process.wait().unwrap();
    (Output { status, stdout, stderr: stderr.clone().into_bytes() }, stderr)
}

fn run_with(properties: &str) -> (Output, String) {
    run(&["-p", &written(properties)])
}

pub(crate) fn written(properties: &str) -> String {
    static FILES: AtomicU32 = AtomicU32::new(0);

    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("usage-{}-{number}.properties", std::process::id());
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, properties).unwrap();
    file.display().to_string()
}

#[test]
fn invalid_command_line_is_a_usage_error() {
    for arguments in [&[][..], &["--fast"], &["-p"], &["-p", "a", "b"]] {
        let (output, stderr) = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("--help"), "{stderr}");
    }
}

#[test]
fn help_and_version_are_printed() {
    let (help, _) = run(&["--help"]);
    let (version, _) = run(&["--version"]);

    assert!(help.status.success() && version.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("--properties-file"));
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    assert_eq!(version.trim(), concat!("multilang-daemon ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn missing_properties_file_is_named() {
    let (output, stderr) = run(&["-p", "/nowhere/orders.properties"]);

    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("/nowhere/orders.properties: no such file"), "{stderr}");
    let (output, stderr) = run(&["-p", "orders.properties"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("give it with its path"), "{stderr}");
    let (output, stderr) = run(&["-p", env!("CARGO_TARGET_TMPDIR")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("it is a folder"), "{stderr}");
}

#[test]
fn all_invalid_properties_are_reported_before_the_start() {
    let (output, stderr) = run_with("applicationName = a b\nmaxRecords = 0\n");

    assert_eq!(output.status.code(), Some(2));
    for key in ["applicationName", "maxRecords", "executableName", "streamName", "Credentials"] {
        assert!(stderr.contains(key), "{key} in {stderr}");
    }
}

fn run_with_more(more: &str) -> (Output, String) {
    run_with(&format!(
        "executableName = sh\napplicationName = shop\nstreamName = b\nregionName = us-east-1\n\
         AwsCredentialsProvider = DefaultCredentialsProvider\n\
         kinesisEndpoint = http://127.0.0.1:9\ndynamoDBEndpoint = http://127.0.0.1:9\n{more}"
    ))
}

#[test]
fn key_that_must_not_be_ignored_is_refused() {
    for (line, expected) in [
        (
            "AwsCredentialsProviderDynamoDB = ProfileCredentialsProvider",
            "awsCredentialsProviderDynamoDB",
        ),
        (
            "dynamoDBCredentialsProvider.profileName = tables",
            "dynamoDBCredentialsProvider.profileName",
        ),
        ("dynamoDbClient.region = eu-west-1", "write dynamoDBRegionName"),
        ("kinesisClient.endpointOverride = http://x", "write regionName and kinesisEndpoint"),
        ("initialPositionInStreem = TRIM_HORIZON", "did you mean initialPositionInStream?"),
        ("initialPositionInStream =", "initialPositionInStream has no value"),
        ("dynamoDbEndpoint = http://127.0.0.1:8", "did you mean dynamoDBEndpoint?"),
    ] {
        let (output, log) = run_with_more(line);

        assert_eq!(output.status.code(), Some(2), "{line}: {log}");
        assert!(log.contains(expected), "{line}: {log}");
    }
}

#[test]
fn invalid_region_is_refused() {
    let (output, log) = run_with(
        "executableName = sh\napplicationName = shop\nstreamName = b\nregionName = Paris\n\
         AwsCredentialsProvider = DefaultCredentialsProvider\n",
    );

    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains("regionName = Paris: must be the code of a region"), "{log}");
}

#[test]
fn unknown_keys_have_a_separate_log_line() {
    let (_, log) = run_with_more("replicas = 3\nmetricsLevel = NONE\n");

    let unknown = log.lines().find(|line| line.contains("replicas")).unwrap();
    assert!(unknown.contains("WARN") && !unknown.contains("metricsLevel"), "{log}");
    assert!(log.lines().any(|line| line.contains("metricsLevel")), "{log}");
}

#[test]
fn missing_program_is_reported_before_the_start() {
    let (output, stderr) = run_with(
        "executableName = no-such-program\napplicationName = shop\nstreamName = b\n\
         AwsCredentialsProvider = DefaultCredentialsProvider\n",
    );

    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("there is no program no-such-program in any folder of PATH"),
        "{stderr}"
    );
}

#[test]
fn program_without_execute_permission_is_reported() {
    let program = format!("{}/usage-{}.py", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    std::fs::write(&program, "").unwrap();

    let (output, stderr) = run_with(&format!(
        "executableName = {program}\napplicationName = shop\nstreamName = b\n\
         AwsCredentialsProvider = DefaultCredentialsProvider\n"
    ));

    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains(&format!("chmod +x {program}")), "{stderr}");
}

#[test]
fn missing_credentials_are_reported() {
    let (output, stderr) = without_credentials("DefaultCredentialsProvider", &[]);

    assert_eq!(output.status.code(), Some(1));
    let last = stderr.lines().last().unwrap();
    assert!(last.contains("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), "{stderr}");
    assert!(!last.contains(":;") && !last.contains("; ;"), "{stderr}");
}

#[test]
fn credential_process_of_a_profile_is_used() {
    let config = written(
        "[profile clicks]\ncredential_process = printf '{\"Version\": 1, \
         \"AccessKeyId\": \"key\", \"SecretAccessKey\": \"secret\"}'\n",
    );
    let profile = [("AWS_CONFIG_FILE", &*config), ("AWS_PROFILE", "clicks")];

    let (output, stderr) = without_credentials("ProfileCredentialsProvider", &profile);

    assert_eq!(output.status.code(), Some(0));
    assert!(stderr.contains("not reached") && !stderr.contains("no credentials"), "{stderr}");
}

#[test]
fn missing_profile_is_reported_before_any_request() {
    let profile = [("AWS_PROFILE", "nosuch")];

    let (output, stderr) = without_credentials("ProfileCredentialsProvider", &profile);

    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("AWS_PROFILE = nosuch: there is no such profile"), "{stderr}");
}

/// The SDK ignores the invalid file and may find credentials elsewhere.
#[test]
fn error_of_a_profile_file_is_in_the_last_line() {
    let config = written("[profile clicks]\nregion = us-east-1\nno equals sign\n");
    let file = [("AWS_CONFIG_FILE", &*config)];

    let (output, stderr) = without_credentials("DefaultCredentialsProvider", &file);

    assert_eq!(output.status.code(), Some(1));
    let last = stderr.lines().last().unwrap();
    let why = format!("error parsing {config} on line 3: ");
    assert!(last.contains("no credentials were found") && last.contains(&why), "{stderr}");

    let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), file[0]];
    let (output, stderr) = without_credentials("DefaultCredentialsProvider", &keys);

    assert_eq!(output.status.code(), Some(0));
    assert!(stderr.contains("not reached") && !stderr.contains("error parsing"), "{stderr}");
}

pub(crate) fn without_credentials(provider: &str, variables: &[(&str, &str)]) -> (Output, String) {
    let file = written(&format!(
        "executableName = sh\napplicationName = shop\nstreamName = b\nregionName = us-east-1\n\
         AwsCredentialsProvider = {provider}\n\
         kinesisEndpoint = http://127.0.0.1:9\ndynamoDBEndpoint = http://127.0.0.1:9\n"
    ));
    let mut command = Command::new(BINARY);
    command.env_clear().envs([("AWS_EC2_METADATA_DISABLED", "true"), ("HOME", "/nowhere")]);
    command.env("PATH", std::env::var_os("PATH").unwrap());
    finish(command.envs(variables.iter().copied()).args(["-p", &file]))
}

#[test]
fn daemon_waits_for_unreachable_tables_and_reports_their_address() {
    let (output, stderr) = run_with(
        "executableName = sh\napplicationName = shop\nstreamName = b\nregionName = us-east-1\n\
         AwsCredentialsProvider = DefaultCredentialsProvider\n\
         kinesisEndpoint = http://127.0.0.1:9\ndynamoDBEndpoint = http://127.0.0.1:9\n",
    );

    assert_eq!(output.status.code(), Some(0));
    assert!(stderr.contains("stopping, nothing was started"), "{stderr}");
    assert!(stderr.contains("dynamoDBEndpoint = http://127.0.0.1:9"), "{stderr}");
    assert!(stderr.contains("tableName = shop and shop-workers"), "{stderr}");
    assert!(stderr.contains("not reached"), "{stderr}");
}
