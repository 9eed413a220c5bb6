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
fn memory_that_cannot_be_had_is_an_error() {
    let refused = ZeroedArray::<[u64; 8]>::new(1 << 50).err().unwrap();
    assert!(matches!(refused, Error::Memory { .. }));
}
