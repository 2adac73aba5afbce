//! How one record stands in the file: a format, a checksum over the key and the
//! payload, and the payload.
//!
//! The file's own checksums guard its pages, but are looked at only when it is
//! opened. This one is looked at on each read, and says which record it is.

use std::sync::Arc;

use prost::Message as _;

use crate::{backend::store::key, pb::Resource};

const FORMAT: u8 = 1;
/// The format and the checksum.
const HEAD: usize = 5;

/// Why a record is not to be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::backend) enum Damage {
    #[error("it has {0} bytes, which is less than its head")]
    Short(usize),
    #[error("its checksum is {found:08x}, but its content gives {computed:08x}")]
    Checksum { found: u32, computed: u32 },
    #[error("its format is {0}, and this version knows format 1 only")]
    Format(u8),
    #[error("it is no resource: {0}")]
    NoResource(#[from] prost::DecodeError),
    #[error("it holds a resource with another key")]
    WrongKey,
    #[error("what an owner owns names it, but it is not there")]
    Missing,
}

fn checksum(key: &[u8], format: u8, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(&[format]);
    hasher.update(payload);
    hasher.finalize()
}

/// The record of a payload.
pub(in crate::backend) fn seal(key: &[u8], write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut record = vec![FORMAT; HEAD];
    write(&mut record);
    let (head, payload) = record.split_at_mut(HEAD);
    if let [_, place @ ..] = head {
        place.copy_from_slice(&checksum(key, FORMAT, payload).to_le_bytes());
    }
    record
}

/// The payload of a record.
pub(in crate::backend) fn unseal<'r>(key: &[u8], record: &'r [u8]) -> Result<&'r [u8], Damage> {
    let Some((&[format, ref sum @ ..], payload)) = record.split_first_chunk::<HEAD>() else {
        return Err(Damage::Short(record.len()));
    };
    let (found, computed) = (u32::from_le_bytes(*sum), checksum(key, format, payload));
    if found != computed {
        return Err(Damage::Checksum { found, computed });
    }
    if format != FORMAT {
        return Err(Damage::Format(format));
    }
    Ok(payload)
}

/// The record of a resource.
pub(in crate::backend) fn seal_resource(key: &[u8], resource: &Resource) -> Vec<u8> {
    seal(key, |record| record.extend_from_slice(&resource.encode_to_vec()))
}

/// The resource in a record.
pub(in crate::backend) fn unseal_resource(
    key: &[u8],
    record: &[u8],
) -> Result<Arc<Resource>, Damage> {
    let resource = Resource::decode(unseal(key, record)?)?;
    let stands_for = resource.id.as_ref().map(key::resource_key);
    if stands_for.as_deref() == Some(key) { Ok(Arc::new(resource)) } else { Err(Damage::WrongKey) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo;

    #[test]
    fn every_flipped_bit_is_found() {
        let resource = demo::artist("korn").encode();
        let key = key::resource_key(resource.id.as_ref().unwrap());
        let record = seal_resource(&key, &resource);
        assert_eq!(*unseal_resource(&key, &record).unwrap(), resource);
        for bit in 0..record.len() * 8 {
            let mut flipped = record.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal_resource(&key, &flipped).is_err(), "bit {bit}");
        }
        for length in 0..record.len() {
            assert!(unseal_resource(&key, &record[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_record_under_another_key_is_found() {
        let resource = demo::artist("korn").encode();
        let key = key::resource_key(resource.id.as_ref().unwrap());
        let record = seal_resource(&key, &resource);
        assert!(matches!(unseal_resource(b"other", &record), Err(Damage::Checksum { .. })));
        let moved = seal_resource(b"other", &resource);
        assert_eq!(unseal_resource(b"other", &moved), Err(Damage::WrongKey));
    }
}
