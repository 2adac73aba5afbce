//! The made-up resources of one task, and its plans.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    Action, Changes, InputsDigest, Plan, PlanId, PlanPurpose, PlannedResources, ResourceChange,
    TaskInputs,
};

/// The made-up resources of one task, and the plans that are kept for it.
#[derive(Debug, Default)]
pub(super) struct World {
    /// Inputs that were applied last, and the resources made of them.
    state: Option<(TaskInputs, Resources)>,
    /// Resources that really exist.
    real: Resources,
    /// Number of applies and destroys so far: a plan fits only the state that it
    /// was made for.
    serial: u64,
    plans: BTreeMap<PlanId, Kept>,
}

#[derive(Debug)]
struct Kept {
    inputs: TaskInputs,
    serial: u64,
}

/// Address and content.
type Resources = BTreeMap<String, String>;

impl World {
    pub(super) fn applied(&self) -> Option<&TaskInputs> {
        self.state.as_ref().map(|(inputs, _)| inputs)
    }

    pub(super) fn plan(&mut self, inputs: &TaskInputs, purpose: PlanPurpose) -> Plan {
        let changes = match purpose {
            PlanPurpose::Drift => {
                let none = Resources::new();
                difference(self.state.as_ref().map_or(&none, |(_, made)| made), &self.real)
            }
            PlanPurpose::Inspect | PlanPurpose::Apply => difference(&self.real, &resources(inputs)),
        };
        let inputs_digest = InputsDigest::of(inputs);
        let id = PlanId::new(format!("{}-{}", self.serial, inputs_digest.as_str()));
        if purpose == PlanPurpose::Apply {
            let kept = Kept { inputs: inputs.clone(), serial: self.serial };
            self.plans.insert(id.clone(), kept);
        }
        let plan = Plan::new(id, changes, "recorded, not planned");
        match purpose {
            PlanPurpose::Drift => plan,
            PlanPurpose::Inspect | PlanPurpose::Apply => {
                plan.with_resources(planned(&self.real, &resources(inputs)))
            }
        }
    }

    /// The inputs of a plan, which from then on is kept no more.
    pub(super) fn take_plan(&mut self, id: &PlanId) -> Option<TaskInputs> {
        let kept = self.plans.remove(id)?;
        (kept.serial == self.serial).then_some(kept.inputs)
    }

    pub(super) fn holds(&self, id: &PlanId) -> bool {
        self.plans.get(id).is_some_and(|kept| kept.serial == self.serial)
    }

    pub(super) fn discard(&mut self, id: &PlanId) {
        self.plans.remove(id);
    }

    pub(super) fn lose_plans(&mut self) {
        self.plans.clear();
    }

    pub(super) fn apply(&mut self, inputs: TaskInputs) -> Changes {
        let wanted = resources(&inputs);
        let changes = difference(&self.real, &wanted);
        self.real.clone_from(&wanted);
        self.state = Some((inputs, wanted));
        self.serial += 1;
        changes
    }

    pub(super) fn destroy(&mut self) -> Changes {
        let changes = difference(&self.real, &Resources::new());
        self.real.clear();
        self.state = None;
        self.serial += 1;
        changes
    }

    pub(super) fn drift(&mut self) -> bool {
        self.real.pop_first().is_some()
    }
}

/// Makes one resource for each thing that the module gets.
fn resources(inputs: &TaskInputs) -> Resources {
    let instances = inputs.services.iter().flatten().map(|instance| {
        let at = format!("instance[{:?}]", format!("{}.{}", instance.id, instance.node));
        (at, format!("{instance:?}"))
    });
    let names = inputs.catalog_services.iter().flatten();
    let names = names.map(|(name, tags)| (format!("service[{name:?}]"), format!("{tags:?}")));
    let keys = inputs.consul_kv.iter().flatten();
    let keys = keys.map(|entry| (format!("key[{:?}]", entry.path), format!("{:?}", entry.value)));
    instances.chain(names).chain(keys).collect()
}

/// Lists what [`difference`] counts, with contents.
fn planned(before: &Resources, after: &Resources) -> PlannedResources {
    let addresses: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let content = |side: &Resources, address: &String| {
        side.get(address).map_or(Value::Null, |content| json!({ "content": content }))
    };
    let change = |address: &String| {
        let action = match (before.get(address), after.get(address)) {
            (None, _) => Action::Create,
            (_, None) => Action::Delete,
            (old, new) if old != new => Action::Update,
            _ => return None,
        };
        let (before, after) = (content(before, address), content(after, address));
        Some(ResourceChange::new(address, action, before, after, &[]))
    };
    addresses.into_iter().filter_map(change).collect()
}

/// Returns the changes that lead from `before` to `after`.
fn difference(before: &Resources, after: &Resources) -> Changes {
    let mut changes = Changes::default();
    for (address, content) in after {
        match before.get(address) {
            None => changes.record(address, Action::Create),
            Some(old) if old != content => changes.record(address, Action::Update),
            Some(_) => {}
        }
    }
    for address in before.keys().filter(|address| !after.contains_key(*address)) {
        changes.record(address, Action::Delete);
    }
    changes
}
