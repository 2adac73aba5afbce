//! One program over every store and every way to a server, chosen by its argument:
//!
//! ```sh
//! cargo run -p resource-store --all-features --example records -- memory
//! ```
//!
//! | argument | what it uses |
//! |---|---|
//! | `memory` | a store in memory, in this process |
//! | `file:resources.redb` | a store in a file |
//! | `raft:folder` | a node of a cluster, alone, in a folder |
//! | `etcd:http://127.0.0.1:2379` | an etcd |
//! | `postgres://me@127.0.0.1/records` | a PostgreSQL database |
//! | `grpc:http://127.0.0.1:8502` | a server, over gRPC |
//! | `http:http://127.0.0.1:8502` | a server, over HTTP |
//! | `serve:127.0.0.1:8502` | serves the types of this program, in memory, for the two before |
//!
//! It makes a band; a controller sees to it that each band has a first album and says so in
//! its status; and then all of it is deleted again.

mod program;

use resource_store::controller::BoxError;
use tokio_util::sync::CancellationToken;

#[expect(clippy::print_stdout, reason = "that is what it is for")]
#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "memory".to_owned());
    if let Some(address) = argument.strip_prefix("serve:") {
        let server = program::server(address).await?;
        println!("listening at {}", server.local_addr()?);
        let stop = CancellationToken::new();
        tokio::select! {
            served = server.run(stop.clone()) => served?,
            ended = tokio::signal::ctrl_c() => ended?,
        }
        return Ok(());
    }
    for line in program::run(&argument).await? {
        println!("{line}");
    }
    Ok(())
}
