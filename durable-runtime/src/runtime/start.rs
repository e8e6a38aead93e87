//! Starting runs.

use std::{collections::HashMap, marker::PhantomData, sync::Mutex};

use bytes::Bytes;

use super::{AnyRun, Run, Runtime};
use crate::{
    contract::{Registered, WorkflowMeta},
    drive::first_record,
    entry::{Kind as EntryKind, RunStarted, decode, next_frame},
    error::{Error, Kind},
    id::{Generation, RunId, Seq},
    steps::call::WorkflowCall,
    store::{Addressee, Head, Row, RunRecord, StoreError, Write, Written},
    value::{Args, Recordable, Value},
    worker::{Input, Made, New, Phase, lock},
};

/// A run that is to be started.
pub(super) struct ToStart {
    pub(super) id: RunId,
    meta: &'static WorkflowMeta,
    args: Args,
    digest: u128,
}

impl Runtime {
    /// Starts a run, durably: when this returns, the run goes on whatever happens to the process.
    ///
    /// The same id with the same workflow and equal arguments is the same run, however often it is started, also after it has
    /// ended.
    ///
    /// # Errors
    ///
    /// A conflict ([`Error::is_conflict`]) if the id names a run with another workflow or other arguments; an invalid id;
    /// arguments that cannot be recorded or are longer than the limit; what the store says.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped the run may or may not be started, and goes on if it is; starting it again tells.
    pub async fn start<R: Recordable>(&self, id: impl AsRef<str>, call: WorkflowCall<R>) -> Result<Run<R>, Error> {
        let start = self.to_start(id.as_ref(), call)?;
        let run = match self.create(&start, None).await? {
            true => AnyRun { id: start.id, runtime: self.clone() },
            false => self.existing(&start).await?,
        };
        Ok(Run { run, _returns: PhantomData })
    }

    /// Checks what a run is to be started with.
    pub(super) fn to_start<R>(&self, id: &str, call: WorkflowCall<R>) -> Result<ToStart, Error> {
        let id = RunId::new(id)?;
        let meta = call.meta;
        let unfit = |error| Kind::Argument { workflow: meta.name.to_owned(), error };
        call.check().map_err(unfit)?;
        let (args, digest) = call.args.map_err(unfit)?;
        let limit = self.shared().limits.value_bytes_max;
        if args.value().len() > limit {
            let what = format!("the arguments of workflow {}", meta.name);
            return Err(Kind::TooLarge { what, size: args.value().len(), limit }.into());
        }
        Ok(ToStart { id, meta, args, digest })
    }

    /// Makes a run and lets it go on; false if it is there already. `mail`: what is in its mailbox before it first looks.
    pub(super) async fn create(&self, start: &ToStart, mail: Option<Row>) -> Result<bool, Error> {
        let shared = self.shared();
        if *shared.closing.borrow() {
            return Err(Kind::Closed.into());
        }
        let ToStart { id, meta, args, digest } = start;
        let name = (meta.name.to_owned(), meta.module.to_owned());
        if lock(&self.inner.started_here).insert(name, meta).is_none() {
            self.code_is_here(meta);
        }
        // Given back with the run's first step.
        let permit = shared.starts.clone().acquire_owned().await.ok();
        if *shared.closing.borrow() {
            return Err(Kind::Closed.into());
        }
        let at = shared.clock.wall();
        let (head, frames) = first_record_of(meta, args, *digest, at)?;
        let record = RunRecord { head: head.clone(), aside: None, wait: None, version: 0 };
        // In a task of its own: a caller that stops waiting must not leave a run in the store that nobody goes on with.
        let (runtime, new) = (self.clone(), id.clone());
        let create = async move {
            let shared = runtime.shared();
            // Neither is waited for before the other is on its way: they are durable together, or the row is first.
            let put = mail.map(|row| shared.write(Write::Put { run: new.clone(), row, to: Addressee::Anyone }));
            let alone = shared.makes(&new);
            let write = Write::Create { run: new.clone(), count: 1, frames: frames.clone(), head };
            let written = shared.write(write).await;
            match written {
                Ok(Written::Made { epoch, version }) => {
                    let made = alone.then(|| Made { epoch, frames: (version == 0).then_some(frames) });
                    shared.adopt_new(new.clone(), &record, New { turn: permit, made });
                }
                // After the last it may be there all the same, and then it is to go on.
                Ok(_) | Err(StoreError::Unknown { .. }) => shared.nudge(&new),
                Err(_) => {}
            }
            if alone {
                shared.has_made(&new);
            }
            if let Some(put) = put {
                // A store may refuse the one and take the other.
                put.await?;
            }
            written
        };
        let written = shared.tokio.spawn(create).await.unwrap_or(Err(StoreError::Closed))?;
        Ok(written != Written::Exists)
    }

    /// Runs that waited for this code go on, those included that are being replayed and have looked for it in vain.
    fn code_is_here(&self, meta: &WorkflowMeta) {
        for cell in self.shared().runs().values() {
            let waits = match &*cell.phase.borrow() {
                Phase::NoCode { workflow, .. } => *workflow == meta.name,
                Phase::Opening => true,
                _ => false,
            };
            if waits {
                cell.tell(Input::Code);
            }
        }
    }

    /// A run that was started before, if it is the same.
    pub(super) async fn existing(&self, start: &ToStart) -> Result<AnyRun, Error> {
        let ToStart { id, meta, args, digest } = start;
        let frame = self.first_frame(id).await?;
        let entry = decode(&frame).map_err(|e| self.damaged(id, Seq(0), e.to_string()))?;
        let EntryKind::RunStarted(started) = &entry.kind else {
            return Err(self.damaged(id, Seq(0), "the log does not begin with run.started".into()).into());
        };
        if !is_code_of(meta, started) {
            let (recorded, given) = (started.workflow.to_string(), meta.name.to_owned());
            let (recorded, given) = match recorded == given {
                true => (format!("{}::{recorded}", started.module), format!("{}::{given}", meta.module)),
                false => (recorded, given),
            };
            return Err(Kind::OtherWorkflow { run: id.clone(), recorded, given }.into());
        }
        if started.digest != *digest {
            let recorded = Value::from_bytes(Bytes::copy_from_slice(&started.args)).to_json().to_string();
            let given = args.to_json().to_string();
            let workflow = meta.name.to_owned();
            return Err(Kind::OtherArguments { run: id.clone(), workflow, recorded, given }.into());
        }
        self.run(id.as_str()).await
    }

    async fn first_frame(&self, id: &RunId) -> Result<Bytes, Error> {
        let run = id.clone();
        let records = self.shared().read(move |store| store.read(&run, Generation(0), Seq(0), 1)).await?;
        let mut frames = records.into_iter().next().map(|record| record.frames).unwrap_or_default();
        match next_frame(&mut frames) {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => Err(self.damaged(id, Seq(0), "its log is empty".into()).into()),
            Err(e) => Err(self.damaged(id, Seq(0), e.to_string()).into()),
        }
    }
}

/// Whether a stored run was started with this workflow: by its explicit name, or by its name and module.
fn is_code_of(meta: &WorkflowMeta, started: &RunStarted<'_>) -> bool {
    meta.name == started.workflow && (meta.explicit_name || started.explicit_name || meta.module == started.module)
}

pub(super) fn find_code(
    started_here: &Mutex<HashMap<(String, String), &'static WorkflowMeta>>,
    started: &RunStarted<'_>,
) -> Option<&'static WorkflowMeta> {
    let linked = inventory::iter::<Registered>.into_iter().find_map(|r| match r {
        Registered::Workflow(meta) if is_code_of(meta, started) => Some(*meta),
        _ => None,
    });
    linked.or_else(|| lock(started_here).values().copied().find(|meta| is_code_of(meta, started)))
}

/// The first entry of a run's log, and its head.
fn first_record_of(meta: &WorkflowMeta, args: &Args, digest: u128, at: u64) -> Result<(Head, Bytes), Error> {
    let started = RunStarted {
        workflow: meta.name.into(),
        module: meta.module.into(),
        explicit_name: meta.explicit_name,
        args: (&**args.value().as_bytes()).into(),
        digest,
        build: env!("CARGO_PKG_VERSION").into(),
        seed: random_bits()?,
        born: at,
        parent: None,
        undos: Vec::new(),
    };
    let first = first_record(started, at, Generation(0));
    Ok(first.map_err(|e| StoreError::Rejected { reason: e.to_string().into() })?)
}

pub(super) fn random_bits() -> Result<u128, StoreError> {
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits)
        .map_err(|e| StoreError::Io { doing: "read the system's entropy".into(), error: e.to_string().into() })?;
    Ok(u128::from_le_bytes(bits))
}
