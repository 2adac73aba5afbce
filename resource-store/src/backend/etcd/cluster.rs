//! Calls to the members of an etcd cluster.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use secrecy::ExposeSecret as _;
use tokio::time::{Instant, sleep, timeout};
use tonic::{
    Request, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, ClientTlsConfig, Endpoint},
};

use super::{
    config::{EtcdConfig, EtcdTls, EtcdUser},
    failure::{Failure, Verdict, judge, text},
    pb::{
        AuthenticateRequest, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
        WatchResponse, auth_client::AuthClient, kv_client::KvClient, watch_client::WatchClient,
        watch_request::RequestUnion,
    },
};
use crate::{
    backend::{Error, Result},
    client_tls::client_tls,
    error_chain::error_chain,
};

/// Etcd ends a connection that is checked more often than every 5 seconds.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_millis(500);
/// Limit of logins for one call.
const LOGINS: u32 = 3;

/// The members of an etcd cluster, of which one is used at a time.
pub(super) struct Cluster {
    members: Vec<Member>,
    /// Index of the member that is asked first.
    preferred: AtomicUsize,
    user: Option<EtcdUser>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    attempt_timeout: Duration,
    timeout: Duration,
}

struct Member {
    address: String,
    channel: Channel,
}

/// The answer to a request that may have been sent more than once.
pub(super) struct Answer {
    pub(super) response: TxnResponse,
    /// An earlier attempt may have taken effect.
    pub(super) uncertain: bool,
}

/// The end of the attempts at a transaction on other members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    UntilAnswered,
    UntilSent,
}

/// A stream of what a watch tells, and the half that keeps it open.
pub(super) struct WatchStream {
    pub(super) responses: Streaming<WatchResponse>,
    _requests: tokio::sync::mpsc::Sender<WatchRequest>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<_> = self.members.iter().map(|member| &member.address).collect();
        f.debug_struct("Cluster").field("members", &addresses).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self> {
        let members: Vec<_> =
            config.endpoints.iter().map(|e| member(e, config)).collect::<Result<_>>()?;
        if members.is_empty() {
            return Err(misconfigured("no endpoint of etcd is given"));
        }
        Ok(Self {
            members,
            preferred: AtomicUsize::new(0),
            user: config.user.clone(),
            token: Mutex::new(None),
            attempt_timeout: config.attempt_timeout,
            timeout: config.timeout,
        })
    }

    /// Does a transaction on one member after the other, until one answers.
    /// Whoever calls this repeats nothing, and must bear that the request takes
    /// effect at the first attempt and is answered at the second.
    pub(super) async fn txn(&self, request: &TxnRequest) -> Result<Answer, Failure> {
        self.attempt_until(request, Repeat::UntilAnswered).await
    }

    /// The same for a transaction that could take effect twice, because what it
    /// is conditional on may come true again: it is not repeated once it may
    /// have arrived.
    pub(super) async fn txn_at_most_once(&self, request: &TxnRequest) -> Result<Answer, Failure> {
        self.attempt_until(request, Repeat::UntilSent).await
    }

    async fn attempt_until(&self, request: &TxnRequest, repeat: Repeat) -> Result<Answer, Failure> {
        let deadline = Instant::now() + self.timeout;
        let (mut uncertain, mut failures, mut logins) = (false, 0, 0);
        loop {
            let (place, member) = self.preferred()?;
            let status = match self.attempt(member, request).await {
                Ok(response) => return Ok(Answer { response, uncertain }),
                Err(status) => status,
            };
            match judge(&status) {
                Verdict::Final(failure) if uncertain && request.is_change() => {
                    return Err(failure.after_lost_answer());
                }
                Verdict::Final(failure) => return Err(failure),
                Verdict::Authenticate if logins < LOGINS && self.user.is_some() => {
                    logins += 1;
                    self.forget_token();
                    continue;
                }
                Verdict::Authenticate if uncertain && request.is_change() => {
                    return Err(Failure::Unanswered(text(&status)));
                }
                Verdict::Authenticate => return Err(Failure::Refused(text(&status))),
                Verdict::NextMember { uncertain: now } => uncertain |= now,
            }
            self.turn_away_from(place);
            if uncertain && repeat == Repeat::UntilSent {
                let reason = format!("etcd at {}: {}", member.address, text(&status));
                return Err(Failure::Unanswered(reason));
            }
            failures += 1;
            let pause = self.pause(failures);
            if Instant::now() + pause >= deadline {
                let reason = format!("etcd at {}: {}", member.address, text(&status));
                return Err(if uncertain && request.is_change() {
                    Failure::Unanswered(reason)
                } else {
                    Failure::Unreachable(reason)
                });
            }
            sleep(pause).await;
        }
    }

    async fn attempt(&self, member: &Member, request: &TxnRequest) -> Result<TxnResponse, Status> {
        let call = async {
            let request = self.authorized(member, request.clone()).await?;
            let mut client =
                KvClient::new(member.channel.clone()).max_decoding_message_size(usize::MAX);
            client.txn(request).await
        };
        match timeout(self.attempt_timeout, call).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_elapsed) => Err(Status::unavailable(format!(
                "no answer within {} ms",
                self.attempt_timeout.as_millis()
            ))),
        }
    }

    /// Begins to watch on a member; on another one the next time, if it fails.
    pub(super) async fn watch(&self, create: WatchCreateRequest) -> Result<WatchStream, Failure> {
        let (place, member) = self.preferred()?;
        let begun = timeout(self.attempt_timeout, self.begin_watch(member, create)).await;
        let status = match begun {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(status)) => status,
            Err(_elapsed) => Status::unavailable("no answer in time"),
        };
        match judge(&status) {
            Verdict::Final(failure) => return Err(failure),
            Verdict::Authenticate => self.forget_token(),
            Verdict::NextMember { .. } => self.turn_away_from(place),
        }
        Err(Failure::Unreachable(format!("etcd at {}: {}", member.address, text(&status))))
    }

    async fn begin_watch(
        &self,
        member: &Member,
        create: WatchCreateRequest,
    ) -> Result<WatchStream, Status> {
        let (requests, receiver) = tokio::sync::mpsc::channel(1);
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        requests.send(create).await.map_err(|_closed| Status::internal("no stream"))?;
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let mut request = self.authorized(member, stream).await?;
        // A member that lost its leader ends the watch instead of being silent.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut client =
            WatchClient::new(member.channel.clone()).max_decoding_message_size(usize::MAX);
        let responses = client.watch(request).await?.into_inner();
        Ok(WatchStream { responses, _requests: requests })
    }

    /// Asks another member from now on, after one failed that was watched.
    pub(super) fn turn_away(&self) {
        self.turn_away_from(self.preferred.load(Ordering::Relaxed));
    }

    fn preferred(&self) -> Result<(usize, &Member), Failure> {
        let place = self.preferred.load(Ordering::Relaxed);
        // There is at least one member.
        let member = self.members.get(place % self.members.len());
        let none = || Failure::Refused("no endpoint of etcd is given".to_owned());
        Ok((place, member.ok_or_else(none)?))
    }

    /// Calls that fail at the same time turn away from a member once.
    fn turn_away_from(&self, place: usize) {
        let next = place.wrapping_add(1);
        // If it fails, another call was faster.
        let _turned = self
            .preferred
            .compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
    }

    /// The other members are tried at once; a full round costs a pause.
    fn pause(&self, failures: u32) -> Duration {
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let rounds = failures / members;
        if rounds == 0 {
            return Duration::ZERO;
        }
        let longest = (FIRST_DELAY * 2_u32.saturating_pow(rounds.min(10) - 1)).min(LONGEST_DELAY);
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    async fn authorized<T>(&self, member: &Member, message: T) -> Result<Request<T>, Status> {
        let mut request = Request::new(message);
        if let Some(user) = &self.user {
            let token = match self.token() {
                Some(token) => token,
                None => self.log_in(member, user).await?,
            };
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    async fn log_in(
        &self,
        member: &Member,
        user: &EtcdUser,
    ) -> Result<MetadataValue<Ascii>, Status> {
        let password = user.password.expose_secret().to_owned();
        let request = AuthenticateRequest { name: user.name.clone(), password };
        let answer = AuthClient::new(member.channel.clone()).authenticate(request).await?;
        let mut token = MetadataValue::try_from(answer.into_inner().token)
            .map_err(|_invalid| Status::internal("etcd gave a token that is not printable"))?;
        token.set_sensitive(true);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(token)
    }

    fn token(&self) -> Option<MetadataValue<Ascii>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn forget_token(&self) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn misconfigured(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::failed("connecting to etcd", reason)
}

fn member(given: &str, config: &EtcdConfig) -> Result<Member> {
    // It might hold a password.
    if given.contains('@') {
        return Err(misconfigured(
            "an endpoint of etcd holds an @: give user and password apart from it",
        ));
    }
    let address = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
    let malformed = |reason: String| misconfigured(format!("the endpoint {given:?}: {reason}"));
    let secure = match address.split_once("://") {
        Some(("http", _)) => false,
        Some(("https", _)) => true,
        _ => return Err(malformed("it must begin with http:// or https://".to_owned())),
    };
    let mut endpoint = Endpoint::from_shared(address.clone())
        .map_err(|e| malformed(e.to_string()))?
        .connect_timeout(config.connect_timeout)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .tcp_nodelay(true);
    if endpoint.uri().port().is_none() {
        return Err(malformed("a port is missing (2379 is the usual one)".to_owned()));
    }
    if secure {
        endpoint = endpoint.tls_config(tls(&config.tls)).map_err(|e| malformed(error_chain(&e)))?;
    }
    Ok(Member { address, channel: endpoint.connect_lazy() })
}

fn tls(config: &EtcdTls) -> ClientTlsConfig {
    let identity = config.identity_pem.as_ref().map(|(certificate, key)| (&**certificate, key));
    client_tls(config.ca_pem.as_deref(), config.server_name.as_deref(), identity)
}
