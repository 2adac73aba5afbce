//! Bounds the bytes of changes that a leader has under way, so that a slow disk
//! or network costs bounded memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::backend::Error;

/// When whoever is refused is to try again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The bytes of changes under way.
#[derive(Debug)]
pub(crate) struct Pending {
    bytes: Arc<AtomicUsize>,
    most: usize,
}

impl Pending {
    pub(crate) fn new(most: usize) -> Self {
        Self { bytes: Arc::default(), most }
    }

    /// Returns the bytes of the changes under way.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Takes room for a change, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`] if there is none; one change alone always has room.
    pub(crate) fn take(&self, bytes: usize) -> Result<Taken, Error> {
        // One step, so that two who find room at the same time do not both take it.
        let more = |now: usize| {
            let more = now.saturating_add(bytes);
            // A change larger than the bound would otherwise be refused for ever.
            (now == 0 || more <= self.most).then_some(more)
        };
        match self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(Taken { of: Arc::clone(&self.bytes), bytes }),
            Err(now) => Err(Error::Overloaded {
                reason: format!("the leader has {now} bytes to write, of at most {}", self.most),
                retry_after: RETRY_AFTER,
            }),
        }
    }
}

/// Room for a change.
#[derive(Debug)]
pub(crate) struct Taken {
    of: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_bytes_or_for_one_change() {
        let pending = Pending::new(10);
        let large = pending.take(99).unwrap();
        assert!(matches!(pending.take(1), Err(Error::Overloaded { .. })));
        drop(large);
        let (one, two) = (pending.take(4).unwrap(), pending.take(6).unwrap());
        let refused = pending.take(1).unwrap_err();
        assert!(refused.is_retryable(), "{refused}");
        assert_eq!(
            refused.to_string(),
            "too much is under way: the leader has 10 bytes to write, of at most 10; try again in \
             100 ms"
        );
        drop(one);
        drop(pending.take(4).unwrap());
        drop(two);
        pending.take(11).unwrap();
    }
}
