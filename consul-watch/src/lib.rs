//! A Consul HTTP client whose watches are correct, shared and cheap.
#![forbid(unsafe_code)]
