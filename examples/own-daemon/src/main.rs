//! A deployment in a program of your own, which takes over changed files at a SIGHUP.
#![expect(clippy::print_stderr, reason = "for whoever sent the SIGHUP")]

use std::{path::PathBuf, sync::Arc};

use cts_tasks::{
    Daemon, Diagnostic, Stop, StopReason,
    config::{Loader, Registry},
};
use custom_driver::HaproxyKind;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let loader = Loader::new(Registry::new().driver(Arc::new(HaproxyKind)));
    let daemon = Daemon::of(loader.load(&files).map_err(|mistakes| shown(&mistakes))?)?;
    let stop = Stop::new();
    let mut hangups = signal(SignalKind::hangup())?;
    let reload = async {
        while hangups.recv().await.is_some() {
            match loader.load(&files) {
                Ok(loaded) => drop(daemon.reload(loaded).await), // the log says what came of it
                Err(mistakes) => eprintln!("{}", shown(&mistakes)),
            }
        }
    };
    let run = async {
        daemon.check(&stop).await?;
        daemon.run(&stop).await
    };
    let ctrl_c = async {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.stop(StopReason::Shutdown);
        }
    };
    tokio::select! {
        ended = run => ended?,
        () = async { tokio::join!(reload, ctrl_c); } => {}
    }
    Ok(())
}

fn shown(mistakes: &[Diagnostic]) -> String {
    mistakes.iter().map(|mistake| mistake.render() + "\n").collect()
}
