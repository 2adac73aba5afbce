//! Values for which an empty one in the configuration stands for a default.

use serde::{Deserialize, Deserializer};

/// Reads a value for which an empty one means a default.
pub(super) fn or_default<'de, D, T>(
    deserializer: D,
    empty: impl Fn(&T) -> bool,
    default: impl Fn() -> T,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let value = T::deserialize(deserializer)?;
    Ok(if empty(&value) { default() } else { value })
}
