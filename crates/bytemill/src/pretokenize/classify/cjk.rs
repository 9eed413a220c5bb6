//! CJK ideographs and Hangul syllables: large ranges of letters without case, known by their first two bytes.

/// For each lead byte E0 to EF, the first and last second byte of a range in which every character is a letter without case. The
/// range is empty where there is none.
pub struct Ranges {
    pub first: [u8; 16],
    pub last: [u8; 16],
}

/// Leaves out the ideographs that share a lead byte with the hexagrams (E4), and the last 36 Hangul syllables.
pub static CJK: Ranges = {
    let mut cjk = Ranges { first: [0xFF; 16], last: [0; 16] };
    let ranges = [
        (3, 0x90, 0xBF),
        (4, 0xB8, 0xBF),
        (5, 0x80, 0xBF),
        (6, 0x80, 0xBF),
        (7, 0x80, 0xBF),
        (8, 0x80, 0xBF),
        (9, 0x80, 0xBF),
        (10, 0xB0, 0xBF),
        (11, 0x80, 0xBF),
        (12, 0x80, 0xBF),
        (13, 0x80, 0x9D),
    ];
    let mut k = 0;
    while k < ranges.len() {
        let (lead, first, last) = ranges[k];
        cjk.first[lead] = first;
        cjk.last[lead] = last;
        k += 1;
    }
    cjk
};

/// Whether a character with these first two bytes is in [`CJK`].
#[inline(always)]
pub fn is_cjk(lead: u8, second: u8) -> bool {
    let k = usize::from(lead & 0x0F);
    lead & 0xF0 == 0xE0 && second >= CJK.first[k] && second <= CJK.last[k]
}
