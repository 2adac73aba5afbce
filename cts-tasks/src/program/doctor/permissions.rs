//! What the token has to be allowed in Consul, and whether it is.

use consul_watch::{Client, client::AclAuthorization, error_chain};

use super::{Findings, PATIENCE, Verdict};
use crate::{Condition, Config, KvSelection, ModuleInput, ServiceSelection, Task};

/// A permission that the token needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    access: AclAuthorization,
    /// The part of the deployment that needs it.
    user: String,
}

/// Asks Consul about everything that the deployment does there.
pub(super) async fn check(client: &Client, config: &Config, findings: &mut Findings) {
    let wanted = wanted(config);
    let questions: Vec<_> = wanted.iter().map(|wanted| wanted.access.clone()).collect();
    let answer = match tokio::time::timeout(PATIENCE, client.acl_authorize(&questions)).await {
        Ok(answer) => answer,
        Err(_late) => {
            return findings.add("permissions", Verdict::Warning, "Consul does not tell in time");
        }
    };
    match answer {
        Ok(Some(allowed)) => {
            let refused = wanted.iter().zip(&allowed).filter(|(_, allowed)| !**allowed);
            let mut all = true;
            for (Wanted { access, user }, _) in refused {
                all = false;
                findings.add(
                    format!("permissions of {user}"),
                    Verdict::Missing,
                    format!(
                        "the token lacks {}:{} for {:?}",
                        access.resource, access.access, access.segment
                    ),
                );
            }
            if all {
                let detail = format!("the token may do all {} things", wanted.len());
                findings.add("permissions", Verdict::Ok, detail);
            }
        }
        Ok(None) => findings.add("permissions", Verdict::Ok, "Consul's ACLs are off"),
        Err(error) if error.is_permission_denied() => {
            let detail = format!("Consul does not know the token: {}", error_chain(&error));
            findings.add("permissions", Verdict::Missing, detail);
        }
        Err(error) => {
            let detail = format!("this Consul does not tell: {}", error_chain(&error));
            findings.add("permissions", Verdict::Warning, detail);
        }
    }
}

fn wanted(config: &Config) -> Vec<Wanted> {
    let mut all = Vec::new();
    let mut add = |user: &str, resource: &str, access: &str, segment: &str| {
        let access = AclAuthorization::new(resource, access, segment);
        all.push(Wanted { access, user: user.to_owned() });
    };
    let registration = &config.consul.service_registration;
    if registration.enabled {
        add("service_registration", "service", "write", &registration.service_name);
    }
    let backend = config.driver.body.as_ref().and_then(|body| body.get("backend"));
    let keeps_state = backend.is_none_or(|backend| backend.get("consul").is_some());
    if config.driver.label == "terraform" && keeps_state {
        add("the Terraform state", "key", "write", &config.consul.state_path());
        add("the Terraform state", "session", "write", "");
    }
    for task in &config.tasks {
        let user = format!("task {}", task.name);
        for (resource, segment) in read_by(task) {
            add(&user, resource, "read", &segment);
        }
    }
    all.sort();
    all.dedup_by(|one, other| one.access == other.access);
    all
}

/// Resources and names that a task reads.
fn read_by(task: &Task) -> Vec<(&'static str, String)> {
    let mut read = Vec::new();
    match &task.condition {
        Condition::Services { services, .. } => of_services(services, &mut read),
        Condition::CatalogServices { .. } => read.push(("service", String::new())),
        Condition::ConsulKv { keys, .. } => of_keys(keys, &mut read),
        Condition::Schedule { .. } => {}
    }
    for input in &task.module_inputs {
        match input {
            ModuleInput::Services(services) => of_services(services, &mut read),
            ModuleInput::ConsulKv(keys) => of_keys(keys, &mut read),
        }
    }
    read
}

fn of_services(services: &ServiceSelection, read: &mut Vec<(&'static str, String)>) {
    match services {
        ServiceSelection::Named(named) => {
            read.extend(named.iter().map(|service| ("service", service.name.clone())));
        }
        // Which services match is known only once all can be read.
        ServiceSelection::Matching(_) => read.push(("service", String::new())),
    }
    // Instances are read with their nodes.
    read.push(("node", String::new()));
}

fn of_keys(keys: &KvSelection, read: &mut Vec<(&'static str, String)>) {
    read.push(("key", keys.path.clone()));
}
