//! Builds test programs with cargo, and lists them.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Failure;
use crate::programs::{QUICK, Tier};

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) package: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) executable: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Cargo prints its progress and its errors to the standard error.
pub(crate) fn build(tier: Tier) -> Result<Vec<Program>, Failure> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--workspace", "--all-features", "--no-run"]);
    cargo.arg("--message-format=json-render-diagnostics");
    if tier == Tier::Quick {
        cargo.args(["--lib", "--bins"]);
        cargo.args(QUICK.iter().flat_map(|name| ["--test", name]));
    }
    forget_own_package(&mut cargo);
    let built = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        return Err("the tests do not build".into());
    }
    let messages = String::from_utf8(built.stdout)?;
    let mut programs = Vec::new();
    for message in messages.lines() {
        // A build script may print a line that is not a message of cargo.
        if let Ok(message) = serde_json::from_str(message) {
            programs.extend(program(&message));
        }
    }
    Ok(programs)
}

/// `cargo run` sets variables of this package. Because of them, some build scripts would run again, and a large part
/// of the dependencies would be compiled again.
pub(crate) fn forget_own_package(cargo: &mut Command) {
    let is_of_package = |name: &OsString| {
        let name = name.to_string_lossy();
        ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start))
    };
    for name in env::vars_os().map(|(name, _)| name).filter(is_of_package) {
        cargo.env_remove(name);
    }
}

/// `None` for a message without a test program.
fn program(message: &Value) -> Option<Program> {
    let is_test = message.get("profile")?.get("test")?.as_bool()?;
    if !is_test {
        return None;
    }
    let target = message.get("target")?;
    Some(Program {
        package: package(message.get("package_id")?.as_str()?),
        name: target.get("name")?.as_str()?.to_owned(),
        kind: target.get("kind")?.get(0)?.as_str()?.to_owned(),
        executable: message.get("executable")?.as_str()?.into(),
        folder: Path::new(message.get("manifest_path")?.as_str()?).parent()?.to_owned(),
    })
}

/// An id is `path+file:///a/lease-core#0.1.0`, or `…/a/b#lease-core@0.1.0`.
fn package(id: &str) -> String {
    let (path, version) = id.rsplit_once('#').unwrap_or((id, ""));
    let name = version.split_once('@').map(|(name, _version)| name);
    name.unwrap_or_else(|| path.rsplit('/').next().unwrap_or(path)).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifact(kind: &str, is_test: bool) -> Value {
        json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///home/me/leases/tests/servers#lease-test-servers@0.1.0",
            "manifest_path": "/home/me/leases/tests/servers/Cargo.toml",
            "target": { "kind": [kind], "name": "wire" },
            "profile": { "test": is_test },
            "executable": "/target/debug/deps/wire-0123",
        })
    }

    #[test]
    fn test_program_is_listed_with_its_folder() {
        let program = program(&artifact("test", true)).expect("a program");

        assert_eq!(program.package, "lease-test-servers");
        assert_eq!(program.name, "wire");
        assert_eq!(program.folder, Path::new("/home/me/leases/tests/servers"));
    }

    #[test]
    fn binary_without_tests_is_not_listed() {
        assert!(program(&artifact("bin", false)).is_none());
        assert!(program(&json!({ "reason": "build-finished", "success": true })).is_none());
    }

    #[test]
    fn package_id_without_name_gives_the_folder() {
        assert_eq!(package("path+file:///home/me/leases/lease-core#0.1.0"), "lease-core");
    }
}
