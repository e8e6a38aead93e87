//! The client of the payment provider.

use std::{fmt, time::Duration};

use durable::Fault;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Shorter than the effect's timeout, which it then never meets: the client says what happened, not the runtime.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Knows how to reach the provider.
pub(crate) struct Gateway {
    http: ureq::Agent,
    refunds: String,
}

/// What the provider says of a refund.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) id: String,
    pub(crate) order: String,
    pub(crate) cents: u64,
}

impl Gateway {
    pub(crate) fn new(provider: &str) -> Gateway {
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false);
        Gateway { http: config.build().into(), refunds: format!("http://{provider}/refunds") }
    }

    /// Asks for a refund under a key.
    pub(crate) fn refund(&self, order_id: &str, cents: u64, key: &str) -> Result<Receipt, PaymentError> {
        let request = self.http.post(&self.refunds).header("Idempotency-Key", key);
        let mut answer = request.send_json(json!({ "order": order_id, "cents": cents }))?;
        match answer.status().as_u16() {
            200..300 => Ok(answer.body_mut().read_json()?),
            status @ 400..500 => Err(PaymentError::Refused { status, why: answer.body_mut().read_to_string()? }),
            status => Err(PaymentError::Unreachable { why: format!("the provider answers {status}") }),
        }
    }
}

/// Why there is no receipt. Recorded like any other outcome, so it is data.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum PaymentError {
    /// The provider has understood and will not pay.
    Refused { status: u16, why: String },
    /// It may or may not have paid. The key makes it safe to ask again.
    Unreachable { why: String },
    /// What the runtime found instead of an answer.
    Fault(Fault),
}

impl PaymentError {
    /// Whether asking again may help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, PaymentError::Unreachable { .. })
    }
}

impl From<ureq::Error> for PaymentError {
    fn from(error: ureq::Error) -> Self {
        PaymentError::Unreachable { why: error.to_string() }
    }
}

impl From<Fault> for PaymentError {
    fn from(fault: Fault) -> Self {
        PaymentError::Fault(fault)
    }
}

impl fmt::Display for PaymentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PaymentError::Refused { status, why } => write!(f, "the provider refuses ({status}): {why}"),
            PaymentError::Unreachable { why } => write!(f, "no answer from the provider: {why}"),
            PaymentError::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for PaymentError {}
