//! The environment of the commands.

use std::{collections::BTreeMap, ffi::OsString};

use secrecy::ExposeSecret as _;

use super::CliOptions;
use crate::{Invocation, reserved_env::is_of_commands};

/// The environment of one command: what is inherited, then the task's own
/// variables, then those that are always set.
///
/// Source: Consul-Terraform-Sync 0.9 and terraform-exec 0.17, environment of
/// the Terraform process.
///
/// Deviation: a reserved name in the inherited environment is left out, where
/// upstream refuses to start; `TF_VAR_*` passes. `TF_DATA_DIR` is left out,
/// because all tasks would share it.
pub(super) fn of(options: &CliOptions, run: &Invocation) -> BTreeMap<OsString, OsString> {
    let mut environment: BTreeMap<OsString, OsString> = options
        .environment
        .iter()
        .filter(|(name, _)| !is_of_commands(&name.to_string_lossy()))
        .cloned()
        .collect();
    for (name, value) in &run.environment {
        environment.insert(name.into(), value.expose_secret().into());
    }
    let log_path = run.directory.join("terraform.log");
    let (level, log_path) = if options.persist_log {
        ("TRACE", log_path.into_os_string())
    } else {
        ("", OsString::new())
    };
    let agent = concat!("cts-driver-terraform/", env!("CARGO_PKG_VERSION"));
    for (name, value) in [
        ("TF_IN_AUTOMATION", "1".into()),
        ("TF_WORKSPACE", OsString::new()),
        ("TF_APPEND_USER_AGENT", agent.into()),
        ("TF_LOG", level.into()),
        ("TF_LOG_PATH", log_path),
    ] {
        environment.insert(name.into(), value);
    }
    environment
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::{CliOptions, of};
    use crate::Invocation;

    #[test]
    fn reserved_names_are_replaced_and_the_rest_passes() {
        let mut options = CliOptions::default();
        let inherited =
            ["TF_LOG", "TF_LOG_CORE", "TF_WORKSPACE", "TF_DATA_DIR", "TF_VAR_x", "HOME"];
        options.environment = inherited.map(|name| (name.into(), "inherited".into())).into();
        let run = Invocation {
            directory: "/tasks/a".into(),
            environment: BTreeMap::from([("HOME".to_owned(), "task".into())]),
            backend_config: None,
            masked: Vec::new(),
            stop: cts_tasks::Stop::new(),
            input: None,
            progress: Arc::new(cts_tasks::Silent),
        };
        let text = |options: &CliOptions| {
            let lines = of(options, &run).into_iter();
            let lines = lines.map(|(k, v)| format!("{}={}", k.display(), v.display()));
            lines.collect::<Vec<_>>()
        };
        let agent =
            format!("TF_APPEND_USER_AGENT=cts-driver-terraform/{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            text(&options),
            [
                "HOME=task",
                &agent,
                "TF_IN_AUTOMATION=1",
                "TF_LOG=",
                "TF_LOG_PATH=",
                "TF_VAR_x=inherited",
                "TF_WORKSPACE="
            ]
        );
        options.persist_log = true;
        let text = text(&options);
        assert!(text.contains(&"TF_LOG=TRACE".to_owned()));
        assert!(text.contains(&"TF_LOG_PATH=/tasks/a/terraform.log".to_owned()));
    }
}
