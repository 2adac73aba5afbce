//! What etcd's failures mean.

use tonic::{Code, Status};

use crate::{
    backend::Error,
    error_chain::{causes, never_sent},
};

/// Upper bound, in characters, of a text of etcd that goes into an error.
const LONGEST_TEXT: usize = 300;

/// Why etcd did not do what was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// No member answers, or those that do have no leader. Nothing was done.
    Unreachable(String),
    /// The same, but a member may have got the request.
    Unanswered(String),
    /// The revision that was asked for is no more.
    Compacted,
    /// The member that was asked has not come to that revision yet.
    Behind,
    /// The request is larger than etcd takes.
    TooLarge(String),
    /// Etcd refuses; no retry helps before someone does something about it.
    Refused(String),
    /// Etcd is out of space.
    NoSpace(String),
}

impl Failure {
    /// The same for a request that does no harm if it arrived, so that it may
    /// be repeated.
    pub(super) fn repeatable(self) -> Self {
        match self {
            Self::Unanswered(reason) => Self::Unreachable(reason),
            other => other,
        }
    }

    /// The same, of a change of which an earlier attempt may have arrived.
    pub(super) fn after_lost_answer(self) -> Self {
        Self::Unanswered(self.describe().1)
    }

    /// The same for a caller of the backend.
    pub(super) fn into_error(self, operation: &'static str) -> Error {
        match self {
            Self::Unreachable(reason) => Error::Inconsistent { reason },
            Self::Unanswered(reason) => Error::outcome_unknown(operation, &reason),
            other => {
                let (retryable, text) = other.describe();
                Error::Other { operation, retryable, source: text.into() }
            }
        }
    }

    /// Returns `true` if the same request may succeed later, and a description of
    /// the failure.
    fn describe(self) -> (bool, String) {
        match self {
            Self::Unreachable(reason) | Self::Unanswered(reason) => (true, reason),
            Self::Compacted => (true, "etcd compacted what was being read".to_owned()),
            Self::Behind => (true, "no member of etcd has come that far".to_owned()),
            Self::TooLarge(text) => (
                false,
                format!(
                    "larger than etcd takes (1.5 MiB, unless it was started with another \
                     --max-request-bytes): {text}"
                ),
            ),
            Self::Refused(text) => (false, text),
            Self::NoSpace(text) => (
                true,
                format!("{text}: compact and defragment etcd, then disarm its NOSPACE alarm"),
            ),
        }
    }
}

/// The next step after an attempt that failed.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Ask another member; and whether the request may have taken effect.
    NextMember { uncertain: bool },
    /// Log in again, then repeat: nothing was done.
    Authenticate,
    /// Give up.
    Final(Failure),
}

/// Judges the answer of a member.
///
/// Source: `etcdserver/api/v3rpc/rpctypes/error.go`, etcd 3.4.
pub(super) fn judge(status: &Status) -> Verdict {
    let text = text(status);
    let says = |part: &str| status.message().contains(part);
    match status.code() {
        Code::Unauthenticated => Verdict::Authenticate,
        Code::InvalidArgument
            if says("revision of auth store is old") || says("user name is empty") =>
        {
            Verdict::Authenticate
        }
        Code::InvalidArgument if says("request is too large") => {
            Verdict::Final(Failure::TooLarge(text))
        }
        Code::ResourceExhausted if says("too many requests") => {
            Verdict::NextMember { uncertain: false }
        }
        Code::ResourceExhausted if says("larger than max") => {
            Verdict::Final(Failure::TooLarge(text))
        }
        Code::ResourceExhausted if says("space exceeded") => Verdict::Final(Failure::NoSpace(text)),
        Code::OutOfRange if says("compacted") => Verdict::Final(Failure::Compacted),
        Code::OutOfRange if says("future revision") => Verdict::Final(Failure::Behind),
        Code::PermissionDenied | Code::FailedPrecondition | Code::InvalidArgument => {
            Verdict::Final(Failure::Refused(text))
        }
        Code::Unimplemented => {
            Verdict::Final(Failure::Refused(format!("{text}: is this etcd 3.4 or newer?")))
        }
        _ => Verdict::NextMember { uncertain: !never_sent(status) },
    }
}

/// Returns the member's message with its causes, in a bounded line.
pub(super) fn text(status: &Status) -> String {
    let mut text = status.message().to_owned();
    for cause in causes(status).skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text.chars().filter(|c| !c.is_control()).take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let next_member =
            |status: &Status| matches!(judge(status), Verdict::NextMember { uncertain: true });
        assert!(next_member(&Status::unavailable("etcdserver: no leader")));
        assert!(next_member(&Status::unavailable("etcdserver: request timed out")));
        assert!(next_member(&Status::unknown("h2 protocol error")));
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert!(matches!(
            judge(&Status::out_of_range(compacted)),
            Verdict::Final(Failure::Compacted)
        ));
        assert!(matches!(
            judge(&Status::unauthenticated("etcdserver: invalid auth token")),
            Verdict::Authenticate
        ));
        let large = Status::resource_exhausted("grpc: received message larger than max (9 vs. 8)");
        let Verdict::Final(failure) = judge(&large) else { panic!("it is final") };
        let error = failure.into_error("writing to etcd");
        assert!(!error.is_retryable() && error.to_string().contains("--max-request-bytes"));
    }

    #[test]
    fn what_a_connection_runs_out_of_is_not_etcds_space() {
        let calm = Status::resource_exhausted("h2 protocol error: ENHANCE_YOUR_CALM");
        assert!(matches!(judge(&calm), Verdict::NextMember { uncertain: true }));
        let full = Status::resource_exhausted("etcdserver: mvcc: database space exceeded");
        let Verdict::Final(failure) = judge(&full) else { panic!("it is final") };
        // But an earlier attempt at the same change may be what filled it.
        let error = failure.after_lost_answer().into_error("writing to etcd");
        let text = error.to_string();
        assert!(text.contains("outcome is unknown") && text.contains("NOSPACE"), "{text}");
        assert!(!error.is_retryable());
    }

    #[test]
    fn texts_are_bounded_and_one_line() {
        let long = format!("first\nsecond {}", "x".repeat(1000));
        let text = text(&Status::unavailable(long));
        assert!(text.len() <= LONGEST_TEXT && text.starts_with("firstsecond"));
    }
}
