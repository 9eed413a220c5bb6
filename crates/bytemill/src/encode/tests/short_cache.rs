use super::*;
use crate::bpe::limits::{MAX_CACHED_BYTES, MAX_LONG_KEY_BYTES};
use crate::sys::hash::pack;

/// What a longer pre-token is looked up by, if it is all of a text.
fn prefetch_long(cache: &Cache, text: &[u8]) -> u32 {
    cache.prefetch_long(text, &(0..text.len()))
}

fn get_long<'c>(cache: &'c Cache, text: &[u8], hash: u32) -> Option<&'c [u32]> {
    cache.get_long(text, &(0..text.len()), hash)
}

fn insert_long(cache: &mut Cache, text: &[u8], ids: &[u32]) {
    let hash = prefetch_long(cache, text);
    cache.insert_long(text, &(0..text.len()), hash, ids);
}

fn key(text: &[u8]) -> Packed {
    pack(text, 0, text.len())
}

/// The ids of a short pre-token, by whichever way they are found.
fn get(cache: &mut Cache, key: Packed, hash: u32) -> Option<Vec<u32>> {
    if let Some((ids, n_ids)) = cache.first_entries().get(key, hash) {
        return Some(ids[..n_ids].to_vec());
    }
    match cache.get_other(key, hash) {
        Some(Lookup::Ids(ids, n_ids)) => Some(ids[..n_ids].to_vec()),
        _ => None,
    }
}

#[test]
fn what_is_inserted_is_found() {
    let mut cache = Cache::new().unwrap();
    let (short, full) = (key(b"ab"), key(b"fifteen bytes.."));
    let at = |cache: &Cache, key| cache.hasher().hash(key);
    let (at_short, at_full) = (at(&cache, short), at(&cache, full));
    assert_eq!(get(&mut cache, short, at_short), None);
    cache.insert(short, at_short, &[7, 0, 0, 0], 1);
    cache.insert(full, at_full, &[1, 2, 3, 4], 4);
    assert_eq!(cache.first_entries().get(short, at_short), Some((&[7, 0, 0, 0], 1)));
    assert_eq!(cache.first_entries().get(full, at_full), Some((&[1, 2, 3, 4], 4)));
    let other = key(b"fifteen bytes.,");
    assert_eq!(get(&mut cache, other, at_full), None);
}

/// Keys of one place.
fn of_one_place(cache: &Cache) -> (u32, [Packed; 3]) {
    let hash = cache.hasher().hash(key(b"0"));
    let others = (1..u64::MAX).map(|number| pack(&number.to_le_bytes(), 0, 8));
    let mut same = others.filter(|&key| ((cache.hasher().hash(key) ^ hash) as usize).is_multiple_of(cache.short.len()));
    (hash, [key(b"0"), same.next().unwrap(), same.next().unwrap()])
}

#[test]
fn what_is_new_takes_the_place_of_what_was_not_asked_for_again() {
    let mut cache = Cache::new().unwrap();
    let (hash, [first, second, third]) = of_one_place(&cache);
    let put = |cache: &mut Cache, key: Packed, id| cache.insert(key, hash, &[id, 0, 0, 0], 1);
    let get = |cache: &mut Cache, key| get(cache, key, hash);
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
fn ids_take_the_place_of_the_question_for_them() {
    let mut cache = Cache::new().unwrap();
    let (hash, [first, second, third]) = of_one_place(&cache);
    for (key, placeholder) in [(first, 100), (second, 200)] {
        cache.insert_placeholder(key, hash, placeholder);
    }
    // A placeholder is found, but not as ids.
    for (key, placeholder) in [(second, 200), (first, 100), (second, 200)] {
        assert_eq!(cache.first_entries().get(key, hash), None);
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
fn a_question_can_be_taken_back_and_ids_cannot() {
    let mut cache = Cache::new().unwrap();
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
fn an_empty_entry_answers_no_key() {
    let mut cache = Cache::new().unwrap();
    assert_eq!(get(&mut cache, Packed::NO_KEY, 0), None);
    assert_eq!(cache.get_other(Packed::NO_KEY, 0), None);
    let zero = key(b"\0");
    let at_zero = cache.hasher().hash(zero);
    assert_eq!(get(&mut cache, zero, at_zero), None);
    assert_eq!(cache.get_other(zero, at_zero), None);
    assert_eq!(cache.get_many(Packed::NO_KEY, Packed::NO_KEY.hash()), None);
    assert_eq!(cache.get_many(zero, zero.hash()), None);
    for pretoken in [&[0; 16][..], &[0; MAX_LONG_KEY_BYTES], &[0; MAX_LONG_KEY_BYTES + 1], &[0; MAX_CACHED_BYTES]] {
        assert_eq!(get_long(&cache, pretoken, prefetch_long(&cache, pretoken)), None);
    }
}

#[test]
fn short_pretokens_of_many_ids_are_found_among_their_like() {
    let mut cache = Cache::new().unwrap();
    let (five, twelve, thirteen) = (key(b"five5"), key(b"twelve twelve"), key(b"thirteen bytes"));
    let ids: Vec<u32> = (1..14).collect();
    for (key, n_ids) in [(five, 5), (twelve, 12), (thirteen, 13)] {
        cache.insert_many(key, key.hash(), &ids[..n_ids]);
    }
    assert!(cache.may_have_many(five.hash()));
    assert_eq!(cache.get_many(five, five.hash()), Some(&ids[..5]));
    assert_eq!(cache.get_many(twelve, twelve.hash()), Some(&ids[..12]));
    assert_eq!(cache.get_many(thirteen, thirteen.hash()), None);
    assert_eq!(cache.get_many(key(b"five6"), five.hash()), None);
}

#[test]
fn longer_pretokens_are_told_apart_by_every_byte_and_their_number() {
    let ids: Vec<u32> = (1..=20).collect();
    for (n_bytes, n_ids) in
        [(16, 1), (MAX_LONG_KEY_BYTES, MAX_LONG_IDS), (MAX_LONG_KEY_BYTES + 1, 3), (MAX_CACHED_BYTES, MAX_RUN_IDS)]
    {
        let mut cache = Cache::new().unwrap();
        let text: Vec<u8> = (1..=n_bytes as u8).collect();
        let hash = prefetch_long(&cache, &text);
        insert_long(&mut cache, &text, &ids[..n_ids]);
        assert_eq!(get_long(&cache, &text, hash), Some(&ids[..n_ids]));
        for at in 0..n_bytes {
            let mut other = text.clone();
            other[at] ^= 1;
            assert_eq!(get_long(&cache, &other, hash), None, "{other:?}");
            if n_bytes <= MAX_LONG_KEY_BYTES || at > MAX_LONG_KEY_BYTES {
                assert_eq!(get_long(&cache, &text[..at], hash), None, "{at}");
            }
        }
    }
}

#[test]
fn a_longer_pretoken_is_the_same_wherever_it_stands() {
    let text: Vec<u8> = (1..=200).collect();
    for start in [0, 30, 136, 137, 140] {
        for n_bytes in 16..=MAX_LONG_KEY_BYTES.min(text.len() - start) {
            let range = start..start + n_bytes;
            let alone = LongKey::new(&text[range.clone()], &(0..n_bytes)).unwrap();
            let bytes: Vec<u8> = alone.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!((&bytes[..n_bytes], usize::from(bytes[MAX_LONG_KEY_BYTES])), (&text[range.clone()], n_bytes));
            assert!(bytes[n_bytes..MAX_LONG_KEY_BYTES].iter().all(|&byte| byte == 0));
            assert!(LongKey::new(&text, &range).unwrap().is_equal(&alone), "{range:?}");
        }
    }
}

#[test]
fn what_is_too_much_is_not_remembered() {
    let mut cache = Cache::new().unwrap();
    let ids: Vec<u32> = (1..=20).collect();
    for (n_bytes, n_ids) in [(20, MAX_LONG_IDS + 1), (100, MAX_RUN_IDS + 1), (MAX_CACHED_BYTES + 1, 1), (1000, 1)] {
        let text = vec![b'-'; n_bytes];
        let hash = prefetch_long(&cache, &text);
        insert_long(&mut cache, &text, &ids[..n_ids]);
        assert_eq!(get_long(&cache, &text, hash), None);
    }
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
fn what_it_knew_is_found_after_it_has_grown() {
    let mut cache = Cache::new().unwrap();
    let hasher = cache.hasher();
    let many: Vec<u32> = (0..MANY_IDS as u32).collect();
    let (mut n_sizes, mut mask) = (0, cache.short.len());
    for (number, new) in (0..).zip(keys(1 << 17)) {
        let ids = [number, 2, 3, 4];
        cache.insert(new, hasher.hash(new), &ids, 1 + number as usize % SHORT_IDS);
        cache.insert_many(new, new.hash(), &many[..5 + number as usize % 8]);
        cache.grow();
        if cache.short.len() == mask {
            continue;
        }
        (n_sizes, mask) = (n_sizes + 1, cache.short.len());
        let (mut n_found, mut n_found_of_many, mut n_first) = (0, 0, 0);
        for (earlier, key) in (0..=number).zip(keys(1 << 17)) {
            n_first += u32::from(cache.first_entries().get(key, hasher.hash(key)).is_some());
            if let Some(ids) = get(&mut cache, key, hasher.hash(key)) {
                assert_eq!(ids, [earlier, 2, 3, 4][..1 + earlier as usize % SHORT_IDS]);
                n_found += 1;
            }
            if let Some(ids) = cache.get_many(key, key.hash()) {
                assert_eq!(ids, &many[..5 + earlier as usize % 8]);
                n_found_of_many += 1;
            }
        }
        // Of as many as there are half as many sets, some were in one with two others.
        assert!(n_found > number * 9 / 10, "{n_found} of {number}");
        assert!(n_first > number * 6 / 10, "{n_first} of {number}");
        assert!(n_found_of_many > number * 5 / 10, "{n_found_of_many} of {number}");
    }
    assert!(n_sizes > 5, "{n_sizes}");
}

#[test]
fn it_does_not_grow_for_ever() {
    let mut cache = Cache::new().unwrap();
    let hasher = cache.hasher();
    let mut text = [b'-'; 40];
    for (number, key) in (0u64..).zip(keys(3 * MAX_SHORT_SETS as u64)) {
        cache.insert(key, hasher.hash(key), &[1, 2, 3, 4], 4);
        cache.insert_many(key, key.hash(), &[1; 6]);
        text[..8].copy_from_slice(&number.to_le_bytes());
        insert_long(&mut cache, &text, &[1, 2]);
        cache.grow();
    }
    assert_eq!(
        (cache.short.len(), cache.many.len(), cache.long.len()),
        (MAX_SHORT_SETS, MAX_MANY_ENTRIES, MAX_LONG_ENTRIES)
    );
    let last = keys(3 * MAX_SHORT_SETS as u64).last().unwrap();
    assert_eq!(get(&mut cache, last, hasher.hash(last)), Some(vec![1, 2, 3, 4]));
    assert_eq!(cache.get_many(last, last.hash()), Some(&[1; 6][..]));
    assert_eq!(get_long(&cache, &text, prefetch_long(&cache, &text)), Some(&[1, 2][..]));
}

#[test]
fn longer_pretokens_are_found_after_it_has_grown() {
    let mut cache = Cache::new().unwrap();
    let text = |number: u32| {
        let mut text = [b'-'; 40];
        text[20..24].copy_from_slice(&number.to_le_bytes());
        text
    };
    for number in 0..MAX_LONG_ENTRIES as u32 / 4 {
        insert_long(&mut cache, &text(number), &[number]);
        cache.grow();
    }
    assert!(cache.long.len() > 2_000);
    let found = |&number: &u32| match get_long(&cache, &text(number), prefetch_long(&cache, &text(number))) {
        Some(ids) => {
            assert_eq!(ids, [number]);
            true
        }
        None => false,
    };
    let n_found = (0..MAX_LONG_ENTRIES as u32 / 4).filter(found).count();
    assert!(n_found > MAX_LONG_ENTRIES / 4 * 7 / 10, "{n_found}");
}
