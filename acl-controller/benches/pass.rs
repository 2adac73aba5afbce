//! What a pass asks of Consul and of AWS where there is nothing to do, and how long a burst of new tasks
//! takes to get its tokens while Secrets Manager refuses more than 50 writes a second.
//!
//! ```text
//! cargo bench -p acl-controller --all-features --bench pass
//! ```
//!
//! Consul is the double of `consul-watch`, AWS a stub with AWS's limits, both in this process: the calls are
//! those that a real pair would get, the times are the controller's own and the stubs'.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench shares the tests' stubs, prints its figures and fails by panicking"
)]

#[path = "../tests/it/noted_secrets.rs"]
mod noted_secrets;
#[path = "../tests/it/scale.rs"]
mod scale;

/// What the stubs need of the tests' scene.
mod scene {
    /// The management token of the double.
    pub const ROOT: &str = "root";
}

/// The stubs of AWS, as the tests have them.
#[path = "../tests/it/aws"]
mod aws {
    pub mod burst;
    pub mod scale;
    pub mod secrets_stub;
    pub mod stub;
}

use aws::{
    burst::{Burst, burst},
    scale::{calls_of_a_pass, fewest},
};

/// Writes a second that Secrets Manager takes.
const RATE: u32 = 50;
/// Services that start at once.
const BURST: usize = 1_000;

#[tokio::main]
async fn main() {
    for tasks in [100, 1_000, 10_000] {
        let least: usize = fewest(tasks).values().sum();
        for (name, (consul, ecs)) in
            ["service tokens", "login tokens"].into_iter().zip(calls_of_a_pass(tasks).await)
        {
            let made: usize = ecs.values().sum();
            println!(
                "{tasks:>6} tasks, {name}: {} calls to Consul, {made} to ECS, the API's least is {least}",
                consul.len()
            );
        }
    }
    let least = Burst::least(BURST, RATE).as_secs_f64();
    let done = burst(BURST, RATE).await;
    let took = done.took.as_secs_f64();
    println!(
        "{BURST} new services at {RATE} writes a second: {took:.1} s in {} pass(es), {:.2} times the quota's \
         least of {least:.1} s; {} writes throttled, {} failed; {} MiB at most",
        done.passes,
        took / least,
        done.throttled,
        done.errors.len(),
        scale::resident() / 1024
    );
}
