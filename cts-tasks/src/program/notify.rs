//! Tells the service manager that the daemon is ready, alive and stopping: the words of systemd's
//! `NOTIFY_SOCKET` that a daemon needs. Without the variable nothing is sent.

use std::{
    convert::Infallible,
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

use crate::Stop;

/// The service manager that started the process, if one asks for notifications.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Longest time between two signs of life.
    watchdog: Option<Duration>,
}

impl Manager {
    /// Reads `NOTIFY_SOCKET`, and `WATCHDOG_USEC` where it is meant for this process.
    pub(crate) fn from_env() -> Self {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let ours = env::var("WATCHDOG_PID").map_or(true, |id| id == std::process::id().to_string());
        let usec = env::var("WATCHDOG_USEC").ok().filter(|_| ours);
        let watchdog = usec.and_then(|text| text.parse().ok()).map(Duration::from_micros);
        match open(&name) {
            Ok(socket) => Self { socket: Some(socket), watchdog },
            Err(error) => {
                tracing::warn!(%error, "the service manager cannot be notified of the daemon's state");
                Self::default()
            }
        }
    }

    /// Waits for `ready`, says so, and gives signs of life from then on; says when the stop comes,
    /// and goes on with the signs, since work that ends may take long.
    pub(crate) async fn attend(&self, ready: impl Future<Output = ()>, stop: &Stop) -> Infallible {
        ready.await;
        self.tell("READY=1");
        let stopping = async {
            stop.stopped().await;
            self.tell("STOPPING=1");
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            never = stopping => never,
            never = self.live() => never,
        }
    }

    async fn live(&self) -> Infallible {
        // Twice as often as it has to be, so that one that is late ends nothing.
        let Some(pace) = self.watchdog.map(|limit| limit / 2).filter(|pace| !pace.is_zero()) else {
            return std::future::pending().await;
        };
        loop {
            self.tell("WATCHDOG=1");
            tokio::time::sleep(pace).await;
        }
    }

    fn tell(&self, state: &str) {
        let Some((socket, manager)) = &self.socket else { return };
        // A manager that does not read must not hold the daemon up: the socket does not block.
        if let Err(error) = socket.send_to_addr(state.as_bytes(), manager) {
            tracing::debug!(%error, state, "the service manager was not told");
        }
    }
}

/// A name that begins with `@` is an abstract one.
fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, manager))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StopReason;

    fn said(manager: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[tokio::test]
    async fn the_manager_is_told_of_readiness_life_and_stop() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notify = Manager {
            socket: Some(open(path.as_os_str()).unwrap()),
            watchdog: Some(Duration::from_millis(20)),
        };
        let (stop, asked) = (Stop::new(), tokio_util::sync::CancellationToken::new());
        let (ended, ready) = (stop.clone(), asked.clone());
        let attending = tokio::spawn(async move { notify.attend(ready.cancelled(), &ended).await });
        manager.set_nonblocking(true).unwrap();
        assert!(manager.recv(&mut [0; 64]).is_err(), "it is not ready yet");
        manager.set_nonblocking(false).unwrap();

        asked.cancel();
        let listening = tokio::task::spawn_blocking(move || {
            assert_eq!(said(&manager), "READY=1");
            assert_eq!(said(&manager), "WATCHDOG=1");
            assert_eq!(said(&manager), "WATCHDOG=1");
            stop.stop(StopReason::Shutdown);
            while said(&manager) != "STOPPING=1" {}
            assert_eq!(said(&manager), "WATCHDOG=1");
        });
        listening.await.unwrap();
        attending.abort();
    }

    #[test]
    fn an_abstract_name_is_reached() {
        let name = format!("cts-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let socket = Some(open(OsStr::new(&format!("@{name}"))).unwrap());
        Manager { socket, watchdog: None }.tell("READY=1");
        assert_eq!(said(&manager), "READY=1");
    }
}
