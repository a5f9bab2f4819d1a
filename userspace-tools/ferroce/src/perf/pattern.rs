// SPDX-License-Identifier: GPL-2.0

//! The bytes that the client sends and the server expects: for each seed a
//! sequence without repetition, so that a byte in the wrong place shows.

use ferroce::Buffer;

const CHUNK: usize = 4096;

/// Word `index` of the sequence (the mixing function of splitmix64).
fn word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bytes from `offset`, a multiple of 8.
fn bytes(seed: u64, offset: usize, to: &mut [u8]) {
    for (index, part) in to.chunks_mut(8).enumerate() {
        let word = word(seed, (offset / 8 + index) as u64).to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    }
}

/// Fills the first `len` bytes of the buffer.
pub fn fill(buffer: &Buffer, seed: u64, len: usize) {
    let mut chunk = [0; CHUNK];
    for offset in (0..len).step_by(CHUNK) {
        let part = &mut chunk[..CHUNK.min(len - offset)];
        bytes(seed, offset, part);
        buffer.write(offset, part);
    }
}

/// Looks for the first byte of the first `len` that is not as `fill` wrote it.
pub fn first_difference(buffer: &Buffer, seed: u64, len: usize) -> Option<usize> {
    let mut expected = [0; CHUNK];
    let mut found = [0; CHUNK];
    for offset in (0..len).step_by(CHUNK) {
        let size = CHUNK.min(len - offset);
        bytes(seed, offset, &mut expected[..size]);
        buffer.read(offset, &mut found[..size]);
        let place = expected[..size]
            .iter()
            .zip(&found[..size])
            .position(|(a, b)| a != b);
        if let Some(place) = place {
            return Some(offset + place);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_is_found_and_a_changed_byte_too() {
        let buffer = Buffer::new(3 * CHUNK).unwrap();
        for len in [1, 7, 8, CHUNK, CHUNK + 1, 3 * CHUNK] {
            fill(&buffer, 42, len);
            assert_eq!(first_difference(&buffer, 42, len), None);
            let mut last = [0];
            buffer.read(len - 1, &mut last);
            buffer.write(len - 1, &[!last[0]]);
            assert_eq!(first_difference(&buffer, 42, len), Some(len - 1));
        }
    }

    #[test]
    fn zeros_and_other_seeds_do_not_pass() {
        let buffer = Buffer::new(CHUNK).unwrap();
        assert!(first_difference(&buffer, 1, CHUNK).is_some());
        fill(&buffer, 1, CHUNK);
        assert!(first_difference(&buffer, 2, CHUNK).is_some());
    }
}
