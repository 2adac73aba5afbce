use std::{collections::BTreeMap, path::Path, time::Duration};

use consul_watch::{
    Client, QueryOptions,
    client::{DeleteOptions, HealthOptions, PutOptions},
    testing::{TestConsul, real},
    types::{CatalogDeregistration, CatalogRegistration, HealthCheck, HealthStatus, Service},
};
use tokio::time::sleep;

pub(super) const SERVICES: [&str; 6] = ["api", "cache", "db", "web", "web-admin", "worker"];
pub(super) const KEYS: [&str; 3] = ["app/one", "app/two", "other"];
const INSTANCES: u16 = 4;

/// A Consul, and what changes in it.
pub(super) struct Site {
    consul: Consul,
    client: Client,
    changes: usize,
    restarts: usize,
    until_restart: u32,
}

enum Consul {
    Double(TestConsul),
    Real(Box<real::Consul>),
}

/// Service, id, node, port of an instance that is passing.
pub(super) type Instance = (String, String, String, i64);

impl Site {
    pub(super) fn double() -> Self {
        let consul = TestConsul::new();
        Self::new(consul.client(), Consul::Double(consul))
    }

    pub(super) async fn real(program: &Path) -> Self {
        let consul = real::Consul::start(program).await.unwrap();
        Self::new(consul.client(), Consul::Real(Box::new(consul)))
    }

    fn new(client: Client, consul: Consul) -> Self {
        Self { consul, client, changes: 0, restarts: 0, until_restart: 60 }
    }

    pub(super) fn client(&self) -> Client {
        match &self.consul {
            Consul::Double(consul) => consul.client(),
            Consul::Real(consul) => consul.client(),
        }
    }

    /// One change, or a restart.
    pub(super) async fn step(&mut self, random: &mut fastrand::Rng) {
        self.until_restart -= 1;
        if self.until_restart == 0 {
            self.until_restart = random.u32(40..120);
            self.restart(random.bool()).await;
        }
        // A server that has just come back may refuse a while.
        if self.change(random).await.is_ok() {
            self.changes += 1;
        }
        sleep(Duration::from_millis(random.u64(5..200))).await;
    }

    async fn restart(&mut self, crash: bool) {
        self.restarts += 1;
        match &mut self.consul {
            Consul::Double(consul) => consul.restart(),
            Consul::Real(consul) => {
                if crash {
                    consul.kill();
                }
                consul.restart().await.unwrap();
            }
        }
    }

    /// Waits until the server takes changes.
    pub(super) async fn calm(&mut self) {
        let options = PutOptions::default();
        while self.client.kv_put("calm", "yes", &options).await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn change(&self, random: &mut fastrand::Rng) -> consul_watch::Result<()> {
        let service = SERVICES[random.usize(..SERVICES.len())];
        let number = random.u16(1..=INSTANCES);
        let (id, node) = (format!("{service}-{number}"), format!("node-{}", number % 3));
        let key = KEYS[random.usize(..KEYS.len())];
        match random.u8(..10) {
            0..=4 => {
                let mut registered = Service::new(service, &id);
                registered.port = random.i64(1..60_000);
                let status = if random.u8(..5) == 0 {
                    HealthStatus::Critical
                } else {
                    HealthStatus::Passing
                };
                let check = HealthCheck::of_service(&id, format!("{id}-check"), status);
                let registration = CatalogRegistration::new(&node, "10.0.0.1")
                    .with_service(registered)
                    .with_check(check);
                self.client.catalog_register(&registration).await
            }
            5..=6 => {
                let gone = CatalogDeregistration::service(&node, &id);
                self.client.catalog_deregister(&gone).await
            }
            7..=8 => {
                let value = random.u32(..).to_string();
                self.client.kv_put(key, value, &PutOptions::default()).await.map(drop)
            }
            _ => self.client.kv_delete(key, &DeleteOptions::default()).await.map(drop),
        }
    }

    /// The passing instances of every service.
    pub(super) async fn instances(&self) -> BTreeMap<String, Vec<Instance>> {
        let mut all = BTreeMap::new();
        for service in SERVICES {
            let mut options = HealthOptions::default();
            options.passing = true;
            let entries = self.client.health_service(service, &options).await.unwrap().value;
            let mut instances: Vec<Instance> = entries
                .into_iter()
                .map(|entry| {
                    let port = entry.service.port;
                    (service.to_owned(), entry.service.id, entry.node.name, port)
                })
                .collect();
            instances.sort_by(|a, b| (&a.2, &a.1).cmp(&(&b.2, &b.1)));
            all.insert(service.to_owned(), instances);
        }
        all
    }

    /// The keys below a prefix with their values.
    pub(super) async fn pairs(&self, prefix: &str) -> Vec<(String, Vec<u8>)> {
        let pairs = self.client.kv_list(prefix, &QueryOptions::default()).await.unwrap().value;
        pairs.into_iter().map(|pair| (pair.key, pair.value.to_vec())).collect()
    }

    pub(super) fn summary(&self) -> String {
        format!("{} changes in Consul, {} restarts of it", self.changes, self.restarts)
    }
}
