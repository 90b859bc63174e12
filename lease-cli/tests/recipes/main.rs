//! Runs the commands of the guide `docs/guides/command-line.md`, recipe by recipe.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use lease_test_servers::tools::{find, tool};
use tempfile::TempDir;

#[derive(Debug)]
struct Block {
    recipe: String,
    language: String,
    /// The name after the language, such as that of a unit file.
    name: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/command-line.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (mut blocks, mut recipe, mut open) = (Vec::new(), String::new(), None);
    for line in guide.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(""), Some(block)) => blocks.push(block),
            (Some(head), None) => {
                let (language, name) = head.split_once(' ').unwrap_or((head, ""));
                let (language, name) = (language.to_owned(), name.to_owned());
                let recipe = recipe.clone();
                open = Some(Block { recipe, language, name, text: String::new() });
            }
            (_, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {
                if let Some(title) = line.strip_prefix("## ") {
                    title.clone_into(&mut recipe);
                }
            }
        }
    }
    blocks
}

fn in_language(language: &str) -> impl Iterator<Item = Block> {
    blocks().into_iter().filter(move |block| block.language == language)
}

/// A folder with the program on the path, and the scripts that recipes run.
fn place() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_lease"), folder.path().join("lease")).unwrap();
    for script in ["backup.sh", "deploy.sh", "job.sh", "report.sh", "step-one.sh", "step-two.sh"] {
        let path = folder.path().join(script);
        fs::write(&path, format!("#!/bin/sh\necho {script} >> ran\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// The shell stops at the first command that fails.
fn shell(folder: &TempDir, script: &str) -> Output {
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("sh");
    command.args(["-eu", "-c", script]).current_dir(folder.path());
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    command.env("LEASE_STORE", "sqlite:leases.db").output().unwrap()
}

#[test]
fn guide_has_ten_recipes() {
    let mut recipes: Vec<_> = blocks().into_iter().map(|block| block.recipe).collect();
    recipes.dedup();

    assert_eq!(recipes.len(), 10, "{recipes:?}");
    assert!(in_language("sh").count() >= 9);
}

#[test]
fn commands_of_each_recipe_run() {
    for block in in_language("sh") {
        if block.text.contains("sqlite3 ") && tool("sqlite3", &[]).is_none() {
            continue;
        }
        let folder = place();

        let output = shell(&folder, &block.text);

        assert!(output.status.success(), "{}: {output:?}", block.recipe);
        let ran = fs::read_to_string(folder.path().join("ran")).unwrap_or_default();
        for script in ["backup.sh", "deploy.sh", "job.sh", "report.sh", "step-one.sh"] {
            let expected = block.text.matches(&format!("./{script}")).count();
            assert_eq!(ran.matches(script).count(), expected, "{}: {script}", block.recipe);
        }
    }
}

#[test]
fn fenced_write_is_applied_once_per_token() {
    if tool("sqlite3", &[]).is_none() {
        return;
    }
    let block = in_language("sh").find(|block| block.recipe.starts_with("6.")).unwrap();
    let folder = place();
    assert!(shell(&folder, &block.text).status.success());

    let late =
        "sqlite3 ledger.db 'UPDATE ledger SET balance = 0, token = 1 WHERE id = 1 AND token <= 1'";
    assert!(shell(&folder, late).status.success());

    let balance = shell(&folder, "sqlite3 ledger.db 'SELECT balance FROM ledger'");
    assert_eq!(balance.stdout, b"5\n");
}

#[test]
fn table_of_migration_has_valid_commands() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/command-line.md");
    let guide = fs::read_to_string(guide).unwrap();
    let rows =
        guide.lines().filter(|line| line.starts_with("| `flock") || line.starts_with("| `consul"));
    let rows: Vec<_> = rows.map(|row| row.replace("\\|", "|")).collect();
    assert_eq!(rows.len(), 6);

    for row in rows {
        let command = row.split('`').nth(3).unwrap();
        let folder = place();
        shell(&folder, "cp job.sh a; printf 'cat\\n' > b; chmod +x b");

        let output = shell(&folder, command);

        assert!(output.status.success(), "{command}: {output:?}");
        assert!(folder.path().join("ran").exists(), "{command}");
    }
}

#[test]
fn command_line_of_crontab_and_container_is_valid() {
    let cron = in_language("crontab").next().unwrap();
    let (_times, command) = cron.text.split_once("lease ").unwrap();
    let folder = place();
    let command = command.replace("/usr/local/bin/", "./");
    let output = shell(&folder, &format!("lease {command}"));
    assert!(output.status.success(), "{output:?}");

    let yaml = in_language("yaml").next().unwrap();
    let line = yaml.text.lines().find_map(|line| line.trim().strip_prefix("command: ")).unwrap();
    let words: Vec<_> = line.split('"').skip(1).step_by(2).collect();
    let output = shell(&folder, &words.join(" "));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(folder.path().join("ran")).unwrap(), "backup.sh\nreport.sh\n");
}

#[test]
fn systemd_units_are_valid() {
    let Some(analyze) = find("systemd-analyze", &[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let units: Vec<_> = in_language("systemd").collect();
    assert_eq!(units.len(), 2);
    for unit in &units {
        fs::write(folder.path().join(&unit.name), &unit.text).unwrap();
    }

    for unit in &units {
        let mut verify = Command::new(&analyze);
        let output = verify.arg("verify").arg(folder.path().join(&unit.name)).output().unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        let about = messages.lines().filter(|line| line.contains(&unit.name));
        assert_eq!(about.count(), 0, "{messages}");
    }
}
