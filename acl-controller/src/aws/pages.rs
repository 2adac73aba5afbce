use std::collections::HashSet;

/// Walks a list that AWS gives in pages.
///
/// Every token that was had is kept, so that a service that leads in a circle, of whatever length,
/// does not keep a listing busy for ever.
#[derive(Debug, Default)]
pub(super) struct Pages {
    seen: HashSet<String>,
    token: Option<String>,
}

/// A token came again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle;

impl Pages {
    /// What the next request has to say; `None` for the first page.
    pub(super) fn token(&self) -> Option<String> {
        self.token.clone()
    }

    /// Notes what a page says of the next one; whether there is one.
    pub(super) fn advance(&mut self, next: Option<String>) -> Result<bool, Circle> {
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
