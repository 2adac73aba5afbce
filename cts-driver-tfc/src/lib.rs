//! The Terraform Cloud driver of Consul-Terraform-Sync: runs tasks in HCP Terraform and Terraform Enterprise.

#![forbid(unsafe_code)]
