//! A health check for images without tools: tests whether a port accepts connections.

use std::time::Duration;

use tokio::{net::TcpStream, time::timeout};

use crate::{Error, Result};

const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Runs `net-dial` and returns its exit code: 0 if it connected, 2 if not.
///
/// # Errors
///
/// [`Error::Input`] unless there is exactly one argument; the program then exits with 1.
///
/// Source: consul-ecs 0.10 `subcommand/net-dial/command.go`.
///
/// Deviation: a connection that hangs is abandoned after 5 s, the limit of the health check itself.
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
