//! Runs moto, a server with AWS's APIs, for tests against something that is not our own double.

use std::{io, path::Path, time::Duration};

use consul_watch::testing::Program;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Longest time until it answers; it is a Python program, maybe on a busy machine.
const START_LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(50);
/// Region in the signature, where moto looks for region and service. It verifies nothing else.
const REGION: &str = "us-east-1";

/// Server of moto on a free port of 127.0.0.1: ECS, Secrets Manager, IAM and STS of one account, in
/// memory.
///
/// It differs from AWS: listings have no pages and hold every task that ever stopped, a task that
/// is stopped has stopped at once, and permissions, signatures and rates are not checked.
#[derive(Debug)]
pub struct Moto {
    endpoint: String,
    client: reqwest::Client,
    // Dropped in this order: the server ends before its directory is removed.
    _server: Program,
    _folder: TempDir,
}

impl Moto {
    /// Region of all requests.
    pub const REGION: &str = REGION;
    /// Account that owns everything in it.
    pub const ACCOUNT: &str = "123456789012";

    /// Starts the program and waits until it answers.
    ///
    /// # Errors
    ///
    /// If it does not start; with its output.
    pub async fn start(program: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("moto-").tempdir()?;
        let log = folder.path().join("log");
        let arguments = ["-H", "127.0.0.1", "-p", "0"];
        let mut server = Program::start(program, arguments, folder.path(), &log)?;
        let limit = Instant::now() + START_LIMIT;
        let endpoint = loop {
            let printed = std::fs::read_to_string(&log)?;
            if let Some(address) = address_in(&printed) {
                break address;
            }
            if server.has_ended()? || Instant::now() > limit {
                return Err(io::Error::other(format!("moto did not start: {printed}")));
            }
            sleep(POLL).await;
        };
        let client = reqwest::Client::builder().no_proxy().build().map_err(io::Error::other)?;
        let moto = Self { endpoint, client, _server: server, _folder: folder };
        // Otherwise every description of a task moves it one step towards its end.
        let transition = serde_json::json!({"model_name": "ecs::task",
            "transition": {"progression": "manual", "times": 1_000_000_000}});
        let url = format!("{}/moto-api/state-manager/set-transition", moto.endpoint);
        let request = moto.client.post(url).body(transition.to_string());
        moto.sent(request.header("content-type", "application/json")).await?;
        Ok(moto)
    }

    /// Returns its URL, as `AWS_ENDPOINT_URL` takes it.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Calls an action of ECS, such as `RunTask`.
    ///
    /// # Errors
    ///
    /// The text of an answer with an error status.
    pub async fn ecs(&self, action: &str, input: &Value) -> io::Result<Value> {
        self.json("ecs", &format!("AmazonEC2ContainerServiceV20141113.{action}"), input).await
    }

    /// Calls an action of Secrets Manager, such as `CreateSecret`.
    ///
    /// # Errors
    ///
    /// The text of an answer with an error status.
    pub async fn secrets(&self, action: &str, input: &Value) -> io::Result<Value> {
        self.json("secretsmanager", &format!("secretsmanager.{action}"), input).await
    }

    /// Calls an action of `iam` or `sts` with its parameters, and returns the XML of its answer.
    ///
    /// # Errors
    ///
    /// The text of an answer with an error status.
    pub async fn query(
        &self,
        service: &str,
        action: &str,
        parameters: &[(&str, &str)],
    ) -> io::Result<String> {
        let version = if service == "iam" { "2010-05-08" } else { "2011-06-15" };
        let mut url = reqwest::Url::parse(&self.endpoint).map_err(io::Error::other)?;
        url.query_pairs_mut()
            .extend_pairs([("Action", action), ("Version", version)])
            .extend_pairs(parameters);
        let body = url.query().unwrap_or_default().to_owned();
        url.set_query(None);
        let request = self.client.post(url).body(body);
        let kind = "application/x-www-form-urlencoded";
        self.sent(signed(request, service).header("content-type", kind)).await
    }

    async fn json(&self, service: &str, target: &str, input: &Value) -> io::Result<Value> {
        let request = signed(self.client.post(&self.endpoint), service)
            .header("x-amz-target", target)
            .header("content-type", "application/x-amz-json-1.1")
            .body(input.to_string());
        Ok(serde_json::from_str(&self.sent(request).await?)?)
    }

    async fn sent(&self, request: reqwest::RequestBuilder) -> io::Result<String> {
        let response = request.send().await.map_err(io::Error::other)?;
        let status = response.status();
        let text = response.text().await.map_err(io::Error::other)?;
        if status.is_success() {
            Ok(text)
        } else {
            Err(io::Error::other(format!("moto answered {status}: {text}")))
        }
    }
}

fn signed(request: reqwest::RequestBuilder, service: &str) -> reqwest::RequestBuilder {
    let scope = format!("20260101/{REGION}/{service}/aws4_request");
    let signature =
        format!("AWS4-HMAC-SHA256 Credential=test/{scope}, SignedHeaders=host, Signature=none");
    request.header("authorization", signature)
}

/// Returns `http://host:port`, which moto prints when it listens.
fn address_in(printed: &str) -> Option<String> {
    let (_, rest) = printed.split_once("Running on ")?;
    // Without the newline the line may still be incomplete.
    let (line, _) = rest.split_once('\n')?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_once_it_is_whole() {
        assert_eq!(address_in("WARNING\n * Running on http://127.0.0.1:4"), None);
        let printed = " * Running on http://127.0.0.1:40123\nPress CTRL+C to quit\n";
        assert_eq!(address_in(printed).as_deref(), Some("http://127.0.0.1:40123"));
    }
}
