//! A health check for images without tools: can a port be connected to?

use std::time::Duration;

use tokio::{net::TcpStream, time::timeout};

use crate::{Error, Result};

const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The exit code of `net-dial` with these arguments: 0 when it connected, 2 when not.
///
/// # Errors
///
/// [`Error::Input`] unless there is exactly one argument; the exit code is 1 then.
///
/// Source: consul-ecs 0.10 `subcommand/net-dial/command.go`. Deviation: a connection that hangs is
/// given up after 5 s, which is the health check's own limit.
pub async fn net_dial(arguments: &[String]) -> Result<u8> {
    let [address] = arguments else {
        return Err(Error::input(
            "invalid invocation, expected one positional argument: <host>:<port>",
        ));
    };
    match timeout(TIME_LIMIT, TcpStream::connect(address.as_str())).await {
        Ok(Ok(_connection)) => Ok(0),
        Ok(Err(error)) => {
            tracing::error!("cannot connect to {address}: {error}");
            Ok(2)
        }
        Err(_elapsed) => {
            tracing::error!("cannot connect to {address} within {} s", TIME_LIMIT.as_secs());
            Ok(2)
        }
    }
}
