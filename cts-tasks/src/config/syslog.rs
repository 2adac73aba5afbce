use super::{client::set, raw::RawSyslog};

/// Where log lines also go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyslogConfig {
    /// The facility; default `LOCAL0`.
    pub facility: String,
    /// The program's name in syslog; default `consul-terraform-sync`.
    pub name: String,
}

impl Default for SyslogConfig {
    fn default() -> Self {
        Self { facility: "LOCAL0".to_owned(), name: "consul-terraform-sync".to_owned() }
    }
}

/// Applies defaults; `None` if syslog is off, which it is unless the block
/// enables it, or sets a facility or a name.
pub(super) fn finalize(raw: Option<&RawSyslog>) -> Option<SyslogConfig> {
    let raw = raw?;
    let given = raw.facility.is_some() || raw.name.is_some();
    let enabled = raw.enabled.as_ref().map_or(given, |enabled| enabled.value);
    let mut syslog = SyslogConfig::default();
    set(&mut syslog.facility, raw.facility.as_ref());
    set(&mut syslog.name, raw.name.as_ref());
    enabled.then_some(syslog)
}
