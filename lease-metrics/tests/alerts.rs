//! The alert rules: `promtool` loads them, and fires each of them.

use std::path::Path;
use std::process::Command;

use lease_test_servers::tools::tool;

#[test]
fn each_alert_fires_and_a_healthy_fleet_fires_none() {
    let Some(promtool) = tool("promtool", &[]) else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate");
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts-test.yml"]] {
        let mut command = Command::new(&promtool);
        let output = command.args(arguments).current_dir(&folder).output().unwrap();

        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}
