//! The launchers of other languages start this program in place of Java.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lease_test_servers::tools::tool;

use crate::daemon::Daemon;
use crate::place::{BINARY, Place, raw};

#[tokio::test(flavor = "multi_thread")]
async fn python_launcher_command_starts_daemon() {
    let helper = tool("amazon_kclpy", &["bin/amazon_kclpy_helper.py"]);
    let (Some(helper), Some(raw)) = (helper, raw()) else { return };
    let place = Place::of_shards(2, raw).await;
    let file = place.properties("one");
    let printed = Command::new(helper.with_file_name("python3"))
        .arg(&helper)
        .args(["--print_command", "--java", BINARY, "--properties"])
        .arg(&file)
        .output()
        .unwrap();
    let command = String::from_utf8(printed.stdout).unwrap();
    assert!(command.contains("software.amazon.kinesis.multilang.MultiLangDaemon"), "{command}");

    let arguments = ["-c".to_owned(), format!("exec {command}")];
    let daemon = Daemon::start("sh", &arguments, place.environment());

    place.until("both shards are begun", &[&daemon], |notes| notes.readers().len() == 2).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_launcher_starts_daemon() {
    let client = tool("aws-kcl", &["node_modules/aws-kcl/package.json"]);
    let (Some(client), Some(node), Some(raw)) = (client, tool("node", &[]), raw()) else { return };
    let place = Place::of_shards(2, raw).await;
    let jars = place.folder.join("jars");
    fs::create_dir(&jars).unwrap();
    // The launcher would download missing jars.
    for jar in jars_of(&client.with_file_name("pom.xml")) {
        fs::write(jars.join(jar), "").unwrap();
    }
    let file = place.properties("one");
    let arguments = [
        client.with_file_name("bin").join("kcl-bootstrap").display().to_string(),
        "--java".to_owned(),
        BINARY.to_owned(),
        "--jar-path".to_owned(),
        jars.display().to_string(),
        "--properties".to_owned(),
        file.display().to_string(),
        "--execute".to_owned(),
    ];

    let launcher = Daemon::start(node, &arguments, place.environment());

    place.until("both shards are begun", &[&launcher], |notes| notes.readers().len() == 2).await;
    // The launcher does not forward signals.
    let daemon = child_of(launcher.id());
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(daemon).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    launcher.until_logged("daemon ended").await;
}

fn jars_of(pom: &PathBuf) -> Vec<String> {
    let pom = fs::read_to_string(pom).unwrap();
    let between = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (value, _) = rest.split_once(&format!("</{name}>"))?;
        Some(value.to_owned())
    };
    let dependencies = pom.split("<dependency>").skip(1);
    let jar = |dependency: &str| {
        let version = between(dependency, "version").unwrap();
        let property = version.strip_prefix("${").and_then(|name| name.strip_suffix('}'));
        let version = property.map_or_else(|| version.clone(), |name| between(&pom, name).unwrap());
        format!("{}-{version}.jar", between(dependency, "artifactId").unwrap())
    };
    dependencies.map(jar).collect()
}

fn child_of(process: i32) -> i32 {
    let children = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(children).unwrap();
    children.split_whitespace().next().expect("a child").parse().unwrap()
}
