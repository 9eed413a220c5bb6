use super::*;

/// Keys whose unseeded hash starts with eight zero bits: an attack on tables without a seed.
fn colliding_keys(n: usize) -> Vec<Packed> {
    let letters = |mut number: u64| {
        let mut text = *b"aaaaaaaaaaaaaa";
        for byte in &mut text {
            *byte += (number % 26) as u8;
            number /= 26;
        }
        pack(&text, 0, text.len())
    };
    (0..).map(letters).filter(|key| key.hash() >> 56 == 0).take(n).collect()
}

#[test]
fn counters_with_different_seeds_place_keys_differently() {
    let keys = colliding_keys(1_000);
    let partition_sizes = |seed| {
        let mut table = PretokenCounts::new(seed);
        for key in &keys {
            table.add_short(*key, key.hash_seeded(seed), 1);
        }
        (0..N_PARTITIONS).map(|partition| table.partition(partition).count()).collect::<Vec<_>>()
    };
    let unseeded = partition_sizes(0);
    assert_eq!(unseeded[0], keys.len());
    let (one, other) = (partition_sizes(0x0123_4567_89AB_CDEF), partition_sizes(0xC0FF_EE00_5EED_1234));
    assert_ne!(one, other);
    for sizes in [one, other] {
        assert_eq!(sizes.iter().sum::<usize>(), keys.len());
        // 16 on average.
        assert!(*sizes.iter().max().unwrap() < 100, "{sizes:?}");
    }
}

#[test]
fn colliding_keys_need_few_probes_in_a_seeded_table() {
    let keys = colliding_keys(2_000);
    let probes = |seed| {
        let mut table = PretokenCounts::new(seed);
        for key in &keys {
            table.add_short(*key, key.hash_seeded(seed), 1);
        }
        let mask = table.entries.len() - 1;
        let distance = |key: &Packed| {
            let hash = key.hash_seeded(seed);
            let at = table.find_short(*key, hash);
            at.wrapping_sub(table.first_entry(hash)) & mask
        };
        keys.iter().map(distance).sum::<usize>() / keys.len()
    };
    assert!(probes(0) > 500, "the attack works without a seed");
    assert!(probes(0x0123_4567_89AB_CDEF) < 10);
}
