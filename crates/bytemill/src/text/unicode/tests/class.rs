//! The tables against `regex-syntax`.

use super::super::*;

#[test]
fn table_equals_regex_syntax_on_every_code_point() {
    for (expression, holds) in [
        (r"\p{L}", Class::is_letter as fn(Class) -> bool),
        (r"\s", Class::is_space),
        (r"[^\s\p{L}\p{N}]", |class| matches!(class, Class::Other | Class::Mark)),
        (r"\p{N}", |class| class == Class::Number),
        (r"[\p{Lu}\p{Lt}]", |class| class == Class::Upper),
        (r"\p{Ll}", |class| class == Class::Lower),
        (r"[\p{Lm}\p{Lo}]", |class| class == Class::OtherLetter),
        (r"\p{M}", |class| class == Class::Mark),
        (r"[\r\n]", |class| class == Class::Newline),
    ] {
        let hir = regex_syntax::parse(expression).unwrap();
        let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) = hir.kind() else {
            panic!("{expression} is not a class");
        };
        let mut expected = vec![false; 0x11_0000];
        for range in class.ranges() {
            expected[range.start() as usize..=range.end() as usize].fill(true);
        }
        for character in '\0'..=char::MAX {
            let code_point = character as u32;
            assert_eq!(holds(class_of(code_point)), expected[code_point as usize], "{expression} U+{code_point:04X}");
        }
    }
}

#[test]
fn bit_planes_hold_the_same_classes() {
    for code_point in (0..=char::MAX as u32).chain([u32::MAX]) {
        let (byte, bit) = ((code_point & 127) as usize >> 3, code_point & 7);
        let [low, middle, high] = bit_planes(code_point).map(|plane| plane[byte] >> bit & 1);
        assert_eq!(class_of(code_point) as u8, low | middle << 1 | high << 2, "U+{code_point:04X}");
    }
    const { assert!(N_BLOCKS < 256, "the last bit planes stay zero") };
}

#[test]
fn class_at_reads_every_character_as_class_of_does() {
    let mut buffer = [0; 4];
    for character in '\0'..=char::MAX {
        let bytes = character.encode_utf8(&mut buffer).as_bytes();
        assert_eq!(class_at(bytes, 0), (class_of(character as u32), bytes.len()));
    }
}

#[test]
fn malformed_bytes_stay_inside_the_text() {
    for first in 0..=255 {
        let (_, n_bytes) = class_at(&[first], 0);
        assert_eq!(n_bytes, 1);
    }
    assert_eq!(class_of(u32::MAX), Class::Other);
}
