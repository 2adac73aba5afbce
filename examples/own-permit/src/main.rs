//! A permit of your own: while a file is there, a person works on the machine, and no task
//! changes anything.
#![expect(clippy::print_stderr, reason = "for the operator")]

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use consul_watch::{Client, Watcher};
use cts_tasks::{
    Diagnostic, Engine, EngineOptions, Error, Permit, Result, Stop, StopReason,
    config::{Loader, Registry},
};
use custom_driver::HaproxyKind;

/// Time between two looks at whether the file is gone.
const LOOK: Duration = Duration::from_millis(500);

/// Denies every change while the file is there. A driver asks before each step, so this must
/// not take long.
#[derive(Debug, Clone)]
struct Maintenance {
    file: PathBuf,
}

#[async_trait]
impl Permit for Maintenance {
    fn check(&self) -> Result<()> {
        if self.file.exists() {
            let reason = format!("{} is there: a person works here", self.file.display());
            return Err(Error::NotPermitted { reason });
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let file = arguments.next().ok_or("usage: own-permit MAINTENANCE-FILE CONFIG...")?;
    let files: Vec<PathBuf> = arguments.collect();
    let loader = Loader::new(Registry::new().driver(Arc::new(HaproxyKind)));
    let loaded = loader.load(&files).map_err(|mistakes| shown(&mistakes))?;

    let permit = Maintenance { file };
    let mut options = EngineOptions::default();
    options.permit = Arc::new(permit.clone());
    let watcher = Watcher::new(Client::new(loaded.config.consul.client_config())?);
    let engine = Engine::new(watcher, loaded.driver, options);
    let stop = Stop::new();
    let interrupted = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.stop(StopReason::Shutdown);
        }
    });

    // Without a permit the engine ends; it starts again, with every task, when there is one.
    while stop.reason().is_none() {
        engine.load(loaded.config.tasks.clone(), &stop).await?;
        match engine.run(&stop).await {
            Err(Error::NotPermitted { reason }) => eprintln!("waiting: {reason}"),
            done => return Ok(done?),
        }
        while permit.check().is_err() && stop.reason().is_none() {
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}

fn shown(mistakes: &[Diagnostic]) -> String {
    mistakes.iter().map(|mistake| mistake.render() + "\n").collect()
}
