//! Steps of a transaction on nodes, services and checks.

use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    testing::{
        acl::{Access, Authorizer, Resource},
        state::{Refused, State},
    },
    types::{HealthCheck, Node, Service},
};

/// A step about a node, as it comes over the wire.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct NodeStep {
    verb: String,
    node: Node,
}

/// A step about an instance of a service.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct ServiceStep {
    verb: String,
    #[serde(default)]
    node: String,
    service: Service,
}

/// A step about a check.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct CheckStep {
    verb: String,
    check: HealthCheck,
}

const READ: &str = "get";

/// Words a server's refusal of an instance that has an id and no name.
pub(in crate::testing::state) const fn nameless(old: bool) -> &'static str {
    if old {
        "Must provide service name with ID"
    } else {
        "Must provide service name (Service.Service) when service ID is provided"
    }
}

fn senseless(text: &str) -> Refused {
    // Its status is the transaction's.
    Refused::new(409, text)
}

impl NodeStep {
    pub(super) fn is_read(&self) -> bool {
        self.verb == READ
    }

    pub(super) fn validate(&self, who: &Authorizer) -> Result<(), Refused> {
        if self.verb == READ {
            return Ok(());
        }
        if self.node.name.is_empty() {
            return Err(senseless("Must provide node"));
        }
        who.require(Resource::Node, &self.node.name, Access::Write)
    }
}

impl ServiceStep {
    pub(super) fn is_read(&self) -> bool {
        self.verb == READ
    }

    /// The instance's id; its name where it has none.
    fn id(&self) -> &str {
        if self.service.id.is_empty() && self.verb != READ {
            &self.service.name
        } else {
            &self.service.id
        }
    }

    pub(super) fn validate(&self, who: &Authorizer, old: bool) -> Result<(), Refused> {
        if self.verb == READ {
            return Ok(());
        }
        if !self.service.id.is_empty() && self.service.name.is_empty() {
            return Err(senseless(nameless(old)));
        }
        who.require(Resource::Service, &self.service.name, Access::Write)
    }
}

impl CheckStep {
    pub(super) fn is_read(&self) -> bool {
        self.verb == READ
    }

    fn id(&self) -> &str {
        let check = &self.check;
        if check.check_id.is_empty() && self.verb != READ { &check.name } else { &check.check_id }
    }

    pub(super) fn validate(&self, who: &Authorizer) -> Result<(), Refused> {
        if self.verb == READ {
            return Ok(());
        }
        let check = &self.check;
        if check.service_id.is_empty() {
            who.require(Resource::Node, &check.node, Access::Write)
        } else {
            who.require(Resource::Service, &check.service_name, Access::Write)
        }
    }
}

/// The effect of a verb once it is known whether its object is there.
enum Deed {
    Read,
    Write,
    Delete,
}

/// Decides about a verb. `what` names the object, `stored` is the index that
/// it has, 0 for one that is absent, and `given` the one to compare with.
fn decide(
    (verb, old): (&str, bool),
    kind: &str,
    what: &str,
    stored: u64,
    given: u64,
) -> Result<Deed, String> {
    let stale = |doing: &str| Err(format!("failed to {doing} {what}, index is stale"));
    match verb {
        READ if stored == 0 => Err(format!("{what} doesn't exist")),
        READ => Ok(Deed::Read),
        "cas" if given != stored => stale("set"),
        "set" | "cas" => Ok(Deed::Write),
        "delete-cas" if stored == 0 || given != stored => stale("delete"),
        "delete" | "delete-cas" => Ok(Deed::Delete),
        other if old => Err(format!("unknown {kind} verb {other:?}")),
        other => Err(format!("unknown {} operation: {other}", kind.to_lowercase())),
    }
}

impl State {
    pub(super) fn node_step(
        &mut self,
        step: &NodeStep,
        now: Instant,
    ) -> Result<Option<Node>, String> {
        let Node { id, name, .. } = &step.node;
        let by_id = step.verb == READ && !id.is_empty();
        let found = if by_id {
            self.nodes.values().find(|record| record.node.id == *id)
        } else {
            self.nodes.get(&name.to_lowercase())
        };
        let found = found.map(|record| record.node.clone());
        let stored = found.as_ref().map_or(0, |node| node.modify_index);
        let what = format!("node {:?}", if by_id { id } else { name });
        match decide((&step.verb, self.is_1_8()), "Node", &what, stored, step.node.modify_index)? {
            Deed::Read => Ok(found),
            Deed::Write => {
                let index = self.commit();
                let mut node = step.node.clone();
                "dc1".clone_into(&mut node.datacenter);
                self.put_node(node, index);
                Ok(self.node(name).0.map(|(node, _)| node))
            }
            Deed::Delete => {
                let index = self.commit();
                self.remove_node(name, index, now);
                Ok(None)
            }
        }
    }

    pub(super) fn service_step(
        &mut self,
        step: &ServiceStep,
        now: Instant,
    ) -> Result<Option<Service>, String> {
        let (id, node) = (step.id(), &step.node);
        let find = |state: &Self| state.nodes.get(&node.to_lowercase())?.services.get(id).cloned();
        let found = find(self);
        let stored = found.as_ref().map_or(0, |service| service.modify_index);
        let what = format!("service {id:?} on node {node:?}");
        match decide(
            (&step.verb, self.is_1_8()),
            "Service",
            &what,
            stored,
            step.service.modify_index,
        )? {
            Deed::Read => Ok(found),
            Deed::Write => {
                self.must_know(node)?;
                let index = self.commit();
                self.put_service(
                    node,
                    Service { id: id.to_owned(), ..step.service.clone() },
                    index,
                );
                Ok(find(self))
            }
            Deed::Delete => {
                let index = self.commit();
                self.remove_service(node, id, index, now);
                Ok(None)
            }
        }
    }

    pub(super) fn check_step(
        &mut self,
        step: &CheckStep,
        now: Instant,
    ) -> Result<Option<HealthCheck>, String> {
        let (id, node) = (step.id(), &step.check.node);
        let find = |state: &Self| {
            let record = state.nodes.get(&node.to_lowercase())?;
            record.check(id).map(|record| record.check.clone())
        };
        let found = find(self);
        let stored = found.as_ref().map_or(0, |check| check.modify_index);
        let what = format!("check {id:?} on node {node:?}");
        match decide((&step.verb, self.is_1_8()), "Check", &what, stored, step.check.modify_index)?
        {
            Deed::Read => Ok(found),
            Deed::Write => {
                let services = self.must_know(node)?;
                let of = &step.check.service_id;
                if !of.is_empty() && !services.iter().any(|service| service == of) {
                    return Err("Missing service registration".to_owned());
                }
                let index = self.commit();
                let check = HealthCheck { check_id: id.to_owned(), ..step.check.clone() };
                self.put_check(node, check, index, now);
                Ok(find(self))
            }
            Deed::Delete => {
                let index = self.commit();
                self.remove_check(node, id, index, now);
                Ok(None)
            }
        }
    }

    /// The ids of the services on a node, which has to be there.
    fn must_know(&self, node: &str) -> Result<Vec<String>, String> {
        let record = self.nodes.get(&node.to_lowercase()).ok_or("Missing node registration")?;
        Ok(record.services.keys().cloned().collect())
    }
}
