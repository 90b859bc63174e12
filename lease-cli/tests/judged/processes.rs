//! Processes under test.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// A `lease run`. A drop kills the process.
#[derive(Debug)]
pub(crate) struct Lease(pub(crate) Child);

impl Lease {
    pub(crate) fn start(arguments: &[&str], folder: &std::path::Path, store: &str) -> Self {
        let mut command = Command::new("env");
        // Test runners may ignore these signals, and so would every child.
        command.args(["--default-signal=INT,QUIT,HUP,TERM", env!("CARGO_BIN_EXE_lease")]);
        command.args(arguments).env("LEASE_STORE", store).env(crate::judge::FOLDER, folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.current_dir(folder).spawn().unwrap())
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// First the keeper, then the command. A process without a lease has no children.
    pub(crate) fn children(&self) -> Vec<Pid> {
        let id = self.id().as_raw_nonzero();
        let path = format!("/proc/{id}/task/{id}/children");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
    }
}

impl Lease {
    /// Returns 0 without a command.
    pub(crate) fn token(&self) -> u64 {
        let Some(command) = self.children().get(1).copied() else { return 0 };
        let environment = fs::read(format!("/proc/{}/environ", command.as_raw_nonzero()));
        let environment = String::from_utf8(environment.unwrap_or_default()).unwrap();
        let token = environment.split('\0').find_map(|one| one.strip_prefix("LEASE_TOKEN="));
        token.map_or(0, |token| token.parse().unwrap())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The process may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(crate) fn members(group: Pid) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Pid::from_raw).filter(|process| is_member(*process, group)).collect()
}

fn is_member(process: Pid, group: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let Ok(stat) = stat else { return false };
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    !matches!(fields[0], "Z" | "X") && fields[2] == group.as_raw_nonzero().to_string()
}

pub(crate) fn kill(process: Pid) {
    // The process may have ended.
    let _ended = kill_process(process, Signal::KILL);
}

pub(crate) fn running_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("not within a minute: {what}");
}

/// `xorshift64*` of Vigna, "An experimental exploration of Marsaglia's xorshift generators,
/// scrambled" (2016).
pub(crate) struct Random(u64);

impl Random {
    /// The seed is `LEASE_SEED`, or the time.
    pub(crate) fn new(lane: u64) -> Self {
        let seed = std::env::var("LEASE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::try_from(running_time().as_nanos()).unwrap());
        println!("LEASE_SEED={seed}");
        Self((seed + lane).max(1))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

pub(crate) fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}
