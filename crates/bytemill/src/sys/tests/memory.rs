use super::*;

// SAFETY: any bits are an array of integers.
unsafe impl AnyBits for [u64; 8] {}

#[test]
fn an_array_starts_as_zeros_and_keeps_what_is_written() {
    for len in [0, 1, 100, 100_000] {
        let mut array = ZeroedArray::<[u64; 8]>::new(len).unwrap();
        assert_eq!(array.len(), len);
        assert!(array.iter().all(|value| *value == [0; 8]));
        array.prepare(len / 2..len);
        for (index, value) in (0..).zip(array.iter_mut()) {
            *value = [index; 8];
        }
        assert!((0..).zip(array.iter()).all(|(index, value)| *value == [index; 8]));
    }
}

#[test]
fn failed_allocations_are_errors() {
    let refused = ZeroedArray::<[u64; 8]>::new(1 << 50).err().unwrap();
    assert!(matches!(refused, Error::Memory { .. }));
}

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
