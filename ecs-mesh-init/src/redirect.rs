//! Redirects a task's traffic through its proxy: computes the redirection, and applies its rules.

mod redirection;
mod rules;

use std::path::Path;

use tokio::process::Command;

use crate::{Error, Result};

pub use redirection::{HEALTH_SYNC_UID, PROXY_UID, Redirection};
pub use rules::rules;

/// Applies rules in order, each by one run of `program`.
///
/// Rules that were applied stay if a later one fails.
///
/// # Errors
///
/// [`Error::Command`] with the rule and the program's output.
pub async fn apply(program: &Path, rules: &[Vec<String>]) -> Result<()> {
    for rule in rules {
        let failed = |problem: String| Error::Command {
            command: format!("{} {}", program.display(), rule.join(" ")),
            problem,
        };
        let output = Command::new(program)
            .args(rule)
            // Dropping the future also ends the program.
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!("{}: {}", output.status, printed.trim())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rules_are_applied_one_by_one_until_one_fails() {
        let rules = vec![
            vec!["-c".to_owned(), "exit 0".to_owned()],
            vec!["-c".to_owned(), "echo no >&2; exit 3".to_owned()],
        ];
        apply(Path::new("sh"), &rules[..1]).await.unwrap();
        let error = apply(Path::new("sh"), &rules).await.unwrap_err().to_string();
        assert!(
            error.starts_with("sh -c echo no") && error.ends_with("exit status: 3: no"),
            "{error}"
        );
        assert!(apply(Path::new("/nowhere/iptables"), &rules).await.is_err());
    }
}
