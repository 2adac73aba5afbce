//! Processes whose disk is slow: strace holds up each time that they sync.

use std::{path::PathBuf, process::Stdio, time::Duration};

use consul_watch::testing::parts::{Suite, find};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// How long strace may take to attach to a process, or to let go of it.
const LIMIT: Duration = Duration::from_mins(1);

/// Slows disks.
#[derive(Debug, Clone)]
pub(crate) struct Strace {
    program: PathBuf,
}

impl Strace {
    /// strace, if it is there and may attach to processes here. If not, the
    /// report says which case did not run, and why.
    pub(crate) async fn find(suite: Suite, case: &str) -> Option<Self> {
        if let Some(part) = find("strace")
            && let Err(why) = (Self { program: part.path }).attaches().await
        {
            suite.missing("strace", case, &why);
            return None;
        }
        suite.part("strace", case).map(|part| Self { program: part.path })
    }

    /// Attaches to a process, and lets it go.
    async fn attaches(&self) -> Result<(), String> {
        // Ends with its input.
        let mut process =
            Command::new("cat").stdin(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        self.attach(process.id().unwrap(), Duration::from_millis(1)).await?.end().await;
        drop(process.stdin.take());
        let ended = timeout(LIMIT, process.wait()).await.unwrap().unwrap();
        assert!(ended.success(), "it does not go on: {ended}");
        Ok(())
    }

    /// From when this returns, each sync of the process takes longer by this.
    pub(crate) async fn slow(&self, process: u32, by: Duration) -> SlowDisk {
        self.attach(process, by).await.unwrap_or_else(|why| panic!("{why}"))
    }

    async fn attach(&self, process: u32, by: Duration) -> Result<SlowDisk, String> {
        let calls = "fsync,fdatasync";
        let mut strace = Command::new(&self.program)
            .args(["-f", "-p", &process.to_string(), "-o", "/dev/null"])
            .args(["-e", &format!("trace={calls}")])
            .args(["-e", &format!("inject={calls}:delay_enter={}", by.as_micros())])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(strace.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let attached = async {
            while let Ok(Some(line)) = lines.next_line().await {
                said.push_str(&line);
                // It says so once it has all threads.
                if line.contains(&format!("Process {process} attached")) {
                    return true;
                }
            }
            false
        };
        if !timeout(LIMIT, attached).await.unwrap() {
            return Err(format!("it cannot attach to a process: {said}"));
        }
        // It tells of each new thread; nobody listens, but it must not wait.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(SlowDisk { strace })
    }
}

/// A process whose disk is slow, until this is dropped. The process may end
/// before.
pub(crate) struct SlowDisk {
    strace: Child,
}

impl SlowDisk {
    /// Lets the process go on as before, and waits for that.
    ///
    /// strace is killed, and the system lets go of the process. If it were asked
    /// to end while the process is being killed it would wait forever.
    pub(crate) async fn end(mut self) {
        timeout(LIMIT, self.strace.kill()).await.unwrap().unwrap();
    }
}
