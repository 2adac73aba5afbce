//! The steps by which a workspace gets the variables that it should have.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::types::{NewVariable, Variable, VariableChange, VariableId};

/// Change of one variable.
#[derive(Debug)]
pub(crate) enum Step {
    Create(NewVariable),
    Update(VariableId, String, VariableChange),
    /// Deletes and creates: a sensitive variable cannot be made readable again.
    Replace(VariableId, NewVariable),
    Delete(VariableId),
}

/// Digests of values that this process wrote, because the platform does not give sensitive ones out
/// again.
#[derive(Default)]
pub(crate) struct Written(Mutex<HashMap<VariableId, Digest>>);

type Digest = [u8; 32];

impl Written {
    pub(crate) fn note(&self, id: &VariableId, value: &SecretString) {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.insert(id.clone(), digest(value));
    }

    /// Forgets a value that is about to be replaced: until the platform confirmed the new one,
    /// nobody knows which of the two it has.
    pub(crate) fn forget(&self, id: &VariableId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    fn is(&self, id: &VariableId, value: &SecretString) -> bool {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.get(id) == Some(&digest(value))
    }
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Digests of short values could be guessed.
        f.debug_struct("Written").finish_non_exhaustive()
    }
}

fn digest(value: &SecretString) -> Digest {
    Sha256::digest(value.expose_secret()).into()
}

/// Returns the steps for the variables in `wanted`; others stay.
pub(crate) fn steps(wanted: &[NewVariable], present: &[Variable], written: &Written) -> Vec<Step> {
    wanted.iter().filter_map(|wanted| step(wanted, present, written)).collect()
}

fn step(wanted: &NewVariable, present: &[Variable], written: &Written) -> Option<Step> {
    let found = present.iter().find(|variable| {
        let attributes = &variable.attributes;
        // Two variables of one name may differ in category.
        attributes.key == wanted.key && attributes.category == Some(wanted.category)
    });
    let Some(found) = found else { return Some(Step::Create(wanted.clone())) };
    let attributes = &found.attributes;
    if attributes.sensitive && !wanted.sensitive {
        return Some(Step::Replace(found.id.clone(), wanted.clone()));
    }
    let same_value = match &attributes.value {
        Some(value) if !attributes.sensitive => value == wanted.value.expose_secret(),
        // After a restart nothing was written by this process, so that sensitive values are written
        // once more.
        _ => written.is(&found.id, &wanted.value),
    };
    let mut change = VariableChange::default();
    if !same_value {
        change.value = Some(wanted.value.clone());
    }
    if attributes.hcl != wanted.hcl {
        change.hcl = Some(wanted.hcl);
    }
    if !attributes.sensitive && wanted.sensitive {
        change.sensitive = Some(true);
        // With the value, since digests are noted only of values that were written.
        change.value = Some(wanted.value.clone());
    }
    let nothing = change.value.is_none() && change.hcl.is_none() && change.sensitive.is_none();
    (!nothing).then(|| Step::Update(found.id.clone(), wanted.key.clone(), change))
}

/// Returns steps that delete variables that this driver made and the task no longer has.
pub(crate) fn leftovers(
    kept: &[NewVariable],
    names: &[&str],
    present: &[Variable],
    mark: &str,
) -> Vec<Step> {
    let is_kept = |variable: &Variable| {
        let attributes = &variable.attributes;
        names.contains(&attributes.key.as_str())
            || kept.iter().any(|wanted| {
                wanted.key == attributes.key && Some(wanted.category) == attributes.category
            })
    };
    // By the description: variables of a person or another program are never deleted.
    let ours = |variable: &&Variable| variable.attributes.description.as_deref() == Some(mark);
    let gone = present.iter().filter(ours).filter(|variable| !is_kept(variable));
    gone.map(|variable| Step::Delete(variable.id.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn present(key: &str, value: Option<&str>, sensitive: bool) -> Variable {
        serde_json::from_value(json!({"id": format!("var-{key}"), "type": "vars", "attributes": {
            "key": key, "value": value, "sensitive": sensitive, "category": "terraform",
            "hcl": false, "description": "mine",
        }}))
        .unwrap()
    }

    fn wanted(key: &str, value: &str, sensitive: bool) -> NewVariable {
        let mut variable = NewVariable::new(key, value);
        variable.sensitive = sensitive;
        variable
    }

    #[test]
    fn only_what_differs_is_touched() {
        let there = [
            present("same", Some("1"), false),
            present("other", Some("1"), false),
            present("plain", Some("1"), false),
            present("hidden", None, true),
            present("freed", None, true),
        ];
        let written = Written::default();
        written.note(&"var-hidden".parse().unwrap(), &"1".into());
        let steps = steps(
            &[
                wanted("same", "1", false),
                wanted("other", "2", false),
                wanted("plain", "1", true),
                wanted("hidden", "1", true),
                wanted("freed", "1", false),
                wanted("new", "", false),
            ],
            &there,
            &written,
        );
        let reported: Vec<String> = steps
            .iter()
            .map(|step| match step {
                Step::Create(new) => format!("create {}", new.key),
                Step::Update(id, _, change) => {
                    format!("update {id} {} {:?}", change.value.is_some(), change.sensitive)
                }
                Step::Replace(id, _) => format!("replace {id}"),
                Step::Delete(id) => format!("delete {id}"),
            })
            .collect();
        assert_eq!(
            reported,
            [
                "update var-other true None",
                "update var-plain true Some(true)",
                "replace var-freed",
                "create new"
            ]
        );
        // What was written by another process is written again once.
        let again = super::steps(&[wanted("hidden", "1", true)], &there, &Written::default());
        assert_eq!(again.len(), 1);
    }

    #[test]
    fn only_our_own_leftovers_are_taken_away() {
        let mut foreign = present("foreign", Some("1"), false);
        foreign.attributes.description = Some("somebody's".into());
        let there = [
            present("kept", Some("1"), false),
            present("services", None, false),
            present("gone", None, false),
            foreign,
        ];
        let steps = leftovers(&[wanted("kept", "1", false)], &["services"], &there, "mine");
        assert!(matches!(steps.as_slice(), [Step::Delete(id)] if id.as_str() == "var-gone"));
    }
}
