//! Parses the parts of AWS resource names (ARNs) that this crate needs.

use crate::{Error, Result};

/// AWS partition and account that own a resource: the beginning of every ARN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    /// `aws`, `aws-cn`, `aws-us-gov`, …
    pub(crate) partition: String,
    /// Account number.
    pub(crate) account: String,
}

/// Parses the owner of a cluster or task.
pub(crate) fn owner(arn: &str) -> Result<Owner> {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    match parts.as_slice() {
        ["arn", partition, _service, _region, account, resource]
            if is_word(partition) && is_word(account) && !resource.is_empty() =>
        {
            Ok(Owner { partition: (*partition).to_owned(), account: (*account).to_owned() })
        }
        _ => Err(Error::input(format!("cannot determine the AWS account from the ARN {arn:?}"))),
    }
}

/// Returns `true` if a part of an ARN can stand in an ARN that Consul is to trust.
fn is_word(text: &str) -> bool {
    // Neither wildcards nor colons: the part becomes part of a pattern in the auth method.
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Returns the family in the ARN of a task definition, `…:task-definition/<family>:<revision>`.
pub(crate) fn family(arn: &str) -> Result<&str> {
    let found =
        arn.split_once('/').filter(|(_, rest)| !rest.contains('/')).and_then(|(_, rest)| {
            let (family, revision) = rest.split_once(':')?;
            (!family.is_empty() && !revision.contains(':')).then_some(family)
        });
    found.ok_or_else(|| {
        Error::input(format!(
            "cannot determine task family from task definition ARN: {arn:?}; expected …:task-definition/<family>:<revision>"
        ))
    })
}

/// Returns the id in the ARN of a task, which is its last segment.
pub(crate) fn task_id(arn: &str) -> Result<&str> {
    if arn.is_empty() {
        return Err(Error::input("task has no ARN"));
    }
    let id = arn.rsplit_once('/').map(|(_, id)| id).filter(|id| !id.is_empty());
    id.ok_or_else(|| Error::input(format!("cannot determine task id from task arn {arn:?}")))
}

/// Returns `true` for the ARN of a task of the cluster with this ARN.
///
/// Short ARNs of tasks, which do not name their cluster, are compared by region and account only.
pub(crate) fn is_task_of(task: &str, cluster: &str) -> bool {
    let (Some((of_task, rest)), Some((of_cluster, name))) =
        (task.split_once(":task/"), cluster.split_once(":cluster/"))
    else {
        return false;
    };
    of_task == of_cluster && rest.split_once('/').is_none_or(|(cluster, _id)| cluster == name)
}

/// Returns `true` if one of two texts is the ARN of a cluster and the other its name.
pub(crate) fn is_cluster_in_other_form(one: &str, other: &str) -> bool {
    let name = |arn: &str| {
        let (owner, name) = arn.split_once(":cluster/")?;
        owner.starts_with("arn:").then(|| name.to_owned())
    };
    match (name(one), name(other)) {
        (Some(name), None) => name == other,
        (None, Some(name)) => name == one,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_task_is_of_the_cluster_in_its_arn() {
        let cluster = "arn:aws:ecs:us-east-1:1:cluster/prod";
        for task in ["arn:aws:ecs:us-east-1:1:task/prod/abc", "arn:aws:ecs:us-east-1:1:task/abc"] {
            assert!(is_task_of(task, cluster), "{task}");
        }
        for other in [
            "arn:aws:ecs:us-east-1:1:task/prod-2/abc",
            "arn:aws:ecs:eu-west-1:1:task/prod/abc",
            "arn:aws:ecs:us-east-1:2:task/prod/abc",
            "abc",
            "",
        ] {
            assert!(!is_task_of(other, cluster), "{other}");
        }
    }

    #[test]
    fn the_family_is_between_slash_and_colon() {
        let arn = "arn:aws:ecs:us-east-1:1:task-definition/service:1";
        assert_eq!(family(arn).unwrap(), "service");
        for bad in ["", "invalid", "a/b", "a/b:1:2", "a/b/c:1", "a/:1"] {
            let error = family(bad).unwrap_err().to_string();
            assert!(error.contains("cannot determine task family"), "{bad}: {error}");
        }
    }

    #[test]
    fn the_task_id_is_the_last_segment() {
        assert_eq!(task_id("arn:aws:ecs:us-east-1:1:task/prod/abc").unwrap(), "abc");
        assert_eq!(task_id("arn:aws:ecs:us-east-1:1:task/abc").unwrap(), "abc");
        assert_eq!(task_id("").unwrap_err().to_string(), "task has no ARN");
        for bad in ["arn", "arn:aws:ecs:us-east-1:1:task/"] {
            let error = task_id(bad).unwrap_err().to_string();
            assert!(error.starts_with("cannot determine task id from task arn"), "{error}");
        }
    }

    #[test]
    fn the_owner_stands_at_the_beginning() {
        let owner = owner("arn:aws-cn:ecs:cn-north-1:123:cluster/prod").unwrap();
        assert_eq!((owner.partition.as_str(), owner.account.as_str()), ("aws-cn", "123"));
        for bad in ["prod", "arn:aws:ecs:us-east-1", "arn:aws:ecs:r:*:cluster/x", "arn::ecs:r:1:x"]
        {
            assert!(super::owner(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cluster_has_two_forms() {
        let arn = "arn:aws:ecs:us-east-1:1:cluster/prod";
        assert!(is_cluster_in_other_form(arn, "prod") && is_cluster_in_other_form("prod", arn));
        let other = "arn:aws:ecs:us-east-1:2:cluster/prod";
        for (one, two) in [(arn, arn), ("prod", "prod"), (arn, other), (arn, "prod-2"), ("", arn)] {
            assert!(!is_cluster_in_other_form(one, two), "{one} {two}");
        }
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in ".{0,80}") {
            drop((owner(&text), family(&text), task_id(&text)));
        }

        #[test]
        fn what_is_put_together_comes_apart(
            family_name in "[a-zA-Z0-9_-]{1,40}", id in "[0-9a-f]{32}", account in "[0-9]{12}", revision in 1u32..9999,
        ) {
            let prefix = format!("arn:aws:ecs:eu-west-1:{account}");
            let definition = format!("{prefix}:task-definition/{family_name}:{revision}");
            prop_assert_eq!(family(&definition).unwrap(), family_name);
            let task = format!("{prefix}:task/cluster/{id}");
            prop_assert_eq!(task_id(&task).unwrap(), id);
            prop_assert_eq!(owner(&task).unwrap().account, account);
        }
    }
}
