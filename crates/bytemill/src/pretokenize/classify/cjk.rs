//! CJK ideographs and Hangul syllables: large ranges of letters without case, known by their first two bytes.

/// For each lead byte E0 to EF, the first and last second byte of a range in which every character is a letter without case. The
/// range is empty where there is none.
pub struct Ranges {
    pub first: [u8; 16],
    pub last: [u8; 16],
}

/// Leaves out the ideographs that share a lead byte with the hexagrams (E4), and the last 36 Hangul syllables.
pub static CJK: Ranges = Ranges {
    first: *b"\xFF\xFF\xFF\x90\xB8\x80\x80\x80\x80\x80\xB0\x80\x80\x80\xFF\xFF",
    last: *b"\x00\x00\x00\xBF\xBF\xBF\xBF\xBF\xBF\xBF\xBF\xBF\xBF\x9D\x00\x00",
};

/// Whether a character with these first two bytes is in [`CJK`].
#[inline(always)]
pub fn is_cjk(lead: u8, second: u8) -> bool {
    let k = usize::from(lead & 0x0F);
    lead & 0xF0 == 0xE0 && second >= CJK.first[k] && second <= CJK.last[k]
}
