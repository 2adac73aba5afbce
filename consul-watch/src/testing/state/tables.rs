//! What the state is made of: the records of each group of endpoints. They know nothing of each
//! other beyond what one keeps of another, and nothing of [`State`](super::State).

mod acl;
mod acl_bodies;
mod agent;
mod catalog;
mod config;
mod connect_ca;
mod contents;
mod coordinate;
mod event;
mod gateway;
mod intention;
mod kv;
mod operator;
mod query;
mod query_template;
mod session;
mod templated_policy;

pub(in crate::testing) use acl::{Acl, BindingRule, Indexes, Method, Policy, Role, Stamp, Token};
pub(in crate::testing) use acl_bodies::{
    BindingBody, Link, LoginBody, MethodBody, PolicyBody, RoleBody, TokenBody,
};
pub(in crate::testing) use agent::{LocalAgent, LocalCheck};
pub(in crate::testing) use catalog::{CheckRecord, NodeRecord, Tables};
pub(in crate::testing) use config::{ConfigEntries, Entry};
pub(in crate::testing) use connect_ca::{ConnectCa, Leaf, ttl};
pub(in crate::testing) use contents::Contents;
pub(in crate::testing) use coordinate::Coordinates;
pub(in crate::testing) use event::Events;
pub(in crate::testing) use gateway::{Gateways, Link as GatewayLink, Mapping};
pub(in crate::testing) use intention::{IntentionBody, Intentions, Record};
pub(in crate::testing) use kv::KeyRecord;
pub(in crate::testing) use operator::{AutopilotSettings, Operator};
pub(in crate::testing) use query::{PreparedQueries, QueryBody, QueryService};
pub(in crate::testing) use session::SessionRecord;
pub(in crate::testing) use templated_policy::{TEMPLATES, Template, TemplatedPolicy};
