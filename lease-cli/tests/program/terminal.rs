//! The program on a pseudo-terminal that the test controls.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::place::{PROGRAM, Place, Running, group, is_alive, until};

/// The controlling side of a terminal, and what the program has written to it.
pub(crate) struct Terminal {
    control: File,
    path: std::path::PathBuf,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&control).unwrap();
        unlockpt(&control).unwrap();
        let name = ptsname(&control, Vec::new()).unwrap();
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.as_bytes())).to_owned();
        let control = File::from(control);
        let (mut output, shown) = (control.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let seen = Arc::clone(&shown);
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            // An error means that no process has the terminal open.
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Self { control, path, shown }
    }

    fn stream(&self) -> Stdio {
        let file = OpenOptions::new().read(true).write(true).open(&self.path).unwrap();
        Stdio::from(OwnedFd::from(file))
    }

    /// The program in a session of its own, on this terminal.
    pub(crate) fn lease(&self, place: &Place, arguments: &[&str]) -> Command {
        let mut command = Command::new("setsid");
        // setsid forks if it leads a group, but a child of this process does not.
        command.args(["--ctty", "env", "--default-signal=INT,QUIT,HUP,TERM", PROGRAM]);
        command.args(arguments).env("LEASE_STORE", "sqlite:leases.db").current_dir(place.folder());
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        command.stdin(self.stream()).stdout(self.stream()).stderr(self.stream());
        command
    }

    fn types(&mut self, bytes: &[u8]) {
        self.control.write_all(bytes).unwrap();
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }
}

const CTRL_C: &[u8] = b"\x03";

#[test]
fn command_reads_from_the_terminal_of_the_program() {
    let (place, mut terminal) = (Place::new(), Terminal::open());
    let script = "echo $$ > child; read line < /dev/tty; echo \"$line\" > line";
    let holder =
        Running::of(&mut terminal.lease(&place, &["run", "job", "--", "sh", "-c", script]));
    let child = place.process("child");
    assert_eq!(group(child), group(holder.id()), "in the foreground");

    terminal.types(b"hello\n");

    assert_eq!(place.content("line"), "hello");
    assert_eq!(holder.wait(), 0);
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let (place, mut terminal) = (Place::new(), Terminal::open());
    let script = "trap 'echo caught >> caught' INT; echo > ready; \
        until [ -e end ]; do sleep 0.01; done; exit 3";
    let holder =
        Running::of(&mut terminal.lease(&place, &["run", "job", "--", "sh", "-c", script]));
    place.content("ready");

    terminal.types(CTRL_C);
    place.content("caught");
    std::fs::write(place.path("end"), "").unwrap();

    assert_eq!(holder.wait(), 3);
    assert_eq!(place.content("caught"), "caught", "once");
}

#[test]
fn ctrl_c_ends_a_wait() {
    let (place, mut terminal) = (Place::new(), Terminal::open());
    let _holder = place.start_script(&[], "exec sleep 600");
    let waiter =
        Running::of(&mut terminal.lease(&place, &["run", "-v", "job", "--", "touch", "ran"]));
    until("it waits", || terminal.shown().contains("; waiting"));

    terminal.types(CTRL_C);

    assert_eq!(waiter.wait(), 130);
    assert!(!place.path("ran").exists());
}

#[test]
fn kill_of_lease_on_a_terminal_kills_all_processes_of_the_command() {
    let (place, terminal) = (Place::new(), Terminal::open());
    let script =
        "(trap '' HUP; while :; do sleep 0.01; done) & echo $! > left; echo $$ > child; wait";
    let holder =
        Running::of(&mut terminal.lease(&place, &["run", "job", "--", "sh", "-c", script]));
    let (child, left) = (place.process("child"), place.process("left"));

    holder.signal(Signal::KILL);

    until("all are dead", || !is_alive(child) && !is_alive(left));
}

#[test]
fn loss_on_a_terminal_spares_other_processes_of_the_group() {
    let (place, terminal) = (Place::new(), Terminal::open());
    let script = "(while :; do sleep 0.01; done) & echo $! > left; wait";
    let line = format!(
        "sleep 600 & echo $! > other; {PROGRAM} run --ttl 1s job -- sh -c '{script}'; echo $? > code; wait"
    );
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "env", "--default-signal=INT,QUIT,HUP,TERM", "sh", "-c", &line]);
    shell.env("LEASE_STORE", "sqlite:leases.db").current_dir(place.folder());
    shell.stdin(terminal.stream()).stdout(terminal.stream()).stderr(terminal.stream());
    let _shell = Running::of(&mut shell);
    let (left, other) = (place.process("left"), place.process("other"));

    place.evict();

    assert_eq!(place.content("code"), "124");
    assert!(!is_alive(left));
    assert!(is_alive(other));
    rustix::process::kill_process(other, Signal::KILL).unwrap();
}

#[test]
fn table_on_a_terminal_has_a_heading() {
    let place = Place::new();
    let _holder = place.start_script(&[], "exec sleep 600");

    for (no_color, heading) in [("", "\u{1b}[1mKEY  HOLDER"), ("1", "KEY  HOLDER")] {
        let terminal = Terminal::open();
        let mut command = terminal.lease(&place, &["ls"]);
        assert_eq!(Running::of(command.env("NO_COLOR", no_color)).wait(), 0);
        until("the table is shown", || terminal.shown().contains("job  "));
        assert!(terminal.shown().starts_with(heading), "{:?}", terminal.shown());
    }
}
