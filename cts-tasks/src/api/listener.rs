//! The sockets that the API listens on.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use nix::{
    errno::Errno,
    sys::socket::{setsockopt, sockopt::Ipv6V6Only},
};
use tokio::net::{TcpListener, TcpSocket};

/// Number of connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Takes a port on every interface, for IPv6 and IPv4; for IPv4 alone on a
/// machine without IPv6.
pub(super) fn everywhere(port: u16) -> io::Result<TcpListener> {
    match at((Ipv6Addr::UNSPECIFIED, port).into()) {
        Err(error) if has_no_ipv6(&error) => at((Ipv4Addr::UNSPECIFIED, port).into()),
        listening => listening,
    }
}

/// Takes an address; the unspecified one of IPv6 takes IPv4, too.
pub(super) fn at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if address.is_ipv6() {
        setsockopt(&socket, Ipv6V6Only, &!address.ip().is_unspecified())?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn has_no_ipv6(error: &io::Error) -> bool {
    let without = [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL, Errno::EPROTONOSUPPORT];
    error.raw_os_error().is_some_and(|code| without.contains(&Errno::from_raw(code)))
}
