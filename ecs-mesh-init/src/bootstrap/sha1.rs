//! SHA-1, for the one file name that Consul derives with it; nothing is secured by it.

/// Computes the digest of `data`.
///
/// Source: FIPS 180-4, section 6.1.
pub(super) fn digest(data: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = data.to_vec();
    padded.push(0x80);
    // The length field takes the last 8 bytes of a block of 64: 120 is 64 + 56, so that the
    // difference stays positive.
    let missing = (120 - padded.len() % 64) % 64;
    padded.resize(padded.len() + missing, 0);
    // In bits, wrapping as the standard says: modulo 2^64.
    padded.extend(u64::try_from(data.len()).unwrap_or(u64::MAX).wrapping_mul(8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        compress(&mut state, block);
    }
    let mut digest = [0; 20];
    let bytes = state.iter().flat_map(|word: &u32| word.to_be_bytes());
    digest.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    digest
}

#[expect(clippy::many_single_char_names, reason = "the names of the standard")]
fn compress(state: &mut [u32; 5], block: &[u8]) {
    let mut words: Vec<u32> = block
        .chunks_exact(4)
        .map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
        .collect();
    while words.len() < 80 {
        // The words 3, 8, 14 and 16 places back.
        let back = |places: usize| words.iter().rev().nth(places - 1).copied().unwrap_or_default();
        let next = (back(3) ^ back(8) ^ back(14) ^ back(16)).rotate_left(1);
        words.push(next);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (round, word) in words.iter().enumerate() {
        let (mixed, constant) = match round / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = a
            .rotate_left(5)
            .wrapping_add(mixed)
            .wrapping_add(e)
            .wrapping_add(constant)
            .wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (sum, word) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(data: &[u8]) -> String {
        digest(data).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    #[test]
    fn published_vectors() {
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            hex(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1"
        );
        assert_eq!(hex(&vec![b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
