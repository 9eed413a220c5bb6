use super::super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_set_has_the_code_points_of_its_ranges(
        ranges in prop::collection::vec((0u32..0x11_0000, 0u32..0x300).prop_map(|(first, n)| first..=first + n), 0..6),
        others in prop::collection::vec(0u32..0x11_0400, 20),
    ) {
        let set = CharSet::new(ranges.clone());
        let near = ranges.iter().flat_map(|range| [range.start().saturating_sub(1), *range.start(), *range.end(), range.end() + 1]);
        for code_point in near.chain([0xFFFF, 0x1_0000]).chain(others) {
            prop_assert_eq!(set.has(code_point), ranges.iter().any(|range| range.contains(&code_point)));
        }
    }
}
