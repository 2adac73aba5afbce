//! Enterprise partitions and namespaces: options of every call, and the objects that they need.

use std::collections::BTreeSet;

use consul_watch::{
    QueryOptions, WriteOptions,
    types::{AclLink, AclPolicy, Namespace, Partition},
};

use crate::{
    Action, Change, Consul, Error, Object, Result, Writer, consul::is_taken, rules,
    service_name::is_plain,
};

/// Name of the policy that lets services of one namespace find those of the others.
pub(crate) const CROSS_NAMESPACE_READ: &str = "cross-namespace-read";
const DEFAULT: &str = "default";

/// Returns the partition that a controller works in, from the two settings that upstream has for
/// it; `None` without partitions.
///
/// # Errors
///
/// [`Error::Config`] for a partition where they are not enabled, and for an invalid name.
///
/// ```
/// use acl_controller::partition;
///
/// assert_eq!(partition(false, "")?, None);
/// assert_eq!(partition(true, "")?.as_deref(), Some("default"));
/// assert!(partition(false, "team").is_err());
/// # Ok::<(), acl_controller::Error>(())
/// ```
pub fn partition(enabled: bool, name: &str) -> Result<Option<String>> {
    match (enabled, name) {
        (false, "") => Ok(None),
        (true, "") => Ok(Some(DEFAULT.to_owned())),
        (true, name) => check_name(name).map(|()| Some(name.to_owned())),
        (false, name) => Err(Error::Config {
            setting: "partition".to_owned(),
            problem: format!(
                "{name:?} was given without enabling partitions; enable them or leave it out"
            ),
        }),
    }
}

/// Checks a name, which stands in rules, and so must not add to them.
fn check_name(name: &str) -> Result<()> {
    if is_plain(name) && name.len() <= 64 {
        return Ok(());
    }
    Err(Error::Config {
        setting: "partition".to_owned(),
        problem: format!(
            "{name:?} is no name of a partition: letters, digits, '-' and '_', at most 64 characters"
        ),
    })
}

/// Partition of a controller's objects in Consul.
#[derive(Debug, Clone)]
pub(crate) struct Tenancy {
    partition: Option<String>,
}

impl Tenancy {
    pub(crate) fn new(partition: Option<String>) -> Result<Self> {
        let partition = partition.filter(|name| !name.is_empty());
        partition.as_deref().map_or(Ok(()), check_name)?;
        Ok(Self { partition })
    }

    pub(crate) fn partition(&self) -> Option<&str> {
        self.partition.as_deref()
    }

    /// Returns the options to read from a namespace; the name is ignored without partitions.
    pub(crate) fn read(&self, namespace: &str) -> QueryOptions {
        let mut options = QueryOptions::default();
        // A community server refuses the parameters.
        if self.partition.is_some() {
            options.partition.clone_from(&self.partition);
            options.namespace = Some(namespace.to_owned());
        }
        options
    }

    /// Returns the options to write to a namespace; the name is ignored without partitions.
    pub(crate) fn write(&self, namespace: &str) -> WriteOptions {
        let mut options = WriteOptions::default();
        if self.partition.is_some() {
            options.partition.clone_from(&self.partition);
            options.namespace = Some(namespace.to_owned());
        }
        options
    }

    /// Returns the options to read from the namespace of policies and tokens of services.
    pub(crate) fn home(&self) -> QueryOptions {
        self.read(DEFAULT)
    }

    /// Returns the options to write to that namespace.
    pub(crate) fn home_write(&self) -> WriteOptions {
        self.write(DEFAULT)
    }

    /// Returns options that name the partition alone.
    fn whole(&self) -> (QueryOptions, WriteOptions) {
        let (mut read, mut write) = (QueryOptions::default(), WriteOptions::default());
        read.partition.clone_from(&self.partition);
        write.partition.clone_from(&self.partition);
        (read, write)
    }

    /// Creates the partition, unless it exists.
    pub(crate) async fn ensure_partition(
        &self,
        consul: &dyn Consul,
        writer: &Writer,
    ) -> Result<()> {
        let Some(name) = &self.partition else { return Ok(()) };
        let found = consul
            .partitions(&QueryOptions::default())
            .await
            .map_err(Error::consul("failed to list partitions"))?;
        if found.value.iter().any(|partition| partition.name == *name) {
            return Ok(());
        }
        let change = Change::new(Action::Create, Object::Partition, name);
        let made = writer.write(change, async {
            let made =
                consul.partition_create(&Partition::new(name), &WriteOptions::default()).await;
            match made {
                Err(error) if !is_taken(&error) => {
                    Err(Error::consul(format!("failed to create partition {name}"))(error))
                }
                _ => Ok(()),
            }
        });
        made.await.map(drop)
    }

    /// Lists the namespaces of the partition; without partitions there is one without a name.
    pub(crate) async fn namespaces(&self, consul: &dyn Consul) -> Result<Vec<Namespace>> {
        if self.partition.is_none() {
            return Ok(vec![Namespace::default()]);
        }
        let answer = consul
            .namespaces(&self.whole().0)
            .await
            .map_err(Error::consul("listing namespaces"))?;
        Ok(answer.value)
    }

    /// Lets namespaces see each other, and creates those that are needed and missing. A failure
    /// does not prevent the rest.
    pub(crate) async fn reconcile_namespaces(
        &self,
        consul: &dyn Consul,
        writer: &Writer,
        found: &[Namespace],
        needed: &BTreeSet<String>,
    ) -> Result<()> {
        if self.partition.is_none() {
            return Ok(());
        }
        let mut errors = Vec::new();
        // The policy before the namespaces, whose defaults link it.
        errors.extend(self.share_reads(consul, writer, found).await.err());
        let known: BTreeSet<&str> = found.iter().map(|namespace| namespace.name.as_str()).collect();
        for name in needed.iter().filter(|name| !name.is_empty() && !known.contains(name.as_str()))
        {
            errors.extend(self.create_namespace(consul, writer, name).await.err());
        }
        match Error::several(errors) {
            None => Ok(()),
            Some(error) => Err(Error::step("reconciling namespaces", error)),
        }
    }

    async fn create_namespace(
        &self,
        consul: &dyn Consul,
        writer: &Writer,
        name: &str,
    ) -> Result<()> {
        let mut namespace = Namespace::new(name);
        namespace.acls.policy_defaults.push(AclLink::name(CROSS_NAMESPACE_READ));
        let change = Change::new(Action::Create, Object::Namespace, name);
        let options = self.whole().1;
        let made = writer.write(change, async {
            match consul.namespace_create(&namespace, &options).await {
                Err(error) if !is_taken(&error) => {
                    Err(Error::consul(format!("failed to create namespace {name}"))(error))
                }
                _ => Ok(()),
            }
        });
        made.await.map(drop)
    }

    /// Creates the policy for reads across namespaces, and links it to the defaults of namespace
    /// `default`.
    async fn share_reads(
        &self,
        consul: &dyn Consul,
        writer: &Writer,
        found: &[Namespace],
    ) -> Result<()> {
        let Some(partition) = self.partition() else { return Ok(()) };
        let mut policy =
            AclPolicy::new(CROSS_NAMESPACE_READ, rules::cross_namespace_read(partition));
        policy.description =
            "Allow service and node reads across namespaces within the partition".into();
        ensure_policy(consul, writer, &policy, &self.home(), &self.home_write()).await?;
        let Some(default) = found.iter().find(|namespace| namespace.name == DEFAULT) else {
            return Ok(());
        };
        let links = |namespace: &Namespace| {
            namespace.acls.policy_defaults.iter().any(|link| link.name == CROSS_NAMESPACE_READ)
        };
        if links(default) {
            return Ok(());
        }
        let (read, write) = self.whole();
        // Read again just before the write, since an update replaces the whole namespace.
        let fresh = consul
            .namespace(DEFAULT, &read)
            .await
            .map_err(Error::consul("reading namespace default"))?;
        let Some(mut fresh) = fresh.value.filter(|namespace| !links(namespace)) else {
            return Ok(());
        };
        fresh.acls.policy_defaults.push(AclLink::name(CROSS_NAMESPACE_READ));
        let change = Change::new(Action::Update, Object::Namespace, DEFAULT);
        let update = writer.write(change, async {
            let done = consul.namespace_update(&fresh, &write).await;
            done.map_err(Error::consul("updating namespace default"))
        });
        update.await.map(drop)
    }
}

/// Creates a policy, unless one of its name exists, which stays as it is.
pub(crate) async fn ensure_policy(
    consul: &dyn Consul,
    writer: &Writer,
    policy: &AclPolicy,
    read: &QueryOptions,
    write: &WriteOptions,
) -> Result<()> {
    let name = &policy.name;
    let found = consul
        .acl_policy_by_name(name, read)
        .await
        .map_err(Error::consul(format!("reading policy {name}")))?;
    if found.value.is_some() {
        return Ok(());
    }
    let change = Change::new(Action::Create, Object::Policy, name);
    let made = writer.write(change, async {
        match consul.acl_policy_create(policy, write).await {
            Err(error) if !is_taken(&error) => {
                Err(Error::consul(format!("creating policy {name}"))(error))
            }
            // Another writer was faster.
            _ => Ok(()),
        }
    });
    made.await.map(drop)
}
