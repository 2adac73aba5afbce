//! The forms in which a state in memory holds its resources.

#[cfg(feature = "raft")]
use prost::Message as _;
use std::sync::Arc;

#[cfg(feature = "raft")]
use crate::backend::Error;
use crate::{backend::Result, pb::Resource};

/// A form in which a resource is held. A clone shares all with its original.
pub(crate) trait Held: Clone + Send + Sync + 'static {
    /// Returns the form of a resource.
    fn hold(resource: &Arc<Resource>) -> Self;

    /// Returns the resource.
    ///
    /// # Errors
    ///
    /// If what is held is no resource, because the memory is damaged.
    fn resource(&self) -> Result<Arc<Resource>>;
}

/// The form for stores whose reads have to cost nothing: the resource itself.
impl Held for Arc<Resource> {
    fn hold(resource: &Self) -> Self {
        Self::clone(resource)
    }

    fn resource(&self) -> Result<Self> {
        Ok(Self::clone(self))
    }
}

/// The form for stores that hold many resources: one allocation, with the message as it
/// goes over the wire.
///
/// A decoded resource takes about 600 bytes more for its struct and strings, and each map
/// in it another 640 for its first node. To decode it costs a read about what it costs to
/// clone it, which a read over gRPC does anyway.
#[cfg(feature = "raft")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encoded(Arc<[u8]>);

#[cfg(feature = "raft")]
impl Encoded {
    /// Returns what is no resource, as damaged memory would.
    #[cfg(test)]
    pub(crate) fn damaged() -> Self {
        Self([0xff; 3].into())
    }

    /// Returns the encoded resource.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(feature = "raft")]
impl Held for Encoded {
    fn hold(resource: &Arc<Resource>) -> Self {
        Self(resource.encode_to_vec().into())
    }

    fn resource(&self) -> Result<Arc<Resource>> {
        let decoded = Resource::decode(self.bytes());
        decoded.map(Arc::new).map_err(|error| Error::failed("read", error))
    }
}

#[cfg(all(test, feature = "raft"))]
mod tests {
    use super::*;
    use crate::demo;

    #[test]
    fn a_resource_is_the_same_in_each_form() {
        let resource = Arc::new(demo::artist("korn").encode());
        assert_eq!(Encoded::hold(&resource).resource().unwrap(), resource);
        assert_eq!(<Arc<Resource>>::hold(&resource).resource().unwrap(), resource);
    }

    #[test]
    fn what_is_no_resource_is_an_error() {
        let error = Encoded::damaged().resource().unwrap_err();
        assert!(matches!(error, Error::Other { .. }), "{error}");
    }
}
