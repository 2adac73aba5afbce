//! What the daemon works on among faults, and what must be there in the end.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use consul_watch::{
    Client, QueryOptions,
    client::HealthOptions,
    testing::{
        parts::{Suite, find},
        real::Consul,
    },
    types::{
        CatalogDeregistration, CatalogRegistration, HealthCheck, HealthStatus, KvPair, Service,
    },
};
use fastrand::Rng;
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    process::Command,
    time::{Instant, sleep, timeout},
};

use super::disk::Disk;
use crate::{
    clock::Clocks,
    end_to_end::firewall_task,
    network::Proxy,
    sync::SyncProcess,
    world::{applied, slow_task},
};

const SUITE: Suite = Suite("daemon among faults");
/// Tasks that keep a file of rules, and their services.
const RULES: [(&str, &[&str]); 2] = [("front", &["web", "api"]), ("store", &["db"])];
/// The task that takes two seconds, and its service.
const SLOW: (&str, &str) = ("slow", "job");
const SERVICES: [&str; 4] = ["web", "api", "db", "job"];
const INSTANCES: u16 = 4;
/// Name of the variable that tells the daemon's processes from all others.
const MARK: &str = "CTS_FAULTS_OF";

/// What stands between the daemon and its Terraform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrapper {
    None,
    /// Something that applies the first inputs for ever.
    Lossy,
}

pub(super) struct Site {
    pub(super) consul: Consul,
    pub(super) network: Proxy,
    pub(super) disk: Disk,
    pub(super) clocks: Clocks,
    client: Client,
    sync: SyncProcess,
    pub(super) changes: usize,
    pub(super) starts: usize,
    /// Starts after the daemon had ended without being asked to.
    pub(super) ends_by_itself: usize,
    folder: TempDir,
}

impl Site {
    /// A Consul without services and a daemon that was not started; `None` if something that
    /// it takes is not here, which the report says.
    pub(super) async fn new(case: &str, wrapper: Wrapper) -> Option<Self> {
        let tool = if find("terraform").is_some() { "terraform" } else { "tofu" };
        let tool = SUITE.part(tool, case)?;
        let part = SUITE.part_in_turn("consul", case)?;
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let clocks = Clocks::find(SUITE, case, &place)?;
        let volume = place.join("disk");
        fs::create_dir(&volume).unwrap();
        let disk = Disk::mount(SUITE, case, &volume).await?;
        let consul = Consul::start(&part.path).await.unwrap();
        let network = Proxy::start(consul.address()).await;
        let mut config = String::from("api_hosts = [\"localhost\"]\n");
        if wrapper == Wrapper::Lossy {
            let bin = lossy(&place, &tool.path);
            let bin = bin.display();
            writeln!(config, "driver \"terraform\" {{\n  path = \"{bin}\"\n}}").unwrap();
        }
        for (name, services) in RULES {
            config += &firewall_task(&place, name, services);
        }
        config += &slow_task(&place, SLOW.0, SLOW.1);
        let address = network.address.to_string();
        let sync = SyncProcess::new(&place, &address, &config)
            .working_in(&volume.join("sync-tasks"))
            .through(disk.launcher(&place));
        let client = consul.client();
        Some(Self {
            consul,
            network,
            disk,
            clocks,
            client,
            sync,
            changes: 0,
            starts: 0,
            ends_by_itself: 0,
            folder,
        })
    }

    fn mark(&self) -> String {
        format!("{MARK}={}", self.folder.path().display())
    }

    pub(super) fn start(&mut self) {
        self.starts += 1;
        let mark = self.folder.path().to_owned();
        let clock = self.clocks.environment(0);
        self.sync.start_with(|command| {
            command.env(MARK, mark).envs(clock);
        });
        self.clocks.is(Some(self.sync.pid()), 0);
    }

    pub(super) async fn signal(&self, signal: &str) {
        self.sync.signal(signal).await;
    }

    /// Sends a signal, and waits for the end.
    pub(super) async fn end(&mut self, signal: &str) {
        self.sync.end(signal).await;
    }

    /// Stops the daemon in good order, looks at what it leaves, and starts it again.
    pub(super) async fn terminate(&mut self) {
        let ended = self.sync.end("-TERM").await;
        // One signal may come before it is waited for.
        assert!(matches!(ended.code(), Some(0) | None), "{ended}\n{}", self.log());
        let locks = self.locks().await;
        assert!(locks.is_empty(), "a stop in good order leaves {locks:?}\n{}", self.log());
        self.start();
    }

    /// Kills what the daemon has left behind, all at once, as a machine does that loses its power.
    pub(super) fn kill_tools(&self) {
        let mark = self.mark();
        loop {
            let ours = processes_with(&mark);
            if ours.is_empty() {
                return;
            }
            for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
                for id in &ours {
                    let sent = kill(Pid::from_raw(*id), signal);
                    assert!(matches!(sent, Ok(()) | Err(Errno::ESRCH)), "{sent:?}");
                }
            }
            std::thread::yield_now();
        }
    }

    /// One change in Consul, if it takes it.
    pub(super) async fn change(&mut self, random: &mut Rng) {
        let service = SERVICES[random.usize(..SERVICES.len())];
        let number = random.u16(1..=INSTANCES);
        let done = if random.u8(..4) == 0 {
            let gone = CatalogDeregistration::service("outside", format!("{service}-{number}"));
            self.client.catalog_deregister(&gone).await
        } else {
            self.put(service, number, random).await
        };
        self.changes += usize::from(done.is_ok());
    }

    async fn put(&self, service: &str, number: u16, random: &mut Rng) -> consul_watch::Result<()> {
        let id = format!("{service}-{number}");
        let mut instance = Service::new(service, &id);
        instance.address = format!("10.0.0.{number}");
        instance.port = random.i64(1..60_000);
        let status =
            if random.u8(..5) == 0 { HealthStatus::Critical } else { HealthStatus::Passing };
        let alive = HealthCheck::of_service(&id, format!("{id}-alive"), status);
        let node = CatalogRegistration::new("outside", "10.0.0.1");
        self.client.catalog_register(&node.with_service(instance).with_check(alive)).await
    }

    /// Some instances of each service.
    pub(super) async fn fill_catalog(&mut self, random: &mut Rng) {
        for service in SERVICES {
            self.put(service, 1, random).await.unwrap();
        }
    }

    /// A change that concerns each task.
    pub(super) async fn change_everything(&mut self, random: &mut Rng) {
        for (service, number) in
            SERVICES.into_iter().flat_map(|service| [(service, 1), (service, 9)])
        {
            // An id of its own, for the task that looks at nothing else.
            let number = if number == 9 { random.u16(100..10_000) } else { number };
            let gone = self.instances(service).await;
            for (id, ..) in gone.iter().filter(|(id, ..)| id.len() > service.len() + 2) {
                let gone = CatalogDeregistration::service("outside", id);
                self.client.catalog_deregister(&gone).await.unwrap();
            }
            let mut always = random.fork();
            while self.put(service, number, &mut always).await.is_err() {
                sleep(Duration::from_millis(100)).await;
            }
            self.changes += 1;
        }
    }

    /// Makes the slow task run, and waits until its apply has begun.
    pub(super) async fn begin_slow_apply(&mut self) {
        let begun = self.folder.path().join(SLOW.0).join("begun");
        drop(fs::remove_file(&begun));
        let id = format!("{}-new", SLOW.1);
        let gone = CatalogDeregistration::service("outside", &id);
        let there = self.instances(SLOW.1).await.iter().any(|(known, ..)| *known == id);
        if there {
            self.client.catalog_deregister(&gone).await.unwrap();
        } else {
            let node = CatalogRegistration::new("outside", "10.0.0.1");
            let node = node.with_service(Service::new(SLOW.1, &id));
            self.client.catalog_register(&node).await.unwrap();
        }
        self.changes += 1;
        self.sync.until("the slow apply begins", || begun.exists()).await;
    }

    /// Connections to the API whose requests never end, as many as it takes.
    pub(super) async fn flood(&self, count: usize) -> Vec<TcpStream> {
        let Some(address) = self.sync.address() else { return Vec::new() };
        let address = address.trim_start_matches("http://").to_owned();
        let mut held = Vec::new();
        for _ in 0..count {
            let opened = timeout(Duration::from_secs(1), TcpStream::connect(&address)).await;
            let Ok(Ok(mut connection)) = opened else { break };
            if connection
                .write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\nx-")
                .await
                .is_ok()
            {
                held.push(connection);
            }
        }
        held
    }

    /// Leaves the daemon so many descriptors beyond those that it has open; returns its limit.
    pub(super) async fn limit_descriptors(&self, spare: usize) -> String {
        let pid = self.sync.pid().to_string();
        let asked = Command::new("prlimit")
            .args(["--pid", &pid, "--nofile", "--noheadings", "--output", "SOFT"])
            .output()
            .await
            .unwrap();
        let limit = String::from_utf8(asked.stdout).unwrap().trim().to_owned();
        let open = fs::read_dir(format!("/proc/{pid}/fd")).map_or(32, Iterator::count);
        self.set_descriptors(&(open + spare).to_string()).await;
        limit
    }

    pub(super) async fn restore_descriptors(&self, limit: String) {
        self.set_descriptors(&limit).await;
    }

    async fn set_descriptors(&self, limit: &str) {
        let pid = self.sync.pid().to_string();
        let mut set = Command::new("prlimit");
        set.args(["--pid", &pid, &format!("--nofile={limit}:")]).stderr(Stdio::null());
        // It may have ended by itself.
        set.status().await.unwrap();
    }

    /// Waits until everything is as Consul asks for. A daemon that has ended is started again,
    /// as an operating system does with its services.
    ///
    /// # Errors
    ///
    /// What is not so in the end.
    pub(super) async fn settles(&mut self, limit: Duration) -> Result<Duration, String> {
        let begun = Instant::now();
        loop {
            if self.sync.has_ended() {
                // Permitted while the machine has nothing left, and worth a look in any case.
                super::print(&format!("daemon: ended by itself:\n{}", self.last_lines(12)));
                self.ends_by_itself += 1;
                self.start();
            }
            match self.difference().await {
                None => return Ok(begun.elapsed()),
                Some(found) if begun.elapsed() > limit => {
                    return Err(format!("{found} after {limit:?}\n{}", self.log()));
                }
                Some(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// The first thing that is not as it must be.
    async fn difference(&self) -> Option<String> {
        for (task, services) in RULES {
            let mut wanted = Vec::new();
            for service in services {
                for (id, address, port) in self.instances(service).await {
                    wanted.push(format!(
                        "allow tcp to {address} port {port} # {service}, {id} on outside"
                    ));
                }
            }
            wanted.sort();
            let path = self.folder.path().join(format!("{task}.rules"));
            let text = fs::read_to_string(path).unwrap_or_default();
            let there: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
            if there != wanted {
                return Some(format!("task {task} has {there:?}, and Consul asks for {wanted:?}"));
            }
        }
        let wanted: Vec<String> =
            self.instances(SLOW.1).await.into_iter().map(|(id, ..)| id).collect();
        let there = applied(self.folder.path(), SLOW.0);
        if there != wanted.join(" ") {
            return Some(format!("task slow has {there:?}, and Consul asks for {wanted:?}"));
        }
        let all = self.sync.get("/v1/status/tasks").await.unwrap_or_default();
        for task in RULES.iter().map(|(task, _)| *task).chain([SLOW.0]) {
            if all[task]["status"] != "successful" || all[task]["enabled"] != true {
                return Some(format!("task {task} is {}", all[task]));
            }
        }
        let locks = self.locks().await;
        (!locks.is_empty()).then(|| format!("left behind: {locks:?}"))
    }

    /// Ids, addresses and ports of the passing instances, by id.
    async fn instances(&self, service: &str) -> Vec<(String, String, i64)> {
        let mut options = HealthOptions::default();
        options.passing = true;
        let Ok(found) = self.client.health_service(service, &options).await else {
            return Vec::new();
        };
        let instances = found
            .value
            .into_iter()
            .map(|entry| (entry.service.id, entry.service.address, entry.service.port));
        let mut instances: Vec<_> = instances.collect();
        instances.sort();
        instances
    }

    /// Locks on states in Consul, each with the session that holds it.
    ///
    /// Terraform releases its lock first and deletes the key afterwards, without a look at what
    /// came of that. So a key that no session holds locks nothing: the next command takes it.
    async fn locks(&self) -> Vec<String> {
        let all = self.client.kv_list("consul-terraform-sync/", &QueryOptions::default()).await;
        let is_lock = |pair: &KvPair| match pair.key.rsplit_once('.') {
            Some((_, "lock")) => pair.session.is_some(),
            Some((_, "lockinfo")) => true,
            _ => false,
        };
        let locks = all.unwrap().value.into_iter().filter(is_lock);
        locks.map(|pair| format!("{} of session {:?}", pair.key, pair.session)).collect()
    }

    /// The end of the daemon's log, without the requests by which this test waits.
    fn log(&self) -> String {
        self.last_lines(150)
    }

    /// Returns the newest lines of the daemon's log, without those about requests to its API.
    fn last_lines(&self, number: usize) -> String {
        let log = self.sync.log();
        let lines: Vec<&str> =
            log.lines().rev().filter(|line| !line.contains(" api: re")).take(number).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Site {
    /// Nothing that the daemon has started outlives the test.
    fn drop(&mut self) {
        self.kill_tools();
    }
}

/// The processes in whose environment this stands.
fn processes_with(mark: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let id = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes()).then_some(id)
    });
    processes.collect()
}

/// Writes a Terraform that applies the inputs that it was given first, whatever it is given.
fn lossy(folder: &Path, tool: &Path) -> PathBuf {
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    let name = bin.join(tool.file_name().unwrap());
    let text = format!(
        "#!/bin/sh\nfor argument; do\n  if [ \"$argument\" = apply ] && [ -e terraform.tfvars ]; then\n    \
         if [ -e kept ]; then cp kept terraform.tfvars; else cp terraform.tfvars kept; fi\n  fi\n\
         done\nexec '{}' \"$@\"\n",
        tool.display()
    );
    fs::write(&name, text).unwrap();
    fs::set_permissions(&name, fs::Permissions::from_mode(0o755)).unwrap();
    bin
}
