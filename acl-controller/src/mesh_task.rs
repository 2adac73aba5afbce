//! Reads a task's membership in the mesh from its tags: service name, partition, namespace.

use crate::{Error, Result, arn, task::Task};

const MESH: &str = "consul.hashicorp.com/mesh";
const SERVICE_NAME: &str = "consul.hashicorp.com/service-name";
const PARTITION: &str = "consul.hashicorp.com/partition";
const NAMESPACE: &str = "consul.hashicorp.com/namespace";

/// Enterprise partition and namespace of a task's service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tenancy {
    pub(crate) partition: String,
    pub(crate) namespace: String,
}

/// Returns `true` if the task is in the mesh and still needs its token.
pub(crate) fn is_meshed(task: &Task) -> bool {
    task.tags.get(MESH).is_some_and(|value| value == "true") && !task.is_stopped()
}

/// Returns the name of the task's service: its tag, else the family of its definition.
pub(crate) fn service(task: &Task) -> Result<&str> {
    match task.tags.get(SERVICE_NAME).filter(|name| !name.is_empty()) {
        Some(name) => Ok(name),
        None => arn::family(&task.task_definition_arn),
    }
}

/// Returns the tenancy of the task's service where there are partitions.
pub(crate) fn tenancy(task: &Task) -> Result<Tenancy> {
    let tag = |key: &str| task.tags.get(key).cloned();
    match (tag(PARTITION), tag(NAMESPACE)) {
        (Some(partition), Some(namespace)) => Ok(Tenancy { partition, namespace }),
        (None, None) => {
            Ok(Tenancy { partition: "default".to_owned(), namespace: "default".to_owned() })
        }
        _ => Err(Error::input("task definition requires both partition and namespace tags")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task() -> Task {
        Task::new("arn:aws:ecs:r:1:task/c/1", "arn:aws:ecs:r:1:task-definition/service:1")
    }

    /// Case ACL7: a task without the mesh tag, or with another value than `true`, is ignored.
    #[test]
    fn only_the_exact_tag_makes_a_task_one_of_the_mesh() {
        assert!(!is_meshed(&task()));
        for other in ["false", "TRUE", "", "true "] {
            assert!(!is_meshed(&task().with_tag(MESH, other)), "{other:?}");
        }
        let meshed = task().with_tag(MESH, "true");
        assert!(is_meshed(&meshed));
        assert!(is_meshed(&meshed.clone().with_last_status("DEPROVISIONING")));
        assert!(!is_meshed(&meshed.with_last_status("STOPPED")));
    }

    /// Case ACL8: the name tag wins over the family of the task definition; an invalid ARN is an
    /// error.
    #[test]
    fn the_tag_wins_over_the_definition() {
        assert_eq!(service(&task()).unwrap(), "service");
        assert_eq!(service(&task().with_tag(SERVICE_NAME, "web")).unwrap(), "web");
        let unnamed = Task::new("x", "invalid");
        assert!(service(&unnamed).is_err());
        assert_eq!(service(&unnamed.with_tag(SERVICE_NAME, "web")).unwrap(), "web");
    }

    #[test]
    fn partition_and_namespace_come_together() {
        let none = tenancy(&task()).unwrap();
        assert_eq!((none.partition.as_str(), none.namespace.as_str()), ("default", "default"));
        for one in [PARTITION, NAMESPACE] {
            let error = tenancy(&task().with_tag(one, "x")).unwrap_err();
            assert_eq!(
                error.to_string(),
                "task definition requires both partition and namespace tags"
            );
        }
    }

    proptest! {
        #[test]
        fn no_tags_do_harm(tags in proptest::collection::btree_map(
            prop_oneof![Just(MESH.to_owned()), Just(SERVICE_NAME.to_owned()), Just(PARTITION.to_owned()),
                        Just(NAMESPACE.to_owned()), ".{0,20}"], ".{0,40}", 0..6), definition in ".{0,60}") {
            let mut task = Task::new("", definition);
            task.tags = tags;
            drop((is_meshed(&task), service(&task).map(str::to_owned), tenancy(&task)));
        }
    }
}
