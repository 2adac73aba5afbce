//! `TestConsul`: the double, how it is built, blocked reads, and its faults.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};
use tokio::{sync::watch, time::Instant};

use super::{
    Behaviour,
    answer::Reply,
    faults::{Fault, Faults},
    login::LoginVerifier,
    route::{self, Call},
    state::{KvCondition, Seen, State},
};
use crate::types::{HealthCheck, HealthStatus};

/// Time that a request waits for a leader before it fails.
const LEADER_HOLD: Duration = Duration::from_secs(7);

/// Consul's `http_max_conns_per_client`.
const CONNECTION_LIMIT: usize = 200;

/// A Consul in this process, with true blocking queries.
///
/// It answers the calls for catalog, health, KV, sessions, transactions, the
/// local agent's services (with sidecars) and checks (with TTLs), ACLs and
/// logins, prepared queries, configuration entries, discovery chains, gateways,
/// intentions, the mesh's certificates, coordinates, events and status, with
/// filter expressions where Consul takes them. Wrong methods, unknown paths and
/// bodies that cannot be read are refused as Consul refuses them; what the double
/// does not serve is answered with 501 and a text that says so. Indexes
/// follow Consul's rules for each service, key and table, so a watch wakes
/// when a real one would; [`Behaviour`] says which servers it follows where
/// they differ. TTLs, lock-delays and waits follow tokio's clock and work
/// while it is paused.
///
/// Cheap to clone; clones are the same Consul.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use consul_watch::{QueryOptions, testing::TestConsul};
///
/// let consul = TestConsul::new();
/// consul.kv_put("app/color", "blue");
/// let answer = consul.client().kv_get("app/color", &QueryOptions::default()).await?;
/// assert_eq!(answer.value.as_ref().and_then(|pair| pair.text()), Some("blue"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
#[derive(Clone)]
pub struct TestConsul {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    management: Option<SecretString>,
    connection_limit: Option<usize>,
    faults: Mutex<Faults>,
    /// Changes with every write and every event; blocked reads listen.
    version: watch::Sender<u64>,
    traffic: watch::Sender<Traffic>,
    /// Changes when all connections are cut.
    cut: watch::Sender<u64>,
}

/// The connections and requests of the moment.
#[derive(Debug, Clone, Copy, Default)]
struct Traffic {
    requests: u64,
    blocked: usize,
    open: usize,
}

/// The connection was cut before there was an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection was cut")]
pub(super) struct Cut;

/// The access of a token where no rule of its policies says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DefaultPolicy {
    /// Everything but reading and writing ACLs.
    Allow,
    /// Nothing.
    Deny,
}

/// Settings of a [`TestConsul`].
#[derive(Debug, Clone)]
#[must_use]
pub struct TestConsulBuilder {
    behaviour: Behaviour,
    seed: u64,
    acls: Option<DefaultPolicy>,
    management: Option<SecretString>,
    connection_limit: Option<usize>,
}

impl TestConsulBuilder {
    /// Sets the servers to behave like. Default: current ones.
    pub fn behaviour(mut self, behaviour: Behaviour) -> Self {
        self.behaviour = behaviour;
        self
    }

    /// Makes ids and the jitter of waits differ; equal seeds repeat. Default 1.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Enforces ACLs. Default: they are off, and ACL calls answer 401.
    pub fn acls(mut self, default: DefaultPolicy) -> Self {
        self.acls = Some(default);
        self
    }

    /// Gives the server a management token with this secret, which
    /// [`TestConsul::client`] then sends. Has no effect without
    /// [`acls`](Self::acls); without it, the first token comes from
    /// [`Client::acl_bootstrap`](crate::Client::acl_bootstrap).
    pub fn management_token(mut self, secret: impl Into<SecretString>) -> Self {
        self.management = Some(secret.into());
        self
    }

    /// Most connections that the [served](TestConsul::serve) double takes at a
    /// time; further ones are refused as an agent with this
    /// `http_max_conns_per_client` refuses them. `None` is no limit. Default
    /// 200, which is Consul's.
    pub fn connection_limit(mut self, limit: Option<usize>) -> Self {
        self.connection_limit = limit;
        self
    }

    /// The double.
    pub fn build(self) -> TestConsul {
        let mut state = State::new(self.behaviour, self.seed);
        if let Some(default) = self.acls {
            let secret = self.management.as_ref().map(ExposeSecret::expose_secret);
            state.enable_acls(default == DefaultPolicy::Allow, secret);
        }
        TestConsul {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                management: self.management.filter(|_| self.acls.is_some()),
                connection_limit: self.connection_limit,
                faults: Mutex::default(),
                version: watch::Sender::new(0),
                traffic: watch::Sender::default(),
                cut: watch::Sender::new(0),
            }),
        }
    }
}

impl Default for TestConsul {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestConsul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestConsul")
            .field("traffic", &*self.inner.traffic.borrow())
            .finish_non_exhaustive()
    }
}

impl TestConsul {
    /// A Consul with one server, `test-consul`, that behaves like current ones.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A Consul with other settings.
    pub fn builder() -> TestConsulBuilder {
        TestConsulBuilder {
            behaviour: Behaviour::default(),
            seed: 1,
            acls: None,
            management: None,
            connection_limit: Some(CONNECTION_LIMIT),
        }
    }

    pub(super) fn connection_limit(&self) -> Option<usize> {
        self.inner.connection_limit
    }

    /// Returns `true` if connections past the limit are closed without an answer.
    pub(super) fn refuses_silently(&self) -> bool {
        self.state().is_1_8()
    }

    pub(super) fn management_token(&self) -> Option<SecretString> {
        self.inner.management.clone()
    }

    /// Writes a key.
    pub fn kv_put(&self, key: &str, value: impl Into<Bytes>) {
        let value = value.into();
        self.change(|state, now| {
            // Without a condition there is nothing to refuse.
            drop(state.kv_put(key, value, 0, &KvCondition::default(), now));
        });
    }

    /// Judges what programs show to auth methods of a kind, such as `aws-iam`
    /// or `jwt`. Without a verifier their logins fail.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use consul_watch::{WriteOptions, testing::{DefaultPolicy, LoginAttempt, LoginIdentity, TestConsul}};
    /// use consul_watch::types::{AclAuthMethod, AclBindingRule, AclLogin, BindType};
    /// use secrecy::ExposeSecret;
    ///
    /// let consul = TestConsul::builder()
    ///     .acls(DefaultPolicy::Deny)
    ///     .management_token("root")
    ///     .build();
    /// consul.set_login_verifier("aws-iam", |attempt: &LoginAttempt<'_>| {
    ///     match attempt.bearer_token.expose_secret() {
    ///         "good" => Ok(LoginIdentity::aws_iam("arn:aws:iam::1:role/web", "web", "AROA1", "1")),
    ///         _ => Err("the signature is wrong".to_owned()),
    ///     }
    /// });
    ///
    /// let (admin, options) = (consul.client(), WriteOptions::default());
    /// let trusts = serde_json::json!({ "BoundIAMPrincipalARNs": ["arn:aws:iam::1:role/*"] });
    /// let config = trusts.as_object().cloned().unwrap_or_default();
    /// admin.acl_auth_method_create(&AclAuthMethod::new("iam", "aws-iam", config), &options).await?;
    /// let rule = AclBindingRule::new("iam", BindType::Service, "${entity_name}");
    /// admin.acl_binding_rule_create(&rule, &options).await?;
    ///
    /// let nobody = admin.with_token(None)?;
    /// let token = nobody.acl_login(&AclLogin::new("iam", "good".into()), &options).await?;
    /// assert_eq!(token.service_identities[0].service_name, "web");
    /// assert!(nobody.acl_login(&AclLogin::new("iam", "forged".into()), &options).await.is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_login_verifier(&self, kind: &str, verifier: impl LoginVerifier) {
        self.change(|state, _| state.set_login_verifier(kind, Arc::new(verifier)));
    }

    /// Lets another authority sign the mesh's certificates. The ones before it
    /// stay trusted; services get new certificates.
    pub fn rotate_ca(&self) {
        // Making keys fails only without memory.
        self.change(|state, now| drop(state.rotate_ca(now)));
    }

    /// Deletes a key.
    pub fn kv_delete(&self, key: &str) {
        self.change(|state, _| state.kv_delete(key, None));
    }

    /// Registers an instance of a service on its own node, with one check in
    /// this state. The node's name is `node-` and the instance's id.
    pub fn set_instance(
        &self,
        service: &str,
        id: &str,
        address: &str,
        port: u16,
        status: HealthStatus,
    ) {
        let check = HealthCheck::of_service(id, format!("{id}-check"), status);
        let body = serde_json::json!({
            "Node": format!("node-{id}"), "Address": address,
            "Service": { "Service": service, "ID": id, "Port": port },
            "Check": check,
        });
        self.change(|state, now| {
            if let Ok(body) = serde_json::from_value(body) {
                drop(state.register(body, now));
            }
        });
    }

    /// Takes such an instance away, with its node.
    pub fn remove_instance(&self, id: &str) {
        let body = serde_json::json!({ "Node": format!("node-{id}") });
        self.change(|state, now| {
            if let Ok(body) = serde_json::from_value(body) {
                state.deregister(&body, now);
            }
        });
    }

    /// Lets gossip say that a node has failed, or is alive again (`serfHealth`).
    pub fn set_node_alive(&self, node: &str, alive: bool) {
        self.change(|state, now| state.set_node_alive(node, alive, now));
    }

    /// Forgets deleted keys, as servers do after 15 minutes.
    pub fn reap_tombstones(&self) {
        self.change(|state, _| state.reap_tombstones());
    }

    /// Replaces the history by an older one with the same contents, as
    /// restoring a snapshot does: all blocked reads answer, with a lower index.
    pub fn reset_index(&self) {
        self.change(|state, _| state.lower_indexes());
    }

    /// Loses the leader, or elects one again. Without one, blocked reads that
    /// need it fail at once and new ones after seven seconds.
    pub fn set_leader(&self, leader: bool) {
        self.change(|state, now| {
            state.leader = leader;
            state.leader_lost = (!leader).then_some(now);
            if leader {
                state.restart_session_timers(now);
            } else {
                state.abandon();
            }
        });
    }

    /// Cuts all connections and starts again with the data: session timers start again.
    pub fn restart(&self) {
        self.change(State::restart_session_timers);
        self.inner.cut.send_modify(|count| *count += 1);
    }

    /// Lets the next `times` requests run into a fault.
    pub fn inject(&self, fault: &Fault, times: usize) {
        self.faults().push(fault, times);
    }

    /// Lets every request run into a fault, until `None` clears all faults.
    pub fn inject_always(&self, fault: Option<Fault>) {
        self.faults().set(fault);
    }

    /// Requests that have come in so far.
    pub fn requests(&self) -> u64 {
        self.inner.traffic.borrow().requests
    }

    /// Reads that are blocked at the moment.
    pub fn blocked(&self) -> usize {
        self.inner.traffic.borrow().blocked
    }

    /// Requests without an answer at the moment.
    pub fn open(&self) -> usize {
        self.inner.traffic.borrow().open
    }

    /// Waits until exactly so many reads are blocked.
    pub async fn wait_for_blocked(&self, count: usize) {
        let mut traffic = self.inner.traffic.subscribe();
        // The sender lives as long as this double.
        drop(traffic.wait_for(|traffic| traffic.blocked == count).await);
    }

    /// Waits until exactly so many requests have no answer.
    pub async fn wait_for_open(&self, count: usize) {
        let mut traffic = self.inner.traffic.subscribe();
        drop(traffic.wait_for(|traffic| traffic.open == count).await);
    }

    /// Waits until so many requests have come in.
    pub async fn wait_for_requests(&self, count: u64) {
        let mut traffic = self.inner.traffic.subscribe();
        drop(traffic.wait_for(|traffic| traffic.requests >= count).await);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.inner.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) {
        let now = Instant::now();
        {
            let mut state = self.state();
            state.advance(now);
            change(&mut state, now);
        }
        self.inner.version.send_modify(|version| *version += 1);
    }

    /// Answers one request, after blocking if it asks for that.
    pub(super) async fn handle(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, Cut> {
        self.inner.traffic.send_modify(|traffic| traffic.requests += 1);
        let _open = Counted::enter(self, |traffic| &mut traffic.open);
        let mut cut = self.inner.cut.subscribe();
        tokio::select! {
            answer = self.respond(request) => answer,
            _changed = cut.changed() => Err(Cut),
        }
    }

    async fn respond(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, Cut> {
        let fault = self.faults().take();
        match fault {
            Some(Fault::Drop) => return Err(Cut),
            Some(Fault::Status { status, text }) => {
                return Ok(Reply::text(status, text).into_http());
            }
            Some(Fault::Hang) => std::future::pending::<()>().await,
            Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::Body { text }) => {
                let mut reply = self.reply(request).await;
                reply.body = text.into();
                return Ok(reply.into_http());
            }
            None => {}
        }
        let (head, pretty) = (request.method() == http::Method::HEAD, is_pretty(request.uri()));
        let mut reply = self.reply(request).await;
        if head {
            reply.body = Bytes::new();
        } else if pretty {
            reply.indent();
        }
        Ok(reply.into_http())
    }

    async fn reply(&self, request: http::Request<Bytes>) -> Reply {
        let mut call = match Call::parse(request) {
            Ok(call) => call,
            Err(reply) => return *reply,
        };
        let old = self.state().is_1_8();
        if let Err(reply) = route::admit(&call, old) {
            // Only what has an endpoint says what happens without a token.
            let known = matches!(reply.status, 200 | 405) && call.path.starts_with("v1/");
            return if known { with_policy(reply, &self.state()) } else { reply };
        }
        if let Err(refused) = call.read_options(old) {
            return with_policy(refused.into(), &self.state());
        }
        if call.needs_leader() && !self.has_leader().await {
            return Reply::text(500, "No cluster leader");
        }
        let blocks = call.method == http::Method::GET && (call.index > 0 || call.hash.is_some());
        let mut held = Held::new(&call, self.state().wait_jitter(call.wait));
        let mut version = self.inner.version.subscribe();
        let mut counted = None;
        loop {
            let now = Instant::now();
            let (reply, due, changed) = {
                let mut state = self.state();
                let mut changed = state.advance(now);
                let reply = route::answer(&mut state, &call, now);
                changed |= call.method != http::Method::GET;
                if counted.is_some() && call.needs_leader() && !state.leader {
                    return Reply::text(500, "rpc error making call: EOF");
                }
                let reply = with_contact(held.cling(reply), &call, &state, now);
                if !blocks || held.is_over(&call, &reply, state.epoch, now) {
                    (Some(reply), None, changed)
                } else {
                    (None, state.next_due(), changed)
                }
            };
            if changed {
                self.inner.version.send_modify(|version| *version += 1);
            }
            if let Some(reply) = reply {
                return reply;
            }
            counted.get_or_insert_with(|| Counted::enter(self, |traffic| &mut traffic.blocked));
            let until = due.map_or(held.until, |due| due.min(held.until));
            tokio::select! {
                _changed = version.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Waits for a leader as long as Consul does.
    async fn has_leader(&self) -> bool {
        let mut version = self.inner.version.subscribe();
        let limit = Instant::now() + LEADER_HOLD;
        loop {
            if self.state().leader {
                return true;
            }
            tokio::select! {
                _changed = version.changed() => {}
                () = tokio::time::sleep_until(limit) => return false,
            }
        }
    }
}

/// `true` if JSON is to be easy to read for people.
fn is_pretty(uri: &http::Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query.split('&').any(|pair| pair.split('=').next() == Some("pretty"))
}

/// Adds what every endpoint says, and what servers since 1.9 say of requests without a token.
fn with_policy(reply: Reply, state: &State) -> Reply {
    let reply = reply.header("vary", "Accept-Encoding");
    if state.is_1_8() {
        return reply;
    }
    let policy = if state.acl_default_allow() { "allow" } else { "deny" };
    reply.header("x-consul-default-acl-policy", policy)
}

/// Adds what the headers say about the leader to a read's answer.
fn with_contact(reply: Reply, call: &Call, state: &State, now: Instant) -> Reply {
    let mut reply = with_policy(reply, state);
    if reply.status == 200 && call.tells_consistency(state.is_1_8()) {
        reply = reply.header("x-consul-effective-consistency", call.consistency());
    }
    if reply.seen.is_none() || reply.only_index {
        return reply;
    }
    if call.has("cached") && call.method == http::Method::GET {
        // Each read is a new one: nothing is kept.
        reply = reply.header("x-cache", "MISS");
    }
    if !state.is_1_8() {
        reply = reply.header("x-consul-query-backend", "blocking-query");
    }
    let leader = state.leader && !reply.quiet_leader;
    let contact =
        state.leader_lost.map_or(Duration::ZERO, |lost| now.saturating_duration_since(lost));
    reply
        .header("x-consul-knownleader", leader.to_string())
        .header("x-consul-lastcontact", contact.as_millis().to_string())
}

/// A read while it blocks.
struct Held {
    until: Instant,
    epoch: Option<u64>,
    before: Option<Seen>,
    /// Body of a read that is held.
    found: Option<Bytes>,
}

impl Held {
    fn new(call: &Call, jitter: Duration) -> Self {
        let until = Instant::now() + call.wait + jitter;
        Self { until, epoch: None, before: None, found: None }
    }

    /// Keeps what the read found before, where servers do.
    fn cling(&mut self, mut reply: Reply) -> Reply {
        if !reply.clings {
            return reply;
        }
        if reply.status == 200 {
            self.found = Some(reply.body.clone());
        } else if let Some(found) = &self.found {
            (reply.status, reply.body) = (200, found.clone());
        }
        reply
    }

    /// Returns `true` if the read answers now.
    fn is_over(&mut self, call: &Call, reply: &Reply, epoch: u64, now: Instant) -> bool {
        if now >= self.until || *self.epoch.get_or_insert(epoch) != epoch {
            return true;
        }
        if let Some(asked) = &call.hash {
            return reply.hash.as_ref() != Some(asked);
        }
        if let Some(number) = reply.number {
            return number != call.index;
        }
        let Some(seen) = reply.seen else { return true };
        // Past its first look, a read sleeps until what it watches changes.
        let woken = self.before.is_none_or(|before| before.watched != seen.watched);
        self.before = Some(seen);
        woken && seen.index > call.index
    }
}

/// Counts something for as long as it lives.
struct Counted {
    consul: TestConsul,
    which: fn(&mut Traffic) -> &mut usize,
}

impl Counted {
    fn enter(consul: &TestConsul, which: fn(&mut Traffic) -> &mut usize) -> Self {
        consul.inner.traffic.send_modify(|traffic| *which(traffic) += 1);
        Self { consul: consul.clone(), which }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.consul.inner.traffic.send_modify(|traffic| {
            let count = (self.which)(traffic);
            *count = count.saturating_sub(1);
        });
    }
}
