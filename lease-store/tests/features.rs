//! Without the feature for a URL's store, the error names the feature.
#![cfg(not(feature = "redis"))]

use std::error::Error;

#[tokio::test]
async fn error_names_the_feature_that_is_off() {
    let error = lease_store::connect("redis://user:s3cret@host").await.unwrap_err();

    let text = error.source().unwrap().to_string();
    assert!(text.contains("needs the feature redis of lease-store"), "{text}");
    assert!(text.contains("redis (feature redis)") && !text.contains("s3cret"), "{text}");
}
