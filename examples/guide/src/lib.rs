//! The Rust of `docs/guide`, compiled and run as documentation tests; `tests/it` checks and runs
//! the rest of it. There is nothing to use here.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/consul-watch.md")]
struct ConsulWatch;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/cts-tasks.md")]
struct CtsTasks;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/store.md")]
struct Store;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/cts-driver-terraform.md")]
struct CtsDriverTerraform;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/cts-driver-tfc.md")]
struct CtsDriverTfc;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/cts-ha.md")]
struct CtsHa;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/ecs-mesh-init.md")]
struct EcsMeshInit;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/acl-controller.md")]
struct AclController;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/resource-store.md")]
struct ResourceStore;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/rust/testing.md")]
struct Testing;
