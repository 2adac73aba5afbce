//! Prints the instances of a service whenever they change.
//!
//! Needs a Consul agent; it is found as Consul's own tools find it (`CONSUL_HTTP_ADDR`, …).
//! Run it with `cargo run -p watch-service -- web`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "that is what it is for")]

use consul_watch::{Client, Watcher, error_chain, query::HealthService};
use futures::StreamExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = std::env::args().nth(1).ok_or("usage: watch-service NAME")?;
    let watcher = Watcher::new(Client::from_env()?);
    let mut instances = watcher.watch(HealthService::new(&service).passing());
    while let Some(change) = instances.next().await {
        match change {
            Ok(snapshot) => {
                println!("{service}: {} passing", snapshot.data.len());
                for instance in snapshot.data.iter() {
                    println!("  {}:{}", instance.address(), instance.service.port);
                }
            }
            Err(error) if error.is_fatal() => return Err(error.into()),
            Err(error) => eprintln!("{}; watching on", error_chain(error.cause())),
        }
    }
    Ok(())
}
