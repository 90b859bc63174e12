//! Parses the command line of this program, and the command line with which launchers start Java.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use crate::configuration::properties::Properties;
use crate::configuration::settings::Settings;
use crate::failure::Failure;
use crate::metrics::target::Target;

/// Runs Kinesis record processors written in any language, one process for each shard, as Amazon's
/// `MultiLangDaemon` does, without a JVM.
///
/// Also accepts the arguments that launchers give to `java`: options of the JVM, then `-cp CLASSPATH
/// software.amazon.kinesis.multilang.MultiLangDaemon --properties-file FILE`. So a launcher can start this
/// program through its option `--java`.
#[derive(Debug, Parser)]
#[command(name = "multilang-daemon", version, override_usage = USAGE)]
pub(crate) struct Arguments {
    /// The properties file of Amazon's daemon. It names the record processor and the stream.
    #[arg(short, long, value_name = "FILE", required_unless_present = "file")]
    properties_file: Option<PathBuf>,
    /// Accepted but not read. Set `RUST_LOG` to filter the log, for example to `info` or `debug`.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) log_configuration: Option<PathBuf>,
    /// Publishes metrics: to Prometheus at this address, or on loopback if ADDR is a port alone. With `emf`, prints
    /// them on stdout in CloudWatch's embedded metric format, under the names of the Kinesis Client Library.
    #[arg(short, long, value_name = "ADDR")]
    pub(crate) metrics: Option<Target>,
    /// The properties file, given without an option, as in the first versions of Amazon's daemon.
    #[arg(value_name = "FILE", hide = true, conflicts_with = "properties_file")]
    file: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) arguments: Vec<OsString>,
    /// The folders of the launcher's class path, which may contain the properties file.
    pub(crate) class_path: Vec<PathBuf>,
    pub(crate) jvm_options: Vec<String>,
}

impl Invocation {
    pub(crate) fn of(all: impl IntoIterator<Item = OsString>) -> Self {
        let mut all: Vec<_> = all.into_iter().collect();
        let is_class = |argument: &OsString| MAIN_CLASSES.iter().any(|class| argument == class);
        let Some(class) = all.iter().position(is_class) else {
            return Self { arguments: all, class_path: Vec::new(), jvm_options: Vec::new() };
        };
        let mut arguments: Vec<_> = all.drain(..1).collect();
        arguments.extend(all.drain(class - 1..).skip(1));
        let mut class_path = Vec::new();
        let mut jvm_options = Vec::new();
        let mut before = all.into_iter();
        while let Some(option) = before.next() {
            let text = option.to_string_lossy().into_owned();
            if matches!(&*text, "-cp" | "-classpath" | "--class-path") {
                let paths = before.next().unwrap_or_default();
                class_path.extend(std::env::split_paths(&paths));
            } else {
                jvm_options.push(text);
            }
        }
        Self { arguments, class_path, jvm_options }
    }
}

impl Arguments {
    pub(crate) fn settings(&self, class_path: &[PathBuf]) -> Result<Settings, Failure> {
        let file = self.properties_file.as_ref().or(self.file.as_ref());
        let file = file.ok_or_else(|| Failure::usage("no properties file given"))?;
        // Launchers add the file's folder to the class path, so Java finds the file there.
        let candidates = class_path.iter().map(|folder| folder.join(file));
        let found = [file.clone()].into_iter().chain(candidates).find(|found| found.is_file());
        let properties = Properties::read(found.as_ref().unwrap_or(file))?;
        Settings::read(properties)
    }
}

const USAGE: &str =
    "multilang-daemon --properties-file <FILE> [--log-configuration <FILE>] [--metrics <ADDR>]";

const MAIN_CLASSES: [&str; 2] = [
    "software.amazon.kinesis.multilang.MultiLangDaemon",
    "com.amazonaws.services.kinesis.multilang.MultiLangDaemon",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn invocation(line: &str) -> Invocation {
        Invocation::of(line.split(' ').map(OsString::from))
    }

    #[test]
    fn command_line_without_java_arguments_is_unchanged() {
        let line = "multilang-daemon --properties-file orders.properties -l logback.xml";

        let Invocation { arguments, jvm_options, .. } = invocation(line);
        let parsed = Arguments::try_parse_from(&arguments).unwrap();

        assert_eq!(parsed.properties_file, Some("orders.properties".into()));
        assert_eq!(parsed.log_configuration, Some("logback.xml".into()));
        assert_eq!(jvm_options, [""; 0]);
    }

    #[test]
    fn launcher_command_line_for_java_is_parsed() {
        let line = "java -Xmx512m -Dlog4j.configuration=x -cp a.jar:/etc/app \
                    software.amazon.kinesis.multilang.MultiLangDaemon --properties-file f";

        let Invocation { arguments, class_path, jvm_options } = invocation(line);
        let parsed = Arguments::try_parse_from(&arguments).unwrap();

        assert_eq!(parsed.properties_file, Some("f".into()));
        assert_eq!(class_path, [PathBuf::from("a.jar"), PathBuf::from("/etc/app")]);
        assert_eq!(jvm_options, ["-Xmx512m", "-Dlog4j.configuration=x"]);
    }

    #[test]
    fn file_without_an_option_is_the_properties_file() {
        let line = "java -cp x com.amazonaws.services.kinesis.multilang.MultiLangDaemon f";

        let parsed = Arguments::try_parse_from(invocation(line).arguments).unwrap();

        assert_eq!(parsed.file, Some("f".into()));
    }

    #[test]
    fn command_line_without_file_is_refused() {
        let without = Arguments::try_parse_from(["multilang-daemon"]).unwrap_err();
        let unknown = Arguments::try_parse_from(["multilang-daemon", "--fast"]).unwrap_err();

        assert_eq!(without.exit_code(), 2);
        assert_eq!(unknown.exit_code(), 2);
    }
}
