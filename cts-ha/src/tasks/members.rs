//! Lists the registered instances of a cluster, and detects those that the token cannot see.

use consul_watch::{
    Backoff, Client, Error as ConsulError, QueryOptions,
    client::HealthOptions,
    types::{HealthStatus, ServiceEntry},
};
use cts_tasks::{Error, Member};

use crate::Leader;

/// Number of attempts of a request.
const TRIES: usize = 4;

/// Lists the instances that are registered with a cluster's tag.
///
/// Membership is by tag, since instances may register under different names.
pub(crate) async fn members(
    client: &Client,
    tag: &str,
    leader: Option<&Leader>,
) -> Result<Vec<Member>, Error> {
    let catalog = ask("the catalog's services", "service:read", || {
        let client = client.clone();
        async move { client.catalog_services(&QueryOptions::default()).await }
    })
    .await?;
    let names = catalog.value.into_iter().filter(|(_, tags)| tags.iter().any(|known| known == tag));
    let mut members = Vec::new();
    for (name, _) in names {
        let found = ask(&format!("the health of {name}"), "service:read and node:read", || {
            let (client, name) = (client.clone(), name.clone());
            async move { client.health_service(&name, &HealthOptions::default()).await }
        })
        .await?;
        let tagged = found.value.into_iter().filter(|instance| is_tagged(instance, tag));
        members.extend(tagged.map(|instance| member(&instance, leader)));
    }
    members.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(members)
}

/// Returns the message about an instance that has a record in the store, or a registration at the
/// agent, and that the token cannot see among the members: Consul omits what may not be read,
/// silently.
pub(crate) fn hidden(id: &str, service: &str, tag: &str) -> String {
    format!(
        "the instance {id:?} is registered as {service:?} with the tag {tag:?}, and is not among \
         those that this instance's token may see: missing required Consul ACL: service:read on \
         {service:?}, and node:read on its node"
    )
}

fn is_tagged(instance: &ServiceEntry, tag: &str) -> bool {
    instance.service.tags.iter().any(|known| known == tag)
}

fn member(instance: &ServiceEntry, leader: Option<&Leader>) -> Member {
    let id = instance.service.id.clone();
    let leader = leader.filter(|leader| leader.id == id);
    let healthy = instance.checks.iter().all(|check| check.status == HealthStatus::Passing);
    let mut member = Member::new(id, instance.service.name.clone());
    member.healthy = healthy;
    member.leader = leader.is_some();
    member.address = leader.and_then(|leader| leader.address.clone());
    member
}

/// Makes a request, and repeats it where that may help.
async fn ask<T, F>(what: &str, needs: &str, mut question: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, ConsulError>>,
{
    let mut backoff = Backoff::default().with_initial(std::time::Duration::from_millis(100));
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let error = match question().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if tries > 0 && error.is_retryable() {
            tokio::time::sleep(backoff.next_delay()).await;
            continue;
        }
        let what = if error.is_permission_denied() {
            format!("{what}: missing required Consul ACL: {needs}")
        } else {
            what.to_owned()
        };
        let retryable = error.is_retryable();
        return Err(Error::Consul { what, retryable, source: error.into() });
    }
}
