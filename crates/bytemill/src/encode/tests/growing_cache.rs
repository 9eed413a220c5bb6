use super::*;

// SAFETY: any bits are an integer.
unsafe impl AnyBits for u32 {}

#[test]
fn values_move_to_where_their_hash_says() {
    let mut table = GrowingCache::<u32>::new(1 << 20).unwrap();
    // Their own hashes, none of which is 0, and no two with one index.
    let hashes: Vec<u32> =
        (1..INITIAL_LEN as u32).map(|number| number | number.wrapping_mul(0x9E37_79B9) << 10).collect();
    for &hash in &hashes {
        assert_eq!(std::mem::replace(table.get_for_insert(hash), hash), 0);
    }
    assert!(table.is_full());
    for n_doublings in 1..=10 {
        table.grow(|entries, index| {
            let new_index = entries[index] as usize & (entries.len() - 1);
            if entries[index] != 0 && new_index != index {
                entries[new_index] = std::mem::take(&mut entries[index]);
            }
        });
        assert_eq!(table.len(), INITIAL_LEN << n_doublings);
        assert_eq!(table.n_bytes(), 4 * table.len());
        assert!(hashes.iter().all(|&hash| *table.get(hash) == hash && *table.view().get(hash) == hash));
        assert!(!table.is_full(), "insertions count for every size, and there is a largest one");
    }
}
