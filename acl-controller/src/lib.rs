//! Consul ACL tokens for tasks on Amazon ECS, provisioned and cleaned up by a reconciler.

#![forbid(unsafe_code)]
