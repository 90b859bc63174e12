//! The properties that select credentials.

use super::properties::Properties;

/// The daemon always uses the SDK's default search, which includes all supported providers. Both services use
/// one identity.
pub(crate) fn check(file: &mut Properties) {
    let of_table = file.text("awsCredentialsProviderDynamoDB");
    let Some(named) = file.text("awsCredentialsProvider") else {
        let reason = "the provider of credentials, such as DefaultCredentialsProvider";
        return file.record_error(format!("AwsCredentialsProvider is missing: {reason}"));
    };
    // As in Java, commas may separate several providers.
    for provider in named.split(',') {
        // The text after a bar may be secret, so no error has this text.
        let (name, given) = match provider.trim().split_once('|') {
            Some((name, _)) => (name, Given::Values),
            None => (provider.trim(), Given::Nothing),
        };
        if let Some(reason) = refusal(name, given) {
            file.record_error(format!("awsCredentialsProvider = {name}: {reason}"));
        }
    }
    if of_table.is_some_and(|of_table| classes(&of_table) != classes(&named)) {
        file.record_error(
            "awsCredentialsProviderDynamoDB is not AwsCredentialsProvider: one identity serves \
             Kinesis and DynamoDB here, so the table could be in another account; use an identity \
             that has access to both, and delete the line"
                .to_owned(),
        );
    }
}

fn classes(named: &str) -> Vec<&str> {
    named
        .split(',')
        .map(|provider| {
            let class = provider.trim().trim_end_matches("()");
            match class.rsplit('.').next().unwrap_or(class) {
                // The same provider's name in version 1 of the SDK for Java.
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

/// Returns what to write instead of an unsupported provider.
fn refusal(name: &str, given: Given) -> Option<&'static str> {
    // The name may begin with the package of the class.
    let class = name.trim().trim_end_matches("()");
    let class = class.rsplit('.').next().unwrap_or(class);
    Some(match class {
        _ if KNOWN.contains(&class) && given == Given::Nothing => return None,
        "ProcessCredentialsProvider" => {
            "write its command into a profile as credential_process, and \
             ProfileCredentialsProvider here"
        }
        "SystemPropertiesCredentialsProvider" | "SystemPropertyCredentialsProvider" => {
            "this daemon has no JVM properties; set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, and write EnvironmentVariableCredentialsProvider here"
        }
        "ProfileCredentialsProvider" => {
            "set AWS_PROFILE to the profile, and write ProfileCredentialsProvider alone"
        }
        _ if class.to_ascii_lowercase().starts_with("sts") => {
            "set the role in a profile, or in AWS_ROLE_ARN with a web identity, and write \
             DefaultCredentialsProvider here"
        }
        _ if KNOWN.contains(&class) => "it takes no values here: write its name alone",
        _ => {
            "write DefaultCredentialsProvider or another provider of the SDK; each selects the \
             SDK's default search"
        }
    })
}

/// The names in both versions of the SDK for Java.
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

    fn errors(provider: &str) -> String {
        let text = format!("AwsCredentialsProvider = {provider}");
        let mut file = Properties::parse("test".into(), text.as_bytes()).unwrap();
        check(&mut file);
        file.end().map_or_else(|failure| failure.to_string(), |_ignored| String::new())
    }

    #[test]
    fn java_name_of_an_sdk_provider_is_accepted() {
        for provider in [
            "DefaultCredentialsProvider",
            "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
            "EnvironmentVariableCredentialsProvider(), InstanceProfileCredentialsProvider",
        ] {
            assert_eq!(errors(provider), "", "{provider}");
        }
    }

    #[test]
    fn unsupported_provider_is_refused_with_advice() {
        for (provider, reason) in [
            ("ProcessCredentialsProvider", "as credential_process"),
            ("SystemPropertyCredentialsProvider", "set AWS_ACCESS_KEY_ID"),
            ("EnvironmentVariableCredentialsProvider, SystemPropertiesCredentialsProvider", "JVM"),
            ("ProfileCredentialsProvider|orders", "set AWS_PROFILE"),
            (
                "StsAssumeRoleCredentialsProvider|arn:aws:iam::1:role/r|s",
                "set the role in a profile",
            ),
            ("InstanceProfileCredentialsProvider|x", "it takes no values"),
            ("Mine", "awsCredentialsProvider = Mine: write DefaultCredentialsProvider or"),
        ] {
            assert!(errors(provider).contains(reason), "{provider}: {}", errors(provider));
        }
    }

    #[test]
    fn other_provider_for_the_table_is_refused() {
        let errors_of = |of_table: &str| {
            errors(&format!(
                "DefaultCredentialsProvider\nAwsCredentialsProviderDynamoDB = {of_table}"
            ))
        };

        assert_eq!(errors_of("DefaultAWSCredentialsProviderChain"), "");
        assert_eq!(
            errors_of("software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"),
            ""
        );
        for other in ["ProfileCredentialsProvider", "StsAssumeRoleCredentialsProvider|arn|secret"] {
            assert!(errors_of(other).contains("awsCredentialsProviderDynamoDB is not"), "{other}");
            assert!(!errors_of(other).contains("secret"), "{}", errors_of(other));
        }
    }

    #[test]
    fn values_of_a_provider_are_not_printed() {
        assert!(!errors("StaticCredentialsProvider|AKIA|secret").contains("secret"));
    }
}
