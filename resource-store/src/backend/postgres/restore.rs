//! Replacing everything at once.
//!
//! What is restored is written into a temporary table first, which nobody else sees and
//! which goes with its connection; one transaction then puts it in place. So readers and
//! writers wait for that transaction only, and a restore that is cut short leaves nothing.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use tokio_postgres::Client;

use super::{
    database::Database,
    failure::{Failure, judge},
    reading::position,
    record::{encode, group_version},
    schema::{quoted, random_name},
    writing::new_version,
};
use crate::{
    backend::{
        Error, ResourceStream, Result,
        store::{condition::key_of, key},
    },
    pb::Resource,
};

const RESTORING: &str = "restoring to PostgreSQL";
/// Upper bounds of one statement: number of resources, and their bytes.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 4 << 20;

const STAGE: &str = "\
INSERT INTO pg_temp.resource_store_staged (key, owner, uid, version, group_version, value)
SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::bytea[])
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, uid = excluded.uid,
    version = excluded.version, group_version = excluded.group_version, value = excluded.value";

/// A resource on its way into the temporary table.
struct Staged {
    owner: Option<Vec<u8>>,
    uid: String,
    version: String,
    group_version: String,
    value: Vec<u8>,
}

impl Staged {
    fn of(resource: &Resource) -> Self {
        Self {
            owner: resource.owner.as_ref().map(key::owner_prefix),
            uid: resource.uid().to_owned(),
            // An empty version is what a creation expects, so nothing is stored with one.
            version: if resource.version.is_empty() {
                new_version()
            } else {
                resource.version.clone()
            },
            group_version: group_version(resource).to_owned(),
            value: encode(resource),
        }
    }
}

/// Replaces everything by what the stream gives.
pub(super) async fn restore(database: &Database, mut resources: ResourceStream) -> Result<()> {
    let failed = |failure: Failure| database.error(failure, RESTORING);
    let mut dedicated = database.dedicated().await.map_err(failed)?;
    // The stream decides on the pace, and the last step may take long.
    let begin = format!(
        "SET statement_timeout = 0; CREATE TEMPORARY TABLE resource_store_staged \
         (LIKE {}.resource INCLUDING INDEXES)",
        quoted(&database.statements.schema)
    );
    let sql = |error: tokio_postgres::Error| failed(judge(&error).repeatable());
    dedicated.client.batch_execute(&begin).await.map_err(sql)?;
    let (mut batch, mut bytes) = (BTreeMap::new(), 0);
    while let Some(resource) = resources.try_next().await? {
        let staged = Staged::of(&resource);
        bytes += staged.value.len();
        batch.insert(key_of(&resource)?, staged);
        if batch.len() >= BATCH || bytes >= BATCH_BYTES {
            stage(&dedicated.client, &std::mem::take(&mut batch)).await.map_err(sql)?;
            bytes = 0;
        }
    }
    stage(&dedicated.client, &batch).await.map_err(sql)?;
    swap(database, &mut dedicated.client).await
}

async fn stage(
    client: &Client,
    batch: &BTreeMap<Vec<u8>, Staged>,
) -> Result<(), tokio_postgres::Error> {
    if batch.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = batch.keys().map(Vec::as_slice).collect();
    let owners: Vec<_> = batch.values().map(|staged| staged.owner.as_deref()).collect();
    let column = |of: fn(&Staged) -> &str| batch.values().map(of).collect::<Vec<_>>();
    let uids = column(|staged| &staged.uid);
    let versions = column(|staged| &staged.version);
    let group_versions = column(|staged| &staged.group_version);
    let values: Vec<_> = batch.values().map(|staged| staged.value.as_slice()).collect();
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&keys, &owners, &uids, &versions, &group_versions, &values];
    client.execute(STAGE, &parameters).await.map(drop)
}

/// Puts in place what is staged. The row of the store comes first: whoever writes
/// waits for it, and locks no resource meanwhile.
async fn swap(database: &Database, client: &mut Client) -> Result<()> {
    let statements = &database.statements;
    let name = random_name();
    let before_commit = async {
        let transaction = client.transaction().await?;
        transaction.query_one(&statements.replace_store, &[&name, &statements.schema]).await?;
        for statement in &statements.swap {
            transaction.execute(statement, &[]).await?;
        }
        Ok(transaction)
    };
    let transaction = before_commit.await.map_err(|error: tokio_postgres::Error| {
        database.error(judge(&error).repeatable(), RESTORING)
    })?;
    let Err(error) = transaction.commit().await else { return Ok(()) };
    let failure = judge(&error);
    let Failure::Unanswered(reason) = &failure else {
        return Err(database.error(failure, RESTORING));
    };
    // It took place if its history counts; if not, it may yet, or be replaced already.
    let unknown = || Error::outcome_unknown(RESTORING, reason);
    let row = position(database).await.map_err(|_error| unknown())?;
    let found: &str = row.try_get(0).map_err(|_error| unknown())?;
    if found == name { Ok(()) } else { Err(unknown()) }
}
