//! The client of the platform's API: one exchange with rate limits, retries, token renewal and
//! permit, on which the typed calls build.

mod archive_host;
mod call;
mod checks;
mod organization;
mod retry;
mod runs;
mod state;
mod uploads;
mod variables;
mod workspaces;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{Backoff, Jitter};
use cts_tasks::Permit;
use http::{HeaderMap, Method, Request, StatusCode, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;

pub use retry::RetryOptions;

use self::{
    call::{Budget, Call},
    retry::{Next, Tried, Tries},
};
use crate::{
    Error, ExchangeError, Hostname, HttpPlatform, Platform, Result, TlsOptions,
    document::{self, Document, Kind, Page, Resource},
    limiter::Limiter,
};

/// Typed client of the API, version 2, of HCP Terraform and Terraform Enterprise.
///
/// It stays below the platform's rate limits, follows pages, retries temporary failures of
/// repeatable calls, and reads error documents. Clones share connections and limits: keep one for
/// each token.
///
/// ```no_run
/// # async fn run() -> cts_driver_tfc::Result<()> {
/// use cts_driver_tfc::{Client, ClientOptions};
///
/// let client = Client::new(ClientOptions::default(), "a team's token".into())?;
/// let workspace = client.workspace_named("my-org", "cts_web").await?;
/// println!("{} applies by itself: {}", workspace.id, workspace.attributes.auto_apply);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// Permit that is checked before each call that changes something.
    permit: Option<Arc<dyn Permit>>,
}

struct Shared {
    platform: Arc<dyn Platform>,
    host: Hostname,
    token: Mutex<SecretString>,
    source: Option<Arc<dyn TokenSource>>,
    retry: RetryOptions,
    /// Limit of all requests.
    requests: Limiter,
    /// Limit of requests that only read the status of a run.
    polls: Limiter,
    /// Limit of run lists, which the platform counts by the minute.
    run_lists: Limiter,
    /// Configured rate, in requests a second.
    rate: f64,
}

/// Source of the token, which may provide another one later.
#[async_trait]
pub trait TokenSource: fmt::Debug + Send + Sync + 'static {
    /// Reads the current token.
    ///
    /// # Errors
    ///
    /// The error of the place that it is read from.
    async fn token(&self) -> Result<SecretString>;
}

/// Settings of a [`Client`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Host of the platform.
    pub host: Hostname,
    /// TLS settings of the connection to it.
    pub tls: TlsOptions,
    /// Retries of failed calls.
    pub retry: RetryOptions,
    /// Largest number of requests a second; 20 by default. If the platform announces a lower limit,
    /// two thirds of that apply.
    pub requests_per_second: Option<u32>,
}

/// Default of the largest number of requests a second.
const RATE: u32 = 20;
/// Largest number of requests a second that only read the status of a run.
const POLLS: f64 = 10.0;
/// Rate and burst of run lists: two thirds of the 30 that the platform allows in a minute, and a
/// burst that fits into the rest.
const RUN_LISTS: (f64, f64) = (20.0 / 60.0, 9.0);
const CONTENT_TYPE: &str = "application/vnd.api+json";

impl Client {
    /// Creates a client over sockets; connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for unusable TLS files.
    pub fn new(options: ClientOptions, token: SecretString) -> Result<Self> {
        let platform = HttpPlatform::new(&options.host, &options.tls)?;
        Ok(Self::with_platform(Arc::new(platform), options, token))
    }

    /// Creates a client over a platform of the caller's.
    pub fn with_platform(
        platform: Arc<dyn Platform>,
        options: ClientOptions,
        token: SecretString,
    ) -> Self {
        let rate = f64::from(options.requests_per_second.unwrap_or(RATE));
        let shared = Shared {
            platform,
            host: options.host,
            token: Mutex::new(token),
            source: None,
            retry: options.retry,
            requests: Limiter::new(rate, rate / 2.0),
            polls: Limiter::new(POLLS.min(rate), POLLS.min(rate) / 2.0),
            run_lists: Limiter::new(RUN_LISTS.0, RUN_LISTS.1),
            rate,
        };
        Self { shared: Arc::new(shared), permit: None }
    }

    /// Returns a client that reads the token from this source again when the platform answers 401,
    /// so that a token can be replaced while the client lives.
    ///
    /// Its rate limits start from zero; call it before the first request.
    #[must_use]
    pub fn with_token_source(self, source: Arc<dyn TokenSource>) -> Self {
        let known = &self.shared;
        let token = known.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shared = Shared {
            platform: Arc::clone(&known.platform),
            host: known.host.clone(),
            token: Mutex::new(token),
            source: Some(source),
            retry: known.retry,
            requests: Limiter::new(known.rate, known.rate / 2.0),
            polls: Limiter::new(POLLS.min(known.rate), POLLS.min(known.rate) / 2.0),
            run_lists: Limiter::new(RUN_LISTS.0, RUN_LISTS.1),
            rate: known.rate,
        };
        Self { shared: Arc::new(shared), permit: self.permit }
    }

    /// Returns a clone that checks the permit before every call that changes something, and before
    /// each retry of it.
    #[must_use]
    pub fn permitted(&self, permit: Arc<dyn Permit>) -> Self {
        Self { shared: Arc::clone(&self.shared), permit: Some(permit) }
    }

    /// Returns the host of the platform.
    pub fn host(&self) -> &Hostname {
        &self.shared.host
    }

    /// Returns the address of a run in the user interface.
    pub fn run_url(&self, organization: &str, workspace: &str, run: &str) -> String {
        format!("{}/app/{organization}/workspaces/{workspace}/runs/{run}", self.shared.host)
    }

    /// Reads one object.
    async fn one<A: Kind + DeserializeOwned>(&self, call: Call) -> Result<Resource<A>> {
        Ok(self.document(call).await?.data)
    }

    async fn document<A: Kind + DeserializeOwned>(&self, call: Call) -> Result<Document<A>> {
        let operation = call.operation;
        document::read(operation, self.send(call).await?.body())
    }

    /// Reads a list that has no pages.
    async fn list<A: Kind + DeserializeOwned>(&self, call: Call) -> Result<Vec<Resource<A>>> {
        let operation = call.operation;
        let page: Page<A> = document::read(operation, self.send(call).await?.body())?;
        Ok(page.data)
    }

    /// Reads all pages of a list.
    async fn all<A: Kind + DeserializeOwned>(&self, call: Call) -> Result<Vec<Resource<A>>> {
        let mut found = Vec::new();
        let mut number = Some(1);
        while let Some(page) = number {
            let call = call.clone().query("page[number]", page.to_string());
            // 100 is the platform's largest page.
            let operation = call.operation;
            let answer = self.send(call.query("page[size]", "100")).await?;
            let read: Page<A> = document::read(operation, answer.body())?;
            // A page whose next page is an earlier one would never end.
            number = read.next().filter(|next| *next > page);
            found.extend(read.data);
        }
        Ok(found)
    }

    /// Sends a call until it has a final answer; answers outside 2xx are errors.
    async fn send(&self, call: Call) -> Result<http::Response<Bytes>> {
        let answer = self.exchange(&call).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        // An error page of the archive host may repeat the address, which is a secret.
        let secret = call.budget == Budget::Archive;
        let body = if secret { &[] } else { answer.body().as_ref() };
        let message = document::error_message(status, body);
        Err(Error::Status { operation: call.operation, status, message })
    }

    /// Sends a call until it has a final answer, whatever its status.
    async fn exchange(&self, call: &Call) -> Result<http::Response<Bytes>> {
        let mut tries = Tries::default();
        let mut renewed = false;
        loop {
            // Before the permit, since waiting for the limit may take long.
            self.acquire(call.budget).await;
            if call.method != Method::GET
                && let Some(permit) = &self.permit
            {
                // Right before the request: a wait for the rate limit or a retry can take minutes,
                // in which leadership may have ended.
                permit.check().map_err(|source| Error::NotPermitted {
                    operation: call.operation,
                    source: Box::new(source),
                })?;
            }
            let token = self.token();
            let tried = self.shared.platform.exchange(self.request(call, &token)?).await;
            // Once for each call: a second 401 is final. The archive host gets no token, so its 401
            // says nothing about ours.
            if tried.as_ref().is_ok_and(|answer| answer.status() == StatusCode::UNAUTHORIZED)
                && call.budget != Budget::Archive
                && !std::mem::replace(&mut renewed, true)
                && self.renew_token(&token).await
            {
                continue;
            }
            let random = random();
            let next = match &tried {
                Ok(answer) => {
                    // The limit is in every answer, also in one that is retried.
                    self.learn(answer.headers());
                    let tried = Tried::Answer(answer.status(), answer.headers());
                    self.shared.retry.next(tried, call.repeatable, &mut tries, random)
                }
                Err(_) => {
                    self.shared.retry.next(Tried::Nothing, call.repeatable, &mut tries, random)
                }
            };
            let tried = tried.map_err(|error| self.failed(call.operation, error));
            match next {
                Next::Done => return tried,
                Next::Pause(wait) => self.pause(call, wait),
                Next::Again(wait) => {
                    log_retry(call, wait, tried.as_ref());
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    fn token(&self) -> SecretString {
        self.shared.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the token again after the platform refused this one; returns `true` if there is
    /// another one.
    async fn renew_token(&self, refused: &SecretString) -> bool {
        let Some(source) = &self.shared.source else { return false };
        // Another call may have read it meanwhile.
        if self.token().expose_secret() != refused.expose_secret() {
            return true;
        }
        match source.token().await {
            Ok(token) if token.expose_secret() != refused.expose_secret() => {
                tracing::info!(host = %self.shared.host, "the platform refused the token, and there is a new one");
                *self.shared.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
                true
            }
            Ok(_) => false,
            Err(error) => {
                tracing::warn!(host = %self.shared.host, error = consul_watch::error_chain(&error), "cannot read the token again");
                false
            }
        }
    }

    async fn acquire(&self, budget: Budget) {
        match budget {
            Budget::Plain => {}
            Budget::Poll => self.shared.polls.acquire().await,
            Budget::RunList => self.shared.run_lists.acquire().await,
            // The platform does not count requests to the archive host.
            Budget::Archive => return,
        }
        self.shared.requests.acquire().await;
    }

    /// Holds all requests of the limit that this call exceeded.
    fn pause(&self, call: &Call, wait: Duration) {
        tracing::warn!(
            operation = call.operation,
            delay_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "the platform's rate limit is reached, waiting"
        );
        let limiter = match call.budget {
            Budget::RunList => &self.shared.run_lists,
            Budget::Plain | Budget::Poll | Budget::Archive => &self.shared.requests,
        };
        limiter.pause(wait);
    }

    /// Stays at two thirds of the limit that the platform announces.
    ///
    /// Source: go-tfe, client-side rate limit.
    fn learn(&self, headers: &HeaderMap) {
        // Upwards at most to the configured rate: the limit is for all clients of the token.
        let limit = headers.get("x-ratelimit-limit").and_then(|value| value.to_str().ok());
        let limit = limit.and_then(|text| text.trim().parse::<f64>().ok());
        if let Some(limit) = limit.filter(|limit| *limit >= 1.0) {
            let rate = (limit * 0.66).min(self.shared.rate);
            self.shared.requests.set(rate, (limit * 0.33).min(rate / 2.0));
        }
    }

    fn request(&self, call: &Call, token: &SecretString) -> Result<Request<Bytes>> {
        let refused = |error: http::Error| Error::Input {
            operation: call.operation,
            problem: format!("cannot be sent: {error}"),
        };
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.address(&self.shared.host))
            .header(header::ACCEPT, CONTENT_TYPE);
        if let Some(kind) = call.content_type {
            request = request.header(header::CONTENT_TYPE, kind);
        } else if call.method != Method::GET {
            // Also without a body, since some releases refuse the request otherwise.
            request = request.header(header::CONTENT_TYPE, CONTENT_TYPE);
        }
        // The address of an archive carries its own authorization.
        if call.budget != Budget::Archive {
            let token = format!("Bearer {}", token.expose_secret());
            let mut value =
                header::HeaderValue::from_str(&token).map_err(|_error| Error::Setting {
                    setting: "token",
                    problem: "it holds characters that no token has".to_owned(),
                })?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        request.body(call.body.clone()).map_err(refused)
    }

    fn failed(&self, operation: &'static str, error: ExchangeError) -> Error {
        let host = self.shared.host.to_string();
        match error {
            ExchangeError::Timeout { after } => Error::Timeout { operation, host, after },
            ExchangeError::Failed { source } => Error::Transport { operation, host, source },
        }
    }
}

/// Returns a random number in [0, 1).
fn random() -> f64 {
    let whole = Duration::from_secs(1);
    let mut jitter = Backoff::default().with_initial(whole).with_jitter(Jitter::Full);
    jitter.next_delay().as_secs_f64()
}

fn log_retry(call: &Call, wait: Duration, tried: Result<&http::Response<Bytes>, &Error>) {
    let problem = match tried {
        Ok(answer) => answer.status().to_string(),
        Err(error) => consul_watch::error_chain(error),
    };
    tracing::warn!(
        operation = call.operation,
        problem,
        delay_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        "a request failed, trying again"
    );
}

/// Returns `true` for the status of a redirect.
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.shared.host).finish_non_exhaustive()
    }
}
