//! The arguments of `lease serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lease_core::LeaseKey;

use super::ShardsArguments;
use super::values::interval;

/// What to serve, where, and to whom.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Shows and changes only leases and jobs whose keys start with PREFIX.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// The address to listen on. Other machines reach the page only if this is an address that they reach. Everyone
    /// who reaches the page can read it.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    /// A further name of the page, as behind a reverse proxy: `leases.example.com`, with the port if the browser shows
    /// one. Requests for other names are refused. May be repeated.
    #[arg(long = "host", value_name = "NAME[:PORT]")]
    pub(crate) hosts: Vec<String>,
    /// Lets the page evict holders, pause, resume and trigger jobs, and turn switches on and off. Each change needs the
    /// token, and is logged on stderr.
    ///
    /// The token is read from --token-file, or from the environment variable `LEASE_SERVE_TOKEN`. Otherwise, it is
    /// random, and a part of the URL that is printed.
    #[arg(long)]
    pub(crate) allow_changes: bool,
    /// A file with the token, at least 16 characters.
    #[arg(long, value_name = "FILE", requires = "allow_changes")]
    pub(crate) token_file: Option<PathBuf>,
    /// How often the store is read while a browser shows the page.
    #[arg(long, value_parser = interval, default_value = "500ms", value_name = "DURATION")]
    pub(crate) interval: Duration,
    /// Shows the switch on this key, too. A switch turns the work of a fleet on or off (`TableSwitch`). May be repeated.
    #[arg(long = "switch", value_name = "KEY")]
    pub(crate) switches: Vec<LeaseKey>,
    /// Shows the shards of this application of lease-kinesis, too.
    #[arg(long, value_name = "NAME")]
    pub(crate) application: Option<String>,
    /// The stream of the application, by name or ARN, for the lag.
    #[cfg(feature = "kinesis")]
    #[arg(long, value_name = "STREAM", requires = "application")]
    pub(crate) stream: Option<String>,
    /// The region of the stream. By default, that of the environment.
    #[cfg(feature = "kinesis")]
    #[arg(long, value_name = "REGION", requires = "application")]
    pub(crate) region: Option<String>,
    /// Another server than AWS, such as `http://localhost:4567`.
    #[cfg(feature = "kinesis")]
    #[arg(long, value_name = "URL", requires = "application")]
    pub(crate) endpoint: Option<String>,
}

impl ServeArguments {
    /// Whose shards to show, and how to ask Kinesis for their lag.
    pub(crate) fn of_shards(self) -> Option<ShardsArguments> {
        Some(ShardsArguments {
            application: self.application?,
            #[cfg(feature = "kinesis")]
            stream: self.stream,
            #[cfg(feature = "kinesis")]
            region: self.region,
            #[cfg(feature = "kinesis")]
            endpoint: self.endpoint,
        })
    }
}
