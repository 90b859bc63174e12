//! Runs the SQL in the documentation of `fence` on `SQLite`.

use std::io::Write;
use std::process::{Command, Stdio};

const PYTHON: &str = r#"
import sqlite3, sys
table, insert, update = sys.stdin.read().split(";")
def written(statement, token):
    return base.execute(statement, {"id": "r", "body": str(token), "token": token}).rowcount
for name, statement, row in [
    ("absent", insert, None),
    ("null", insert, "INSERT INTO report (id) VALUES ('r')"),
    ("null", update, "INSERT INTO report (id) VALUES ('r')"),
]:
    base = sqlite3.connect(":memory:")
    base.execute(table)
    if row:
        base.execute(row)
    counts = [written(statement, token) for token in (7, 7, 2**53 - 1, 8)]
    body = base.execute("SELECT body, token FROM report").fetchone()
    print(name, counts, body)
"#;

#[test]
fn sql_fence_writes_unfenced_rows_and_refuses_stale_tokens() {
    let documentation = include_str!("../src/fence.rs");
    let blocks: Vec<_> = documentation
        .split("//! ```sql\n")
        .skip(1)
        .filter_map(|rest| rest.split("//! ```\n").next())
        .map(|block| block.replace("//! ", ""))
        .collect();
    let Ok(mut python) = Command::new("python3")
        .args(["-c", PYTHON])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    else {
        let required = std::env::var_os("LEASE_TEST_REQUIRE_ALL").is_some();
        assert!(!required, "python3 is not installed");
        return;
    };

    let sent = python.stdin.take().map(|mut stdin| stdin.write_all(blocks.join(";").as_bytes()));
    let output = python.wait_with_output().expect("python3 ends");

    assert!(matches!(sent, Some(Ok(()))), "{sent:?}");
    let answer = "[1, 1, 1, 0] ('9007199254740991', 9007199254740991)";
    let expected = format!("absent {answer}\nnull {answer}\nnull {answer}\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
