//! Findings about backend and providers that need no run of the tool.

use std::path::Path;

use cts_tasks::{Finding, Literal, Verdict};
use nix::unistd::{AccessFlags, access};

use crate::Settings;

/// The command that tries what is not checked here.
const TRY: &str = "doctor -init tries it";

impl Settings {
    /// Checks the place of the state, and says what of the providers nobody looked at.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.place_of_state()];
        if !self.required_providers().is_empty() {
            findings.push(Finding::new("providers", Verdict::Unchecked, self.wanted_providers()));
        }
        findings
    }

    fn place_of_state(&self) -> Finding {
        let label = self.backend().label();
        let check = format!("backend {label}");
        match (label, self.backend().attributes().get("workspace_dir")) {
            // What the token may do there is checked with the other permissions.
            ("consul", _) => Finding::new(check, Verdict::Ok, "see consul and permissions"),
            ("local", Some(Literal::String(folder))) if Path::new(folder).is_absolute() => {
                let folder = Path::new(folder);
                let there = folder.ancestors().find(|it| it.exists()).unwrap_or(folder);
                match access(there, AccessFlags::W_OK) {
                    _ if !there.is_dir() => {
                        let (folder, there) = (folder.display(), there.display());
                        let detail = format!("{folder}: {there} is no folder");
                        Finding::new(check, Verdict::Missing, detail)
                    }
                    Ok(()) => {
                        let detail = format!("{} can be written", folder.display());
                        Finding::new(check, Verdict::Ok, detail)
                    }
                    Err(error) => {
                        let (folder, there) = (folder.display(), there.display());
                        let detail = format!("{folder}: {there} cannot be written: {error}");
                        Finding::new(check, Verdict::Missing, detail)
                    }
                }
            }
            ("local", _) => {
                Finding::new(check, Verdict::Ok, "below working_dir, in the folder of each task")
            }
            ("pg", _) => {
                let detail = "its init would create its schema, so that only a start tries it";
                Finding::new(check, Verdict::Unchecked, detail)
            }
            _ => Finding::new(check, Verdict::Unchecked, TRY),
        }
    }

    fn wanted_providers(&self) -> String {
        let wanted = self.required_providers().iter().map(|(name, wanted)| {
            let text = |literal: &'_ Literal| match literal {
                Literal::String(text) => Some(text.clone()),
                _ => None,
            };
            let member = |key: &str| match wanted {
                Literal::Map(members) => members.get(key).and_then(text),
                _ => None,
            };
            let source = member("source").unwrap_or_else(|| name.clone());
            let version = member("version").or_else(|| text(wanted));
            version.map_or_else(|| source.clone(), |version| format!("{source} {version}"))
        });
        let wanted: Vec<String> = wanted.collect();
        format!("{}: {TRY}", wanted.join(", "))
    }
}
