//! What the runtime lists runs by, and what it keeps of a run beside its log.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{clock::Millis, id::Generation, store::Head};

/// What `run.started` says.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) workflow: Arc<str>,
    pub(crate) module: Arc<str>,
    /// When the run's first log began.
    pub(crate) at: Millis,
    /// The run that spawned it.
    pub(crate) parent: Option<Arc<str>>,
}

/// The derived index of a run: written when it begins and when it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeadInfo {
    pub(crate) workflow: String,
    pub(crate) module: String,
    pub(crate) started_at: Millis,
    /// The run that spawned it.
    pub(crate) parent: Option<String>,
    /// When and how it ended.
    pub(crate) ended: Option<(Millis, HowEnded)>,
}

/// How a run ended, in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum HowEnded {
    Completed,
    Failed(String),
    Cancelled(String),
}

impl HeadInfo {
    pub(crate) fn new(started: &Started, ended: Option<(Millis, HowEnded)>) -> HeadInfo {
        HeadInfo {
            workflow: started.workflow.to_string(),
            module: started.module.to_string(),
            started_at: started.at,
            parent: started.parent.as_deref().map(str::to_owned),
            ended,
        }
    }

    pub(crate) fn head(&self, generation: Generation) -> Head {
        Head { generation, live: self.ended.is_none(), bytes: pack(self) }
    }

    pub(crate) fn read(head: &Head) -> Option<HeadInfo> {
        rmp_serde::from_slice(&head.bytes).ok()
    }
}

/// Beside the log: what is known of a run's lives, not of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Aside {
    /// How often the process has died while this run was replayed.
    pub(crate) deaths: u32,
    /// A replay is under way, or the process died in one.
    pub(crate) replaying: bool,
    /// Why the run is not gone on with.
    pub(crate) parked: Option<ParkedInfo>,
    /// What was said of the steps that it is held by when it left memory: whoever opens the store says it again, without having
    /// to read its log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) held: Vec<String>,
}

/// Why a run is parked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ParkedInfo {
    pub(crate) code: u16,
    pub(crate) since: Millis,
    pub(crate) why: String,
    pub(crate) next: String,
}

impl Aside {
    pub(crate) fn read(bytes: Option<&Bytes>) -> Aside {
        bytes.and_then(|bytes| rmp_serde::from_slice(bytes).ok()).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> Option<Bytes> {
        (*self != Aside::default()).then(|| pack(self))
    }
}

/// Plain structs of numbers and texts always encode.
pub(crate) fn pack<T: Serialize>(value: &T) -> Bytes {
    match rmp_serde::to_vec_named(value) {
        Ok(bytes) => bytes.into(),
        Err(e) => unreachable!("a struct of numbers and texts does not encode: {e}"),
    }
}
