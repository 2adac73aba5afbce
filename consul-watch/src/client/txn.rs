//! Transactions: `/v1/txn`.

use http::StatusCode;

use crate::{
    Client, Consistency, Result, WriteOptions,
    client::Request,
    types::{TxnAnswer, TxnOp, TxnOutcome},
};

/// Options of a transaction besides its operations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TxnOptions {
    /// Servers that may answer a transaction that only reads and checks.
    pub consistency: Consistency,
    /// Options that every write takes.
    pub write: WriteOptions,
}

/// Transactions.
impl Client {
    /// Carries out all operations or none of them, at one index.
    ///
    /// A server takes at most 128 operations, one before 1.14 at most 64, and
    /// 512 KiB unless it is set otherwise; more is answered 413.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]). That nothing took
    /// effect because an operation could not is no error but [`TxnOutcome::RolledBack`]. After an
    /// error that came without an answer the operations may have taken effect.
    pub async fn txn(&self, operations: &[TxnOp], options: &TxnOptions) -> Result<TxnOutcome> {
        let mut request = Request::put("txn", "/v1/txn")
            .json(&operations)
            .write(&options.write)
            .accept_json(StatusCode::CONFLICT);
        if options.consistency != Consistency::Default {
            request = request.consistency(options.consistency);
        }
        let answer: TxnAnswer = self.read(request).await?.value;
        Ok(if answer.errors.is_empty() {
            TxnOutcome::Committed(answer.results)
        } else {
            TxnOutcome::RolledBack(answer.errors)
        })
    }
}
