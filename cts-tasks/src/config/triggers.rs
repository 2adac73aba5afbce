//! The condition and the module inputs of a task, and which go together.

use super::{
    condition,
    decode::{Findings, TypedBlock, TypedBlocks},
    raw::{RawService, RawTask},
    service,
};
use crate::{Condition, ModuleInput, Place, ServiceSelection};

/// The condition and the module inputs, and whether they go together.
pub(super) fn finalize(
    raw: &RawTask,
    services: &[RawService],
    findings: &mut Findings,
) -> Option<(Condition, Vec<ModuleInput>)> {
    let before = findings.errors.len();
    let block = condition_block(raw, findings);
    let inputs = input_blocks(raw, findings);
    check_combination(raw, block, &inputs, findings);
    let condition = block.and_then(|block| condition::condition(block, findings));
    let mut module_inputs: Vec<ModuleInput> =
        inputs.iter().filter_map(|block| condition::module_input(block, findings)).collect();
    let Some(list) = raw.services.as_ref().filter(|list| !list.items.is_empty()) else {
        let without = block.is_none() && !raw.invalid.contains(&"condition");
        if without && findings.errors.len() == before {
            return Some((unconditional(&mut module_inputs), module_inputs));
        }
        return condition.map(|condition| (condition, module_inputs));
    };
    findings.deprecated(
        "services is deprecated since 0.5",
        list.place.clone(),
        "use condition \"services\" { names = […] }, or module_input \"services\" beside another condition",
    );
    let selection = ServiceSelection::Named(
        list.to_vec().iter().map(|id| service::named(id, services)).collect(),
    );
    if block.is_some() {
        module_inputs.insert(0, ModuleInput::Services(selection));
        return condition.map(|condition| (condition, module_inputs));
    }
    let condition = Condition::Services { services: selection, use_as_module_input: true };
    Some((condition, module_inputs))
}

/// The condition of a task that has none: the services of its inputs, which it gets.
///
/// Source: Consul-Terraform-Sync 0.9.0 `config/task.go` (`Finalize`), and its
/// notifier for tasks whose condition is empty.
fn unconditional(inputs: &mut Vec<ModuleInput>) -> Condition {
    let services = inputs.iter().position(|input| matches!(input, ModuleInput::Services(_)));
    let services = match services.map(|position| inputs.remove(position)) {
        Some(ModuleInput::Services(services)) => services,
        Some(_) | None => ServiceSelection::Named(Vec::new()),
    };
    Condition::Services { services, use_as_module_input: true }
}

fn condition_block<'a>(raw: &'a RawTask, findings: &mut Findings) -> Option<&'a TypedBlock> {
    const HELP: &str =
        "write condition \"services\" { … }, or one of catalog-services, consul-kv, schedule";
    let conditions = raw.condition.as_ref()?;
    if let Some((_, place)) = conditions.odd.iter().find(|(labels, _)| labels.is_empty()) {
        findings.error_help("missing condition type for the condition block", place.clone(), HELP);
    }
    if let Some(second) = conditions.blocks.get(1) {
        findings.error_help(
            "only one 'condition' block can be configured",
            second.place.clone(),
            "make a task for each condition, or use a module_input",
        );
    }
    conditions.blocks.first()
}

fn input_blocks<'a>(raw: &'a RawTask, findings: &mut Findings) -> Vec<&'a TypedBlock> {
    if let Some(old) = &raw.source_inputs {
        let place = old.blocks.first().and_then(|block| block.place.clone());
        findings.deprecated(
            "source_input is deprecated since 0.5",
            place,
            "rename it to module_input",
        );
    }
    let both: Vec<&TypedBlocks> =
        [&raw.module_inputs, &raw.source_inputs].into_iter().flatten().collect();
    for (labels, place) in both.iter().flat_map(|blocks| &blocks.odd) {
        if labels.is_empty() {
            findings.error_help(
                "missing module_input type for the module_input block",
                place.clone(),
                "write module_input \"services\" { … } or module_input \"consul-kv\" { … }",
            );
        }
    }
    both.into_iter().flat_map(|blocks| &blocks.blocks).collect()
}

/// Source: Consul-Terraform-Sync 0.9.0 `config/task.go` (`validateModuleInputs`).
fn check_combination(
    raw: &RawTask,
    condition: Option<&TypedBlock>,
    inputs: &[&TypedBlock],
    findings: &mut Findings,
) {
    let listed = raw.services.as_ref().is_some_and(|list| !list.items.is_empty());
    for (position, input) in inputs.iter().enumerate() {
        let variable = match input.label.as_str() {
            "services" => "services",
            "consul-kv" => "consul_kv",
            // An unknown type has an error of its own.
            _ => continue,
        };
        let place = || input.place.clone();
        if inputs.iter().take(position).any(|earlier| earlier.label == input.label) {
            findings.error_help(
                format!(
                    "more than one 'module_input' block for the {variable:?} variable. variable types must be unique"
                ),
                place(),
                "merge the blocks into one",
            );
        }
        if condition.is_some_and(|condition| condition.label == input.label) {
            findings.error_help(
                format!(
                    "task's condition block and module_input block both monitor {variable:?} variable type. \
                     condition and module_input variable type must be unique"
                ),
                place(),
                "the condition's data reaches the module as it is; remove the module_input",
            );
        }
        if listed && input.label == "services" {
            both_services("module_input", place(), findings);
        }
    }
    if listed && let Some(condition) = condition.filter(|block| block.label == "services") {
        both_services("condition", condition.place.clone(), findings);
    }
}

fn both_services(block: &str, place: Option<Place>, findings: &mut Findings) {
    findings.error_help(
        format!(
            "task's `services` field and `{block} 'services'` block both monitor \"services\" variable type. \
             only one of these can be configured per task"
        ),
        place,
        "move the names of services into the block",
    );
}
