use super::*;
use crate::sys::hash::long_hash;

fn get<'c>(cache: &'c LongCache, text: &[u8]) -> Option<&'c [u32]> {
    cache.prefetch(long_hash(text, 0));
    cache.get(text, long_hash(text, 0))
}

fn insert(cache: &mut LongCache, text: &[u8], ids: &[u32]) {
    cache.insert(text, long_hash(text, 0), ids);
}

#[test]
fn an_empty_cache_holds_no_pretoken() {
    let cache = LongCache::new().unwrap();
    for pretoken in [&[0; 1][..], &[0; 16], &[0; 64], &[0; MAX_CACHED_BYTES]] {
        assert_eq!(get(&cache, pretoken), None);
        assert_eq!(cache.get(pretoken, 0), None);
    }
}

#[test]
fn pretokens_with_equal_hashes_are_compared_by_all_their_bytes() {
    let ids: Vec<u32> = (1..=20).collect();
    for (n_bytes, n_ids) in [(1, 1), (5, 5), (15, 12), (16, 1), (63, MAX_LONG_IDS), (64, 3), (MAX_CACHED_BYTES, 16)] {
        let mut cache = LongCache::new().unwrap();
        let text: Vec<u8> = (1..=n_bytes as u8).collect();
        let hash = long_hash(&text, 0);
        insert(&mut cache, &text, &ids[..n_ids]);
        assert!(cache.may_hold(hash));
        assert_eq!(get(&cache, &text), Some(&ids[..n_ids]));
        for at in 0..n_bytes {
            let mut other = text.clone();
            other[at] ^= 1;
            assert_eq!(cache.get(&other, hash), None, "{other:?}");
            assert_eq!(cache.get(&text[..at], hash), None, "{at}");
        }
        assert_eq!(cache.get(&[&text[..], &[0]].concat(), hash), None);
    }
}

#[test]
fn entries_that_are_too_large_are_not_cached() {
    let mut cache = LongCache::new().unwrap();
    let ids: Vec<u32> = (1..=20).collect();
    for (n_bytes, n_ids) in [(20, MAX_LONG_IDS + 1), (MAX_CACHED_BYTES + 1, 1), (1000, 1)] {
        let text = vec![b'-'; n_bytes];
        insert(&mut cache, &text, &ids[..n_ids]);
        assert_eq!(get(&cache, &text), None);
    }
    assert!(cache.words.is_empty());
}

#[test]
fn a_full_cache_is_cleared_and_still_returns_the_right_ids() {
    let mut cache = LongCache::new().unwrap();
    let text = |number: u32| {
        let mut text = vec![b'-'; 16 + number as usize % 230];
        text[8..12].copy_from_slice(&number.to_le_bytes());
        text
    };
    let ids = |number: u32| [number; MAX_LONG_IDS];
    let n_ids = |number: u32| 1 + number as usize % MAX_LONG_IDS;
    for number in 0..100_000 {
        insert(&mut cache, &text(number), &ids(number)[..n_ids(number)]);
        assert_eq!(get(&cache, &text(number)), Some(&ids(number)[..n_ids(number)]));
    }
    assert!(cache.words.len() <= MAX_WORDS && cache.n_bytes() <= 512 * 1024 + 4 * MAX_WORDS);
    let known = |&number: &u32| match get(&cache, &text(number)) {
        Some(found) => {
            assert_eq!(found, &ids(number)[..n_ids(number)]);
            true
        }
        None => false,
    };
    assert!((0..100_000).filter(known).count() > 1_000);
}
