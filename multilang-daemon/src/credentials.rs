//! Who the daemon is to AWS.

use crate::properties::Properties;

/// Checks that a way to credentials is named, and is one that there is here: for all of them it is
/// the SDK's own search, which has them all.
pub(crate) fn check(file: &mut Properties) {
    let Some(named) = file.text("awsCredentialsProvider") else {
        let reason = "how credentials are found, such as DefaultCredentialsProvider";
        return file.is_wrong(format!("AwsCredentialsProvider is missing: {reason}"));
    };
    let is_known = |name: &str| {
        let name = name.trim().trim_end_matches("()");
        let name = name.rsplit('.').next().unwrap_or(name);
        KNOWN.contains(&name)
    };
    // Java tries several in turn, separated by commas.
    if !named.split(',').all(is_known) {
        let reason = if named.contains('|') {
            "a role is assumed where a profile, or AWS_ROLE_ARN with a web identity, says so; \
             name DefaultCredentialsProvider here"
        } else {
            "it is DefaultCredentialsProvider, or another of the SDK's own; all mean the SDK's \
             default search"
        };
        file.is_wrong(format!("awsCredentialsProvider = {named}: {reason}"));
    }
}

/// Of both versions of the SDK for Java.
const KNOWN: [&str; 14] = [
    "AwsCredentialsProviderChain",
    "ContainerCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "DefaultCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "EnvironmentVariableCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ProcessCredentialsProvider",
    "ProfileCredentialsProvider",
    "StsWebIdentityTokenFileCredentialsProvider",
    "SystemPropertiesCredentialsProvider",
    "SystemPropertyCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
];
