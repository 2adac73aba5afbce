//! The rules for names of resources, tenancy units and type parts.
//!
//! Those of type parts are constant functions, because `#[derive(Resource)]` has the compiler
//! check them.

/// The longest name in bytes.
const MAX_NAME: usize = 63;
/// The length of a uid.
const ULID_LENGTH: usize = 26;

/// Returns `true` if `name` may name a resource, a partition or a namespace.
///
/// A lower-case RFC 1123 label of at most 63 bytes.
///
/// Source: `internal/resource/resource.go`, `internal/dnsutil`, Consul 1.21.
pub fn is_valid_name(name: &str) -> bool {
    is_label(name, MAX_NAME)
}

/// Returns `true` if `name` may name a tombstone: one of the service's, which
/// consists of the name and the uid of what was deleted, so that it may be longer.
pub(crate) fn is_valid_tombstone_name(name: &str) -> bool {
    is_label(name, MAX_NAME + "tombstone--".len() + ULID_LENGTH)
}

fn is_label(name: &str, longest: usize) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.len() <= longest
        && bytes.first().is_some_and(|&b| inner(b))
        && bytes.last().is_some_and(|&b| inner(b))
        && bytes.iter().all(|&b| inner(b) || b == b'-')
}

/// Returns the message for a caller with the invalid name `name`.
pub(crate) fn invalid_name_text(name: &str) -> String {
    format!(
        "a resource name must consist of lower case alphanumeric characters or '-', \
         must start and end with an alphanumeric character and be less than 64 characters, got: {name:?}"
    )
}

/// Returns `true` if `prefix` may be asked for; a prefix such as `foo-` is fine.
pub(crate) fn is_valid_prefix(prefix: &str) -> bool {
    prefix == prefix.to_lowercase()
}

/// Returns `true` if `group` is in snake case, as a type's group must be.
pub(crate) const fn is_valid_group(group: &str) -> bool {
    let [first, rest @ ..] = group.as_bytes() else { return false };
    let mut left = rest;
    while let [byte, others @ ..] = left {
        if !(byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_') {
            return false;
        }
        left = others;
    }
    first.is_ascii_lowercase() && !rest.is_empty()
}

/// Returns `true` if `version` is lower case, starts with `v` and ends with a
/// digit.
pub(crate) const fn is_valid_group_version(version: &str) -> bool {
    let [b'v', rest @ ..] = version.as_bytes() else { return false };
    let mut left = rest;
    while let [byte, others @ ..] = left {
        if !(byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
            return false;
        }
        left = others;
    }
    matches!(rest, [.., last] if last.is_ascii_digit())
}

/// Returns `true` if `kind` is in Pascal case.
pub(crate) const fn is_valid_kind(kind: &str) -> bool {
    let [first, rest @ ..] = kind.as_bytes() else { return false };
    let mut left = rest;
    while let [byte, others @ ..] = left {
        if !byte.is_ascii_alphanumeric() {
            return false;
        }
        left = others;
    }
    first.is_ascii_uppercase() && !rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_labels() {
        for good in ["a", "0", "a-b", "a--b", &"x".repeat(63)] {
            assert!(is_valid_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "aB", "a.b", "a_b", "*", "ä", "a\0", &"x".repeat(64)] {
            assert!(!is_valid_name(bad), "{bad}");
        }
        assert_eq!(
            invalid_name_text("Foo"),
            "a resource name must consist of lower case alphanumeric characters or '-', must start and end \
             with an alphanumeric character and be less than 64 characters, got: \"Foo\""
        );
    }

    #[test]
    fn tombstones_have_longer_names() {
        let name = |length| format!("tombstone-{}-{}", "x".repeat(length), "0".repeat(26));
        assert!(is_valid_tombstone_name(&name(63)) && !is_valid_tombstone_name(&name(64)));
        assert!(!is_valid_tombstone_name("Tombstone") && !is_valid_tombstone_name(""));
    }

    #[test]
    fn prefixes_only_have_to_be_lower_case() {
        assert!(is_valid_prefix("") && is_valid_prefix("foo-") && is_valid_prefix("-x"));
        assert!(!is_valid_prefix("Violator"));
    }

    #[test]
    fn type_parts_follow_their_cases() {
        assert!(is_valid_group("foo_bar") && is_valid_group("mesh"));
        assert!(!is_valid_group("") && !is_valid_group("Foo") && !is_valid_group("foo-bar"));
        assert!(["v1", "v2beta1", "v1alpha1"].iter().all(|v| is_valid_group_version(v)));
        assert!(
            ["", "v", "v_1", "v-1", "1", "OnePointOh", "v1beta"]
                .iter()
                .all(|v| !is_valid_group_version(v))
        );
        assert!(is_valid_kind("Number1") && is_valid_kind("Artist"));
        assert!(["", "barBaz", "bar_baz", "Bar_baz"].iter().all(|k| !is_valid_kind(k)));
    }
}
