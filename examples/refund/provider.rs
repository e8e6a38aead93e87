//! A payment provider: a process of its own, with its own books on disk, reached over loopback HTTP.
//!
//! It is not part of the agent and knows nothing of `durable`. What it promises is what real ones do: the same key is the same
//! payment, answered as the first time.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, sync::watch};

use crate::{gateway::Receipt, stage::process::end_with_parent};

/// Starts a provider that looks up no key.
pub(crate) const FORGETFUL: &str = "--forgetful-provider";
/// Starts a provider that answers a payment only after it was told to on its standard input.
pub(crate) const HOLDS: &str = "--hold-answers";

/// A line of the books. It is the ledger's entry and the key store's in one, so that no crash of the provider comes between a
/// payment and its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Payment {
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
}

/// Reads the books in a directory.
pub(crate) fn read_books(dir: &Path) -> anyhow::Result<Vec<Payment>> {
    let path = dir.join("ledger.jsonl");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("no payment: {line}"))).collect()
}

/// What has been paid for an order.
pub(crate) fn paid(payments: &[Payment], order: &str) -> u64 {
    payments.iter().filter(|payment| payment.receipt.order == order).map(|payment| payment.receipt.cents).sum()
}

struct Provider {
    books: Mutex<Books>,
    forgetful: bool,
    may_answer: watch::Receiver<bool>,
}

struct Books {
    ledger: File,
    payments: Vec<Payment>,
}

#[derive(Deserialize)]
struct RefundRequest {
    order: String,
    cents: u64,
}

type Refusal = (StatusCode, String);

impl Provider {
    /// Pays under a new key; answers a known one with the receipt of the first time.
    fn refund(&self, key: &str, request: RefundRequest) -> Result<Receipt, Refusal> {
        let RefundRequest { order, cents } = request;
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let known = books.payments.iter().find(|payment| payment.key == key && !self.forgetful);
        if let Some(Payment { receipt, .. }) = known {
            if (&receipt.order, receipt.cents) != (&order, cents) {
                return Err((StatusCode::CONFLICT, format!("the key {key} belongs to another refund")));
            }
            println!("knows the key, answers as the first time: {}", receipt.id);
            return Ok(receipt.clone());
        }
        let id = format!("rf-{}", books.payments.len() + 1);
        let payment = Payment { key: key.to_owned(), receipt: Receipt { id, order, cents } };
        books.enter(&payment).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        println!("has paid: {}", payment.receipt.id);
        Ok(payment.receipt)
    }
}

impl Books {
    /// The money moves here: what is synced has been paid.
    fn enter(&mut self, payment: &Payment) -> anyhow::Result<()> {
        let line = serde_json::to_string(payment)? + "\n";
        self.ledger.write_all(line.as_bytes())?;
        self.ledger.sync_all()?;
        self.payments.push(payment.clone());
        Ok(())
    }
}

async fn post_refund(
    State(provider): State<Arc<Provider>>,
    headers: HeaderMap,
    Json(request): Json<RefundRequest>,
) -> Result<Json<Receipt>, Refusal> {
    let key = headers.get("Idempotency-Key").and_then(|key| key.to_str().ok());
    let key = key.ok_or((StatusCode::BAD_REQUEST, "a refund needs the header Idempotency-Key".to_owned()))?;
    let receipt = provider.refund(key, request)?;
    // Never fails: the sender lives as long as the process.
    let _ = provider.may_answer.clone().wait_for(|may| *may).await;
    Ok(Json(receipt))
}

/// The first line of its output is its address, the others say what it does.
#[tokio::main]
pub(crate) async fn serve(dir: &Path, forgetful: bool, holds: bool) -> anyhow::Result<()> {
    fs::create_dir_all(dir)?;
    let payments = read_books(dir)?;
    let ledger = OpenOptions::new().create(true).append(true).open(dir.join("ledger.jsonl"))?;
    let (let_answer, may_answer) = watch::channel(!holds);
    end_with_parent(move || {
        let_answer.send_replace(true);
    });
    let provider = Provider { books: Mutex::new(Books { ledger, payments }), forgetful, may_answer };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let app = Router::new().route("/refunds", post(post_refund)).with_state(Arc::new(provider));
    Ok(axum::serve(listener, app).await?)
}
