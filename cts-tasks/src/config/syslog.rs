//! The block `syslog`.

use std::{fmt, str::FromStr};

use super::{client::set, decode::Findings, raw::RawSyslog};
use crate::Diagnostic;

/// Settings of syslog as a second destination of log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyslogConfig {
    /// The facility; default `LOCAL0`.
    pub facility: SyslogFacility,
    /// The program's name in syslog; default `consul-terraform-sync`.
    pub name: String,
}

impl Default for SyslogConfig {
    fn default() -> Self {
        Self { facility: SyslogFacility(16), name: "consul-terraform-sync".to_owned() }
    }
}

/// The facility of a log line: syslog's name for the part of a system that it comes
/// from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SyslogFacility(u8);

/// A text that names no [`SyslogFacility`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid syslog facility: {0}")]
pub struct InvalidSyslogFacility(String);

/// The names, at the places of their codes.
///
/// Source: RFC 3164, section 4.1.1, and the names of POSIX systems.
const FACILITIES: [&str; 24] = [
    "KERN", "USER", "MAIL", "DAEMON", "AUTH", "SYSLOG", "LPR", "NEWS", "UUCP", "CRON", "AUTHPRIV",
    "FTP", "NTP", "SECURITY", "CONSOLE", "CLOCK", "LOCAL0", "LOCAL1", "LOCAL2", "LOCAL3", "LOCAL4",
    "LOCAL5", "LOCAL6", "LOCAL7",
];

impl SyslogFacility {
    /// The facility's number, from 0 to 23.
    pub fn code(self) -> u8 {
        self.0
    }
}

impl FromStr for SyslogFacility {
    type Err = InvalidSyslogFacility;

    /// Reads a name in upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let code = (0..).zip(FACILITIES).find(|(_, name)| name.eq_ignore_ascii_case(text));
        code.map(|(code, _)| Self(code)).ok_or_else(|| InvalidSyslogFacility(text.to_owned()))
    }
}

impl fmt::Display for SyslogFacility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FACILITIES.get(usize::from(self.0)).copied().unwrap_or_default())
    }
}

/// Applies defaults; `None` if syslog is off, which it is unless the block
/// enables it, or sets a facility or a name.
pub(super) fn finalize(raw: Option<&RawSyslog>, findings: &mut Findings) -> Option<SyslogConfig> {
    let raw = raw?;
    let given = raw.facility.is_some() || raw.name.is_some();
    let enabled = raw.enabled.as_ref().map_or(given, |enabled| enabled.value);
    let mut syslog = SyslogConfig::default();
    if let Some(facility) = &raw.facility {
        match facility.value.parse() {
            Ok(facility) => syslog.facility = facility,
            Err(error) => {
                let names = FACILITIES.join(" ");
                findings.errors.push(
                    Diagnostic::error(error.to_string())
                        .at(facility.place.clone())
                        .help(format!("one of {names}")),
                );
            }
        }
    }
    set(&mut syslog.name, raw.name.as_ref());
    enabled.then_some(syslog)
}
