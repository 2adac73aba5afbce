//! Call of `/v1/internal/acl/authorize`: what the client's token may do; and the server's clock.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::{Client, Error, Result, client::Request};

/// A question to [`Client::acl_authorize`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AclAuthorization {
    /// Kind of what is accessed, as in rules of a policy: `key`, `service`, `session`, ….
    pub resource: String,
    /// Access that is wanted: `read`, `write` or `list`.
    pub access: String,
    /// Name or prefix that the rule is about; empty for all.
    pub segment: String,
}

impl AclAuthorization {
    /// Asks for `access`, such as `read`, to the `resource` of this name.
    pub fn new(
        resource: impl Into<String>,
        access: impl Into<String>,
        segment: impl Into<String>,
    ) -> Self {
        Self { resource: resource.into(), access: access.into(), segment: segment.into() }
    }
}

/// The permissions of the client's token.
impl Client {
    /// Asks which of these things the client's token allows; the answers are in the order of the
    /// questions. `None` while ACLs are off, when everything is allowed.
    ///
    /// Consul's own UI asks so (since Consul 1.8); it is no documented part of the API.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); [permission
    /// denied](Error::is_permission_denied) for a token that Consul does not know;
    /// [`Error::Decode`] for an answer of another length than the question.
    pub async fn acl_authorize(&self, questions: &[AclAuthorization]) -> Result<Option<Vec<bool>>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Decision {
            allow: bool,
        }
        let operation = "acl.authorize";
        let request = Request::post(operation, "/v1/internal/acl/authorize").json(&questions);
        let decisions = match self.send(request).await {
            Ok(answer) => answer.json::<Vec<Decision>>()?,
            Err(Error::Status { message, .. }) if message.contains("ACL support disabled") => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if decisions.len() != questions.len() {
            let problem = format!("{} answers to {} questions", decisions.len(), questions.len());
            return Err(Error::Decode { operation, source: problem.into() });
        }
        Ok(Some(decisions.into_iter().map(|decision| decision.allow).collect()))
    }

    /// Reads the clock of the server that answers, to the second; `None` if its answer does not
    /// tell the time.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn server_time(&self) -> Result<Option<SystemTime>> {
        let answer = self.send(Request::get("status.time", "/v1/status/leader")).await?;
        Ok(answer.date())
    }
}
