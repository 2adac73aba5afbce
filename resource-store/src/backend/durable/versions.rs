//! The numbers of changes, which are versions, too: no number comes twice,
//! also when a crash takes away the changes that had the last ones.

use crate::backend::{Error, Result};

/// Number of versions that are put aside at a time.
const BLOCK: u64 = 1 << 20;
/// With fewer left, more are put aside. No transaction takes as many.
const LOW: u64 = 1 << 12;

/// Gives numbers from a block that was put aside in the file before.
#[derive(Debug)]
pub(super) struct Versions {
    last: u64,
    /// The last number that was put aside.
    reserved: u64,
}

impl Versions {
    /// Goes on after a block that may have been used up.
    pub(super) fn after(reserved: u64) -> Self {
        Self { last: reserved, reserved }
    }

    /// The next number.
    pub(super) fn next(&mut self) -> Result<u64> {
        self.last = self.last.checked_add(1).ok_or_else(used_up)?;
        Ok(self.last)
    }

    /// Goes on after a number that came from elsewhere.
    pub(super) fn skip(&mut self, number: u64) {
        self.last = self.last.max(number);
    }

    /// Up to where numbers are to be put aside on the disk now, if few are left.
    pub(super) fn to_reserve(&self) -> Option<u64> {
        let left = self.reserved.saturating_sub(self.last);
        (left < LOW).then(|| self.last.saturating_add(BLOCK))
    }

    /// It was put aside.
    pub(super) fn reserved(&mut self, up_to: u64) {
        self.reserved = up_to;
    }
}

fn used_up() -> Error {
    Error::failed("write", "all numbers that a version may have are used up")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_that_was_not_put_aside() {
        let mut on_disk = 0;
        let mut highest = 0;
        for crash in 0..3 {
            let mut versions = Versions::after(on_disk);
            for _ in 0..BLOCK / 2 * 3 * crash {
                if let Some(up_to) = versions.to_reserve() {
                    versions.reserved(up_to);
                    on_disk = up_to;
                }
                let number = versions.next().unwrap();
                assert!(number > highest);
                assert!(number <= on_disk);
                highest = number;
            }
        }
    }

    #[test]
    fn numbers_end() {
        let mut versions = Versions::after(0);
        versions.skip(u64::MAX);
        assert!(versions.next().is_err());
    }
}
