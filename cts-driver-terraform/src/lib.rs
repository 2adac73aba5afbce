//! The Terraform driver of Consul-Terraform-Sync.
#![forbid(unsafe_code)]
