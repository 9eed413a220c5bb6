use super::*;

#[test]
fn strings_are_read_up_to_damage() {
    let block = b"\x02\0\0\0\0\0\0\0ab\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\xe2\x96\x81rest";
    let (strings, n_bytes) = StringArray::read(block, 3, false).unwrap();
    assert_eq!((strings.iter().collect::<Vec<_>>(), n_bytes), (vec!["ab", "", "▁"], block.len() - 4));
    assert!(StringArray::read(block, 4, false).is_none());
    assert!(StringArray::read(&block[..28], 3, false).is_none());
    assert!(StringArray::read(b"\x01\0\0\0\0\0\0\0\xff", 1, false).is_none());
    assert!(StringArray::read(b"\x01\0\0\0\0\0\0\0a", 1, true).is_none());
    assert_eq!(StringArray::read(b"\0\0\0\0\0\0\0\x01a", 1, true).unwrap().1, 9);
    assert_eq!(StringArray::read(b"", 0, true).unwrap().0.len(), 0);
}

#[test]
fn results_of_merges_are_found() {
    let mut merges = StringArray::default();
    for merge in ["a b", "ab c", "d", "e f g"] {
        merges.push(merge);
    }
    assert_eq!(merges.results_among(["ab", "abc", "bc", "d", "ef g"].into_iter()).len(), 4);
}
