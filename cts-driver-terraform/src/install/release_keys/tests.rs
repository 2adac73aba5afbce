//! Tests of keys that are good, expired, revoked and foreign.

use proptest::prelude::*;

use super::*;

// Made with GnuPG 2.2: a key for certificates only, with a subkey for signing.
const CURRENT: &str = include_str!("../../../tests/data/release/current.asc");
const OTHER: &str = include_str!("../../../tests/data/release/other.asc");
const EXPIRED: &str = include_str!("../../../tests/data/release/expired.asc");
const REVOKED: &str = include_str!("../../../tests/data/release/revoked.asc");
const SUMS: &[u8] = include_bytes!("../../../tests/data/release/SHA256SUMS");
const BY_CURRENT: &[u8] = include_bytes!("../../../tests/data/release/current.sig");

fn keys(armored: &str) -> ReleaseKeys {
    ReleaseKeys::read(armored).unwrap()
}

#[test]
fn what_one_of_the_keys_has_signed_is_good() {
    keys(CURRENT).check(SUMS, BY_CURRENT).unwrap();
    keys(&format!("{OTHER}{CURRENT}")).check(SUMS, BY_CURRENT).unwrap();
}

#[test]
fn nothing_else_is() {
    let refused = |keys: &ReleaseKeys, content: &[u8], signature: &[u8]| {
        keys.check(content, signature).unwrap_err()
    };
    let mut changed = SUMS.to_vec();
    changed[0] ^= 1;
    assert!(refused(&keys(CURRENT), &changed, BY_CURRENT).starts_with("none of the release keys"));
    let others = keys(OTHER);
    assert_eq!(
        refused(&others, SUMS, BY_CURRENT),
        format!("none of the release keys ({others}) has signed it")
    );
    let by_expired = include_bytes!("../../../tests/data/release/expired.sig");
    let reason = refused(&keys(EXPIRED), SUMS, by_expired);
    assert!(reason.ends_with("it had expired when it signed"), "{reason}");
    let by_revoked = include_bytes!("../../../tests/data/release/revoked.sig");
    let reason = refused(&keys(REVOKED), SUMS, by_revoked);
    assert!(reason.ends_with("it was revoked"), "{reason}");
    let sha1 = include_bytes!("../../../tests/data/release/sha1.sig");
    let reason = refused(&keys(CURRENT), SUMS, sha1);
    assert_eq!(reason, "its signature is over a hash that is not safe");
}

#[test]
fn keys_that_are_none_are_refused() {
    for (text, part) in [("", "cannot install Terraform: the release keys: "), ("-----", "keys: ")]
    {
        let error = ReleaseKeys::read(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    // The time of the primary key's making, which all its signatures cover.
    let broken = CURRENT.replace("mDMEaVW5", "mDMEaVW6");
    assert_ne!(broken, CURRENT);
    ReleaseKeys::read(&broken).unwrap_err();
}

proptest! {
    #[test]
    fn no_bytes_harm_the_check(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(keys(CURRENT).check(SUMS, &bytes).is_err());
        prop_assert!(ReleaseKeys::read(&String::from_utf8_lossy(&bytes)).is_err());
    }

    /// Only the part that is not signed may change without harm to the signature.
    #[test]
    fn no_changed_signature_or_key_harms_the_check(
        at in any::<prop::sample::Index>(), flip in 1_u8..,
    ) {
        let mut signature = BY_CURRENT.to_vec();
        let at_signature = at.index(signature.len());
        signature[at_signature] ^= flip;
        let _verdict: Result<(), String> = keys(CURRENT).check(SUMS, &signature);
        let mut armored = CURRENT.as_bytes().to_vec();
        let at_key = at.index(armored.len());
        armored[at_key] = b'A' + flip % 26;
        if let Ok(keys) = ReleaseKeys::read(&String::from_utf8_lossy(&armored)) {
            let _verdict: Result<(), String> = keys.check(SUMS, BY_CURRENT);
        }
    }
}
