//! Leader election, locks and semaphores over Consul sessions; highly available state for Consul-Terraform-Sync.

#![forbid(unsafe_code)]
