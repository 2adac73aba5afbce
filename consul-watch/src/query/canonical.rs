//! The part of a query's key that its options make up.

use crate::{Consistency, QueryOptions, client::Request};

impl QueryOptions {
    /// Returns everything that changes the result, as one text that is equal for
    /// equal options.
    pub(crate) fn canonical(&self) -> String {
        let still = Self { index: None, hash: None, wait: None, cached: None, ..self.clone() };
        let text = Request::get("", "").query(&still).target("").unwrap_or_default();
        let consistency = match self.consistency {
            Consistency::Default => "",
            Consistency::Stale => "&stale",
            Consistency::Consistent => "&consistent",
        };
        let cached = self.cached.map(|cached| format!("&{cached:?}")).unwrap_or_default();
        format!("{text}{consistency}{cached}")
    }
}
