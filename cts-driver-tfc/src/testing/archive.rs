//! The host of archives: uploads, logs, plans and states, by addresses that hold their secret.

use http::Method;

use super::{
    TestTfc,
    answer::{self, Answer},
    clock, query,
    route::Asked,
    run_routes,
    state::Hold,
    state_versions,
};

/// Answers for uploads, logs and downloads.
pub(super) fn archive(tfc: &TestTfc, asked: &Asked<'_>, rest: &[&str]) -> Answer {
    match (asked.method, rest) {
        (&Method::PUT, ["cv", id]) => upload(tfc, asked, id),
        (&Method::PUT, [kind @ ("state" | "json-state"), id]) => {
            state_versions::upload(tfc, asked, id, *kind == "json-state")
        }
        (&Method::GET, [kind @ ("state" | "json-state"), id]) => {
            state_versions::download(&tfc.state(), id, *kind == "json-state")
        }
        (&Method::GET, ["cv", id]) => {
            let state = tfc.state();
            let content = state.versions.get(*id).and_then(|version| version.content.clone());
            content.map_or_else(answer::not_found, |content| answer::bytes(content.to_vec()))
        }
        (&Method::GET, ["log", step @ ("plan" | "apply"), id]) => log(tfc, asked, step, id),
        (&Method::GET, [kind @ ("json" | "redacted"), id]) => {
            let state = tfc.state();
            let found = state.runs.get(*id).and_then(|run| match *kind {
                "json" => run.json.as_ref(),
                _ => run.redacted.as_ref(),
            });
            found.map_or_else(answer::not_found, |json| answer::document(200, json))
        }
        _ => answer::not_found(),
    }
}

fn upload(tfc: &TestTfc, asked: &Asked<'_>, id: &str) -> Answer {
    let queued = tfc.change(|state| {
        let version = state.versions.get_mut(id)?;
        version.content = Some(asked.raw.clone());
        version.uploaded_at = Some(clock::now());
        let (workspace, queued) = (version.workspace.clone(), version.auto_queue_runs);
        let becomes_current = !version.speculative && !version.provisional;
        // Speculative and provisional uploads do not become the current one.
        if becomes_current && let Some(found) = state.workspaces.get_mut(&workspace) {
            found.current_version = Some(id.to_owned());
        }
        Some(queued.then_some(workspace))
    });
    match queued {
        None => answer::not_found(),
        Some(None) => answer::empty(200),
        Some(Some(workspace)) => match run_routes::queue_for_upload(tfc, &workspace, id) {
            Ok(()) => answer::empty(200),
            Err(refused) => *refused,
        },
    }
}

fn log(tfc: &TestTfc, asked: &Asked<'_>, step: &str, id: &str) -> Answer {
    let number = |name: &str| {
        query::parameter(asked.query, name).and_then(|value| value.parse::<usize>().ok())
    };
    let state = tfc.state();
    let Some(run) = state.runs.get(id) else { return answer::not_found() };
    let step = if step == "plan" { &run.plan } else { &run.apply };
    let (offset, limit) = (number("offset").unwrap_or(0), number("limit").unwrap_or(65536));
    let given = step.readable(state.holds.contains(&Hold::LogEnds));
    let piece = given.iter().skip(offset).take(limit).copied();
    answer::bytes(piece.collect())
}
