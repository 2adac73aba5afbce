//! Renders the document of a set of options, through the user's template if there is one.

use super::{Bootstrap, BootstrapOptions, document::Parts, template};
use crate::Result;

impl BootstrapOptions {
    /// Renders the document. `vars` looks up the environment variables of addresses such as
    /// `$HOST_IP`.
    ///
    /// # Errors
    ///
    /// [`Error::Input`](crate::Error::Input) for a setting of the proxy that cannot be used.
    pub fn render(&self, vars: &dyn Fn(&str) -> Option<String>) -> Result<Bootstrap> {
        // The parts also serve the user's template, which may place them elsewhere.
        let parts = Parts::new(self, vars)?;
        match &self.settings.bootstrap_template {
            Some(text) => template::render(text, self, &parts),
            None => Ok(parts.assemble(self)),
        }
    }
}
