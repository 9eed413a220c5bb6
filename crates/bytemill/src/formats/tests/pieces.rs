use super::*;

#[test]
fn pieces_and_other_fields_are_told_apart() {
    let data = b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02\x12\x02\x18\x02\x0a\x03\x0a\x01a";
    let pieces = read_pieces(data).unwrap();
    assert_eq!(pieces.texts, ["<unk>", "a"]);
    assert_eq!((pieces.scores, pieces.kinds, pieces.rest), (vec![0.0, 0.0], vec![2, 1], b"\x12\x02\x18\x02".to_vec()));
    for n_bytes in [1, 2, 8, 17, 18, 19, 22] {
        assert!(read_pieces(&data[..n_bytes]).is_none(), "{n_bytes}");
    }
    for damaged in [&b"\x0a\x03\x0a\x01\xff"[..], b"\x02\x00", b"\x0b", b"\x0a\x02\x20\x01", b"\x0a\x02\x15\x01"] {
        assert!(read_pieces(damaged).is_none(), "{damaged:?}");
    }
}

#[test]
fn every_split_into_pieces_or_characters_is_a_merge() {
    let merge = |left: &'static str, right: &'static str| (left.as_bytes(), right.as_bytes());
    let pieces =
        vec![(-2.0, 7, "abc"), (-1.0, 8, "ab"), (-1.0, 3, "bc"), (0.0, 9, "c"), (-2.0, 1, "xyz"), (-3.0, 2, "cé")];
    let (merges, ranks) = piece_merges(pieces);
    assert_eq!(merges, [merge("b", "c"), merge("a", "b"), merge("a", "bc"), merge("ab", "c"), merge("c", "é")]);
    assert_eq!(ranks, Some(vec![0, 0, 1, 1, 2]));
    let (merges, ranks) = piece_merges(vec![(0.0, 1, "ab"), (1.0, 2, "bc")]);
    assert_eq!((merges, ranks), (vec![merge("b", "c"), merge("a", "b")], None));
}
