//! Patterns of published models that an automaton matches.

use bytemill::pretokenize::Pattern;

/// Name and steps of each.
const PATTERNS: [(&str, &str); 5] = [
    (
        "DeepSeek-V2",
        concat!(
            r"[\r\n](?#then)\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ",
            r"-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ",
            r"-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+(?#then)\s?[!-/:-~！-／：-～‘-‟　-。]+(?#then)\s+(?=\n|\z)(?#then)[一-",
            r"龥ࠀ-一가-퟿]+(?#then)\p{N}",
        ),
    ),
    ("DeepSeek-Coder", r"[\r\n](?#then)\s?\p{L}+(?#then)\s?\p{P}+(?#then)[一-龥ࠀ-一가-퟿]+(?#then)\p{N}"),
    (
        "Kimi K2",
        concat!(
            r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[",
            r"^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}",
            r"]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+",
            r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
    ),
    ("BLOOM", r" ?[^(\s|[.,!?…。，、।۔،])]+"),
    ("Falcon", r"[[\p{P}&&\p{Age=8.0}]$+<=>^`|~]+(?#then)gpt2(?#bytes)\p{N}+(?#then)[0-9][0-9][0-9]"),
];

/// The patterns by the names of their models.
pub fn patterns() -> impl Iterator<Item = (&'static str, Pattern)> {
    PATTERNS.iter().map(|(name, steps)| (*name, Pattern::new(Some(steps)).unwrap()))
}
