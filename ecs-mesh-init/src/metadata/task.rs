//! The task as the metadata endpoint describes it, and the names that derive from it.

use serde::{Deserialize, Deserializer};

use crate::{Error, Result};

/// Task as ECS describes it. Every member may be missing.
///
/// Source: consul-ecs 0.10 `awsutil/awsutil.go`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct Task {
    /// Cluster: a name on EC2, an ARN on Fargate.
    #[serde(deserialize_with = "nullable")]
    pub cluster: String,
    /// ARN of the task.
    #[serde(rename = "TaskARN", deserialize_with = "nullable")]
    pub task_arn: String,
    /// Family of the task definition.
    #[serde(deserialize_with = "nullable")]
    pub family: String,
    /// Availability zone that it runs in.
    #[serde(deserialize_with = "nullable")]
    pub availability_zone: String,
    /// Containers of the task.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
}

/// Container of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct Container {
    /// Name in the task definition.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Type: `NORMAL` for the user's containers, others for those of ECS itself.
    #[serde(rename = "Type", deserialize_with = "nullable")]
    pub kind: String,
    /// Status that ECS aims at: `RUNNING`, `STOPPED`, …
    #[serde(deserialize_with = "nullable")]
    pub desired_status: String,
    /// Status that ECS observes.
    #[serde(deserialize_with = "nullable")]
    pub known_status: String,
    /// Health; empty without a health check.
    #[serde(deserialize_with = "nullable")]
    pub health: ContainerHealth,
    /// Networks that it is attached to.
    #[serde(deserialize_with = "nullable")]
    pub networks: Vec<Network>,
}

/// Health of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ContainerHealth {
    /// `HEALTHY`, `UNHEALTHY` or `UNKNOWN`.
    #[serde(deserialize_with = "nullable")]
    pub status: String,
    /// Time of the last change of `status` (RFC 3339).
    #[serde(deserialize_with = "nullable")]
    pub status_since: String,
    /// Exit code of the health check's command.
    #[serde(deserialize_with = "nullable")]
    pub exit_code: i64,
}

/// Network of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[non_exhaustive]
pub struct Network {
    /// IPv4 addresses.
    #[serde(rename = "IPv4Addresses", deserialize_with = "nullable")]
    pub ipv4_addresses: Vec<String>,
    /// Name in the VPC's private DNS.
    #[serde(rename = "PrivateDNSName", deserialize_with = "nullable")]
    pub private_dns_name: String,
}

fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    // ECS's agent is written in Go, which encodes an empty list as `null`.
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Task {
    /// Parses the response of the metadata endpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`] if it is not the JSON of a task.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| Error::Metadata {
            step: "unmarshalling metadata uri response".to_owned(),
            source: error.into(),
        })
    }

    /// Returns the task's id: the part of the ARN after its last slash.
    pub fn id(&self) -> &str {
        self.task_arn.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the AWS region: `configured` if it is set, else the ARN's.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the ARN has none.
    pub fn region(&self, configured: Option<&str>) -> Result<String> {
        match configured.filter(|region| !region.is_empty()) {
            Some(region) => Ok(region.to_owned()),
            None => self.arn_field(3).ok_or_else(|| {
                Error::input(format!(
                    "unable to determine AWS region from Task ARN: {:?}",
                    self.task_arn
                ))
            }),
        }
    }

    /// Returns the AWS account of the ARN.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the ARN has none.
    pub fn account(&self) -> Result<String> {
        self.arn_field(4).ok_or_else(|| {
            Error::input(format!(
                "unable to determine AWS account id from Task ARN: {:?}",
                self.task_arn
            ))
        })
    }

    fn arn_field(&self, at: usize) -> Option<String> {
        let fields: Vec<&str> = self.task_arn.split(':').collect();
        // A full ARN has six fields; a shorter text must not pass its words off as a region.
        let field = fields.get(at).filter(|field| fields.len() >= 6 && !field.is_empty());
        field.map(|field| (*field).to_owned())
    }

    /// Returns the ARN of the cluster, which names its node in the catalog.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the task's ARN has no slash. ARNs in the old short format (`task/<id>`)
    /// give a wrong ARN, as they do upstream.
    pub fn cluster_arn(&self) -> Result<String> {
        if self.cluster.starts_with("arn:") {
            return Ok(self.cluster.clone());
        }
        let cluster = self.task_arn.replacen(":task/", ":cluster/", 1);
        match cluster.rsplit_once('/') {
            Some((arn, _task)) => Ok(arn.to_owned()),
            None => Err(Error::input(format!(
                "unable to determine cluster ARN from task ARN {:?}",
                self.task_arn
            ))),
        }
    }

    /// Returns the task's own address: the first address of the first network of the first
    /// container, else `127.0.0.1`.
    pub fn node_ip(&self) -> &str {
        self.containers
            .first()
            .and_then(|container| container.networks.first())
            .and_then(|network| network.ipv4_addresses.first())
            .map_or("127.0.0.1", String::as_str)
    }

    /// Returns the container of a name.
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Returns `true` if a container has stopped; an absent one counts as stopped.
    pub fn has_stopped(&self, name: &str) -> bool {
        self.container(name).is_none_or(Container::has_stopped)
    }
}

impl Container {
    /// Returns `true` if it has stopped, and ECS does not want to start it again.
    pub fn has_stopped(&self) -> bool {
        self.desired_status == "STOPPED" && self.known_status == "STOPPED"
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: &str = r#"{"Cluster":"test","TaskARN":"arn:aws:ecs:us-east-1:123456789:task/test/abcdef","Family":"My-Service",
      "Revision":"7","AvailabilityZone":"us-east-1a","Containers":[{"DockerId":"ea3","Name":"frontend","Type":"NORMAL",
      "DesiredStatus":"RUNNING","KnownStatus":"RUNNING","Networks":[{"NetworkMode":"awsvpc","IPv4Addresses":["10.0.1.7"],
      "PrivateDNSName":"ip-10-0-1-7.ec2.internal"}],"Health":{"status":"HEALTHY","statusSince":"2021-10-20T18:30:54Z","exitCode":0}},
      {"Name":"other","DesiredStatus":"STOPPED","KnownStatus":"STOPPED","Health":null,"Networks":null}]}"#;

    fn task() -> Task {
        Task::parse(EXAMPLE.as_bytes()).unwrap()
    }

    /// Case MI13: id, region, account and cluster ARN follow from the task's ARN.
    #[test]
    fn an_arn_gives_id_region_account_and_cluster() {
        let mut task = task();
        assert_eq!(task.id(), "abcdef");
        assert_eq!(task.region(None).unwrap(), "us-east-1");
        assert_eq!(task.account().unwrap(), "123456789");
        assert_eq!(task.cluster_arn().unwrap(), "arn:aws:ecs:us-east-1:123456789:cluster/test");
        task.cluster = "arn:aws:ecs:us-east-1:123456789:cluster/fargate".into();
        assert_eq!(task.cluster_arn().unwrap(), task.cluster);
    }

    /// Case MI14: a configured region wins over the ARN; without both it is an error.
    #[test]
    fn a_configured_region_wins_over_the_arn() {
        let mut task = task();
        assert_eq!(task.region(Some("eu-west-1")).unwrap(), "eu-west-1");
        task.task_arn = "invalid-task-arn".into();
        assert_eq!(task.region(Some("eu-west-1")).unwrap(), "eu-west-1");
        let text = |result: Result<String>| result.unwrap_err().to_string();
        assert_eq!(
            text(task.region(Some(""))),
            r#"unable to determine AWS region from Task ARN: "invalid-task-arn""#
        );
        assert_eq!(
            text(task.account()),
            r#"unable to determine AWS account id from Task ARN: "invalid-task-arn""#
        );
        assert_eq!(
            text(task.cluster_arn()),
            r#"unable to determine cluster ARN from task ARN "invalid-task-arn""#
        );
    }

    /// Case MI15: metadata without containers, networks or addresses means 127.0.0.1.
    #[test]
    fn without_an_address_the_node_is_local() {
        let mut task = task();
        assert_eq!(task.node_ip(), "10.0.1.7");
        task.containers[0].networks[0].ipv4_addresses.clear();
        assert_eq!(task.node_ip(), "127.0.0.1");
        task.containers[0].networks.clear();
        assert_eq!(task.node_ip(), "127.0.0.1");
        task.containers.clear();
        assert_eq!(task.node_ip(), "127.0.0.1");
    }

    #[test]
    fn a_container_that_is_absent_has_stopped() {
        let task = task();
        assert!(!task.has_stopped("frontend"));
        assert!(task.has_stopped("other") && task.has_stopped("nobody"));
        assert_eq!(task.container("frontend").unwrap().health.status, "HEALTHY");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _result = Task::parse(&bytes);
        }

        #[test]
        fn a_cut_or_changed_document_is_read_or_refused(at in 0..EXAMPLE.len(), byte in any::<u8>()) {
            let mut bytes = EXAMPLE.as_bytes().to_vec();
            bytes[at] = byte;
            for bytes in [&bytes[..], &EXAMPLE.as_bytes()[..at]] {
                if let Ok(task) = Task::parse(bytes) {
                    let _values = (task.id(), task.region(None), task.account(), task.cluster_arn(), task.node_ip());
                }
            }
        }
    }
}
