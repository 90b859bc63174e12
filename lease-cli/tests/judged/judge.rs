//! The judge: a command that writes to a gate under its token, as long as it lives. This test
//! program is the command, with the test [`judge`] selected.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::processes::running_time;

#[test]
#[ignore = "a process that other tests start"]
fn judge() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let token: u64 = env::var("LEASE_TOKEN").unwrap().parse().unwrap();
    let gate = Gate::at(Path::new(&folder));
    let mut life = File::create(Path::new(&folder).join(format!("life-{token}"))).unwrap();
    loop {
        gate.pass(token);
        life.rewind().unwrap();
        write!(life, "{:020}", running_time().as_nanos()).unwrap();
        thread::sleep(Duration::from_millis(3));
    }
}

/// Runs the judge twice: as the child, and as a grandchild. `before` comes first.
pub(crate) fn script(before: &str) -> String {
    let judge = env::current_exe().unwrap();
    let judge = format!("{} judge::judge --exact --ignored > /dev/null 2>&1", judge.display());
    format!("{before} {judge} & {judge}; wait")
}

pub(crate) const FOLDER: &str = "LEASE_JUDGE_FOLDER";

/// A file that refuses tokens smaller than the largest token.
pub(crate) struct Gate {
    folder: std::path::PathBuf,
}

impl Gate {
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// A command whose token is too small runs although another command has started.
    fn pass(&self, token: u64) {
        let mut file = self.open("gate");
        file.lock().unwrap();
        let largest = number(&mut file);
        if token < largest {
            writeln!(self.open("overlaps"), "{token} after {largest}").unwrap();
        } else if token > largest {
            file.rewind().unwrap();
            write!(file, "{token:020}").unwrap();
        }
    }

    /// Returns 0 before the first token.
    pub(crate) fn largest(&self) -> u64 {
        let mut file = self.open("gate");
        file.lock().unwrap();
        number(&mut file)
    }

    pub(crate) fn overlaps(&self) -> String {
        // Without an overlap, the file does not exist.
        std::fs::read_to_string(self.folder.join("overlaps")).unwrap_or_default()
    }

    /// The last time at which a command with `token` lived.
    pub(crate) fn last_life(&self, token: u64) -> Duration {
        Duration::from_nanos(number(&mut self.open(&format!("life-{token}"))))
    }

    fn open(&self, name: &str) -> File {
        let path = self.folder.join(name);
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(path).unwrap();
        if name == "overlaps" {
            file.seek(std::io::SeekFrom::End(0)).unwrap();
        }
        file
    }
}

fn number(file: &mut File) -> u64 {
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text.trim_start_matches('0').parse().unwrap_or_default()
}

#[test]
fn judge_finds_a_command_that_runs_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::at(folder.path());

    for token in [3, 4, 4, 3] {
        gate.pass(token);
    }

    assert_eq!(gate.largest(), 4);
    assert_eq!(gate.overlaps(), "3 after 4\n");
}
