use super::*;

#[test]
fn preparing_any_part_of_a_buffer_changes_nothing_in_it() {
    let expected: Vec<u16> = (0..=u16::MAX).cycle().take(5 << 20).collect();
    for step in [1 << 14, (1 << 20) - 1, 1 << 20, 3 << 20] {
        let mut buffer: Vec<u16> = Vec::with_capacity(expected.len());
        for part in expected.chunks(step) {
            // More may be announced than is written, and more than there is room for.
            prepare(buffer.spare_capacity_mut(), 2 * step);
            buffer.extend_from_slice(part);
            prepare(buffer.spare_capacity_mut(), 0);
        }
        assert_eq!(buffer, expected);
    }
}

#[test]
fn empty_and_small_buffers_are_left_alone() {
    prepare::<u8>(&mut [], 1);
    prepare::<u64>(&mut [MaybeUninit::uninit(); 3], 10);
}
