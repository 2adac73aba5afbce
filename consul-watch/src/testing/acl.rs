//! What a token may do: rules, and the decisions that follow from them.

mod authorizer;
mod hcl;
mod rules;

pub(super) use authorizer::Authorizer;
pub(super) use rules::{Access, Resource, Rules};
