//! Which ASCII class each of 64 bytes belongs to, as bit masks: bit k speaks of byte k.
//!
//! One function for each instruction set, chosen once at run time, and a plain one that they are all tested against.

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

/// Bytes that are classified at once.
pub const LANES: usize = 64;

/// The classes of 64 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ascii {
    /// `A-Z` and `a-z`.
    pub letter: u64,
    /// `A-Z`.
    pub upper: u64,
    /// `0-9`.
    pub digit: u64,
    /// The blank, `' '`.
    pub blank: u64,
    /// Tab, vertical tab, form feed.
    pub tab: u64,
    /// Carriage return and line feed.
    pub newline: u64,
    /// `'`
    pub apostrophe: u64,
    /// `/`
    pub slash: u64,
    /// 0x80 and above.
    pub high: u64,
    /// 0x80 to 0xBF: in UTF-8, all bytes of a character but the first.
    pub continuation: u64,
}

/// Classifies 64 bytes.
pub type Classify = fn(&[u8; LANES]) -> Ascii;

/// The quickest classifier that this processor runs.
pub fn best() -> Classify {
    static BEST: OnceLock<Classify> = OnceLock::new();
    *BEST.get_or_init(|| available().last().map_or(portable::classify as Classify, |(_, classify)| *classify))
}

/// All classifiers that this processor runs, with their names, the slowest first.
pub fn available() -> Vec<(&'static str, Classify)> {
    #[allow(unused_mut, reason = "on processors without a classifier of their own")]
    let mut all: Vec<(&'static str, Classify)> = vec![("portable", portable::classify)];
    #[cfg(target_arch = "x86_64")]
    all.extend(x86::available());
    #[cfg(target_arch = "aarch64")]
    all.push(("neon", neon::classify));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one_by_one(bytes: &[u8; LANES]) -> Ascii {
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

    #[test]
    fn every_byte_is_classified_alike_at_every_place() {
        for (name, classify) in available() {
            for byte in 0..=255 {
                for other in [0, b'a', b' ', 0xC3] {
                    for place in 0..LANES {
                        let mut bytes = [other; LANES];
                        bytes[place] = byte;
                        assert_eq!(classify(&bytes), one_by_one(&bytes), "{name}: {byte:#x} at {place}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_classified_alike(bytes in prop::array::uniform32(any::<u8>()), more in prop::array::uniform32(any::<u8>())) {
            let mut all = [0; LANES];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            for (name, classify) in available() {
                prop_assert_eq!(classify(&all), one_by_one(&all), "{}", name);
            }
        }
    }
}
