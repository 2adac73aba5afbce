//! `status`: health, role in the cluster, and the state of each task.

use std::{collections::BTreeMap, io};

use chrono::{DateTime, Local};
use serde::Serialize;

use super::{condition::condition, exit_of, print_json, seconds, time, took};
use crate::{
    PlanId, Status, WorkStep,
    client::{self, Client},
    program::{
        Program,
        arguments::StatusFlags,
        exit::Exit,
        output::Terminal,
        table::aligned,
        task::{Wording, connect, failed, on_terminal},
    },
    wire::{ClusterStatus, TaskDocument, TaskStatus, WorkDocument},
};

/// The JSON document of `status -json`.
#[derive(Debug, Serialize)]
struct Report {
    healthy: bool,
    /// Why it is not healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterStatus>,
    tasks: Vec<Row>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    /// The only instance.
    Single,
    Leader,
    Follower,
}

/// A task's line in `status` and `task list`.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) status: Status,
    pub(super) enabled: bool,
    #[serde(serialize_with = "rfc3339")]
    last_run: Option<DateTime<Local>>,
    duration_ms: Option<u64>,
    /// Condition of the next run.
    waits_for: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_plan: Option<PlanId>,
    /// The work that is under way now.
    #[serde(skip_serializing_if = "Option::is_none")]
    under_way: Option<WorkDocument>,
    /// Of the last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
fn rfc3339<S: serde::Serializer>(
    time: &Option<DateTime<Local>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.to_rfc3339()).serialize(serializer)
}

/// Runs the command to its end, on the terminal of the process.
pub(crate) fn run_command(program: &Program, flags: &StatusFlags) -> Exit {
    on_terminal(async |terminal| status(program, flags, terminal).await)
}

async fn status(
    program: &Program,
    flags: &StatusFlags,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let StatusFlags { look: flags, health } = flags;
    let client = match connect(program, &flags.connection, terminal)? {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    if *health {
        return match client.health().await {
            Ok(()) => Ok(Exit::Ok),
            Err(error) => {
                failed("unhealthy", &error, Wording::Update, terminal)?;
                Ok(Exit::Unhealthy)
            }
        };
    }
    let report = match report(&client).await {
        Ok(report) => report,
        Err(error) => return failed("unable to get the status", &error, Wording::Update, terminal),
    };
    if flags.output.json {
        print_json(&report, terminal)?;
    } else {
        print(&report, terminal)?;
    }
    let tasks = exit_of(report.tasks.iter().filter(|row| row.enabled).map(|row| row.status));
    Ok(if report.healthy { tasks } else { Exit::Unhealthy })
}

async fn report(client: &Client) -> client::Result<Report> {
    let problem = match client.health().await {
        Ok(()) => None,
        Err(client::Error::Refused { status, message, .. }) if status.as_u16() == 503 => {
            Some(message)
        }
        Err(error) => return Err(error),
    };
    let cluster = match client.cluster_status().await {
        Ok(cluster) => Some(cluster),
        Err(error) if error.status().is_some_and(|status| status.as_u16() == 405) => None,
        Err(error) => return Err(error),
    };
    let (role, tasks) = match rows(client).await {
        Ok(rows) => (if cluster.is_some() { Role::Leader } else { Role::Single }, rows),
        // The leader alone answers about tasks.
        Err(client::Error::Refused { status, .. })
            if cluster.is_some() && matches!(status.as_u16(), 307 | 400) =>
        {
            (Role::Follower, Vec::new())
        }
        Err(error) => return Err(error),
    };
    Ok(Report { healthy: problem.is_none(), problem, role, cluster, tasks })
}

/// Every task, in the order in which they are configured.
pub(super) async fn rows(client: &Client) -> client::Result<Vec<Row>> {
    let statuses = client.task_statuses(true, None).await?;
    let documents = client.tasks().await?;
    Ok(joined(&documents, statuses))
}

fn joined(documents: &[TaskDocument], mut statuses: BTreeMap<String, TaskStatus>) -> Vec<Row> {
    let row = |task: &TaskDocument| {
        let status = statuses.remove(&task.name)?;
        let newest = status.events.first();
        let error = newest.and_then(|event| event.error.as_ref());
        let waits_for = match &status.waiting_plan {
            _ if !task.enabled => "task enable".to_owned(),
            Some(_) => format!("approval, see task plan {}", task.name),
            None => condition(task),
        };
        Some(Row {
            name: task.name.clone(),
            status: status.status,
            enabled: task.enabled,
            last_run: newest.map(|event| event.end_time),
            duration_ms: newest.map(|event| took(event).as_millis().try_into().unwrap_or(u64::MAX)),
            waits_for,
            error: error.filter(|_| status.waiting_plan.is_none()).map(|it| it.message.clone()),
            waiting_plan: status.waiting_plan,
            under_way: status.under_way,
        })
    };
    documents.iter().filter_map(row).collect()
}

fn print(report: &Report, terminal: &mut Terminal<'_>) -> io::Result<()> {
    terminal.raw(&match &report.problem {
        None => "Health    healthy".to_owned(),
        Some(problem) => format!("Health    not healthy: {problem}"),
    })?;
    match (&report.cluster, report.role) {
        (Some(cluster), role) => {
            let role = if role == Role::Follower { "follower" } else { "leader" };
            terminal.raw(&format!("Role      {role} of cluster {}", cluster.cluster_name))?;
            terminal.blank()?;
            terminal.raw(&members(cluster))?;
        }
        (None, _) => terminal.raw("Role      single instance")?,
    }
    terminal.blank()?;
    if report.role == Role::Follower {
        return terminal.raw("The leader knows about tasks; ask it with -http-addr.");
    }
    terminal.raw(&table(&report.tasks))?;
    for row in &report.tasks {
        if let Some(error) = &row.error {
            terminal.blank()?;
            terminal.raw(&format!("{}: {error}", row.name))?;
        }
    }
    Ok(())
}

/// Describes the step under way and its duration: `apply for 3.1s
/// (aws_instance.web: Creating...)`.
fn doing(work: &WorkDocument) -> String {
    // Clocks of two machines may differ.
    let taken = (Local::now() - work.since).to_std().unwrap_or_default();
    let progress = work.progress.as_ref().map_or_else(String::new, |line| format!(" ({line})"));
    let step = match work.step {
        WorkStep::Prepare => "prepare",
        WorkStep::Plan => "plan",
        WorkStep::Apply => "apply",
        WorkStep::Destroy => "destroy",
    };
    format!("{step} for {}{progress}", seconds(taken))
}

fn members(cluster: &ClusterStatus) -> String {
    let row = |member: &crate::Member| {
        vec![
            member.id.clone(),
            if member.leader { "leader" } else { "follower" }.to_owned(),
            if member.healthy { "healthy" } else { "not healthy" }.to_owned(),
            member.address.clone().unwrap_or_default(),
        ]
    };
    aligned(
        &["MEMBER", "ROLE", "HEALTH", "ADDRESS"],
        &cluster.members.iter().map(row).collect::<Vec<_>>(),
    )
}

/// The rows as a terminal shows them.
pub(super) fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "There are no tasks.".to_owned();
    }
    let row = |row: &Row| {
        vec![
            row.name.clone(),
            if row.under_way.is_some() { "running" } else { row.status.as_str() }.to_owned(),
            if row.enabled { "yes" } else { "no" }.to_owned(),
            row.last_run.map_or_else(|| "never".to_owned(), time),
            row.duration_ms.map_or_else(String::new, |millis| {
                seconds(std::time::Duration::from_millis(millis))
            }),
            row.under_way.as_ref().map_or_else(|| row.waits_for.clone(), doing),
        ]
    };
    aligned(
        &["TASK", "STATUS", "ENABLED", "LAST RUN", "TOOK", "WAITS FOR"],
        &rows.iter().map(row).collect::<Vec<_>>(),
    )
}
