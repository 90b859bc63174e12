//! A test's own store, and the program on this store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Duration;

use lease_test_servers::tools::memory_folder;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Place {
    folder: TempDir,
}

/// A drop kills the program.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir_in(memory_folder()).unwrap() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn lease(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        // Test runners may ignore these signals, and so would every child.
        command.arg("--default-signal=INT,QUIT,HUP,TERM").arg(PROGRAM).args(arguments);
        command.env("LEASE_STORE", "sqlite:leases.db").env_remove("NO_COLOR");
        command.current_dir(self.folder()).stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.lease(arguments).output().unwrap()
    }

    pub(crate) fn code(&self, arguments: &[&str]) -> i32 {
        code(self.output(arguments).status)
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::of(&mut self.lease(arguments))
    }

    /// Waits until the script on the key `job` has written `started`.
    pub(crate) fn start_script(&self, options: &[&str], script: &str) -> Running {
        let script = format!("echo $$ > child; {script}");
        let arguments = [&["run", "job"], options, &["--", "sh", "-c", &script]].concat();
        let running = self.start(&arguments);
        self.content("child");
        running
    }

    pub(crate) fn content(&self, name: &str) -> String {
        let path = self.path(name);
        let mut text = String::new();
        until(&format!("{name} has a line"), || {
            text = fs::read_to_string(&path).unwrap_or_default();
            text.ends_with('\n')
        });
        text.trim_end().to_owned()
    }

    pub(crate) fn process(&self, name: &str) -> Pid {
        Pid::from_raw(self.content(name).parse().unwrap()).unwrap()
    }

    /// Ends the lease on the key `job`, as an operator does.
    pub(crate) fn evict(&self) {
        let who = self.output(&["who", "job"]);
        let grant = text(&who.stdout).split('\t').nth(2).unwrap();
        assert_eq!(self.code(&["evict", "job", "--grant", grant]), 0);
    }

    /// Whether another process could obtain `key` now.
    pub(crate) fn is_free(&self, key: &str) -> bool {
        match self.code(&["who", key]) {
            0 => false,
            1 => true,
            other => panic!("exit {other}"),
        }
    }
}

impl Running {
    pub(crate) fn of(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).unwrap();
    }

    /// The process of the command, once its command line starts with `start`.
    pub(crate) fn command(&self, start: &str) -> Pid {
        self.child(|line| line.starts_with(start))
    }

    /// The process that keeps the group of the command.
    pub(crate) fn keeper(&self) -> Pid {
        self.child(|line| line.contains("--keep-group"))
    }

    fn child(&self, has_line: impl Fn(&str) -> bool) -> Pid {
        let mut found = None;
        until("the child runs", || {
            found = children(self.id()).into_iter().find(|child| {
                let path = format!("/proc/{}/cmdline", child.as_raw_nonzero());
                fs::read_to_string(path).is_ok_and(|line| has_line(&line))
            });
            found.is_some()
        });
        found.unwrap()
    }

    pub(crate) fn wait(mut self) -> i32 {
        let mut status = None;
        until("the program has ended", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        code(status.unwrap())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The exit code, or -n if the process died of signal n.
pub(crate) fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;

    status.code().unwrap_or_else(|| -status.signal().unwrap())
}

pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let id = parent.as_raw_nonzero();
    let path = format!("/proc/{id}/task/{id}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
}

/// A process that its parent has not reaped does not run.
pub(crate) fn is_alive(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let is_zombie = stat.is_ok_and(|stat| stat.rsplit_once(") ").unwrap().1.starts_with('Z'));
    !is_zombie && test_kill_process(process).is_ok()
}

pub(crate) fn group(process: Pid) -> i32 {
    rustix::process::getpgid(Some(process)).unwrap().as_raw_nonzero().get()
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("not within a minute: {what}");
}

/// A file whose writes fail, as on a full disk.
pub(crate) fn full() -> Stdio {
    fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// The masks of signals in lines of `/proc/PID/status`, without the signals that libraries use.
pub(crate) fn masks(lines: &str) -> Vec<u64> {
    let mask = |line: &str| u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap();
    lines.lines().map(|line| mask(line) & 0x7fff_ffff).collect()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lease");
