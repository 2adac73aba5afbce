//! What the module of a task would get now.

use axum::extract::{Path, State};
use http::StatusCode;

use super::{
    ApiState,
    answer::{Answer, Failure},
    tasks::task_name,
};
use crate::{
    InputsDigest, TaskInputs,
    wire::{InputsDocument, InputsMessage, SinceApplied},
};

/// `GET /v1/tasks/<name>/inputs`
pub(crate) async fn inputs(
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Answer<InputsMessage>, Failure> {
    let name = task_name(name)?;
    let current = state.engine.inputs(&name)?;
    let Some((now, digest)) = current.now else {
        let text = format!(
            "task '{name}' has no inputs now: it is disabled, or Consul has not answered \
             everything that it needs"
        );
        return Err(Failure::new(StatusCode::CONFLICT, text));
    };
    let applied = (current.applied_digest.as_ref(), current.applied.as_ref());
    Ok(Answer::new(InputsMessage { inputs: document(&now, &digest, applied) }))
}

fn document(
    now: &TaskInputs,
    digest: &InputsDigest,
    applied: (Option<&InputsDigest>, Option<&TaskInputs>),
) -> InputsDocument {
    let mut document = InputsDocument::new(now, SinceApplied::Never);
    document.since_applied = match applied {
        (None, _) => SinceApplied::Never,
        (Some(applied), _) if applied == digest => SinceApplied::Same,
        (Some(_), before) => {
            let before = before.map(|before| InputsDocument::new(before, SinceApplied::Same));
            SinceApplied::Differs { difference: before.map(|before| document.difference(&before)) }
        }
    };
    document
}
