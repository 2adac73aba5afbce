//! Depth of JSON answers: cuts off what is nested deeper than decoders follow.

/// Levels that stay. Decoders follow 127, and answers have a few of their own around what
/// users store.
const LEVELS: usize = 100;

/// Returns `true` if a decoder gave up because of the depth.
pub(super) fn is_too_deep(error: &serde_json::Error) -> bool {
    // The category is that of any syntax error.
    error.is_syntax() && error.to_string().starts_with("recursion limit exceeded")
}

/// Replaces each array and object below [`LEVELS`] levels by `null`.
///
/// The text must be JSON up to there; of a broken one some part comes back, broken too.
pub(super) fn cut(json: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(json.len());
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for &byte in json {
        let keep = depth <= LEVELS;
        if in_text {
            // A quote or bracket within a text is no structure.
            in_text = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else {
            match byte {
                b'"' => in_text = true,
                b'{' | b'[' => {
                    depth += 1;
                    if depth == LEVELS + 1 {
                        kept.extend_from_slice(b"null");
                    }
                    if depth > LEVELS {
                        continue;
                    }
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                }
                _ => {}
            }
        }
        if keep {
            kept.push(byte);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn nested(levels: usize) -> String {
        let mut text = r#"{"m":"a]\"}[\\","n":"#.repeat(levels);
        text.push('1');
        text.push_str(&"}".repeat(levels));
        text
    }

    #[test]
    fn what_decoders_do_not_follow_is_cut() {
        for levels in [128, 200, 10_000] {
            let text = format!(r#"[{},"after"]"#, nested(levels));
            let error = serde_json::from_str::<Value>(&text).unwrap_err();
            assert!(is_too_deep(&error), "{error}");
            let value: Value = serde_json::from_slice(&cut(text.as_bytes())).unwrap();
            assert_eq!(value[1], "after");
            let mut inner = &value[0];
            let mut seen = 1;
            while inner["n"].is_object() {
                inner = &inner["n"];
                seen += 1;
            }
            assert_eq!(
                (seen, &inner["n"], &inner["m"]),
                (LEVELS - 1, &json!(null), &json!("a]\"}[\\"))
            );
        }
    }

    #[test]
    fn other_errors_are_not_about_depth() {
        let error = serde_json::from_str::<Value>("[").unwrap_err();
        assert!(!is_too_deep(&error));
        let error = serde_json::from_str::<u8>(r#""recursion limit exceeded""#).unwrap_err();
        assert!(!is_too_deep(&error));
    }

    proptest! {
        #[test]
        fn what_is_not_too_deep_stays(text in r#"[\[\]{}"\\a1:, ]{0,90}"#) {
            prop_assert_eq!(cut(text.as_bytes()), text.as_bytes());
        }

        #[test]
        fn whatever_is_cut_is_read_or_refused(bytes in proptest::collection::vec(
            prop::sample::select(br#"[]{}"\a1:,"#.to_vec()), 0..2000,
        )) {
            let kept = cut(&bytes);
            prop_assert!(kept.len() <= bytes.len() + 4 * bytes.len());
            let _understood = serde_json::from_slice::<Value>(&kept).is_ok();
        }
    }
}
