//! The profile files of the AWS SDK.

use aws_config::profile::{ProfileFileLoadError, ProfileSet};

use crate::failure::Failure;

/// Fails if no profile file has the profile in `AWS_PROFILE`. The SDK would only report missing credentials.
pub(crate) async fn check_profile() -> Result<(), Failure> {
    let Ok(profile) = std::env::var("AWS_PROFILE") else { return Ok(()) };
    match profiles().await {
        Ok(profiles) if !profile.is_empty() && profiles.get_profile(&profile).is_none() => {
            Err(Failure::usage(format!(
                "AWS_PROFILE = {profile}: there is no such profile, neither in ~/.aws/config (or \
                 AWS_CONFIG_FILE) nor in ~/.aws/credentials (or AWS_SHARED_CREDENTIALS_FILE)"
            )))
        }
        // The SDK may find credentials elsewhere.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The SDK ignores files that it cannot read, and does not report the reason.
pub(crate) async fn unreadable_reason() -> Option<String> {
    let failure = Failure::other(profiles().await.err()?).to_string();
    // An error of this program has one line.
    Some(failure.lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

async fn profiles() -> Result<ProfileSet, ProfileFileLoadError> {
    #[expect(clippy::default_trait_access, reason = "the SDK does not export these types")]
    let (disk, environment, files) = (Default::default(), Default::default(), Default::default());
    aws_config::profile::load(&disk, &environment, &files, None).await
}
