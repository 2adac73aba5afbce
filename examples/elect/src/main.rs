//! Elects a leader among the processes that run it; the leader counts.
//!
//! Needs a Consul agent; it is found as Consul's own tools find it (`CONSUL_HTTP_ADDR`, …).
//! Run `cargo run -p elect -- NAME` in several terminals, and end the leader with Ctrl-C:
//! another one leads at once. Killed or suspended instead, it is replaced within a minute.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::time::Duration;

use consul_watch::Client;
use cts_ha::{Candidate, Consul, ConsulElector, ElectionOptions, ElectorExt as _, Leadership};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: elect NAME")?;
    let consul = Consul::new(Client::from_env()?);
    let candidate = Candidate::new(&name);
    let elector =
        ConsulElector::new(&consul, "elect/leader", candidate, ElectionOptions::default())?;
    println!("{name} waits");
    let work = elector.run(|leadership: Leadership| async move {
        // Ask before each step that only the leader may take.
        for step in 1.. {
            if leadership.check().is_err() {
                break;
            }
            println!("leader of term {}: step {step}", leadership.token());
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                () = leadership.ended().cancelled() => println!("leads no more"),
            }
        }
    });
    tokio::select! {
        done = work => done?,
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    // The others need not wait for the end of a session.
    elector.shutdown().await;
    Ok(())
}
