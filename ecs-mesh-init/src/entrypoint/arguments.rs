//! The command line of the entrypoints: flags of ours, then the command to run.

use std::{ffi::OsString, time::Duration};

use consul_watch::GoDuration;

use crate::{Error, Result, config::LogLevel};

/// Arguments of an entrypoint: flags of ours, then the command to run.
///
/// Flags begin with one dash or two; the value follows, or stands behind `=`. They end at the first
/// argument that is no flag, or at `--`; the rest is the command.
///
/// ```
/// use ecs_mesh_init::entrypoint::Arguments;
///
/// let arguments = Arguments::parse(["-shutdown-delay", "10s", "app", "--shutdown-delay"].map(Into::into))?;
/// assert_eq!(arguments.shutdown_delay.as_secs(), 10);
/// assert_eq!(arguments.command, ["app", "--shutdown-delay"]);
/// # Ok::<(), ecs_mesh_init::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Arguments {
    /// `-log-level`. Default `INFO`.
    pub log_level: LogLevel,
    /// `-shutdown-delay`. Default zero.
    pub shutdown_delay: Duration,
    /// The command.
    pub command: Vec<OsString>,
}

impl Arguments {
    /// Parses the arguments behind the subcommand.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for an unknown flag or a bad value, and without a command.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut parsed = Self::default();
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            // Flags are ASCII; the command's own words stay as they are, in any encoding.
            let text = argument.to_string_lossy().into_owned();
            if text == "--" {
                break;
            }
            let flag = text.strip_prefix("--").or_else(|| text.strip_prefix('-'));
            let Some(flag) = flag.filter(|flag| !flag.is_empty()) else {
                parsed.command.push(argument);
                break;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            if !["log-level", "shutdown-delay"].contains(&name) {
                return Err(Error::input(format!("flag provided but not defined: -{name}")));
            }
            let value =
                value.or_else(|| rest.next().map(|next| next.to_string_lossy().into_owned()));
            let value =
                value.ok_or_else(|| Error::input(format!("flag needs an argument: -{name}")))?;
            parsed.set(name, &value)?;
        }
        parsed.command.extend(rest);
        if parsed.command.is_empty() {
            return Err(Error::input("command is required"));
        }
        Ok(parsed)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let bad = || Error::input(format!("invalid value {value:?} for flag -{name}"));
        if name == "shutdown-delay" {
            // A negative delay counts as none; upstream accepts it.
            let length = value.strip_prefix('-');
            let delay = length.unwrap_or(value).parse::<GoDuration>().map_err(|_error| bad())?;
            self.shutdown_delay = if length.is_some() { Duration::ZERO } else { delay.get() };
        } else {
            // An unknown level means the default; upstream accepts any word.
            let levels =
                [LogLevel::Trace, LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error];
            let level = levels.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(value));
            self.log_level = level.unwrap_or_default();
        }
        Ok(())
    }
}

/// Checks that a command without arguments was given none.
///
/// # Errors
///
/// [`Error::Input`] that names the first one.
pub fn no_arguments(arguments: &[String]) -> Result<()> {
    match arguments.first() {
        None => Ok(()),
        Some(argument) => Err(Error::input(format!("unexpected argument: {argument}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments> {
        Arguments::parse(arguments.iter().map(OsString::from))
    }

    fn error(arguments: &[&str]) -> String {
        parse(arguments).unwrap_err().to_string()
    }

    /// Case MI1: a command without arguments refuses one, by name.
    #[test]
    fn commands_without_arguments_name_the_first() {
        no_arguments(&[]).unwrap();
        let error = no_arguments(&["some-arg".into(), "x".into()]).unwrap_err();
        assert_eq!(error.to_string(), "unexpected argument: some-arg");
    }

    /// Case MI37: app-entrypoint delays `SIGTERM`, forwards other signals in each phase, and leaves
    /// flags after the command to it.
    #[test]
    fn flags_end_where_the_command_begins() {
        assert_eq!(
            error(&["-shutdown-delay", "asdf", "app"]),
            r#"invalid value "asdf" for flag -shutdown-delay"#
        );
        assert_eq!(
            parse(&["app", "--shutdown-delay", "asdf"]).unwrap().command,
            ["app", "--shutdown-delay", "asdf"]
        );
        let dashes =
            parse(&["--shutdown-delay=1m30s", "-log-level", "debug", "--", "-app"]).unwrap();
        assert_eq!(dashes.shutdown_delay, Duration::from_secs(90));
        assert_eq!((dashes.log_level, dashes.command), (LogLevel::Debug, vec!["-app".into()]));
    }

    /// Source: measured on consul-ecs 0.10.
    #[test]
    fn an_unknown_level_and_a_negative_delay_are_accepted() {
        let loud = parse(&["-log-level=loud", "app"]).unwrap();
        assert_eq!((loud.log_level, loud.command), (LogLevel::Info, vec!["app".into()]));
        let negative = parse(&["-shutdown-delay", "-5s", "app"]).unwrap();
        assert_eq!(negative.shutdown_delay, Duration::ZERO);
        assert!(parse(&["-shutdown-delay=--5s", "app"]).is_err());
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        assert_eq!(error(&[]), "command is required");
        assert_eq!(error(&["-shutdown-delay", "1s"]), "command is required");
        assert_eq!(error(&["-shutdown-delay"]), "flag needs an argument: -shutdown-delay");
        assert_eq!(error(&["-x", "app"]), "flag provided but not defined: -x");
    }
}
