//! Counts and addresses of planned and applied changes.

use std::collections::BTreeMap;

use cts_tasks::{Action, Changes, PlannedResources};
use serde::Deserialize;
use serde_json::Value as Json;

use super::ShownPlan;
use crate::plan_values::{SensitiveTexts, planned_action, planned_address, planned_resource};

/// The part of `show -json PLANFILE` that tells changes.
///
/// Source: Terraform 1.11, JSON output format of plans.
#[derive(Deserialize)]
pub(crate) struct PlanJson {
    pub(crate) format_version: String,
    #[serde(default)]
    resource_changes: Vec<ResourceChange>,
    #[serde(default)]
    resource_drift: Vec<ResourceChange>,
    #[serde(default)]
    output_changes: BTreeMap<String, Json>,
}

impl PlanJson {
    /// The texts of all values that are marked as sensitive.
    pub(crate) fn sensitive_texts(&self) -> SensitiveTexts {
        let all = self.resource_changes.iter().chain(&self.resource_drift).map(|it| &it.change);
        SensitiveTexts::of(all.chain(self.output_changes.values()))
    }
}

#[derive(Deserialize)]
struct ResourceChange {
    address: String,
    /// Set for an object that is no longer the resource's current one.
    #[serde(default)]
    deposed: Option<String>,
    change: Json,
}

impl ResourceChange {
    fn action(&self) -> Option<Action> {
        planned_action(&self.change)
    }

    /// The change as data, with sensitive values masked.
    fn shown(&self, format: &str) -> Option<cts_tasks::ResourceChange> {
        planned_resource(format, &self.address, self.deposed.as_deref(), &self.change)
    }

    fn record(&self, changes: &mut Changes) {
        if let Some(action) = self.action() {
            changes.record(planned_address(&self.address, self.deposed.as_deref()), action);
        }
    }
}

fn actions(change: &Json) -> Vec<&str> {
    let actions = change.get("actions").and_then(Json::as_array);
    actions.into_iter().flatten().filter_map(Json::as_str).collect()
}

/// Reads the changes of a saved plan.
pub(crate) fn planned(plan: &PlanJson, text: &str) -> ShownPlan {
    let (mut changes, mut drift) = (Changes::default(), Changes::default());
    for resource in &plan.resource_changes {
        resource.record(&mut changes);
    }
    for resource in &plan.resource_drift {
        resource.record(&mut drift);
    }
    let outputs: BTreeMap<_, _> =
        plan.output_changes.iter().filter(|(_, change)| actions(change) != ["no-op"]).collect();
    changes.outputs_only = changes.is_empty() && !outputs.is_empty();
    let resources: BTreeMap<_, _> = plan
        .resource_changes
        .iter()
        .filter(|resource| resource.action().is_some())
        .map(|resource| (&resource.address, (&resource.deposed, &resource.change)))
        .collect();
    let drifted: BTreeMap<_, _> =
        plan.resource_drift.iter().map(|resource| (&resource.address, &resource.change)).collect();
    let canonical = serde_json::json!([resources, outputs, drifted]).to_string();
    let secrets = plan.sensitive_texts();
    let resources = plan.resource_changes.iter();
    let resources: PlannedResources =
        resources.filter_map(|it| it.shown(&plan.format_version)).collect();
    let resources = Some(resources.hiding(|text| secrets.hide(text)));
    ShownPlan { changes, drift, canonical, text: secrets.hide(text), resources }
}

#[cfg(test)]
mod tests {
    use cts_tasks::Action;

    use super::planned;

    #[test]
    fn every_action_of_a_saved_plan_is_counted() {
        let plan = r#"{"format_version":"1.2","resource_changes":[
            {"address":"a.create","change":{"actions":["create"],"after":{"x":1}}},
            {"address":"a.update","change":{"actions":["update"]}},
            {"address":"a.delete","change":{"actions":["delete"]}},
            {"address":"a.replace","change":{"actions":["delete","create"]}},
            {"address":"a.first","change":{"actions":["create","delete"]}},
            {"address":"a.same","change":{"actions":["no-op"]}},
            {"address":"a.same","deposed":"k","change":{"actions":["delete"]}},
            {"address":"data.read","change":{"actions":["read"]}}],
            "resource_drift":[{"address":"a.drift","change":{"actions":["update"]}}],
            "output_changes":{"o":{"actions":["create"]}}}"#;
        let shown = planned(&serde_json::from_str(plan).unwrap(), "text");
        let changes = &shown.changes;
        assert_eq!((changes.add, changes.change, changes.destroy), (3, 1, 4));
        assert!(!changes.outputs_only);
        assert_eq!(changes.addresses["a.replace"], Action::Replace);
        assert_eq!(changes.addresses["a.same (deposed k)"], Action::Delete);
        assert_eq!(shown.drift.addresses["a.drift"], Action::Update);
        assert!(!shown.canonical.contains("data.read"));
    }

    #[test]
    fn a_plan_that_changes_only_outputs_says_so() {
        let plan = r#"{"format_version":"1.2","output_changes":{"o":{"actions":["update"]}}}"#;
        let shown = planned(&serde_json::from_str(plan).unwrap(), "");
        assert!(shown.changes.outputs_only && !shown.changes.is_empty());
        let none = r#"{"format_version":"1.2","output_changes":{"o":{"actions":["no-op"]}}}"#;
        assert!(planned(&serde_json::from_str(none).unwrap(), "").changes.is_empty());
    }
}
