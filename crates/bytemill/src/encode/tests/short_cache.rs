use super::super::key_hash::tests::hash;
use super::*;
use crate::sys::hash::pack;

fn key(text: &[u8]) -> Packed {
    pack(text, 0, text.len())
}

/// The ids of a short pre-token, by whichever way they are found.
fn get(cache: &mut ShortCache, key: Packed, hash: u32) -> Option<Vec<u32>> {
    if let Some((ids, n_ids)) = cache.lines().get_first(key, hash) {
        return Some(ids[..n_ids].to_vec());
    }
    match cache.get_other(key, hash) {
        Some(Lookup::Ids(ids, n_ids)) => Some(ids[..n_ids].to_vec()),
        _ => None,
    }
}

#[test]
fn inserted_pretokens_are_found() {
    let mut cache = ShortCache::new().unwrap();
    let (short, full) = (key(b"ab"), key(b"fifteen bytes.."));
    let (at_short, at_full) = (hash(short), hash(full));
    assert_eq!(get(&mut cache, short, at_short), None);
    cache.insert(short, at_short, &[7, 0, 0, 0], 1);
    cache.insert(full, at_full, &[1, 2, 3, 4], 4);
    assert_eq!(cache.lines().get_first(short, at_short), Some((&[7, 0, 0, 0], 1)));
    assert_eq!(cache.lines().get_first(full, at_full), Some((&[1, 2, 3, 4], 4)));
    let other = key(b"fifteen bytes.,");
    assert_eq!(get(&mut cache, other, at_full), None);
}

/// Keys of one place.
fn of_one_place(cache: &ShortCache) -> (u32, [Packed; 3]) {
    let at = hash(key(b"0"));
    let others = (1..u64::MAX).map(|number| pack(&number.to_le_bytes(), 0, 8));
    let mut same = others.filter(|&key| ((hash(key) ^ at) as usize).is_multiple_of(cache.n_lines));
    (at, [key(b"0"), same.next().unwrap(), same.next().unwrap()])
}

#[test]
fn new_entries_replace_the_least_recently_used() {
    let mut cache = ShortCache::new().unwrap();
    let (hash, [first, second, third]) = of_one_place(&cache);
    let put = |cache: &mut ShortCache, key: Packed, id| cache.insert(key, hash, &[id, 0, 0, 0], 1);
    let get = |cache: &mut ShortCache, key| get(cache, key, hash);
    put(&mut cache, first, 1);
    put(&mut cache, second, 2);
    assert_eq!(get(&mut cache, first), Some(vec![1]));
    put(&mut cache, third, 3);
    assert_eq!(get(&mut cache, second), None);
    assert_eq!(get(&mut cache, third), Some(vec![3]));
    put(&mut cache, second, 2);
    assert_eq!(get(&mut cache, first), None);
    assert_eq!(get(&mut cache, third), Some(vec![3]));
    assert_eq!(get(&mut cache, second), Some(vec![2]));
}

#[test]
fn ids_replace_their_placeholder() {
    let mut cache = ShortCache::new().unwrap();
    let (hash, [first, second, third]) = of_one_place(&cache);
    for (key, placeholder) in [(first, 100), (second, 200)] {
        cache.insert_placeholder(key, hash, placeholder);
    }
    // A placeholder is found, but not as ids.
    for (key, placeholder) in [(second, 200), (first, 100), (second, 200)] {
        assert_eq!(cache.lines().get_first(key, hash), None);
        assert_eq!(cache.get_other(key, hash), Some(Lookup::Placeholder(placeholder)));
    }
    assert_eq!(cache.get_other(third, hash), None);
    cache.insert(second, hash, &[3, 4, 0, 0], 2);
    assert_eq!(get(&mut cache, second, hash), Some(vec![3, 4]));
    assert_eq!(cache.get_other(first, hash), Some(Lookup::Placeholder(100)));
    cache.insert(first, hash, &[5, 6, 7, 8], 4);
    assert_eq!(get(&mut cache, first, hash), Some(vec![5, 6, 7, 8]));
    assert_eq!(get(&mut cache, second, hash), Some(vec![3, 4]));
}

#[test]
fn placeholders_can_be_removed_and_ids_cannot() {
    let mut cache = ShortCache::new().unwrap();
    let (hash, [first, second, _]) = of_one_place(&cache);
    cache.insert(first, hash, &[1, 2, 0, 0], 2);
    cache.insert_placeholder(second, hash, 200);
    for key in [first, second] {
        cache.remove_placeholder(key, hash);
    }
    assert_eq!(get(&mut cache, first, hash), Some(vec![1, 2]));
    assert_eq!(cache.get_other(second, hash), None);
}

#[test]
fn an_empty_entry_matches_no_key() {
    let mut cache = ShortCache::new().unwrap();
    assert_eq!(get(&mut cache, Packed::NO_KEY, 0), None);
    assert_eq!(cache.get_other(Packed::NO_KEY, 0), None);
    let zero = key(b"\0");
    let at_zero = hash(zero);
    assert_eq!(get(&mut cache, zero, at_zero), None);
    assert_eq!(cache.get_other(zero, at_zero), None);
}

/// So many different keys of 1 to 15 bytes.
fn keys(n: u64) -> impl Iterator<Item = Packed> {
    (0..n).map(|number| {
        let mut bytes = [b'a'; 15];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        pack(&bytes, 0, 8 + (number % 8) as usize)
    })
}

#[test]
fn entries_survive_growth() {
    let mut cache = ShortCache::new().unwrap();
    let (mut n_sizes, mut n_lines) = (0, cache.n_lines);
    for (number, new) in (0..).zip(keys(1 << 17)) {
        cache.insert(new, hash(new), &[number, 2, 3, 4], 1 + number as usize % SHORT_IDS);
        cache.grow();
        if cache.n_lines == n_lines {
            continue;
        }
        (n_sizes, n_lines) = (n_sizes + 1, cache.n_lines);
        assert_eq!(cache.n_bytes(), 64 * n_lines);
        let (mut n_found, mut n_first) = (0, 0);
        for (earlier, key) in (0..=number).zip(keys(1 << 17)) {
            n_first += u32::from(cache.lines().get_first(key, hash(key)).is_some());
            if let Some(ids) = get(&mut cache, key, hash(key)) {
                assert_eq!(ids, [earlier, 2, 3, 4][..1 + earlier as usize % SHORT_IDS]);
                n_found += 1;
            }
        }
        // Of as many as there are half as many lines, some were in one with two others.
        assert!(n_found > number * 9 / 10, "{n_found} of {number}");
        assert!(n_first > number * 6 / 10, "{n_first} of {number}");
    }
    assert!(n_sizes > 5, "{n_sizes}");
}

#[test]
fn the_size_of_the_table_is_bounded() {
    let mut cache = ShortCache::new().unwrap();
    for key in keys(3 * MAX_LINES as u64) {
        cache.insert(key, hash(key), &[1, 2, 3, 4], 4);
        cache.grow();
    }
    assert_eq!(cache.n_lines, MAX_LINES);
    let last = keys(3 * MAX_LINES as u64).last().unwrap();
    assert_eq!(get(&mut cache, last, hash(last)), Some(vec![1, 2, 3, 4]));
}
