//! The service that a token or policy is for, and its notation in descriptions.

use std::fmt;

use crate::{Error, Result, mesh_task, task::Task};

const CLUSTER: &str = "consul.hashicorp.com/cluster:";
const PARTITION: &str = "consul.hashicorp.com/partition:";
const NAMESPACE: &str = "consul.hashicorp.com/namespace:";

/// Name of a service, with its tenancy where there are partitions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServiceName {
    pub(crate) name: String,
    /// Partition and namespace; `None` without partitions.
    pub(crate) tenancy: Option<(String, String)>,
}

/// Kind of object that a description belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Policy,
    Token,
}

impl Subject {
    fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "Policy",
            Self::Token => "Token",
        }
    }
}

/// Returns `true` if a text can stand in a rule and in the name of a policy without adding to them.
pub(crate) fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !text.is_empty() && text.chars().all(plain)
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.tenancy {
            Some((partition, namespace)) => write!(f, " ({partition}/{namespace})"),
            None => Ok(()),
        }
    }
}

impl ServiceName {
    /// Returns the service of a task; `None` if it belongs to another partition than `ours`.
    pub(crate) fn of_task(task: &Task, ours: Option<&str>) -> Result<Option<Self>> {
        let name = mesh_task::service(task)?.to_owned();
        let tenancy = match ours {
            None => None,
            Some(ours) => {
                let tenancy = mesh_task::tenancy(task)?;
                if tenancy.partition != ours {
                    return Ok(None);
                }
                Some((tenancy.partition, tenancy.namespace))
            }
        };
        let service = Self { name, tenancy };
        service.check()?;
        Ok(Some(service))
    }

    /// Checks the names, which stand in rules and in names of policies, and so must not add to
    /// them.
    fn check(&self) -> Result<()> {
        let (partition, namespace) = self.tenancy.as_ref().map(|(a, b)| (a, b)).unzip();
        let names = [
            ("service name", Some(&self.name)),
            ("namespace", namespace),
            ("partition", partition),
        ];
        for (what, text) in names {
            let Some(text) = text else { continue };
            // 128 is Consul's limit for the name of a policy.
            if !is_plain(text) || self.policy_name().len() > 128 {
                return Err(Error::input(format!(
                    "{what} {text:?}: only letters, digits, '-' and '_' can stand in the name of a policy, which has at most 128 characters"
                )));
            }
        }
        Ok(())
    }

    /// Returns the name of its policy.
    pub(crate) fn policy_name(&self) -> String {
        match &self.tenancy {
            None => format!("{}-service", self.name),
            Some((_, namespace)) => format!("{}-{namespace}-service", self.name),
        }
    }

    /// Returns the name of its secret.
    pub(crate) fn secret_name(&self, prefix: &str) -> String {
        match &self.tenancy {
            None => format!("{prefix}-{}", self.name),
            Some((partition, namespace)) => {
                format!("{prefix}-{}-{namespace}-{partition}", self.name)
            }
        }
    }

    /// Returns the description of its token or policy.
    pub(crate) fn description(&self, subject: Subject, cluster: &str) -> String {
        let mut text =
            format!("{} for {} service\n{CLUSTER} {cluster}", subject.as_str(), self.name);
        if let Some((partition, namespace)) = &self.tenancy {
            for (key, value) in [(PARTITION, partition), (NAMESPACE, namespace)] {
                text.extend(["\n", key, " ", value]);
            }
        }
        text
    }

    /// Parses a description; `None` if it is of something else, or of another cluster.
    ///
    /// Compares the whole name of the cluster.
    ///
    /// Deviation: upstream looks for a text that begins with it, so that `prod` deletes the tokens
    /// of `prod-2`.
    pub(crate) fn from_description(
        subject: Subject,
        description: &str,
        cluster: &str,
        with_partitions: bool,
    ) -> Option<Self> {
        let (service, of) = Self::parse(subject, description, with_partitions)?;
        (of == cluster).then_some(service)
    }

    /// Parses a description of any cluster, and returns the cluster, too.
    pub(crate) fn parse(
        subject: Subject,
        description: &str,
        with_partitions: bool,
    ) -> Option<(Self, &str)> {
        let mut words = description.split_whitespace();
        let mut word = || words.next();
        if word()? != subject.as_str() || word()? != "for" {
            return None;
        }
        let name = word()?.to_owned();
        if word()? != "service" || word()? != CLUSTER {
            return None;
        }
        let cluster = word()?;
        let tenancy = if with_partitions {
            (word()? == PARTITION).then_some(())?;
            let partition = word()?.to_owned();
            (word()? == NAMESPACE).then_some(())?;
            Some((partition, word()?.to_owned()))
        } else {
            None
        };
        let service = Self { name, tenancy };
        // Checked like a task's own name: a description is text that anyone with ACL rights can
        // write.
        (words.next().is_none() && service.check().is_ok()).then_some((service, cluster))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn service(tenancy: Option<(&str, &str)>) -> ServiceName {
        let tenancy =
            tenancy.map(|(partition, namespace)| (partition.to_owned(), namespace.to_owned()));
        ServiceName { name: "web".to_owned(), tenancy }
    }

    /// Case ACL19: a description gives the same service back, with and without partitions.
    #[test]
    fn a_description_gives_the_same_service_back() {
        for (tenancy, expected) in [
            (None, "Token for web service\nconsul.hashicorp.com/cluster: c1"),
            (
                Some(("p1", "ns-1")),
                "Token for web service\nconsul.hashicorp.com/cluster: c1\nconsul.hashicorp.com/partition: p1\nconsul.hashicorp.com/namespace: ns-1",
            ),
        ] {
            let service = service(tenancy);
            for subject in [Subject::Token, Subject::Policy] {
                let text = service.description(subject, "c1");
                let found = ServiceName::from_description(subject, &text, "c1", tenancy.is_some());
                assert_eq!(found.as_ref(), Some(&service), "{text}");
            }
            assert_eq!(service.description(Subject::Token, "c1"), expected);
        }
    }

    /// A known defect of upstream: the name of one cluster is the beginning of another's.
    #[test]
    fn a_cluster_whose_name_only_begins_alike_is_another() {
        let text = service(None).description(Subject::Token, "prod-2");
        let read = |cluster| ServiceName::from_description(Subject::Token, &text, cluster, false);
        assert_eq!(read("prod"), None);
        assert!(read("prod-2").is_some());
    }

    #[test]
    fn other_descriptions_are_of_nothing() {
        for text in [
            "",
            "Token for web",
            "Token for web service",
            "token for web service consul.hashicorp.com/cluster: c1",
            "Policy for web service\nconsul.hashicorp.com/cluster: c1",
            "Token for web service\nconsul.hashicorp.com/cluster: c1 and more",
            "Token for we\"b service\nconsul.hashicorp.com/cluster: c1",
        ] {
            let found = ServiceName::from_description(Subject::Token, text, "c1", false);
            assert_eq!(found, None, "{text:?}");
        }
        let plain = service(None).description(Subject::Token, "c1");
        assert_eq!(ServiceName::from_description(Subject::Token, &plain, "c1", true), None);
    }

    #[test]
    fn a_name_that_would_say_more_in_a_rule_is_refused() {
        let task =
            |name: &str| Task::new("a/1", "x").with_tag("consul.hashicorp.com/service-name", name);
        for name in ["a\" {policy=\"write\"} key \"", "a b", "ü", "a.b", &"x".repeat(125)] {
            assert!(ServiceName::of_task(&task(name), None).is_err(), "{name}");
        }
        assert!(ServiceName::of_task(&task("Web_1-x"), None).unwrap().is_some());
        // Nor can a description bring one in.
        let odd = service(Some(("p\"{}", "n"))).description(Subject::Policy, "c1");
        assert_eq!(ServiceName::from_description(Subject::Policy, &odd, "c1", true), None);
    }

    #[test]
    fn names_of_policies_and_secrets() {
        assert_eq!(service(None).policy_name(), "web-service");
        assert_eq!(service(None).secret_name("pre"), "pre-web");
        let with_tenancy = service(Some(("p1", "ns-1")));
        assert_eq!(with_tenancy.policy_name(), "web-ns-1-service");
        assert_eq!(with_tenancy.secret_name("pre"), "pre-web-ns-1-p1");
    }

    proptest! {
        #[test]
        fn no_description_does_harm(text in "(?s).{0,200}", partitions: bool) {
            drop(ServiceName::from_description(Subject::Token, &text, "c1", partitions));
        }

        #[test]
        fn every_service_comes_back(name in "[a-zA-Z0-9_-]{1,60}", namespace in "[a-z0-9-]{1,40}", with_tenancy: bool) {
            let tenancy = with_tenancy.then(|| ("p".to_owned(), namespace));
            let service = ServiceName { name, tenancy };
            let text = service.description(Subject::Policy, "c");
            let found = ServiceName::from_description(Subject::Policy, &text, "c", with_tenancy);
            prop_assert_eq!(found, Some(service));
        }
    }
}
