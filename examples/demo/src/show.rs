//! The steps of the demonstration.

use std::time::Duration;

use consul_watch::{
    BoxError, Client,
    types::{AgentServiceRegistration, CheckSpec, HealthStatus},
};

use crate::{consul::Consul, rules::Rules, sync::Sync};

/// Starts everything, shows it, and stops it.
pub(crate) async fn show() -> Result<(), BoxError> {
    let scratch = tempfile::Builder::new().prefix("consul-terraform-sync-demo.").tempdir()?;
    let consul = Consul::start().await?;
    println!("\n# {}", consul.description());
    let client = consul.client();

    println!("\n# web has two instances, api has one");
    for (service, number) in [("web", 1), ("web", 2), ("api", 1)] {
        register(&client, service, number).await?;
    }

    let mut rules = Rules::new(scratch.path().join("rules.txt"));
    let mut sync = Sync::start(scratch.path(), &consul.address(), rules.path())?;
    let took = sync.applied("firewall", 1).await?;
    println!("\n# started: the task ran once, in {}", seconds(took));
    rules.show_changes()?;

    let steps: [(&str, Step); 3] = [
        ("web gets a third instance", Step::Register("web", 3)),
        ("web-2 becomes unhealthy", Step::Fail("web-2")),
        ("web-1 goes away", Step::Deregister("web-1")),
    ];
    for (number, (title, step)) in steps.into_iter().enumerate() {
        println!("\n# {title}");
        let change = sync.now();
        step.take(&client).await?;
        sync.applied("firewall", number + 2).await?;
        let took = sync.end_of_last_run("firewall").await? - change;
        rules.show_changes()?;
        println!("  {} from the change in Consul to the end of the apply", seconds(took.to_std()?));
    }

    println!("\n# db appears, which no task asks for");
    register(&client, "db", 1).await?;
    sync.stays_at("firewall", 4, Duration::from_secs(3)).await?;
    println!("  nothing ran");

    sync.ask(&["status"]).await?;
    sync.ask(&["task", "show", "firewall"]).await?;

    println!("\n# stop");
    sync.stop().await?;
    consul.stop().await;
    println!("  consul-terraform-sync ended with status 0, Consul is stopped");
    Ok(())
}

/// A change in Consul.
enum Step {
    Register(&'static str, u16),
    Fail(&'static str),
    Deregister(&'static str),
}

impl Step {
    async fn take(self, client: &Client) -> Result<(), BoxError> {
        match self {
            Self::Register(service, number) => register(client, service, number).await,
            Self::Fail(id) => {
                let check = format!("{id}-alive");
                client.agent_update_check(&check, &HealthStatus::Critical, "demo").await?;
                Ok(())
            }
            Self::Deregister(id) => Ok(client.agent_deregister_service(id, None).await?),
        }
    }
}

/// Registers a healthy instance, as the service itself would.
async fn register(client: &Client, service: &str, number: u16) -> Result<(), BoxError> {
    let id = format!("{service}-{number}");
    let mut alive = CheckSpec::ttl(format!("{id}-alive"), Duration::from_mins(10));
    alive.status = Some(HealthStatus::Passing);
    let mut registration = AgentServiceRegistration::new(service);
    registration.id = id;
    let network = match service {
        "web" => 1,
        "api" => 2,
        _ => 3,
    };
    registration.address = format!("10.0.{network}.{number}");
    registration.port = i64::from(8000 + number);
    registration.checks = vec![alive];
    client.agent_register_service(&registration).await?;
    Ok(())
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}
