//! Checks a configuration, and says everything that is wrong with it.

use crate::{
    Diagnostic, Severity,
    config::{Loaded, Loader},
};

use crate::program::{Program, arguments::ConfigurationFlags, complain, exit::Exit, print};

/// Runs `validate` to its end.
pub(crate) fn validate(program: &Program, flags: &ConfigurationFlags) -> Exit {
    match load(program, flags) {
        Ok(loaded) => {
            for warning in &loaded.config.warnings {
                complain(&format!("{}\n", warning.render()));
            }
            let tasks = counted(loaded.config.tasks.len(), "task");
            print(&match loaded.config.warnings.len() {
                0 => format!("The configuration is valid: {tasks}."),
                warnings => format!(
                    "The configuration is valid: {tasks}, {}.",
                    counted(warnings, "warning")
                ),
            });
            Exit::Ok
        }
        Err(findings) => {
            refuse(&findings);
            Exit::Config
        }
    }
}

/// Reads the configuration, and checks that this program can run it.
pub(crate) fn load(
    program: &Program,
    flags: &ConfigurationFlags,
) -> Result<Loaded, Vec<Diagnostic>> {
    let loaded = Loader::new(program.registry.clone()).load(&flags.paths)?;
    if let Some(cluster) = &program.cluster {
        cluster.is_configured(&loaded.config)?;
    }
    Ok(loaded)
}

/// Tells everything that is wrong, and how much that is.
pub(crate) fn refuse(findings: &[Diagnostic]) {
    for finding in findings {
        complain(&format!("{}\n", finding.render()));
    }
    let count = |severity| findings.iter().filter(|found| found.severity == severity).count();
    let errors = counted(count(Severity::Error), "error");
    let text = match count(Severity::Warning) {
        0 => errors,
        warnings => format!("{errors}, {}", counted(warnings, "warning")),
    };
    complain(&format!("The configuration cannot be used: {text}."));
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
