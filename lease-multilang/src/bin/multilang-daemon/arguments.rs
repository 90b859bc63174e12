//! The command line: this program's own, and the one by which launchers start Java.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use crate::failure::Failure;
use crate::properties::Properties;
use crate::settings::Settings;

/// Runs Kinesis record processors written in any language, one process for each shard, as Amazon's
/// `MultiLangDaemon` does, without a JVM.
///
/// Also takes the arguments that launchers give to `java`: `-cp CLASSPATH
/// software.amazon.kinesis.multilang.MultiLangDaemon --properties-file FILE`, after options of the
/// JVM. So it can be named as `--java`.
#[derive(Debug, Parser)]
#[command(name = "multilang-daemon", version, override_usage = USAGE)]
pub(crate) struct Arguments {
    /// What is to be run, and which stream is to be read: a properties file, as of Amazon's daemon.
    #[arg(short, long, value_name = "FILE", required_unless_present = "file")]
    properties_file: Option<PathBuf>,
    /// Accepted and not read: `RUST_LOG` says what is logged, such as `info` or `debug`.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) log_configuration: Option<PathBuf>,
    /// The same as --properties-file, as in the first versions.
    #[arg(value_name = "FILE", hide = true, conflicts_with = "properties_file")]
    file: Option<PathBuf>,
}

/// What the program was started with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// Its own arguments, after its name.
    pub(crate) arguments: Vec<OsString>,
    /// Where a launcher says that the properties file may be, too.
    pub(crate) class_path: Vec<PathBuf>,
    /// What was for a JVM.
    pub(crate) of_java: Vec<String>,
}

impl Invocation {
    pub(crate) fn of(all: impl IntoIterator<Item = OsString>) -> Self {
        let mut all: Vec<_> = all.into_iter().collect();
        let is_class = |argument: &OsString| MAIN_CLASSES.iter().any(|class| argument == class);
        let Some(class) = all.iter().position(is_class) else {
            return Self { arguments: all, class_path: Vec::new(), of_java: Vec::new() };
        };
        let mut arguments: Vec<_> = all.drain(..1).collect();
        arguments.extend(all.drain(class - 1..).skip(1));
        let mut class_path = Vec::new();
        let mut of_java = Vec::new();
        let mut before = all.into_iter();
        while let Some(option) = before.next() {
            let text = option.to_string_lossy().into_owned();
            if matches!(&*text, "-cp" | "-classpath" | "--class-path") {
                let paths = before.next().unwrap_or_default();
                class_path.extend(std::env::split_paths(&paths));
            } else {
                of_java.push(text);
            }
        }
        Self { arguments, class_path, of_java }
    }
}

impl Arguments {
    /// What the properties file says.
    pub(crate) fn settings(&self, class_path: &[PathBuf]) -> Result<Settings, Failure> {
        let file = self.properties_file.as_ref().or(self.file.as_ref());
        let file = file.ok_or_else(|| Failure::usage("no properties file is named"))?;
        // Java looks on the class path, too: there, launchers put the folder that the file is in.
        let places = class_path.iter().map(|folder| folder.join(file));
        let place = [file.clone()].into_iter().chain(places).find(|place| place.is_file());
        let properties = Properties::read(place.as_ref().unwrap_or(file))?;
        Settings::of(properties)
    }
}

const USAGE: &str = "multilang-daemon --properties-file <FILE> [--log-configuration <FILE>]";

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
    fn a_command_line_of_its_own_is_taken_as_it_is() {
        let line = "multilang-daemon --properties-file orders.properties -l logback.xml";

        let Invocation { arguments, of_java, .. } = invocation(line);
        let parsed = Arguments::try_parse_from(&arguments).unwrap();

        assert_eq!(parsed.properties_file, Some("orders.properties".into()));
        assert_eq!(parsed.log_configuration, Some("logback.xml".into()));
        assert_eq!(of_java, [""; 0]);
    }

    #[test]
    fn what_launchers_give_to_java_is_understood() {
        let line = "java -Xmx512m -Dlog4j.configuration=x -cp a.jar:/etc/app \
                    software.amazon.kinesis.multilang.MultiLangDaemon --properties-file f";

        let Invocation { arguments, class_path, of_java } = invocation(line);
        let parsed = Arguments::try_parse_from(&arguments).unwrap();

        assert_eq!(parsed.properties_file, Some("f".into()));
        assert_eq!(class_path, [PathBuf::from("a.jar"), PathBuf::from("/etc/app")]);
        assert_eq!(of_java, ["-Xmx512m", "-Dlog4j.configuration=x"]);
    }

    #[test]
    fn the_first_versions_name_the_file_alone() {
        let line = "java -cp x com.amazonaws.services.kinesis.multilang.MultiLangDaemon f";

        let parsed = Arguments::try_parse_from(invocation(line).arguments).unwrap();

        assert_eq!(parsed.file, Some("f".into()));
    }

    #[test]
    fn a_command_line_without_a_file_is_refused() {
        let without = Arguments::try_parse_from(["multilang-daemon"]).unwrap_err();
        let unknown = Arguments::try_parse_from(["multilang-daemon", "--fast"]).unwrap_err();

        assert_eq!(without.exit_code(), 2);
        assert_eq!(unknown.exit_code(), 2);
    }
}
