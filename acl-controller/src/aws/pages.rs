//! Pagination of AWS's list calls, with a guard against a service that returns a page again.

use std::collections::HashSet;

/// Walk over a list that AWS returns in pages.
///
/// Keeps every page token it has seen, so that a service that leads in a circle, of whatever
/// length, cannot keep a listing busy for ever.
#[derive(Debug, Default)]
pub(super) struct Pages {
    seen: HashSet<String>,
    token: Option<String>,
}

/// Error of a page token that came again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle;

impl Pages {
    /// Returns the token of the next request; `None` for the first page.
    pub(super) fn token(&self) -> Option<String> {
        self.token.clone()
    }

    /// Stores the token that a page names for the next one; returns `true` if there is one.
    pub(super) fn advance(&mut self, next: Option<String>) -> Result<bool, Circle> {
        // Some services end a list with an empty token instead of none.
        self.token = next.filter(|token| !token.is_empty());
        match &self.token {
            None => Ok(false),
            Some(token) if self.seen.insert(token.clone()) => Ok(true),
            Some(_) => Err(Circle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_any_length_is_noticed() {
        for length in 1..5 {
            let mut pages = Pages::default();
            assert_eq!(pages.token(), None);
            for number in 0..length {
                assert_eq!(pages.advance(Some(number.to_string())), Ok(true));
                assert_eq!(pages.token(), Some(number.to_string()));
            }
            assert_eq!(pages.advance(Some("0".to_owned())), Err(Circle), "{length}");
        }
    }

    #[test]
    fn the_last_page_names_no_other() {
        for last in [None, Some(String::new())] {
            assert_eq!(Pages::default().advance(last), Ok(false));
        }
    }
}
