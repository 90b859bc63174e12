//! Programs that some tests need and not every machine has.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The program `name`: in the folder `LEASE_TEST_TOOLS`, at one of `places`, or on the path.
/// One that is missing is said aloud, or, with `LEASE_TEST_REQUIRE_ALL`, a failure.
///
/// # Panics
///
/// Where it is missing, and must not be.
pub fn tool(name: &str, places: &[&str]) -> Option<PathBuf> {
    let found = find(name, places);
    if found.is_none() {
        missing(name);
    }
    found
}

/// [`tool`], for those who say by themselves that it is missing.
pub fn find(name: &str, places: &[&str]) -> Option<PathBuf> {
    let tools = std::env::var_os("LEASE_TEST_TOOLS").map(PathBuf::from);
    let in_tools = tools.iter().flat_map(|tools| places.iter().map(|place| tools.join(place)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(name));
    in_tools.chain(on_path).find(|program| program.is_file())
}

/// The library that gives a program another wall clock, where Debian puts it.
///
/// # Panics
///
/// As [`tool`].
pub fn libfaketime() -> Option<PathBuf> {
    let found = find_libfaketime();
    if found.is_none() {
        missing("libfaketime");
    }
    found
}

/// [`libfaketime`], for those who say by themselves that it is missing.
pub fn find_libfaketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders
        .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}

fn missing(name: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

    assert!(
        std::env::var_os("LEASE_TEST_REQUIRE_ALL").is_none(),
        "{name} is not installed, and LEASE_TEST_REQUIRE_ALL is set",
    );
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(name.to_owned()) {
        // Not `eprintln!`: the harness keeps that to itself where the test passes.
        drop(writeln!(
            std::io::stderr(),
            "SKIPPED: {name} is not installed, so nothing is tested with it"
        ));
    }
}
