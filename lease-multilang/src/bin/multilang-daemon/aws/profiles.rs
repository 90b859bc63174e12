//! The profile files of the AWS SDK.

#[cfg(feature = "aws")]
use aws_config::profile::{ProfileFileLoadError, ProfileSet};

#[cfg(feature = "aws")]
use crate::failure::Failure;

/// Fails if no profile file has the profile in `AWS_PROFILE`. The SDK would only report missing credentials.
#[cfg(feature = "aws")]
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

/// Returns the end of an error message. The text is empty if the files are readable.
///
/// The SDK ignores files that it cannot read, and does not report the reason.
#[cfg(feature = "aws")]
pub(crate) async fn unreadable() -> String {
    let Some(error) = profiles().await.err() else { return String::new() };
    let failure = Failure::other(error).to_string();
    // An error of this program has one line.
    let reason = failure.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    format!("; no profile was read: {reason}")
}

#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "async with the feature `aws`")]
pub(crate) async fn unreadable() -> String {
    String::new()
}

#[cfg(feature = "aws")]
async fn profiles() -> Result<ProfileSet, ProfileFileLoadError> {
    #[expect(clippy::default_trait_access, reason = "the SDK does not export these types")]
    let (disk, environment, files) = (Default::default(), Default::default(), Default::default());
    aws_config::profile::load(&disk, &environment, &files, None).await
}
