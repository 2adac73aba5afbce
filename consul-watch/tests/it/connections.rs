//! Counts connections as the kernel has them.

use std::collections::HashSet;

/// How many connections to a port of 127.0.0.1 there surely are at one time.
///
/// The kernel's table changes while it is read: it shows rows twice, and a
/// connection that was closed beside the one that came after it. What both of two
/// readings show was open between them.
pub(crate) fn connections(port: u16) -> usize {
    established(port).intersection(&established(port)).count()
}

/// Established connections, each by the inode of its socket.
fn established(port: u16) -> HashSet<String> {
    let port = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let inode = |line: &str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [_, _, remote, state, _, _, _, _, _, inode, ..] = *columns else { return None };
        (remote == port && state == "01").then(|| inode.to_owned())
    };
    table.lines().filter_map(inode).collect()
}

#[test]
fn those_that_were_closed_are_not_counted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut all: Vec<_> = (0..5).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    assert_eq!(connections(address.port()), 5);
    all.truncate(2);
    assert_eq!(connections(address.port()), 2);
}
