//! Who the daemon is to AWS.

#[cfg(feature = "aws")]
use aws_config::profile::{ProfileFileLoadError, ProfileSet};

#[cfg(feature = "aws")]
use crate::failure::Failure;
use crate::properties::Properties;

/// Checks that the named providers of credentials exist here: for each of them, the daemon uses the
/// SDK's own search, which has them all. It has one identity for both services, so those of the table
/// must be the same.
pub(crate) fn check(file: &mut Properties) {
    let of_table = file.text("awsCredentialsProviderDynamoDB");
    let Some(named) = file.text("awsCredentialsProvider") else {
        let reason = "how credentials are found, such as DefaultCredentialsProvider";
        return file.is_wrong(format!("AwsCredentialsProvider is missing: {reason}"));
    };
    // Java tries several in turn, separated by commas.
    for provider in named.split(',') {
        // What follows a bar is for its constructor, and may be a secret.
        let (name, given) = match provider.trim().split_once('|') {
            Some((name, _)) => (name, Given::Values),
            None => (provider.trim(), Given::Nothing),
        };
        if let Some(reason) = refusal(name, given) {
            file.is_wrong(format!("awsCredentialsProvider = {name}: {reason}"));
        }
    }
    if of_table.is_some_and(|of_table| classes(&of_table) != classes(&named)) {
        file.is_wrong(
            "awsCredentialsProviderDynamoDB is not AwsCredentialsProvider: one identity serves \
             Kinesis and DynamoDB here, so another table would be used; use an identity that may \
             do both, and delete the line"
                .to_owned(),
        );
    }
}

/// The classes that `named` lists, without their packages.
fn classes(named: &str) -> Vec<&str> {
    named
        .split(',')
        .map(|provider| {
            let class = provider.trim().trim_end_matches("()");
            match class.rsplit('.').next().unwrap_or(class) {
                // The name of the same search in version 1 of the SDK for Java.
                "DefaultAWSCredentialsProviderChain" => "DefaultCredentialsProvider",
                class => class,
            }
        })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    Nothing,
    Values,
}

/// Why there is no such provider here, and what to do; `None` where there is one.
fn refusal(name: &str, given: Given) -> Option<&'static str> {
    // With the package that it is in, or without.
    let class = name.trim().trim_end_matches("()");
    let class = class.rsplit('.').next().unwrap_or(class);
    Some(match class {
        _ if KNOWN.contains(&class) && given == Given::Nothing => return None,
        "ProcessCredentialsProvider" => {
            "its command stands in a profile, as credential_process; name \
             ProfileCredentialsProvider here"
        }
        "SystemPropertiesCredentialsProvider" | "SystemPropertyCredentialsProvider" => {
            "properties of a JVM are not there without one; set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, and name EnvironmentVariableCredentialsProvider here"
        }
        "ProfileCredentialsProvider" => {
            "set AWS_PROFILE to the profile, and name ProfileCredentialsProvider alone"
        }
        _ if class.to_ascii_lowercase().starts_with("sts") => {
            "a role is assumed where a profile, or AWS_ROLE_ARN with a web identity, says so; name \
             DefaultCredentialsProvider here"
        }
        _ if KNOWN.contains(&class) => "it takes no values: name it alone",
        _ => {
            "it is DefaultCredentialsProvider, or another of the SDK's own; all mean the SDK's \
             default search"
        }
    })
}

/// Checks that the profile of the environment is there, where one is named: the SDK would search on
/// without it, and say in the end that it has found nothing.
///
/// # Errors
///
/// Where it is in none of the profile files.
#[cfg(feature = "aws")]
pub(crate) async fn profile_is_there() -> Result<(), Failure> {
    let Ok(profile) = std::env::var("AWS_PROFILE") else { return Ok(()) };
    match profiles().await {
        Ok(profiles) if !profile.is_empty() && profiles.get_profile(&profile).is_none() => {
            Err(Failure::usage(format!(
                "AWS_PROFILE = {profile}: there is no such profile, neither in ~/.aws/config (or \
                 AWS_CONFIG_FILE) nor in ~/.aws/credentials (or AWS_SHARED_CREDENTIALS_FILE)"
            )))
        }
        // The search may find some elsewhere.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Why the profile files cannot be read, where that is so: the SDK's search goes on without them, and
/// in the end says nothing of it.
#[cfg(feature = "aws")]
pub(crate) async fn why_no_profiles() -> Option<String> {
    let failure = Failure::other(profiles().await.err()?).to_string();
    // The SDK tells in lines of their own what is wrong.
    Some(failure.lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

#[cfg(feature = "aws")]
async fn profiles() -> Result<ProfileSet, ProfileFileLoadError> {
    #[expect(clippy::default_trait_access, reason = "these types have no names of the SDK's own")]
    let (disk, environment, files) = (Default::default(), Default::default(), Default::default());
    aws_config::profile::load(&disk, &environment, &files, None).await
}

/// Of both versions of the SDK for Java.
const KNOWN: [&str; 11] = [
    "AwsCredentialsProviderChain",
    "ContainerCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "DefaultCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "EnvironmentVariableCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ProfileCredentialsProvider",
    "StsWebIdentityTokenFileCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of a file whose only key names `provider`.
    fn told(provider: &str) -> String {
        let text = format!("AwsCredentialsProvider = {provider}");
        let mut file = Properties::parse("test".into(), text.as_bytes()).unwrap();
        check(&mut file);
        file.end().map_or_else(|failure| failure.to_string(), |_ignored| String::new())
    }

    #[test]
    fn what_the_sdk_searches_is_accepted_by_its_name_in_java() {
        for provider in [
            "DefaultCredentialsProvider",
            "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
            "EnvironmentVariableCredentialsProvider(), InstanceProfileCredentialsProvider",
        ] {
            assert_eq!(told(provider), "", "{provider}");
        }
    }

    #[test]
    fn what_there_is_not_is_refused_by_its_name_and_it_is_told_what_to_do() {
        for (provider, reason) in [
            ("ProcessCredentialsProvider", "as credential_process"),
            ("SystemPropertyCredentialsProvider", "set AWS_ACCESS_KEY_ID"),
            ("EnvironmentVariableCredentialsProvider, SystemPropertiesCredentialsProvider", "JVM"),
            ("ProfileCredentialsProvider|orders", "set AWS_PROFILE"),
            ("StsAssumeRoleCredentialsProvider|arn:aws:iam::1:role/r|s", "a role is assumed"),
            ("InstanceProfileCredentialsProvider|x", "it takes no values"),
            ("Mine", "awsCredentialsProvider = Mine: it is DefaultCredentialsProvider, or"),
        ] {
            assert!(told(provider).contains(reason), "{provider}: {}", told(provider));
        }
    }

    #[test]
    fn provider_for_the_table_must_be_the_one_for_the_stream() {
        let told = |of_table: &str| {
            told(&format!(
                "DefaultCredentialsProvider\nAwsCredentialsProviderDynamoDB = {of_table}"
            ))
        };

        assert_eq!(told("DefaultAWSCredentialsProviderChain"), "");
        assert_eq!(told("software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"), "");
        for other in ["ProfileCredentialsProvider", "StsAssumeRoleCredentialsProvider|arn|secret"] {
            assert!(told(other).contains("awsCredentialsProviderDynamoDB is not"), "{other}");
            assert!(!told(other).contains("secret"), "{}", told(other));
        }
    }

    #[test]
    fn what_a_provider_is_given_is_not_told_on() {
        assert!(!told("StaticCredentialsProvider|AKIA|secret").contains("secret"));
    }
}
