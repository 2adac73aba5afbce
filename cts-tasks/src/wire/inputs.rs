//! The current inputs of a task's module in the API. Values of keys stay out of it,
//! because they may be secret: digests show that they differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    InputSummary, KvEntry, ServiceInstance, TaskInputs,
    applied::{digest_of_instance, digest_of_key},
};

/// `GET /v1/tasks/{name}/inputs`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputsMessage {
    /// The inputs.
    pub inputs: InputsDocument,
}

/// The current inputs of a task's module. Values of keys may be secret and are not
/// in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputsDocument {
    /// Instances of services; left out where the task selects none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<InstanceDocument>>,
    /// Names of services with all their tags; left out where the task selects none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog_services: Option<BTreeMap<String, Vec<String>>>,
    /// Keys; left out where the task selects none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consul_kv: Option<Vec<KeyDocument>>,
    /// Comparison with the inputs that were last applied.
    pub since_applied: SinceApplied,
}

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceDocument {
    /// The service's name.
    pub name: String,
    /// The instance's id, unique on its node.
    pub id: String,
    /// Name of the node.
    pub node: String,
    /// Address of the instance.
    pub address: String,
    /// Port of the instance; 0 when there is none.
    pub port: i64,
    /// The worst of its checks.
    pub status: String,
    /// A digest of all that the module gets of it.
    pub digest: String,
}

/// A key, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyDocument {
    /// The full key.
    pub path: String,
    /// Length of the value in bytes.
    pub bytes: usize,
    /// SHA-256 of the value, the first 16 hexadecimal digits.
    pub digest: String,
}

/// The comparison of inputs with those that were last applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SinceApplied {
    /// Nothing was applied yet, as far as the store of this deployment knows.
    Never,
    /// The inputs are the same.
    Same,
    /// The inputs differ.
    Differs {
        /// The differences; left out when there were too many inputs to keep them
        /// one by one, and an earlier process applied them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        difference: Option<Difference>,
    },
}

/// The differing inputs, each as [`InputsDocument::lines`] has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Inputs that are new.
    pub added: Vec<String>,
    /// Inputs that are there as before, with other values; as they are now.
    pub changed: Vec<String>,
    /// Inputs that are gone.
    pub removed: Vec<String>,
}

impl InputsDocument {
    #[cfg_attr(
        all(not(feature = "api"), not(test)),
        expect(dead_code, reason = "the server alone makes documents")
    )]
    pub(crate) fn new(inputs: &TaskInputs, since_applied: SinceApplied) -> Self {
        Self {
            services: inputs
                .services
                .as_ref()
                .map(|all| all.iter().map(|instance| InstanceDocument::of(instance)).collect()),
            catalog_services: inputs.catalog_services.clone(),
            consul_kv: inputs
                .consul_kv
                .as_ref()
                .map(|all| all.iter().map(KeyDocument::of).collect()),
            since_applied,
        }
    }

    /// Returns one line for each thing that the module gets.
    pub fn lines(&self) -> Vec<String> {
        self.keyed().into_values().map(|it| it.line).collect()
    }

    /// Finds what differs from what was there `before`.
    #[cfg_attr(
        all(not(feature = "api"), not(test)),
        expect(dead_code, reason = "the server alone makes documents")
    )]
    pub(crate) fn difference(&self, before: &BTreeMap<String, InputSummary>) -> Difference {
        let now = self.keyed();
        let mut difference = Difference::default();
        for (key, it) in &now {
            match before.get(key) {
                None => difference.added.push(it.line.clone()),
                Some(earlier) if earlier.digest != it.digest => {
                    difference.changed.push(it.line.clone());
                }
                Some(_) => {}
            }
        }
        let gone = before.iter().filter(|(key, _)| !now.contains_key(*key));
        difference.removed = gone.map(|(_, it)| it.line.clone()).collect();
        difference
    }

    /// Each input by what identifies it.
    fn keyed(&self) -> BTreeMap<String, InputSummary> {
        let services = self.services.iter().flatten().map(|it| {
            let texts = [&it.name, &it.node, &it.id, &it.address, &it.status];
            InputSummary::of_service(texts.map(String::as_str), it.port, &it.digest)
        });
        let catalog = self.catalog_services.iter().flatten();
        let catalog = catalog.map(|(name, tags)| InputSummary::of_catalog_service(name, tags));
        let keys = self.consul_kv.iter().flatten();
        let keys = keys.map(|it| InputSummary::of_key(&it.path, it.bytes, &it.digest));
        services.chain(catalog).chain(keys).collect()
    }
}

impl InstanceDocument {
    fn of(instance: &ServiceInstance) -> Self {
        Self {
            name: instance.name.clone(),
            id: instance.id.clone(),
            node: instance.node.clone(),
            address: instance.address.clone(),
            port: instance.port,
            status: instance.status.clone(),
            digest: digest_of_instance(instance),
        }
    }
}

impl KeyDocument {
    fn of(entry: &KvEntry) -> Self {
        Self { path: entry.path.clone(), bytes: entry.value.len(), digest: digest_of_key(entry) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn inputs(instances: &[(&str, &str)]) -> InputsDocument {
        let instance = |&(id, address): &(&str, &str)| {
            Arc::new(ServiceInstance {
                id: id.to_owned(),
                name: "web".to_owned(),
                address: address.to_owned(),
                ..ServiceInstance::default()
            })
        };
        let services = Some(instances.iter().map(instance).collect());
        let inputs = TaskInputs { services, ..TaskInputs::default() };
        InputsDocument::new(&inputs, SinceApplied::Never)
    }

    #[test]
    fn what_came_changed_and_went_is_told_apart() {
        let before = inputs(&[("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")]);
        let now = inputs(&[("a", "10.0.0.1"), ("b", "10.0.0.9"), ("d", "10.0.0.4")]);
        let Difference { added, changed, removed } = now.difference(&before.keyed());
        assert_eq!((added.len(), changed.len(), removed.len()), (1, 1, 1));
        assert!(added[0].contains("d at 10.0.0.4") && changed[0].contains("b at 10.0.0.9"));
        assert!(removed[0].contains("c at 10.0.0.3"));
        assert_eq!(now.difference(&now.keyed()), Difference::default());
    }

    #[test]
    fn values_of_keys_are_not_shown() {
        let entry = KvEntry { path: "app/password".to_owned(), value: b"hunter2".to_vec() };
        let inputs = TaskInputs { consul_kv: Some(vec![entry]), ..TaskInputs::default() };
        let document = InputsDocument::new(&inputs, SinceApplied::Never);
        let text = serde_json::to_string(&document).unwrap() + &document.lines().concat();
        assert!(text.contains("app/password") && text.contains("7 bytes"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("104,117"), "{text}");
    }
}
