//! The Consul of the demo: a real agent, or else the double.

use consul_watch::{
    BoxError, Client,
    testing::{ServedConsul, TestConsul, parts, real},
};

/// The Consul of the demo: a real agent if there is one.
pub(crate) enum Consul {
    Real(Box<real::Consul>, String),
    Double(ServedConsul),
}

impl Consul {
    pub(crate) async fn start() -> Result<Self, BoxError> {
        match parts::find("consul") {
            Some(part) => {
                let consul = real::Consul::start(&part.path).await?;
                Ok(Self::Real(Box::new(consul), part.version))
            }
            None => Ok(Self::Double(TestConsul::new().serve().await?)),
        }
    }

    pub(crate) fn description(&self) -> String {
        match self {
            Self::Real(consul, version) => {
                format!("Consul {version} listens on {}", consul.address())
            }
            Self::Double(consul) => {
                format!("no Consul here, so its in-process double listens on {}", consul.address())
            }
        }
    }

    pub(crate) fn address(&self) -> String {
        match self {
            Self::Real(consul, _) => consul.address(),
            Self::Double(consul) => consul.address(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        match self {
            Self::Real(consul, _) => consul.client(),
            Self::Double(consul) => consul.client(),
        }
    }

    pub(crate) async fn stop(self) {
        if let Self::Real(mut consul, _) = self {
            consul.stop().await;
        }
    }
}
