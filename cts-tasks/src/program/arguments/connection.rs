//! Flags and environment variables with which a command reaches a running daemon.

use std::path::PathBuf;

use clap::ArgAction;

use super::go_bool;

/// Flags that say how to reach a running daemon; what is not given comes from the
/// environment.
#[expect(clippy::doc_markdown, reason = "the texts are shown as help")]
#[derive(Debug, Default, Clone, PartialEq, Eq, clap::Args)]
pub(crate) struct ConnectionFlags {
    /// The certificate authority that signed the daemon's certificate, as a PEM file. Counts
    /// before -ca-path. Environment: CTS_CACERT.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_cert: Option<PathBuf>,
    /// A directory of PEM files with certificate authorities. Environment: CTS_CAPATH.
    #[arg(long, value_name = "DIR")]
    pub(crate) ca_path: Option<PathBuf>,
    /// The certificate to show to a daemon that verifies its clients, as a PEM file. Needs
    /// -client-key. Environment: CTS_CLIENT_CERT.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_cert: Option<PathBuf>,
    /// The key of -client-cert, as a PEM file. Environment: CTS_CLIENT_KEY.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,
    /// The daemon's address, with http:// or https://; by default http://localhost:8558.
    /// Environment: CTS_ADDRESS.
    #[arg(long, value_name = "URL")]
    pub(crate) http_addr: Option<String>,
    /// Deprecated, use -http-addr: the port of the daemon's address.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Requires the daemon's certificate to be valid; by default true. Environment:
    /// CTS_SSL_VERIFY.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set, value_parser = go_bool)]
    pub(crate) ssl_verify: Option<bool>,
    /// A file that holds the token which the daemon wants, when it has an api_token_file.
    /// Environment: CTS_TOKEN_FILE, or CTS_TOKEN for the token itself.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}
