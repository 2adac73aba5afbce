//! `OpenPGP` keys, and the check of a signature against them.

use std::fmt;

use pgp::{
    composed::{Deserializable as _, DetachedSignature, SignedPublicKey},
    crypto::hash::HashAlgorithm,
    packet::{Signature, SignatureType},
    types::{KeyDetails as _, Timestamp},
};

use crate::{Error, Result};

/// The last line of a block of keys.
const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";

/// The `OpenPGP` keys whose owners sign the checksums of releases (feature
/// `verify-signature`).
///
/// A key is good for what it signed before it expired. One that was revoked is
/// good for nothing, and so are signatures over a hash that is no longer safe.
#[derive(Clone)]
pub struct ReleaseKeys(Vec<SignedPublicKey>);

impl ReleaseKeys {
    /// Reads ASCII-armored public keys, as `gpg --armor --export` writes them.
    ///
    /// # Errors
    ///
    /// [`Error::Install`] when the text holds no key, or one that is broken.
    pub fn read(armored: &str) -> Result<Self> {
        Self::parse(armored).map_err(|problem| Error::Install {
            what: "the release keys".to_owned(),
            problem,
            retryable: false,
        })
    }

    fn parse(armored: &str) -> Result<Self, String> {
        let text = |error: pgp::errors::Error| error.to_string();
        let mut keys = Vec::new();
        // A file may hold several blocks, and a block several keys.
        for block in armored.split_inclusive(END).filter(|block| !block.trim().is_empty()) {
            let (found, _headers) = SignedPublicKey::from_string_many(block).map_err(text)?;
            for key in found {
                keys.push(key.map_err(text)?);
            }
        }
        if keys.is_empty() {
            return Err("there is no public key".to_owned());
        }
        for key in &keys {
            key.verify_bindings().map_err(|error| {
                format!("key {} is not bound to its parts: {error}", key.fingerprint())
            })?;
        }
        Ok(Self(keys))
    }

    /// Checks a detached signature, in its binary form or armored.
    ///
    /// # Errors
    ///
    /// Why the content is not to be trusted.
    pub(super) fn check(&self, content: &[u8], signature: &[u8]) -> Result<(), String> {
        let (signature, _headers) = DetachedSignature::from_reader_single(signature)
            .map_err(|error| format!("its signature cannot be read: {error}"))?;
        let signature = signature.signature;
        if signature.typ() != Some(SignatureType::Binary) {
            return Err("its signature is not one of a file".to_owned());
        }
        let safe = [HashAlgorithm::Sha256, HashAlgorithm::Sha384, HashAlgorithm::Sha512];
        if !signature.hash_alg().is_some_and(|hash| safe.contains(&hash)) {
            return Err("its signature is over a hash that is not safe".to_owned());
        }
        let made = signature.created().ok_or("its signature does not say when it was made")?;
        let mut reason = format!("none of the release keys ({self}) has signed it");
        for key in &self.0 {
            match check_with(key, content, &signature, made) {
                Some(Ok(())) => return Ok(()),
                Some(Err(problem)) => reason = format!("key {}: {problem}", key.fingerprint()),
                None => {}
            }
        }
        Err(reason)
    }
}

/// Checks whether this key's owner has signed the content; `None` if it was another.
fn check_with(
    key: &SignedPublicKey,
    content: &[u8],
    signature: &Signature,
    made: Timestamp,
) -> Option<Result<(), String>> {
    let primary = &key.primary_key;
    let users = key.details.users.iter().flat_map(|user| &user.signatures);
    let own: Vec<_> = users.chain(&key.details.direct_signatures).collect();
    let verdict = |problem: Option<&str>| problem.map_or(Ok(()), |text| Err(text.to_owned()));
    let revoked = !key.details.revocation_signatures.is_empty();
    let of_key = || {
        if revoked {
            return Some("it was revoked");
        }
        expired(&own, primary.created_at(), made).then_some("it had expired when it signed")
    };
    if signature.verify(primary, content).is_ok() {
        return Some(verdict(of_key()));
    }
    for subkey in &key.public_subkeys {
        if signature.verify(&subkey.key, content).is_err() {
            continue;
        }
        let bindings: Vec<_> = subkey.signatures.iter().collect();
        let of_subkey = || {
            if bindings.iter().any(|sig| sig.typ() == Some(SignatureType::SubkeyRevocation)) {
                return Some("its signing subkey was revoked");
            }
            if !newest(&bindings).is_some_and(|binding| binding.key_flags().sign()) {
                return Some("its subkey is not for signing");
            }
            expired(&bindings, subkey.key.created_at(), made)
                .then_some("its signing subkey had expired when it signed")
        };
        return Some(verdict(of_key().or_else(of_subkey)));
    }
    None
}

/// Returns `true` if the key had expired by then, by its newest signature.
fn expired(signatures: &[&Signature], born: Timestamp, then: Timestamp) -> bool {
    let life = newest(signatures).and_then(Signature::key_expiration_time);
    let end = match life.map_or(0, pgp::types::Duration::as_secs) {
        // No life at all means one without end.
        0 => u32::MAX,
        life => born.as_secs().saturating_add(life),
    };
    then < born || then.as_secs() >= end
}

fn newest<'a>(signatures: &[&'a Signature]) -> Option<&'a Signature> {
    signatures.iter().copied().max_by_key(|signature| signature.created())
}

impl fmt::Display for ReleaseKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, key) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{}", key.fingerprint())?;
        }
        Ok(())
    }
}

impl fmt::Debug for ReleaseKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReleaseKeys({self})")
    }
}

#[cfg(test)]
mod tests;
