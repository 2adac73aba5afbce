//! The error that code of a controller's author returns.

/// An error of a user's code.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
