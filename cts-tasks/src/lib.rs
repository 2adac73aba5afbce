//! Configuration, task engine, events and state of Consul-Terraform-Sync.
#![forbid(unsafe_code)]
