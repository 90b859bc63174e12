//! Reads the properties that name the stream.

use super::properties::Properties;
use super::region;

pub(crate) fn named(file: &mut Properties) -> (String, Option<String>) {
    if !file.has("streamName") && !file.has("streamArn") {
        file.record_error("streamName or streamArn is missing: the stream to read".to_owned());
    }
    let name = file.parsed("streamName", |name| {
        if name.starts_with("arn:") {
            return Err("an ARN belongs under streamArn");
        }
        is_name(name)
            .then(|| name.to_owned())
            .ok_or("must be 1 to 128 letters, digits, `_`, `.` and `-`")
    });
    let arn = file.parsed("streamArn", read_arn);
    match (arn, name) {
        (Some((arn, region)), _) => (arn, region),
        (None, Some(name)) => (name, None),
        // An error is already recorded, so the empty name is never used.
        (None, None) => (String::new(), None),
    }
}

fn read_arn(arn: &str) -> Result<(String, Option<String>), String> {
    let parts: Vec<_> = arn.splitn(6, ':').collect();
    let ["arn", _, "kinesis", region, account, resource] = parts[..] else {
        return Err(FORM.to_owned());
    };
    let Some(name) = resource.strip_prefix("stream/") else { return Err(FORM.to_owned()) };
    if name.contains("/consumer/") {
        return Err("the ARN of a consumer belongs under fanoutConfig.consumerArn".to_owned());
    }
    if !is_name(name) {
        return Err(FORM.to_owned());
    }
    if !region.is_empty() && !region::is_code(region) {
        return Err(format!("{region} is not the code of a region such as eu-west-3"));
    }
    if account.len() != 12 || !account.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("an account has 12 digits, this one is {account}"));
    }
    Ok((arn.to_owned(), (!region.is_empty()).then(|| region.to_owned())))
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(allowed)
}

const FORM: &str = "must be arn:aws:kinesis:REGION:ACCOUNT:stream/NAME";
