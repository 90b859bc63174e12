//! The arguments of `lease shards`.

use clap::Args;

/// Whose shards to list, and how to ask Kinesis for their lag.
#[derive(Debug, Args)]
pub(crate) struct ShardsArguments {
    /// The name of the application, as its workers have it.
    pub(crate) application: String,
    /// The stream of the application, by name or ARN. Kinesis tells how far each shard is behind. An application with
    /// several streams needs no name here: its records have them.
    #[cfg(feature = "kinesis")]
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<String>,
    /// The region of the stream. By default, that of the environment.
    #[cfg(feature = "kinesis")]
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// Another server than AWS, such as `http://localhost:4567`.
    #[cfg(feature = "kinesis")]
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
}
