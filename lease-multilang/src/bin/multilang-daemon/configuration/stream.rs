//! Which stream is read.

use crate::properties::Properties;
use crate::region;

/// The stream, by its name or ARN; and the region of an ARN.
pub(crate) fn named(file: &mut Properties) -> (String, Option<String>) {
    if !file.has("streamName") && !file.has("streamArn") {
        file.is_wrong("streamName or streamArn is missing: which stream is read".to_owned());
    }
    let name = file.parsed("streamName", |name| {
        if name.starts_with("arn:") {
            return Err("this is an ARN, and stands under streamArn");
        }
        is_name(name)
            .then(|| name.to_owned())
            .ok_or("it is 1 to 128 letters, digits, `_`, `.` and `-`")
    });
    let arn = file.parsed("streamArn", read_arn);
    match (arn, name) {
        (Some((arn, region)), _) => (arn, region),
        (None, Some(name)) => (name, None),
        // What is wrong was told of above.
        (None, None) => (String::new(), None),
    }
}

/// An ARN as it is, and the region in it.
fn read_arn(arn: &str) -> Result<(String, Option<String>), String> {
    let parts: Vec<_> = arn.splitn(6, ':').collect();
    let ["arn", _, "kinesis", region, account, resource] = parts[..] else {
        return Err(FORM.to_owned());
    };
    let Some(name) = resource.strip_prefix("stream/") else { return Err(FORM.to_owned()) };
    if name.contains("/consumer/") {
        return Err("it is a consumer's, and stands under fanoutConfig.consumerArn".to_owned());
    }
    if !is_name(name) {
        return Err(FORM.to_owned());
    }
    if !region.is_empty() && !region::is_code(region) {
        return Err(format!("{region} is not the code of a region, such as eu-west-3"));
    }
    if account.len() != 12 || !account.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("an account is 12 digits, and here it is {account}"));
    }
    Ok((arn.to_owned(), (!region.is_empty()).then(|| region.to_owned())))
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(allowed)
}

const FORM: &str = "it is arn:aws:kinesis:REGION:ACCOUNT:stream/NAME";
