//! The classifiers against plain definitions.

use super::*;
use crate::unicode::{Class, class_at, class_of};
use proptest::prelude::*;

struct AsciiOf<'w>(&'w Window);

impl Work for AsciiOf<'_> {
    type Output = Ascii;

    fn run(self, classify: impl Classify) -> Ascii {
        classify.ascii(self.0)
    }
}

struct WideOf<'w>(&'w Window, u64);

impl Work for WideOf<'_> {
    type Output = Wide;

    fn run(self, classify: impl Classify) -> Wide {
        wide(classify, self.0, self.1)
    }
}

fn ascii_one_by_one(bytes: &Window) -> Ascii {
    let mask = |holds: fn(u8) -> bool| (0..LANES).filter(|&k| holds(bytes[k])).fold(0, |mask, k| mask | 1 << k);
    Ascii {
        letter: mask(|byte| byte.is_ascii_alphabetic()),
        upper: mask(|byte| byte.is_ascii_uppercase()),
        digit: mask(|byte| byte.is_ascii_digit()),
        blank: mask(|byte| byte == b' '),
        tab: mask(|byte| matches!(byte, b'\t' | 0x0B | 0x0C)),
        newline: mask(|byte| matches!(byte, b'\n' | b'\r')),
        apostrophe: mask(|byte| byte == b'\''),
        slash: mask(|byte| byte == b'/'),
        high: mask(|byte| byte >= 0x80),
        continuation: mask(|byte| matches!(byte, 0x80..=0xBF)),
    }
}

/// The classes of the characters that start in a window, and where these are, by [`class_at`].
fn wide_one_by_one(window: &Window) -> (Wide, u64) {
    let (mut all, mut firsts) = (Wide::default(), 0);
    for place in (0..LANES).filter(|&place| window[place] >= 0xC0) {
        firsts |= 1 << place;
        let masks: &mut [&mut u64] = match class_at(window, place).0 {
            Class::Upper => &mut [&mut all.letter, &mut all.upper],
            Class::Lower => &mut [&mut all.letter],
            Class::OtherLetter => &mut [&mut all.letter, &mut all.uncased],
            Class::Mark => &mut [&mut all.mark],
            Class::Number => &mut [&mut all.number],
            Class::Space => &mut [&mut all.space],
            Class::Other | Class::Newline => &mut [],
        };
        masks.iter_mut().for_each(|mask| **mask |= 1 << place);
    }
    (all, firsts)
}

/// The first bytes of a text, behind some bytes of padding.
fn window(padding: usize, text: &str) -> Window {
    let mut window = [b'.'; LANES + 3];
    let n_bytes = text.len().min(window.len() - padding);
    window[padding..padding + n_bytes].copy_from_slice(&text.as_bytes()[..n_bytes]);
    window
}

fn assert_wide_is_right(window: &Window) {
    let (expected, firsts) = wide_one_by_one(window);
    for set in InstructionSet::available() {
        assert_eq!(set.run(WideOf(window, firsts)), expected, "{set:?}: {window:x?}");
    }
}

#[test]
fn every_byte_is_classified_alike_at_every_place() {
    for set in InstructionSet::available() {
        for byte in 0..=255 {
            for other in [0, b'a', b' ', 0xC3] {
                for place in 0..LANES {
                    let mut bytes = [other; LANES + 3];
                    bytes[place] = byte;
                    assert_eq!(set.run(AsciiOf(&bytes)), ascii_one_by_one(&bytes), "{set:?}: {byte:#x} at {place}");
                }
            }
        }
    }
}

#[test]
fn every_character_outside_ascii_has_its_class() {
    let all: Vec<char> = ('\u{80}'..=char::MAX).collect();
    // Ranges of neighbours fill a window, each with some other place in it for its first character.
    for (k, some) in all.chunks(16).enumerate() {
        assert_wide_is_right(&window(k % 4, &some.iter().collect::<String>()));
    }
}

#[test]
fn characters_have_their_classes_at_every_place() {
    for character in "éЖя१ि。、あァー·ｱＡ５一가힣䷀ꀀ\u{a0}\u{3000}\u{2003}²①٣𝐀𐐨😀\u{fe0f}𠀀".chars()
    {
        for place in 0..LANES {
            assert_wide_is_right(&window(place, &character.to_string()));
        }
    }
}

#[test]
fn plain_characters_are_letters_without_case() {
    let mut n_plain = 0;
    for character in '\u{800}'..='\u{ffff}' {
        let mut bytes = [0; 4];
        character.encode_utf8(&mut bytes);
        if wide::is_plain(bytes[0], bytes[1]) {
            n_plain += 1;
            assert_eq!(class_of(character.into()), Class::OtherLetter, "{character:?}");
        }
    }
    // U+3400 to U+3FFF, U+4E00 to U+9FFF, U+AC00 to U+D77F.
    assert_eq!(n_plain, 0xC00 + 0x5200 + 0x2B80);
}

proptest! {
    #[test]
    fn random_bytes_are_classified_alike(bytes in prop::collection::vec(any::<u8>(), LANES + 3)) {
        let window = bytes.try_into().unwrap();
        for set in InstructionSet::available() {
            prop_assert_eq!(set.run(AsciiOf(&window)), ascii_one_by_one(&window), "{:?}", set);
        }
    }

    #[test]
    fn random_characters_have_their_classes(
        few in prop::collection::vec(any::<char>(), 1..6),
        choices in prop::collection::vec(any::<prop::sample::Index>(), LANES),
        padding in 0usize..4,
    ) {
        let text: String = choices.iter().map(|choice| *choice.get(&few)).collect();
        assert_wide_is_right(&window(padding, &text));
    }
}
