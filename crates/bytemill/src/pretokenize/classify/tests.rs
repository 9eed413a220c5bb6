//! The classifiers against plain definitions.

use super::*;
use crate::unicode::{Class, class_at, class_of};
use proptest::prelude::*;
use std::mem::MaybeUninit;

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

struct ContractedOf<'w>(&'w Window, bool);

impl Work for ContractedOf<'_> {
    type Output = u64;

    fn run(self, classify: impl Classify) -> u64 {
        classify.contracted(self.0, self.1)
    }
}

struct PlacesOf(usize, u64);

impl Work for PlacesOf {
    type Output = Vec<usize>;

    fn run(self, classify: impl Classify) -> Vec<usize> {
        let mut room = vec![MaybeUninit::new(usize::MAX); LANES + AT_ONCE + 1];
        let n_places = self.1.count_ones() as usize;
        classify.write_places(self.0, self.1, &mut room);
        // SAFETY: all of them were written when the room was made.
        let places: Vec<usize> = room.into_iter().map(|place| unsafe { place.assume_init() }).collect();
        assert!(places[n_places + AT_ONCE..].iter().all(|&place| place == usize::MAX));
        places[..n_places].to_vec()
    }
}

proptest! {
    #[test]
    fn places_are_those_of_the_bits(at in 0usize..1 << 40, words in prop::array::uniform3(any::<u64>())) {
        let [a, b, c] = words;
        for mask in [a, a & b, a & b & c, a | b | c, a << (b & 63), a >> (b & 63), 0, 1, 1 << 63, u64::MAX] {
            let expected: Vec<usize> = (0..64).filter(|bit| mask >> bit & 1 == 1).map(|bit| at + bit).collect();
            for set in InstructionSet::available() {
                prop_assert_eq!(&set.run(PlacesOf(at, mask)), &expected, "{:?}: {:x}", set, mask);
            }
        }
    }
}

#[test]
fn letters_of_contractions_are_found_at_every_place() {
    for set in InstructionSet::available() {
        for byte in 0..=255 {
            let lower = u64::from(matches!(byte, b'd' | b'm' | b's' | b't'));
            let any = u64::from(matches!(byte.to_ascii_lowercase(), b'd' | b'm' | b's' | b't'));
            for place in 0..LANES {
                let mut window = [b'\''; LANES + 3];
                window[place] = byte;
                assert_eq!(set.run(ContractedOf(&window, false)), lower << place, "{set:?}: {byte} at {place}");
                assert_eq!(set.run(ContractedOf(&window, true)), any << place, "{set:?}: {byte} at {place}");
            }
        }
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

/// What [`Mask`] does, with every answer as words.
struct Arithmetic([u64; BLOCKS], [u64; BLOCKS], bool);

type Answers = (Vec<[u64; BLOCKS]>, [bool; 2], [u64; 2]);

fn arithmetic<C: Classify>(classify: C, work: &Arithmetic) -> Answers {
    let Arithmetic(one, other, bit) = *work;
    let (one, other, bit) = (classify.mask(one), classify.mask(other), u64::from(bit));
    let (sum, over) = one.plus(other);
    let all = [
        one,
        one & other,
        one | other,
        !one,
        one & !other,
        sum,
        one.up::<1>(bit),
        one.up::<3>(bit * 5),
        one.up::<48>(bit * 0xABCD_EF01_2345),
        one.down(bit),
    ];
    (all.iter().map(|mask| mask.words()).collect(), [over, one.is_zero()], [one.last_word(), one.last_bit()])
}

impl Work for Arithmetic {
    type Output = Answers;

    fn run(self, classify: impl Classify) -> Answers {
        arithmetic(classify, &self)
    }
}

struct AsciiOfEight<'w>(&'w WideWindow);

impl Work for AsciiOfEight<'_> {
    type Output = (bool, [[u64; BLOCKS]; 8]);

    fn run(self, classify: impl Classify) -> Self::Output {
        let all = classify.ascii_of_eight(self.0);
        let masks = [all.letter, all.upper, all.digit, all.blank, all.tab, all.newline, all.apostrophe, all.slash];
        (are_ascii(self.0), masks.map(Mask::words))
    }
}

/// Words of which many are full or empty, so that carries go far.
fn words() -> impl Strategy<Value = [u64; BLOCKS]> {
    prop::array::uniform8(prop_oneof![
        Just(0),
        Just(u64::MAX),
        Just(1),
        Just(1 << 63),
        Just(u64::MAX - 1),
        any::<u64>()
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn masks_of_all_instruction_sets_reckon_alike(one in words(), other in words(), bit: bool) {
        let expected = arithmetic(portable::Portable, &Arithmetic(one, other, bit));
        for set in InstructionSet::available() {
            prop_assert_eq!(&set.run(Arithmetic(one, other, bit)), &expected, "{:?}", set);
        }
    }

    #[test]
    fn plain_masks_are_numbers_of_512_bits(one in words(), other in words(), bit: bool) {
        let mask = |words| Mask::words(portable::Portable.mask(words));
        let bit_at = |words: [u64; BLOCKS], k: usize| words[k / 64] >> (k % 64) & 1;
        let wide = portable::Portable.mask(one);
        let (sum, over) = wide.plus(portable::Portable.mask(other));
        let (up, down) = (wide.up::<3>(5 * u64::from(bit)).words(), wide.down(bit.into()).words());
        let mut carry = 0;
        for k in 0..EIGHT {
            let total = bit_at(one, k) + bit_at(other, k) + carry;
            prop_assert_eq!(bit_at(sum.words(), k), total & 1);
            carry = total >> 1;
            prop_assert_eq!(bit_at(up, k), if k < 3 { (u64::from(bit) * 5) >> k & 1 } else { bit_at(one, k - 3) });
            prop_assert_eq!(bit_at(down, k), if k == EIGHT - 1 { bit.into() } else { bit_at(one, k + 1) });
        }
        prop_assert_eq!(u64::from(over), carry);
        prop_assert_eq!(mask(one), one);
    }

    #[test]
    fn eight_blocks_are_classified_as_one_after_the_other(
        bytes in prop::collection::vec(prop_oneof![8 => 0u8..128, 1 => Just(b'\''), 1 => Just(b' ')], EIGHT + 3),
        high in prop::option::weighted(0.2, 0..EIGHT + 3),
    ) {
        let mut window: WideWindow = bytes.try_into().unwrap();
        let expected = portable::Portable.ascii_of_eight(&window);
        for (k, letters) in expected.letter.words().into_iter().enumerate() {
            let one = ascii_one_by_one(window[k * LANES..].first_chunk().unwrap());
            prop_assert_eq!(letters, one.letter);
        }
        let expected = AsciiOfEight(&window).run(portable::Portable).1;
        for set in InstructionSet::available() {
            prop_assert_eq!(set.run(AsciiOfEight(&window)), (true, expected), "{:?}", set);
        }
        if let Some(place) = high {
            window[place] = 0xC3;
            for set in InstructionSet::available() {
                prop_assert_eq!(set.run(AsciiOfEight(&window)).0, place >= EIGHT, "{:?}", set);
            }
        }
    }
}
