//! The tags of workspaces, as the configuration may write them.

/// Tag that every workspace of Consul-Terraform-Sync has.
pub(crate) const SOURCE_TAG: &str = "source:cts";

/// Largest length of a tag, in characters.
const LONGEST: usize = 255;

/// Returns a tag as the platform keeps it, in lower case.
///
/// Deviation: `-` and `_` are letters of a tag as well, which upstream refuses although the
/// platform takes them.
pub(super) fn tag(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_');
    if !text.chars().all(fits) {
        return Err(format!("can only have letters, numbers, colon, dash, or underscore: {text}"));
    }
    if text.is_empty() || text.len() > LONGEST {
        return Err(format!("must have 1 to {LONGEST} characters: {text:?}"));
    }
    Ok(text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::tag;

    /// Case TFC14: tags may hold `-` and `_`.
    #[test]
    fn dashes_and_underscores_are_letters_of_a_tag() {
        for text in ["source:cts", "team-a", "cost_center", "A1"] {
            assert_eq!(tag(text).unwrap(), text.to_lowercase());
        }
        for text in ["", "a b", "a.b", "é", &"x".repeat(256)] {
            assert!(tag(text).is_err(), "{text}");
        }
    }
}
