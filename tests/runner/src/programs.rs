//! The programs of each tier.

use std::path::PathBuf;
use std::process::Command;

use crate::build::{Program, forget_own_package};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Tests that need no server and take less than a minute: unit tests, and [`QUICK`].
    Quick,
    All,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) title: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<&'static str>,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) computes: bool,
    /// Long programs start first.
    seconds: u32,
}

pub(crate) const QUICK: [&str; 12] = [
    "adversity",
    "cancelling",
    "faults",
    "fence",
    "fork",
    "fuzz",
    "locker",
    "multilang",
    "sabotage",
    "setup",
    "sim",
    "slow",
];

/// Programs of five seconds or more: package, program, and seconds on two idle processors. The
/// seconds decide only the order in which programs start.
const LONG: [(&str, &str, u32); 52] = [
    ("lease-chaos", "chaos", 150),
    ("lease-cli", "judged", 30),
    ("lease-cli", "program", 60),
    ("lease-cli", "serve", 13),
    ("lease-dynamodb", "conformance", 120),
    ("lease-dynamodb", "live", 220),
    ("lease-etcd", "conformance", 70),
    ("lease-etcd", "servers", 40),
    ("lease-examples", "programs", 34),
    ("lease-export", "export", 90),
    ("lease-export", "kills", 7),
    ("lease-kcl", "kcl", 60),
    ("lease-kinesis", "fleet_model", 50),
    ("lease-kinesis", "lease_kinesis", 13),
    ("lease-kinesis", "plan", 80),
    ("lease-kinesis", "rebalance", 50),
    ("lease-kinesis", "wire", 17),
    ("lease-kinesis", "worker", 36),
    ("lease-kinesis", "worker_under_session", 40),
    ("lease-locker-tests", "processes", 30),
    ("lease-locker-tests", "redis_locker", 20),
    ("lease-kubernetes", "conformance", 65),
    ("lease-kubernetes", "server", 5),
    ("lease-kubernetes", "trials", 20),
    ("lease-memory", "locker", 20),
    ("lease-memory", "sabotage", 13),
    ("lease-memory", "session_model", 5),
    ("lease-memory", "session_trials", 6),
    ("lease-metrics", "prometheus", 30),
    ("lease-metrics", "recorded", 20),
    ("lease-multilang", "daemon", 88),
    ("lease-postgres", "conformance", 80),
    ("lease-postgres", "misconfiguration", 30),
    ("lease-postgres", "servers", 250),
    ("lease-redis", "conformance", 50),
    ("lease-redis", "lock_model", 19),
    ("lease-redis", "misconfiguration", 13),
    ("lease-redis", "one_server", 21),
    ("lease-redis", "proposal_model", 28),
    ("lease-redis", "queue_model", 14),
    ("lease-redis", "servers", 200),
    ("lease-register", "model", 58),
    ("lease-register", "trials", 14),
    ("lease-scheduler", "jobs", 250),
    ("lease-scheduler", "redis", 32),
    ("lease-scheduler", "redis_commands", 18),
    ("lease-shard-tests", "shards", 120),
    ("lease-simulation-tests", "simulation", 500),
    ("lease-sqlite", "conformance", 20),
    ("lease-sqlite", "odd_rows", 19),
    ("lease-sqlite", "processes", 50),
    ("lease-store", "urls", 30),
];

const COMPUTING: [(&str, &str); 13] = [
    ("lease-kcl", "kcl"),
    ("lease-kinesis", "fleet_model"),
    ("lease-kinesis", "plan"),
    ("lease-kinesis", "rebalance"),
    ("lease-kinesis", "worker_under_session"),
    ("lease-memory", "session_model"),
    ("lease-memory", "session_trials"),
    ("lease-redis", "lock_model"),
    ("lease-redis", "proposal_model"),
    ("lease-redis", "queue_model"),
    ("lease-register", "model"),
    ("lease-register", "trials"),
    ("lease-simulation-tests", "simulation"),
];

pub(crate) fn jobs(tier: Tier, programs: Vec<Program>) -> Vec<Job> {
    let mut jobs: Vec<_> = programs.into_iter().map(job).collect();
    if tier == Tier::All {
        jobs.push(doc_tests());
    }
    jobs.sort_by_key(|job| std::cmp::Reverse(job.seconds));
    jobs
}

fn job(program: Program) -> Job {
    let Program { package, name, kind, executable, folder } = program;
    let is = |one: (&str, &str)| one == (package.as_str(), name.as_str());
    let long = LONG.iter().find(|(package, name, _)| is((*package, *name)));
    Job {
        title: match kind.as_str() {
            "test" => format!("{package} {name}"),
            "lib" => format!("{package} (unit tests)"),
            _ => format!("{package} {name} ({kind})"),
        },
        program: executable,
        arguments: Vec::new(),
        folder: Some(folder),
        computes: COMPUTING.iter().any(|one| is(*one)),
        seconds: long.map_or(0, |(.., seconds)| *seconds),
    }
}

/// Cargo itself compiles and runs doc tests.
fn doc_tests() -> Job {
    Job {
        title: "documentation".to_owned(),
        program: "cargo".into(),
        arguments: vec!["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"],
        folder: None,
        computes: true,
        seconds: 60,
    }
}

impl Job {
    pub(crate) fn command(&self) -> Command {
        let mut command = if self.computes {
            // At a lower priority, servers answer the other programs in time. At a higher nice
            // value, other load on the machine would stop the program.
            let mut command = Command::new("nice");
            command.args(["-n", "3"]).arg(&self.program);
            command
        } else {
            Command::new(&self.program)
        };
        command.args(&self.arguments);
        match &self.folder {
            Some(folder) => {
                command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
            }
            None => forget_own_package(&mut command),
        }
        command
    }
}
