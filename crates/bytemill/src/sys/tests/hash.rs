use super::*;

#[test]
fn packing_is_the_same_at_the_end_of_a_text_and_inside_it() {
    let text: Vec<u8> = (1..=64).collect();
    for start in 0..20 {
        for n_bytes in 0..=PACKED_BYTES {
            let inside = pack(&text, start, start + n_bytes);
            let at_end = pack(&text[..start + n_bytes], start, start + n_bytes);
            assert_eq!(inside, at_end);
            assert_eq!(inside.bytes()[..inside.n_bytes()], text[start..start + n_bytes]);
        }
    }
}

#[test]
fn zero_bytes_and_lengths_make_different_keys() {
    let zeros = [0; 32];
    let keys: std::collections::HashSet<u64> = (0..=15).map(|n_bytes| pack(&zeros, 0, n_bytes).hash()).collect();
    assert_eq!(keys.len(), 16);
}
