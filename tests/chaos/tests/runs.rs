//! Short runs of lease-chaos. Each store must keep every promise, and the judge must find each
//! sabotage.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may fail, and prints the run"
)]

use std::process::Command;

use lease_test_servers::etcd::EtcdServer;
use lease_test_servers::postgres::PostgresServer;
use lease_test_servers::redis::{VALKEY, available};
use lease_test_servers::tools::{libfaketime, tool};

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    output: String,
    errors: String,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lease-chaos"));
    command.args(arguments);
    command
}

fn end_of(mut command: Command) -> Ended {
    let output = command.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
    let ended = Ended {
        code: output.status.code(),
        output: text(output.stdout),
        errors: text(output.stderr),
    };
    // The test harness shows this output, with the seed and the timelines, if the test fails.
    println!("{}{}", ended.output, ended.errors);
    ended
}

fn run(store: &str, sabotage: &[&str]) -> Option<Ended> {
    libfaketime()?;
    if ["redis", "quorum"].contains(&store) {
        tool("valkey-server", &VALKEY)?;
    }
    Some(end_of(command(&[&["--store", store, "--minutes", "0.3"], sabotage].concat())))
}

impl Ended {
    fn count(&self, what: &str) -> u64 {
        let summary = self.output.lines().last().unwrap_or_default();
        let before = summary.split_once(what).map(|(before, _)| before).unwrap_or_default();
        before.split_whitespace().last().and_then(|word| word.parse().ok()).expect(what)
    }

    fn kept_all_promises(&self) {
        assert_eq!(self.code, Some(0));
        assert_eq!(self.count("violations"), 0);
        assert!(self.count("hand-offs") >= 3, "too few hand-offs");
        assert!(self.count("faults") >= 8, "too few faults");
    }
}

#[test]
fn redis_keeps_its_promises() {
    let Some(ended) = run("redis", &[]) else { return };

    ended.kept_all_promises();
}

#[test]
fn quorum_keeps_its_promises() {
    let Some(ended) = run("quorum", &[]) else { return };

    ended.kept_all_promises();
}

#[test]
fn dynamodb_keeps_its_promises() {
    let Some(ended) = run("dynamodb", &[]) else { return };

    ended.kept_all_promises();
    assert_eq!(ended.count("documented overlaps"), 0);
}

#[test]
fn postgres_keeps_its_promises() {
    if PostgresServer::version().is_empty() {
        return;
    }
    let Some(ended) = run("postgres", &[]) else { return };

    ended.kept_all_promises();
}

#[test]
fn etcd_keeps_its_promises() {
    if EtcdServer::version().is_empty() {
        return;
    }
    let Some(ended) = run("etcd", &[]) else { return };

    ended.kept_all_promises();
    assert_eq!(ended.count("documented overlaps"), 0);
}

#[test]
fn sqlite_keeps_its_promises() {
    let Some(ended) = run("sqlite", &[]) else { return };

    ended.kept_all_promises();
    assert_eq!(ended.count("documented overlaps"), 0);
}

fn run_single(store: &str, faults: &[&str], sabotage: &[&str]) -> Option<Ended> {
    libfaketime()?;
    if !available() {
        return None;
    }
    let single = ["--store", store, "--faults", "single", "--minutes", "0.1"];
    let faults: Vec<_> = faults.iter().flat_map(|fault| ["--only", fault]).collect();
    Some(end_of(command(&[&single[..], &faults, sabotage].concat())))
}

impl Ended {
    fn made_progress(&self) {
        assert_eq!(self.code, Some(0));
        assert_eq!(self.count("violations"), 0);
        assert_eq!(self.count("breaches"), 0);
        assert!(self.count("hand-offs") >= 3, "too few hand-offs");
    }
}

#[test]
fn sentinel_store_makes_progress_during_faults() {
    let faults = ["hang-first", "kill-master", "fill-memory"];
    let Some(ended) = run_single("sentinel", &faults, &[]) else { return };

    ended.made_progress();
}

#[test]
fn cluster_store_makes_progress_during_faults() {
    let faults = ["hang-first", "migrate-slot", "kill-connections"];
    let Some(ended) = run_single("cluster", &faults, &[]) else { return };

    ended.made_progress();
}

/// The simulation judges the same rate in virtual time.
#[test]
#[ignore = "a measurement: a busy machine changes the rate"]
fn quorum_with_hung_minority_grants_at_two_thirds_of_its_rate() {
    let Some(ended) = run_single("quorum", &["hang-minority"], &[]) else { return };

    ended.made_progress();
}

#[test]
fn clients_that_know_only_a_hung_host_are_found() {
    let one_host = ["--sabotage", "one-host"];
    let Some(ended) = run_single("sentinel", &["hang-first"], &one_host) else { return };

    assert_eq!(ended.code, Some(1));
    assert!(ended.output.contains("got no grant for"), "no missing grant is found");
    assert!(ended.output.contains("the probe lost a lease"), "no lost lease is found");
    assert!(ended.output.contains("a new process got no grant"), "no late process is found");
}

#[test]
fn hung_majority_is_found() {
    let majority = ["--sabotage", "majority"];
    let Some(ended) = run_single("quorum", &["hang-minority"], &majority) else { return };

    assert_eq!(ended.code, Some(1));
    assert!(ended.output.contains("slow with a hung minority"), "no slow quorum is found");
}

#[test]
fn workers_that_ignore_a_lost_lease_are_found() {
    let Some(ended) = run("redis", &["--sabotage", "heedless"]) else { return };

    assert_eq!(ended.code, Some(1));
    assert!(ended.output.contains("both held"), "no overlap is found");
    assert!(ended.output.contains("old token accepted"), "no old token is found");
    assert!(ended.output.contains("lost update"), "no lost update is found");
}

#[test]
fn waiters_that_race_are_found() {
    let Some(ended) = run("redis", &["--sabotage", "racing", "--pause", "6"]) else { return };

    assert_eq!(ended.code, Some(1));
    assert!(ended.output.contains("overtaken in the queue"), "no overtaken waiter is found");
}

#[test]
fn separate_servers_are_found() {
    let Some(ended) = run("redis", &["--sabotage", "apart"]) else { return };

    assert_eq!(ended.code, Some(1));
    assert!(ended.output.contains("both held"), "no overlap is found");
    assert!(!ended.output.contains("old token accepted"), "the gate lets old tokens in");
}

/// Few keys, so that claims of the same batch often find their key held.
fn run_load(store: &str, sabotage: &[&str]) -> Option<Ended> {
    libfaketime()?;
    tool("valkey-server", &VALKEY)?;
    let load = ["--store", store, "--minutes", "0.1", "--load", "64x40"];
    Some(end_of(command(&[&load[..], sabotage].concat())))
}

impl Ended {
    fn kept_the_load(&self) {
        assert_eq!(self.code, Some(0));
        assert_eq!(self.count("load violations"), 0);
        assert_eq!(self.count("load breaches"), 0);
        // The load starts with four cycles of each task.
        assert!(self.count("cycles") >= 256, "too few cycles");
        assert!(self.count("claims cancelled") > 0, "no claim was cancelled");
    }
}

#[test]
fn load_on_redis_keeps_its_promises() {
    let Some(ended) = run_load("redis", &[]) else { return };

    ended.kept_the_load();
}

#[test]
fn load_on_quorum_keeps_its_promises() {
    let Some(ended) = run_load("quorum", &[]) else { return };

    ended.kept_the_load();
}

#[test]
fn answers_given_to_wrong_claims_are_found() {
    let Some(ended) = run_load("redis", &["--sabotage", "swapped"]) else { return };

    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.count("violations"), 0, "the counters have no sabotage");
    assert!(ended.count("load violations") > 0, "the load has no violation");
    assert!(ended.output.contains("of the load: overlap"), "no overlap is found");
}

#[test]
fn invalid_arguments_are_rejected_with_a_message() {
    for (arguments, sentence) in [
        (&["--store", "zookeeper"][..], "invalid value 'zookeeper' for '--store <STORE>'"),
        (&["--store", "redis", "--minutes", "-1"], "minutes are a number above 0"),
        (&["--store", "redis", "--minutes", "soon"], "minutes are a number above 0"),
        (&["--minutes", "1"], "--store <STORE>"),
        (&["--store", "quorum", "--sabotage", "apart"], "is for --store redis"),
        (&["--store", "dynamodb", "--faults", "single"], "is for the stores in Redis"),
        (
            &["--store", "cluster", "--faults", "overlapping"],
            "is for redis, quorum, dynamodb, postgres, etcd and sqlite",
        ),
        (&["--store", "quorum", "--clocks", "step"], "is for single faults"),
        (&["--store", "sentinel", "--only", "migrate-slot"], "not on Redis behind Sentinels"),
        (&["--store", "redis", "--pause", "0"], "a pause is 1 to 60 seconds"),
        (&["--store", "redis", "--load", "256"], "a load is TASKSxKEYS, such as 256x10000"),
        (&["--store", "redis", "--load", "0x10"], "1 to 4096 tasks on 1 to 1000000 keys"),
        (&["--store", "sentinel", "--load", "4x4"], "--load is for overlapping faults"),
        (&["--store", "redis", "--sabotage", "swapped"], "is for a run with --load"),
        (&["--store", "redis", "--report", "/nowhere/report.md"], "cannot be written"),
    ] {
        let ended = end_of(command(arguments));

        assert_eq!(ended.code, Some(2), "{arguments:?}");
        assert!(ended.errors.contains(sentence), "{arguments:?}: {}", ended.errors);
    }
}

#[test]
fn missing_server_program_is_reported_by_name() {
    let mut command = command(&["--store", "redis"]);
    command.env("PATH", "").env_remove("LEASE_TEST_TOOLS");

    let ended = end_of(command);

    assert_eq!(ended.code, Some(2));
    assert!(ended.errors.contains("is not installed: ./test installs it"));
}
