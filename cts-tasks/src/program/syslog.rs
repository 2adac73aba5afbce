//! Writes log lines to the system's log, through its local socket.

use std::{
    io::{self, Write},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, PoisonError},
};

use crate::config::SyslogConfig;
use chrono::Local;
use tracing_subscriber::fmt::MakeWriter;

/// Sockets on which a system's log listens.
const SOCKETS: [&str; 3] = ["/dev/log", "/var/run/syslog", "/var/run/log"];

/// The severity `NOTICE`, which every line has.
///
/// Source: Consul-Terraform-Sync 0.9, `logging/logging.go`.
const NOTICE: u8 = 5;

/// Limit of a message in bytes; longer ones are cut, because a daemon refuses or
/// cuts them itself.
const MAX_MESSAGE: usize = 8 * 1024;

/// The system's log. One datagram for each line, as in RFC 3164 on a local
/// socket: no host name. Clones share one socket.
///
/// A line that the daemon has no room for is lost, rather than this process
/// held up; the log on the standard error output has it.
#[derive(Debug, Clone)]
pub(crate) struct Syslog {
    path: PathBuf,
    socket: Arc<Mutex<UnixDatagram>>,
    /// Facility and severity in one number.
    priority: u8,
    name: String,
}

impl Syslog {
    /// Opens the first socket that there is.
    pub(crate) fn open(config: &SyslogConfig) -> Result<Self, String> {
        Self::open_one_of(&SOCKETS.map(Path::new), config)
    }

    fn open_one_of(paths: &[&Path], config: &SyslogConfig) -> Result<Self, String> {
        let mut tried = Vec::new();
        for path in paths {
            match connect(path) {
                Ok(socket) => {
                    return Ok(Self {
                        path: path.to_path_buf(),
                        socket: Arc::new(Mutex::new(socket)),
                        priority: config.facility.code() * 8 + NOTICE,
                        name: config.name.clone(),
                    });
                }
                Err(error) => tried.push(format!("{}: {error}", path.display())),
            }
        }
        Err(format!(
            "error setting up syslog logging: no system log answers ({}); \
             start one, or remove the syslog block",
            tried.join(", ")
        ))
    }

    fn send(&self, line: &str) -> io::Result<()> {
        let time = Local::now().format("%b %e %H:%M:%S");
        let end = line.floor_char_boundary(MAX_MESSAGE);
        let line = line.get(..end).unwrap_or(line);
        let message = format!("<{}>{time} {}[{}]: {line}", self.priority, self.name, process::id());
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        match socket.send(message.as_bytes()) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            // The daemon was started again behind the same path.
            Err(_) => {
                *socket = connect(&self.path)?;
                socket.send(message.as_bytes()).map(drop)
            }
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(path)?;
    Ok(socket)
}

impl Write for Syslog {
    /// Takes whole events: the subscriber writes each in one call.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        for line in text.lines().filter(|line| !line.is_empty()) {
            self.send(line)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::program::log_format::LogFormat;

    fn config(facility: &str, name: &str) -> SyslogConfig {
        SyslogConfig { facility: facility.parse().unwrap(), name: name.to_owned() }
    }

    fn daemon(path: &Path) -> UnixDatagram {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    }

    fn received(daemon: &UnixDatagram) -> String {
        let mut buffer = vec![0; 64 * 1024];
        let length = daemon.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn each_line_is_a_message_of_the_facility_and_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = daemon(&path);
        let nowhere = folder.path().join("none");
        let syslog = Syslog::open_one_of(&[&nowhere, &path], &config("local2", "sync")).unwrap();
        let layer =
            tracing_subscriber::fmt::layer().event_format(LogFormat::Hclog).with_writer(syslog);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::error!(target: "cts_tasks::engine", { plan = "a\nb" }, "sorry");
        });
        // LOCAL2 is 18, NOTICE is 5.
        let message = received(&daemon);
        let tag = format!(" sync[{}]: ", process::id());
        let (time, line) = message.strip_prefix("<149>").unwrap().split_once(&tag).unwrap();
        assert!(
            chrono::NaiveDateTime::parse_from_str(&format!("2026 {time}"), "%Y %b %e %H:%M:%S")
                .is_ok(),
            "{time}"
        );
        assert!(line.ends_with("[ERROR] tasksmanager: sorry:"), "{line}");
        assert!(received(&daemon).ends_with("  plan="));
        assert!(received(&daemon).ends_with("  | a"));
        assert!(received(&daemon).ends_with("  | b"));
    }

    #[test]
    fn a_daemon_that_was_started_anew_gets_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let first = daemon(&path);
        let mut syslog = Syslog::open_one_of(&[&path], &config("DAEMON", "sync")).unwrap();
        syslog.write_all(b"one\n").unwrap();
        assert!(received(&first).ends_with("one"));
        drop(first);
        std::fs::remove_file(&path).unwrap();
        let second = daemon(&path);
        syslog.write_all(b"two\n").unwrap();
        assert!(received(&second).ends_with("two"));
    }

    #[test]
    fn a_daemon_that_reads_nothing_does_not_hold_the_process_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let _daemon = daemon(&path);
        let mut syslog = Syslog::open_one_of(&[&path], &config("USER", "sync")).unwrap();
        for _ in 0..10_000 {
            syslog.write_all(b"a line\n").unwrap();
        }
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = daemon(&path);
        let mut syslog = Syslog::open_one_of(&[&path], &config("USER", "sync")).unwrap();
        syslog.write_all("ä".repeat(MAX_MESSAGE).as_bytes()).unwrap();
        let message = received(&daemon);
        assert!(message.len() <= MAX_MESSAGE + 100, "{}", message.len());
    }

    #[test]
    fn a_missing_system_log_is_told_with_where_it_was_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let error = Syslog::open_one_of(&[&path], &config("USER", "sync")).unwrap_err();
        assert!(error.contains(&path.display().to_string()), "{error}");
        assert!(error.contains("remove the syslog block"), "{error}");
    }
}
