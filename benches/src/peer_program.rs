//! Builds the programs in `peers/`, if the tools of their languages are installed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use crate::peer_process::PeerProcess;

pub(crate) struct PeerProgram {
    library: &'static str,
    command: Command,
}

impl PeerProgram {
    pub(crate) fn build_all() -> Vec<Self> {
        let built = [("redsync", build_redsync()), ("Redisson", build_redisson())];
        let programs = built.into_iter().filter_map(|(library, command)| {
            let command = command.map_err(|reason| report_left_out(library, &reason)).ok()?;
            Some(Self { library, command })
        });
        programs.collect()
    }

    pub(crate) async fn start(self, url: &str) -> Option<PeerProcess> {
        let started = PeerProcess::start(self.command, url).await;
        started.map_err(|reason| report_left_out(self.library, &reason)).ok()
    }
}

fn build_redsync() -> Result<Command, String> {
    let program = build_folder("redsync")?.join("redsync-peer");
    let mut build = Command::new("go");
    build.args(["build", "-C"]).arg(source_folder("redsync")).arg("-o").arg(&program);
    run(&mut build)?;
    Ok(Command::new(program))
}

fn build_redisson() -> Result<Command, String> {
    let folder = build_folder("redisson")?;
    let mut build = Command::new("mvn");
    build.args(["--quiet", "--batch-mode", "--file"]).arg(source_folder("redisson"));
    build.args(["compile", "dependency:build-classpath"]);
    run(build.arg(format!("-Dbuild.folder={}", folder.display())))?;
    let libraries = folder.join("classpath");
    let libraries = fs::read_to_string(&libraries)
        .map_err(|error| format!("reading {}: {error}", libraries.display()))?;
    let mut command = Command::new("java");
    let classes = folder.join("classes");
    command.args(["-cp", &format!("{}:{libraries}", classes.display()), "RedissonPeer"]);
    Ok(command)
}

fn source_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

fn build_folder(name: &str) -> Result<PathBuf, String> {
    let program = env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let folder = program.with_file_name("peers").join(name);
    fs::create_dir_all(&folder)
        .map_err(|error| format!("creating {}: {error}", folder.display()))?;
    Ok(folder)
}

/// The error contains the output of the build, since standard output is only for tables.
fn run(build: &mut Command) -> Result<(), String> {
    let tool = build.get_program().display().to_string();
    let output = build.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{tool} is not installed"),
        _ => format!("running {tool}: {error}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    Err(format!("{tool} failed with {}:\n{}", output.status, printed.trim()))
}

fn report_left_out(library: &str, reason: &str) {
    eprintln!("{library} is left out: {reason}");
}
