//! Tells final refusals of a login from temporary ones: after a final one the servers have judged
//! the bearer token, and would judge each new one of the same task alike.

use std::time::Duration;

use http::StatusCode;

use crate::Error;

/// Time for which a role that the auth method does not trust is retried: a controller that starts
/// at the same moment may still add its role path to the auth method.
pub(crate) const TRUST_LIMIT: Duration = Duration::from_secs(10);

/// Parts of the texts with which the servers' validator refuses the form of a bearer token, or a
/// demand of the auth method.
///
/// Source: consul-awsauth 0.2 `token.go`, `auth.go`; Consul 1.19 `agent/consul/acl_endpoint.go`.
const FORM: &[&str] = &[
    "missing header \"",
    "invalid value for header \"",
    "invalid request header: ",
    "invalid token: ",
    "invalid STS hostname: ",
    "invalid IAM hostname: ",
    "url is invalid: ",
    "iam_request_body error: ",
    "iam_request_headers[",
    "iam_http_request_method must be POST",
    "unique id mismatch in login token",
    "header wasn't signed",
    "missing Authorization header",
    "ACL support disabled",
];

/// Part of the validator's text about a role that matches none of `BoundIAMPrincipalARNs`.
const NOT_TRUSTED: &str = " is not trusted";

/// Refusal of a login by a server, in its own words, so that final refusals are recognised as those
/// over HTTP are.
#[cfg(feature = "server-watch")]
#[derive(Debug, thiserror::Error)]
#[error("{message} ({code:?})")]
pub(crate) struct Refusal {
    pub(crate) code: tonic::Code,
    pub(crate) message: String,
}

/// Returns `true` if no further attempt is worthwhile, `tried_for` after the first one.
///
/// Not final are, among others, a missing auth method or binding rule (403), which the controller
/// creates while the first tasks start, and errors that AWS reported to the servers.
pub(crate) fn is_final(error: &Error, tried_for: Duration) -> bool {
    let (is_bad_request, message) = match error {
        Error::Consul { source: consul_watch::Error::Status { status, message, .. }, .. } => {
            (*status == StatusCode::BAD_REQUEST, message)
        }
        #[cfg(feature = "server-watch")]
        Error::Login { source, .. } => {
            match source.downcast_ref::<Refusal>() {
                // `InvalidArgument` is also the answer about an auth method that is still to be made.
                Some(refusal) => (false, &refusal.message),
                None => return false,
            }
        }
        _ => return false,
    };
    // The server id is part of the auth method's configuration and of the task's: neither changes
    // by waiting.
    let wrong_id = message.starts_with("expected \"") && message.contains("\" but got \"");
    is_bad_request
        || wrong_id
        || FORM.iter().any(|text| message.contains(text))
        || (message.contains(NOT_TRUSTED) && tried_for >= TRUST_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> Error {
        let source = consul_watch::Error::Status {
            operation: "acl.login",
            status: StatusCode::from_u16(code).unwrap(),
            message: message.to_owned(),
            retry_after: None,
        };
        Error::consul("logging in", source)
    }

    #[test]
    fn the_form_of_a_token_is_judged_once_and_trust_for_a_while() {
        for (code, message) in [
            (500, "missing header \"X-Consul-IAM-GetEntity-Method\""),
            (500, "expected \"prod\" but got \"test\""),
            (500, "rpc error making call: unique id mismatch in login token"),
            (500, "invalid STS hostname: \"sts.cn-north-1.amazonaws.com.cn\""),
            (400, "Failed to decode request body: EOF"),
            (401, "ACL support disabled"),
        ] {
            assert!(is_final(&refused(code, message), Duration::ZERO), "{message}");
        }
        for (code, message) in [
            (403, "ACL not found"),
            (403, "Permission denied"),
            (500, "No cluster leader"),
            (500, "error making request: Post \"https://sts.us-east-1.amazonaws.com/\": EOF"),
            (500, "received error code 403: <Code>AccessDenied</Code>"),
        ] {
            assert!(!is_final(&refused(code, message), Duration::MAX), "{message}");
        }
        let thief = refused(500, "IAM principal arn:aws:iam::1:role/thief is not trusted");
        assert!(!is_final(&thief, Duration::ZERO) && is_final(&thief, TRUST_LIMIT));
        assert!(!is_final(&Error::input("is not trusted"), Duration::MAX));
    }
}
