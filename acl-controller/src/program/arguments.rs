//! The flags of the early versions, from before the controller had a configuration.

use std::ffi::OsString;

use ecs_mesh_init::config::LogLevel;

/// The flags after a controller's name. They have one dash or two; their value
/// follows or stands behind `=`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// Of consul-ecs 0.2 to 0.4.
    pub(super) client_secret: Option<String>,
    /// Of consul-ecs 0.2 to 0.4.
    pub(super) secret_prefix: Option<String>,
    /// Tokens as of consul-ecs 0.2 and 0.3. Not a flag of upstream's.
    pub(super) service_identities: bool,
    /// Of consul-ecs 0.5 and 0.6.
    pub(super) iam_role_path: Option<String>,
    pub(super) partition: Option<String>,
    pub(super) partitions_enabled: bool,
    pub(super) log_level: LogLevel,
}

impl Flags {
    pub(super) fn parse(arguments: &[OsString]) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut rest = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
        while let Some(argument) = rest.next() {
            let flag = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
            let Some(flag) = flag.filter(|flag| !flag.is_empty()) else {
                return Err(format!("unexpected argument: {argument}"));
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let switch = match name {
                "partitions-enabled" => Some(&mut flags.partitions_enabled),
                "service-identities" => Some(&mut flags.service_identities),
                _ => None,
            };
            if let Some(switch) = switch {
                let text = value.as_deref().unwrap_or("true");
                let bad = |_| format!("invalid boolean value {text:?} for flag -{name}");
                *switch = text.to_ascii_lowercase().parse().map_err(bad)?;
                continue;
            }
            let missing = || format!("flag needs an argument: -{name}");
            let mut value = || value.clone().or_else(|| rest.next()).ok_or_else(missing);
            match name {
                "consul-client-secret-arn" => flags.client_secret = Some(value()?),
                "secret-name-prefix" => flags.secret_prefix = Some(value()?),
                "iam-role-path" => flags.iam_role_path = Some(value()?),
                "partition" => flags.partition = Some(value()?),
                "log-level" => flags.log_level = log_level(&value()?)?,
                _ => return Err(format!("flag provided but not defined: -{name}")),
            }
        }
        flags.of_one_generation()
    }

    /// Flags of the early generation and of the later one are not for one controller.
    fn of_one_generation(self) -> Result<Self, String> {
        if self.iam_role_path.is_some() && self.keeps_secrets() {
            return Err("-iam-role-path cannot be used with -secret-name-prefix or \
                 -consul-client-secret-arn: tokens come from logins or stand in secrets"
                .to_owned());
        }
        if self.service_identities && !self.keeps_secrets() {
            return Err("-service-identities needs -secret-name-prefix".to_owned());
        }
        if self.client_secret.is_some() && self.secret_prefix.is_none() {
            return Err("-consul-client-secret-arn needs -secret-name-prefix".to_owned());
        }
        Ok(self)
    }

    /// Returns `true` if tokens are made for services and kept in secrets.
    pub(super) fn keeps_secrets(&self) -> bool {
        self.secret_prefix.is_some() || self.client_secret.is_some()
    }
}

fn log_level(text: &str) -> Result<LogLevel, String> {
    let levels =
        [LogLevel::Trace, LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error];
    let level = levels.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(text));
    level.ok_or_else(|| format!("invalid value {text:?} for flag -log-level"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Flags, String> {
        Flags::parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn flags_of_upstream_are_read() {
        let arn = "arn:aws:secretsmanager:eu-central-1:1:secret:prod-client";
        let early =
            parse(&["-consul-client-secret-arn", arn, "--secret-name-prefix=prod"]).unwrap();
        assert_eq!(early.client_secret.as_deref(), Some(arn));
        assert_eq!(early.secret_prefix.as_deref(), Some("prod"));
        assert!(early.keeps_secrets() && !early.partitions_enabled);
        let arguments =
            ["-iam-role-path", "/x/", "-partition", "p", "-partitions-enabled", "-log-level=trace"];
        let later = parse(&arguments).unwrap();
        assert_eq!(later.iam_role_path.as_deref(), Some("/x/"));
        assert_eq!((later.partition.as_deref(), later.partitions_enabled), (Some("p"), true));
        assert_eq!((later.log_level, later.keeps_secrets()), (LogLevel::Trace, false));
        assert!(!parse(&["-partitions-enabled=FALSE"]).unwrap().partitions_enabled);
        assert_eq!(parse(&[]).unwrap(), Flags::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |arguments: &[&str]| parse(arguments).unwrap_err();
        assert_eq!(error(&["x"]), "unexpected argument: x");
        assert_eq!(error(&["-x"]), "flag provided but not defined: -x");
        assert_eq!(error(&["-partition"]), "flag needs an argument: -partition");
        assert_eq!(
            error(&["-partitions-enabled=maybe"]),
            r#"invalid boolean value "maybe" for flag -partitions-enabled"#
        );
        assert_eq!(error(&["-log-level", "loud"]), r#"invalid value "loud" for flag -log-level"#);
        assert!(error(&["-iam-role-path=/", "-secret-name-prefix=x"]).contains("cannot be used"));
        assert!(error(&["-service-identities"]).contains("needs -secret-name-prefix"));
        assert!(error(&["-consul-client-secret-arn=x"]).contains("needs -secret-name-prefix"));
    }
}
