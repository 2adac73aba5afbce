//! What the controller does.

use async_trait::async_trait;
use resource_store::{
    Code,
    controller::{BoxError, Outcome, Reconciler, Request, Runtime},
};

/// Keeps a greeting in the metadata of every artist.
#[derive(Debug)]
pub(crate) struct Greeter;

#[async_trait]
impl Reconciler for Greeter {
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        let mut artist = match runtime.client.read(request.id.clone()).await {
            Ok(artist) => artist,
            Err(error) if error.code() == Code::NotFound => return Ok(Outcome::Done),
            Err(error) => return Err(error.into()),
        };
        let greeting = format!("hello, {}", artist.name());
        if artist.metadata.insert("greeting".to_owned(), greeting.clone()) != Some(greeting) {
            // Conditional on the version that was read; who loses the race is asked again.
            runtime.client.write(artist).await?;
        }
        Ok(Outcome::Done)
    }
}
