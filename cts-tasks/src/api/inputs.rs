//! What the module of a task would get now.

use axum::extract::{Path, State};
use http::StatusCode;

use super::{
    ApiState,
    answer::{Answer, Failure},
    tasks::task_name,
};
use crate::{
    AppliedInputs, InputsDigest, TaskInputs,
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
    let document = document(&now, &digest, current.applied.as_ref());
    Ok(Answer::new(InputsMessage { inputs: document }))
}

/// Writes inputs with their difference from what was last applied.
pub(crate) fn document(
    now: &TaskInputs,
    digest: &InputsDigest,
    applied: Option<&AppliedInputs>,
) -> InputsDocument {
    let mut document = InputsDocument::new(now, SinceApplied::Never);
    document.since_applied = match applied {
        None => SinceApplied::Never,
        Some(applied) if applied.digest == *digest => SinceApplied::Same,
        Some(applied) => {
            let difference = applied.inputs.as_ref().map(|before| document.difference(before));
            SinceApplied::Differs { difference }
        }
    };
    document
}
