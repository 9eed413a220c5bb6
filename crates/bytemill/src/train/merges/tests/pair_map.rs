use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

proptest! {
    #[test]
    fn agrees_with_a_hash_map(
        added in prop::collection::vec((0u32..40, 0u32..40, 0u64..9), 0..1500),
        looked_up in prop::collection::vec((0u32..50, 0u32..50), 0..50),
    ) {
        let mut map = PairMap::with_capacity(0);
        let mut expected = HashMap::new();
        for (left, right, value) in added {
            *map.entry(left, right) += value;
            *expected.entry((left, right)).or_insert(0) += value;
        }
        for (left, right) in looked_up {
            prop_assert_eq!(map.get(left, right), expected.get(&(left, right)).copied());
        }
        prop_assert_eq!(map.iter().collect::<HashMap<_, _>>(), expected);
    }
}
