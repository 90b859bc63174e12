//! Programs that some tests need and that may not be installed. [`tool`] finds them, and `process` runs servers.

#[cfg(any(feature = "dynamodb", feature = "kinesis", feature = "prometheus"))]
pub(crate) mod process;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
pub(crate) mod signal;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::sync::lock;

/// Finds the program `name` in the folder `LEASE_TEST_TOOLS`, at one of `places`, or on the path.
/// Prints a line to the standard error if the program is missing.
///
/// # Panics
///
/// Panics if the program is missing and `LEASE_TEST_REQUIRE_ALL` is set.
pub fn tool(name: &str, places: &[&str]) -> Option<PathBuf> {
    let found = find(name, places);
    if found.is_none() {
        missing(name);
    }
    found
}

/// Finds a program as [`tool`] does, but prints nothing.
pub fn find(name: &str, places: &[&str]) -> Option<PathBuf> {
    let tools = std::env::var_os("LEASE_TEST_TOOLS").map(PathBuf::from);
    let in_tools = tools.iter().flat_map(|tools| places.iter().map(|place| tools.join(place)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(name));
    in_tools.chain(on_path).find(|program| program.is_file())
}

/// Returns a folder in memory, or else the folder of temporary files. Files in memory make the
/// tests of a store in a file independent of the speed of the disk.
pub fn memory_folder() -> PathBuf {
    let in_memory = PathBuf::from("/dev/shm");
    if in_memory.is_dir() { in_memory } else { std::env::temp_dir() }
}

/// Finds libfaketime, which gives a program another wall clock, at Debian's path.
///
/// # Panics
///
/// Panics if the library is missing and `LEASE_TEST_REQUIRE_ALL` is set.
pub fn libfaketime() -> Option<PathBuf> {
    let found = find_libfaketime();
    if found.is_none() {
        missing("libfaketime");
    }
    found
}

/// Finds the library as [`libfaketime`] does, but prints nothing.
pub fn find_libfaketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders
        .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}

/// Prints that the program `name` is missing. The test then skips the part that needs the program.
///
/// # Panics
///
/// Panics if the environment has `LEASE_TEST_REQUIRE_ALL`.
pub fn missing(name: &str) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

    assert!(
        std::env::var_os("LEASE_TEST_REQUIRE_ALL").is_none(),
        "{name} is not installed, and LEASE_TEST_REQUIRE_ALL is set",
    );
    let mut reported = lock(&REPORTED);
    if reported.insert(name.to_owned()) {
        // The test harness hides the output of `eprintln!` if the test passes.
        drop(writeln!(std::io::stderr(), "SKIPPED: {name} is not installed: no test uses it"));
    }
}
