//! The classifiers against plain definitions.

use super::classifier::is_cjk;
use super::portable::Portable;
use super::*;
use crate::text::unicode::{Class, class_at, class_of};
use proptest::prelude::*;
use std::mem::MaybeUninit;

const WIDE_BYTES: usize = WIDE_BLOCKS * BLOCK_BYTES;

struct AsciiOf<'w>(&'w Window);

impl Work for AsciiOf<'_> {
    type Output = Ascii;

    fn run(self, classify: impl Classify) -> Ascii {
        classify.ascii(self.0)
    }
}

struct NonAsciiOf<'w>(&'w Window, u64);

impl Work for NonAsciiOf<'_> {
    type Output = NonAscii;

    fn run(self, classify: impl Classify) -> NonAscii {
        non_ascii(classify, self.0, self.1)
    }
}

fn ascii_one_by_one(bytes: &Window) -> Ascii {
    let mask = |holds: fn(u8) -> bool| (0..BLOCK_BYTES).filter(|&k| holds(bytes[k])).fold(0, |mask, k| mask | 1 << k);
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

/// The classes of the characters that start in a window and their first bytes, by [`class_at`].
fn non_ascii_one_by_one(window: &Window) -> (NonAscii, u64) {
    let (mut all, mut firsts) = (NonAscii::default(), 0);
    for position in (0..BLOCK_BYTES).filter(|&position| window[position] >= 0xC0) {
        firsts |= 1 << position;
        let masks: &mut [&mut u64] = match class_at(window, position).0 {
            Class::Upper => &mut [&mut all.letter, &mut all.upper],
            Class::Lower => &mut [&mut all.letter],
            Class::OtherLetter => &mut [&mut all.letter, &mut all.uncased],
            Class::Mark => &mut [&mut all.mark],
            Class::Number => &mut [&mut all.number],
            Class::Space => &mut [&mut all.space],
            Class::Other | Class::Newline => &mut [],
        };
        masks.iter_mut().for_each(|mask| **mask |= 1 << position);
    }
    (all, firsts)
}

/// The first bytes of a text after some bytes of padding.
fn window(padding: usize, text: &str) -> Window {
    let mut window = [b'.'; BLOCK_BYTES + 3];
    let n_bytes = text.len().min(window.len() - padding);
    window[padding..padding + n_bytes].copy_from_slice(&text.as_bytes()[..n_bytes]);
    window
}

fn assert_non_ascii_is_right(window: &Window) {
    let (expected, firsts) = non_ascii_one_by_one(window);
    for set in InstructionSet::available() {
        assert_eq!(set.run(NonAsciiOf(window, firsts)), expected, "{set:?}: {window:x?}");
    }
}

struct PositionsOf(usize, u64);

impl Work for PositionsOf {
    type Output = Vec<usize>;

    fn run(self, classify: impl Classify) -> Vec<usize> {
        let mut room = vec![MaybeUninit::new(usize::MAX); BLOCK_BYTES + WRITE_WIDTH + 1];
        let n_positions = self.1.count_ones() as usize;
        classify.write_positions(self.0, self.1, &mut room);
        // SAFETY: all entries were initialised when the vector was created.
        let positions: Vec<usize> = room.into_iter().map(|entry| unsafe { entry.assume_init() }).collect();
        assert!(positions[n_positions + WRITE_WIDTH..].iter().all(|&position| position == usize::MAX));
        positions[..n_positions].to_vec()
    }
}

proptest! {
    #[test]
    fn positions_are_those_of_the_bits(at in 0usize..1 << 40, words in prop::array::uniform3(any::<u64>())) {
        let [a, b, c] = words;
        for mask in [a, a & b, a & b & c, a | b | c, a << (b & 63), a >> (b & 63), 0, 1, 1 << 63, u64::MAX] {
            let expected: Vec<usize> = (0..64).filter(|bit| mask >> bit & 1 == 1).map(|bit| at + bit).collect();
            for set in InstructionSet::available() {
                prop_assert_eq!(&set.run(PositionsOf(at, mask)), &expected, "{:?}: {:x}", set, mask);
            }
        }
    }
}

#[test]
fn every_byte_is_classified_at_every_position() {
    for set in InstructionSet::available() {
        for byte in 0..=255 {
            for other in [0, b'a', b' ', 0xC3] {
                for position in 0..BLOCK_BYTES {
                    let mut bytes = [other; BLOCK_BYTES + 3];
                    bytes[position] = byte;
                    assert_eq!(set.run(AsciiOf(&bytes)), ascii_one_by_one(&bytes), "{set:?}: {byte:#x} at {position}");
                }
            }
        }
    }
}

#[test]
fn every_character_outside_ascii_has_its_class() {
    let all: Vec<char> = ('\u{80}'..=char::MAX).collect();
    // Consecutive characters fill a window, with varying padding.
    for (k, some) in all.chunks(16).enumerate() {
        assert_non_ascii_is_right(&window(k % 4, &some.iter().collect::<String>()));
    }
}

#[test]
fn characters_have_their_classes_at_every_position() {
    for character in "éЖя१ि。、あァー·ｱＡ５一가힣䷀ꀀ\u{a0}\u{3000}\u{2003}²①٣𝐀𐐨😀\u{fe0f}𠀀".chars()
    {
        for position in 0..BLOCK_BYTES {
            assert_non_ascii_is_right(&window(position, &character.to_string()));
        }
    }
}

#[test]
fn cjk_characters_are_letters_without_case() {
    let mut n_cjk = 0;
    for character in '\u{800}'..='\u{ffff}' {
        let mut bytes = [0; 4];
        character.encode_utf8(&mut bytes);
        if is_cjk(bytes[0], bytes[1]) {
            n_cjk += 1;
            assert_eq!(class_of(character.into()), Class::OtherLetter, "{character:?}");
        }
    }
    // U+3400 to U+3FFF, U+4E00 to U+9FFF, U+AC00 to U+D77F.
    assert_eq!(n_cjk, 0xC00 + 0x5200 + 0x2B80);
}

proptest! {
    #[test]
    fn random_bytes_are_classified_as_defined(bytes in prop::collection::vec(any::<u8>(), BLOCK_BYTES + 3)) {
        let window = bytes.try_into().unwrap();
        for set in InstructionSet::available() {
            prop_assert_eq!(set.run(AsciiOf(&window)), ascii_one_by_one(&window), "{:?}", set);
        }
    }

    #[test]
    fn random_characters_have_their_classes(
        few in prop::collection::vec(any::<char>(), 1..6),
        choices in prop::collection::vec(any::<prop::sample::Index>(), BLOCK_BYTES),
        padding in 0usize..4,
    ) {
        let text: String = choices.iter().map(|choice| *choice.get(&few)).collect();
        assert_non_ascii_is_right(&window(padding, &text));
    }
}

/// The operations of [`Mask`], with the results as words.
struct Arithmetic([u64; WIDE_BLOCKS], [u64; WIDE_BLOCKS], bool);

type Results = (Vec<[u64; WIDE_BLOCKS]>, [bool; 2], u64);

fn arithmetic<C: Classify>(classify: C, work: &Arithmetic) -> Results {
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
        one.up(1, bit),
        one.up(3, bit * 5),
        one.up(48, bit * 0xABCD_EF01_2345),
        one.down(bit),
        one.none(),
        other.with_words(one.words()),
        one.filter(|k| k % 3 == 0),
    ];
    (all.iter().map(|mask| mask.words()).collect(), [over, one.is_zero()], one.last_word())
}

impl Work for Arithmetic {
    type Output = Results;

    fn run(self, classify: impl Classify) -> Results {
        arithmetic(classify, &self)
    }
}

struct WideAsciiOf<'w>(&'w WideWindow);

impl Work for WideAsciiOf<'_> {
    type Output = (bool, [[u64; WIDE_BLOCKS]; 8]);

    fn run(self, classify: impl Classify) -> Self::Output {
        let all = classify.wide_ascii(self.0);
        let masks = [all.letter, all.upper, all.digit, all.blank, all.tab, all.newline, all.apostrophe, all.slash];
        (are_ascii(self.0), masks.map(Mask::words))
    }
}

/// Words of which many are full or empty, so that carries travel far.
fn words() -> impl Strategy<Value = [u64; WIDE_BLOCKS]> {
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
    fn mask_arithmetic_agrees_across_instruction_sets(one in words(), other in words(), bit: bool) {
        let expected = arithmetic(Portable, &Arithmetic(one, other, bit));
        for set in InstructionSet::available() {
            prop_assert_eq!(&set.run(Arithmetic(one, other, bit)), &expected, "{:?}", set);
        }
    }

    #[test]
    fn portable_masks_are_512_bit_integers(one in words(), other in words(), bit: bool) {
        let mask = |words| Mask::words(Portable.mask(words));
        let bit_at = |words: [u64; WIDE_BLOCKS], k: usize| words[k / 64] >> (k % 64) & 1;
        let wide = Portable.mask(one);
        let (sum, over) = wide.plus(Portable.mask(other));
        let (filtered, mut asked) = (wide.filter(|k| k % 3 == 0).words(), 0);
        wide.filter(|k| { asked += 1; bit_at(one, k) == 1 });
        prop_assert_eq!(asked, one.iter().map(|word| word.count_ones()).sum::<u32>());
        let (up, down) = (wide.up(3, 5 * u64::from(bit)).words(), wide.down(bit.into()).words());
        let mut carry = 0;
        for k in 0..WIDE_BYTES {
            let total = bit_at(one, k) + bit_at(other, k) + carry;
            prop_assert_eq!(bit_at(filtered, k), if k % 3 == 0 { bit_at(one, k) } else { 0 });
            prop_assert_eq!(bit_at(sum.words(), k), total & 1);
            carry = total >> 1;
            prop_assert_eq!(bit_at(up, k), if k < 3 { (u64::from(bit) * 5) >> k & 1 } else { bit_at(one, k - 3) });
            prop_assert_eq!(bit_at(down, k), if k == WIDE_BYTES - 1 { bit.into() } else { bit_at(one, k + 1) });
        }
        prop_assert_eq!(u64::from(over), carry);
        prop_assert_eq!(mask(one), one);
    }

    #[test]
    fn eight_blocks_at_once_classify_as_single_blocks(
        bytes in prop::collection::vec(prop_oneof![8 => 0u8..128, 1 => Just(b'\''), 1 => Just(b' ')], WIDE_BYTES + 3),
        high in prop::option::weighted(0.2, 0..WIDE_BYTES + 3),
    ) {
        let mut window: WideWindow = bytes.try_into().unwrap();
        let expected = Portable.wide_ascii(&window);
        for (k, letters) in expected.letter.words().into_iter().enumerate() {
            let one = ascii_one_by_one(window[k * BLOCK_BYTES..].first_chunk().unwrap());
            prop_assert_eq!(letters, one.letter);
        }
        let expected = WideAsciiOf(&window).run(Portable).1;
        for set in InstructionSet::available() {
            prop_assert_eq!(set.run(WideAsciiOf(&window)), (true, expected), "{:?}", set);
        }
        if let Some(position) = high {
            window[position] = 0xC3;
            for set in InstructionSet::available() {
                prop_assert_eq!(set.run(WideAsciiOf(&window)).0, position >= WIDE_BYTES, "{:?}", set);
            }
        }
    }
}
