//! A holder is paused for longer than its ttl. The gate refuses its late write.
//!
//! No lease can prevent such a write, since a process may pause for an hour between checking the
//! clock and writing. So each write carries the fencing token, and the receiver refuses an old
//! token.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lease_core::fence::Gate;
use lease_core::{FencingToken, LeaseKey, LeaseOptions, Lessee, Locker};
use lease_examples::{Failure, Timeline, exit, print_line, stores::open};
use tokio::{runtime, select};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    exit("fenced_write", run().await)
}

async fn run() -> Result<ExitCode, Failure> {
    let office = Arc::new(Office {
        key: "report".parse()?,
        report: Gate::default(),
        timeline: Timeline::start(),
    });
    let lease = office.locker("former").await?.wait_until_obtained(&office.key).await?;
    let token = lease.token();
    office.write("former", token, "draft");

    office.print("former", token, "PAUSED before its next write");
    let successor = {
        let office = Arc::clone(&office);
        thread::spawn(move || take_over(&office))
    };
    // `join` blocks this thread until the successor has finished. So `join` also blocks the runtime
    // and the heartbeats, like a pause of the process.
    successor.join().map_err(|_panic| "the successor panicked")??;

    let lost = select! {
        biased;
        lost = lease.lost() => Some(lost),
        // This branch is always ready. So `lost()` wins only if it is ready at its first poll.
        () = async {} => None,
    };
    office.print("former", token, "resumes");
    office.print("former", token, format_args!("is_held(): {}", lease.is_held()));
    match &lost {
        Some(lost) => office.print("former", token, format_args!("lost(): {lost}")),
        None => office.print("former", token, "lost() did not complete at its first poll"),
    }

    office.print("former", token, "ignores both, and writes");
    let accepted = office.write("former", token, "draft, again");
    Ok(office.verdict(!lease.is_held() && lost.is_some() && !accepted))
}

/// The successor waits until the lease has expired, obtains the key, and writes.
fn take_over(office: &Office) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locker = office.locker("successor").await?;
        let lease = locker.wait_until_obtained(&office.key).await?;
        office.write("successor", lease.token(), "final report");
        lease.release().await?;
        Ok(())
    })
}

struct Office {
    key: LeaseKey,
    /// Represents a file or a table row, which outlives its writers and compares tokens.
    report: Gate<String>,
    timeline: Timeline,
}

impl Office {
    async fn locker(&self, name: &str) -> Result<Locker, Failure> {
        let locker = Locker::new(open("memory").await?)
            .with_lessee(Lessee::new(name)?)
            .with_options(LeaseOptions::new(TTL)?);
        Ok(locker)
    }

    fn write(&self, name: &str, token: FencingToken, text: &str) -> bool {
        let written = self.report.write(token, |report| text.clone_into(report));
        match &written {
            Ok(()) => self.print(name, token, format_args!("wrote {text:?}")),
            Err(stale) => self.print(name, token, format_args!("REFUSED by the gate: {stale}")),
        }
        written.is_ok()
    }

    fn print(&self, name: &str, token: FencingToken, event: impl std::fmt::Display) {
        self.timeline.print(name, Some(token), event);
    }

    fn verdict(&self, as_promised: bool) -> ExitCode {
        let report = self.report.read(String::clone);
        if as_promised && report == "final report" {
            print_line(format_args!(
                "\nverdict: the report reads {report:?}; the late write changed nothing"
            ));
            ExitCode::SUCCESS
        } else {
            print_line(format_args!("\nverdict: FAILED: the report reads {report:?}"));
            ExitCode::FAILURE
        }
    }
}

const TTL: Duration = Duration::from_secs(1);
