//! What people say to runs.

use super::{Answer, Done, Out, Reply, StatusRow, Stop, Verdict, left, rows, words};
use crate::{
    error::{Code, Error},
    id::{Attempt, StepNo},
    runtime::{Answered, AnyRun, Resolution, Resolved, Runtime},
    view::{Status, StepState, Token},
};

pub(super) async fn answer(runtime: &Runtime, token: &str, reply: Reply, by: Option<String>) -> Result<Done, Stop> {
    let reply = match reply {
        Reply::Granted(value) => crate::Reply::granted(&value),
        Reply::Refused(why) => crate::Reply::refused(why),
    };
    let answer = runtime.answer(token, reply);
    let answered = match by {
        Some(by) => answer.by(by).await?,
        None => answer.await?,
    };
    let mut note = rows::answered(answered).to_owned();
    if let (Answered::Kept, Some(Token { run, .. })) = (answered, Token::read(token))
        && let Some(asked) = left::asked_to_cancel(runtime, &run).await?
    {
        // What a shield encloses is not cancelled, and the log does not say what that is.
        note = format!(
            "{note}; but the run is to be cancelled, {asked}: an answer is taken only if the question stands in a shield"
        );
    }
    Ok(Done { note: Some(note), ..Done::default() })
}

pub(super) async fn resolve(
    runtime: &Runtime,
    run: &str,
    (step, attempt): (StepNo, Attempt),
    verdict: Verdict,
    by: Option<String>,
) -> Result<Done, Stop> {
    let resolution = match verdict {
        Verdict::Succeeded(value) => Resolution::succeeded(value),
        Verdict::Failed(reason) => Resolution::failed(reason),
        Verdict::FailedWith(error) => Resolution::failed_with(error),
        Verdict::RunAgain => Resolution::run_again(),
    };
    let resolution = match by {
        Some(by) => resolution.by(by),
        None => resolution,
    };
    let kept = runtime.resolve(run, step, attempt, resolution).await? == Resolved::Kept;
    Ok(Done { note: kept.then(|| rows::answered(Answered::Kept).to_owned()), ..Done::default() })
}

/// Cancels a run, and waits for its end where somebody goes on with it. [`Done::note`]: who has asked for it before.
pub(super) async fn cancel(
    runtime: &Runtime,
    run: &str,
    reason: String,
    by: Option<String>,
    out: &Out,
) -> Result<Done, Stop> {
    let (observing, id, before) = (runtime.shared().observing, words::run_id(run)?, runtime.run(run).await?);
    let row = |status: &Status| StatusRow::new(&id, status, observing);
    let status = before.status().await?;
    if status.is_terminal() {
        return Ok(Done { status: Some(row(&status)), ..Done::default() });
    }
    if let (true, Some(asked)) = (observing, left::asked_to_cancel(runtime, &id).await?) {
        // To be cancelled twice is to be cancelled: the first reason is the one that is recorded.
        return Ok(Done { status: Some(row(&status)), note: Some(asked), ..Done::default() });
    }
    let cancel = runtime.cancel(run, reason);
    let cancel = match by {
        Some(by) => cancel.by(by),
        None => cancel,
    };
    let cancelled = cancel.stand().await?;
    out.say(Answer::Accepted).await?;
    match cancelled.cancelled().await {
        Ok(status) => {
            let in_doubt = in_doubt(&cancelled, &status).await?;
            Ok(Done { status: Some(row(&status)), in_doubt, ..Done::default() })
        }
        // Nobody goes on with it here; whoever does will cancel it.
        Err(error) if error.code() == Code::NotCancelledYet && observing => {
            let mut info = [before.info().await?];
            left::of(runtime, &mut info).await?;
            let in_doubt = in_doubt(&cancelled, &status).await?;
            Ok(Done { status: info.first().map(|info| row(&info.status)), in_doubt, ..Done::default() })
        }
        Err(error) => Err(error.into()),
    }
}

/// The steps of a cancelled run that nobody knows the outcome of: nobody will be asked about them any more. Of one that stands, and
/// is still to be cancelled, those that it is held by now.
async fn in_doubt(run: &AnyRun, status: &Status) -> Result<Vec<String>, Error> {
    let named = |step: StepNo, path: &str| format!("step {step} ({path})");
    Ok(match status {
        Status::Cancelled { .. } => {
            let steps = run.steps().await?;
            let unknown = steps.iter().filter(|step| matches!(step.state, StepState::InDoubt { .. }));
            unknown.map(|step| named(step.step, &step.path)).collect()
        }
        Status::Held { .. } => {
            let (holds, _) = run.waits_for_people().await?;
            holds.iter().map(|hold| named(hold.step, &hold.path)).collect()
        }
        _ => Vec::new(),
    })
}
