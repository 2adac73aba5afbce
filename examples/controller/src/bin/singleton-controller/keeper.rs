//! What the controller does.

use async_trait::async_trait;
use resource_store::{
    Code,
    controller::{BoxError, Outcome, Reconciler, Request, Runtime},
};

/// Notes in the metadata of every artist that it is the keeper.
#[derive(Debug)]
pub(crate) struct Keeper(String);

impl Keeper {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.to_owned())
    }
}

#[async_trait]
impl Reconciler for Keeper {
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        let mut artist = match runtime.client.read(request.id.clone()).await {
            Ok(artist) => artist,
            Err(error) if error.code() == Code::NotFound => return Ok(Outcome::Done),
            Err(error) => return Err(error.into()),
        };
        let keeper = self.0.clone();
        if artist.metadata.insert("keeper".to_owned(), keeper.clone()) != Some(keeper) {
            // Conditional on the version that was read: one who was deposed meanwhile
            // undoes nothing.
            runtime.client.write(artist).await?;
        }
        Ok(Outcome::Done)
    }
}
