//! Tasks come and go at random, and people and faults interfere; after each quiet moment exactly
//! what must exist exists.

use std::collections::{BTreeMap, BTreeSet};

use acl_controller::{Reconciler as _, ServiceTokens, Writer};
use consul_watch::{
    testing::Behaviour,
    types::{AclLink, AclPolicy, AclTokenRequest},
};
use fastrand::Rng;

use crate::{
    interrupted::{How, Interrupted},
    scene::{Scene, check, pass, write},
};

const SERVICES: usize = 6;
const ROUNDS: usize = 12;

struct World {
    scene: Scene,
    services: Vec<String>,
    /// The number of tasks of each service.
    running: BTreeMap<String, BTreeSet<String>>,
    controllers: Vec<ServiceTokens>,
    next_task: usize,
}

impl World {
    fn new(behaviour: Behaviour) -> Self {
        let scene = Scene::double(behaviour);
        let services: Vec<String> = (0..SERVICES).map(|at| scene.name(&format!("s{at}"))).collect();
        for service in &services {
            scene.secret(service);
        }
        let controllers = vec![scene.service_tokens(), scene.service_tokens()];
        Self { scene, services, running: BTreeMap::new(), controllers, next_task: 0 }
    }

    fn secret(&self, service: &str) -> String {
        format!("{}-{service}", self.scene.prefix)
    }

    async fn step(&mut self, random: &mut Rng) {
        let service = self.services[random.usize(..SERVICES)].clone();
        match random.u8(..10) {
            0..=2 => {
                self.next_task += 1;
                let arn = self.scene.start(&format!("t{}", self.next_task), &service);
                self.running.entry(service).or_default().insert(arn);
            }
            3 | 4 => {
                if let Some(tasks) = self.running.get_mut(&service) {
                    for arn in std::mem::take(tasks) {
                        self.scene.tasks.remove(&arn);
                    }
                }
            }
            5 => {
                if let Some(token) = random.choice(self.scene.tokens().await) {
                    let id = &token.accessor_id;
                    self.scene.client.acl_token_delete(id, &write()).await.unwrap();
                }
            }
            6 => {
                if let Some(policy) =
                    random.choice(self.scene.policies().await.into_values().collect::<Vec<_>>())
                {
                    self.scene.client.acl_policy_delete(&policy.id, &write()).await.unwrap();
                }
            }
            7 => {
                // Only what the controller can make good without a token to do it from.
                let texts = ["{}", "{\"accessor_id\":\"x\",\"token\":\"y\"}", "{\"token\":null}"];
                self.scene.secrets.put(self.secret(&service), texts[random.usize(..3)]);
            }
            8 => {
                let at = random.usize(..self.controllers.len());
                self.controllers[at] = self.scene.service_tokens();
            }
            _ => self.broken_pass(random).await,
        }
    }

    /// A pass of one more controller, during which some requests fail.
    async fn broken_pass(&mut self, random: &mut Rng) {
        let double = self.scene.double.clone().unwrap();
        let how = [How::Refused(500), How::AnswerLost][random.usize(..2)];
        let from = random.usize(..20);
        let (_, client) = Interrupted::new(&double, from..from + random.usize(1..8), how);
        let admin = std::mem::replace(&mut self.scene.client, client);
        let broken = self.scene.service_tokens();
        drop(broken.pass(&Writer::new(), random.bool()).await);
        self.scene.client = admin;
    }

    /// Lets all controllers work at once.
    async fn work(&self, random: &mut Rng) {
        let check = random.bool();
        let passes = self.controllers.iter().map(|one| async move {
            drop(one.pass(&Writer::new(), check).await);
        });
        futures::future::join_all(passes).await;
    }

    /// How what exists differs from exactly what must exist; empty when it does not.
    async fn differences(&self) -> Vec<String> {
        let mut differences = Vec::new();
        let running = self.running.iter().filter(|(_, tasks)| !tasks.is_empty());
        let wanted: Vec<&String> = running.map(|(name, _)| name).collect();
        let policies: Vec<String> = self.scene.policies().await.into_keys().collect();
        let expected: Vec<String> = wanted.iter().map(|name| format!("{name}-service")).collect();
        if policies != expected {
            differences.push(format!("policies {policies:?} instead of {expected:?}"));
        }
        let tokens = self.scene.tokens().await;
        let mut accessors: Vec<String> = tokens.into_iter().map(|one| one.accessor_id).collect();
        accessors.sort_unstable();
        let mut held = Vec::new();
        for service in wanted {
            let (accessor, token) = self.scene.ids(&self.secret(service)).await;
            if accessors.contains(&accessor) && !self.scene.may_register(&token, service).await {
                differences.push(format!("{service} may not register"));
            }
            if accessors.contains(&accessor) && self.scene.may_register(&token, "another").await {
                differences.push(format!("{service} may register more than itself"));
            }
            held.push(accessor);
        }
        held.sort();
        if accessors != held {
            differences.push(format!("tokens {accessors:?}, and the secrets hold {held:?}"));
        }
        differences
    }

    /// That the search finds what it looks for: one fault of each kind, planted and mended.
    async fn assert_faults_are_found(&mut self) {
        let service = self.services[0].clone();
        let arn = self.scene.start("planted", &service);
        self.running.entry(service.clone()).or_default().insert(arn);
        pass(&self.controllers[0]).await;
        assert_eq!(self.differences().await, Vec::<String>::new());
        let client = &self.scene.client;
        let own = self.scene.ids(&self.secret(&service)).await.0;
        let own = self.scene.token(&own).await.unwrap();
        let copy = AclTokenRequest::new(own.description.clone());
        let copy = client.acl_token_create(&copy, &write()).await.unwrap().accessor_id;
        assert_eq!(self.differences().await.len(), 1, "a token too many");
        client.acl_token_delete(&copy, &write()).await.unwrap();
        let bare = AclTokenRequest::new(own.description.clone());
        client.acl_token_update(&own.accessor_id, &bare, &write()).await.unwrap();
        assert_eq!(self.differences().await.len(), 1, "a token without its rights");
        pass(&self.controllers[0]).await;
        let mut more =
            AclPolicy::new(self.scene.name("more"), "service_prefix \"\" { policy = \"write\" }");
        more.description = format!("of {}", self.scene.cluster);
        client.acl_policy_create(&more, &write()).await.unwrap();
        let mut linked = AclTokenRequest::from(&self.scene.token(&own.accessor_id).await.unwrap());
        linked.policies.push(AclLink::name(&more.name));
        client.acl_token_update(&own.accessor_id, &linked, &write()).await.unwrap();
        assert_eq!(self.differences().await.len(), 2, "a policy too many, and its rights");
        let more = self.scene.policies().await.remove(&more.name).unwrap();
        client.acl_policy_delete(&more.id, &write()).await.unwrap();
        self.scene.secrets.put(self.secret(&service), "{}");
        assert_eq!(self.differences().await.len(), 1, "a secret that holds nothing");
        check(&self.controllers[0]).await;
        assert_eq!(self.differences().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn after_each_quiet_moment_exactly_what_must_exist_exists() {
    let seeds = if std::env::var_os("SOAK").is_some() { 300 } else { 6 };
    for seed in 0..seeds {
        let behaviour = if seed % 2 == 0 { Behaviour::Current } else { Behaviour::V1_8 };
        let (mut world, mut random) = (World::new(behaviour), Rng::with_seed(seed));
        world.assert_faults_are_found().await;
        for round in 0..ROUNDS {
            for _ in 0..random.usize(1..8) {
                world.step(&mut random).await;
                if random.bool() {
                    world.work(&mut random).await;
                }
            }
            eprintln!("seed {seed}, round {round}: quiet");
            for _ in 0..8 {
                world.work(&mut random).await;
            }
            for controller in &world.controllers {
                check(controller).await;
                assert_eq!(pass(controller).await, Vec::<String>::new());
            }
            assert_eq!(world.differences().await, Vec::<String>::new());
        }
    }
}
