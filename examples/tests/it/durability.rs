//! `resource-server` is killed at random moments under write load: what it
//! acknowledged is there afterwards, and nothing is half there.
//!
//! 20 kills by default; `scripts/soak durable` makes 200. `SEED` sets another
//! seed than 11.

mod ledger;
mod load;

use std::{ffi::OsString, path::Path, time::Duration};

use ledger::{Ledger, Stored};
use load::Load;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use crate::resource_server::{ResourceServer, on, spawn};

fn soak() -> bool {
    std::env::var_os("SOAK").is_some_and(|value| value == "1")
}

fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11)
}

/// Kills a server so many times, and looks at what is left after each.
struct Kills {
    folder: TempDir,
    /// The arguments of a server over a folder, for the first start and all
    /// others.
    arguments: fn(&Path) -> Vec<OsString>,
    random: fastrand::Rng,
    ledger: Ledger,
    slowest_start: Duration,
}

impl Kills {
    fn new(arguments: fn(&Path) -> Vec<OsString>) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            arguments,
            random: fastrand::Rng::with_seed(seed()),
            ledger: Ledger::default(),
            slowest_start: Duration::ZERO,
        }
    }

    /// Loads a server, kills it, and says what its successor has lost.
    async fn kill_once(&mut self) -> Result<(), String> {
        let arguments = (self.arguments)(self.folder.path());
        let server = ResourceServer::start_with(&arguments).await;
        let load = Load::start(&server, &mut self.ledger, &mut self.random).await;
        // After some answers, and then at any point of what follows.
        load.wait_for_answers(self.random.usize(1..60)).await;
        tokio::time::sleep(Duration::from_micros(self.random.u64(..5000))).await;
        server.kill().await;
        load.end(&mut self.ledger).await;

        // Now and then it is killed again while it starts.
        if self.random.u8(..4) == 0 {
            let mut starting = spawn(&arguments);
            let long = Duration::from_millis(self.random.u64(..60));
            // Its end at the time is what is waited for.
            drop(timeout(long, starting.wait()).await);
            starting.kill().await.unwrap();
        }

        let began = Instant::now();
        let server = ResourceServer::start_with(&arguments).await;
        let stored = Stored::of(&server).await;
        self.slowest_start = self.slowest_start.max(began.elapsed());
        server.kill().await;
        self.ledger.settle(&stored)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of a long run")]
async fn what_was_acknowledged_outlives_every_kill() {
    let rounds = if soak() { 200 } else { 20 };
    let mut kills = Kills::new(on);
    for round in 0..rounds {
        if let Err(lost) = kills.kill_once().await {
            panic!("seed {}, kill {round}: {lost}", seed());
        }
    }
    let Ledger { acknowledged, unknown, survived, .. } = kills.ledger;
    assert!(acknowledged > rounds * 5, "{acknowledged} acknowledged");
    println!(
        "seed {}: {rounds} kills, {acknowledged} changes acknowledged, {unknown} under way at a \
         kill, of which {survived} were stored; 0 lost; slowest start {:?}",
        seed(),
        kills.slowest_start
    );
}

/// A server that acknowledges before it syncs does lose changes, and this is
/// noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_losses_are_noticed() {
    let mut kills = Kills::new(|folder| {
        let mut arguments = on(folder);
        arguments.extend(["--sync".into(), "1h".into()]);
        arguments
    });
    for _ in 0..5 {
        if let Err(lost) = kills.kill_once().await {
            assert!(lost.contains("was acknowledged"), "{lost}");
            return;
        }
    }
    panic!("nothing was noticed");
}
