//! Reads the name of the lease table.

use lease_kinesis::Application;

use super::properties::Properties;

/// Defaults to the application's name.
pub(crate) fn name(file: &mut Properties, application: &str) -> String {
    let (key, name, because) = match file.text("tableName") {
        Some(name) => ("tableName", name, ""),
        None => (
            "applicationName",
            application.to_owned(),
            "it is also the name of the table, unless tableName is set; ",
        ),
    };
    // DynamoDB allows 255 characters.
    let max = 255 - WORKERS_SUFFIX.len();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let valid = (3..=max).contains(&name.len()) && name.bytes().all(allowed);
    // If the application's name is invalid, an error is already recorded.
    let is_reported = key == "applicationName" && name.parse::<Application>().is_err();
    if !valid && !is_reported {
        file.record_error(format!(
            "{key} = {name}: {because}a table's name is 3 to {max} letters, digits, `_`, `.` \
             and `-`"
        ));
    }
    name
}

pub(crate) const WORKERS_SUFFIX: &str = "-workers";
