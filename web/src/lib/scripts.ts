/** Statistics of a text by kind of text: its scripts, digits, punctuation and white space. */

import type { Vocabulary } from "./vocabulary";

const SCRIPTS = [
  "Latin", "Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic", "Devanagari", "Bengali", "Tamil", "Telugu", "Thai",
  "Khmer", "Georgian", "Hangul", "Ethiopic", "Hiragana", "Katakana", "Han",
] as const; // prettier-ignore
const KINDS: [string, RegExp][] = [
  ["white space", /^\s$/u],
  ["digits", /^\p{N}$/u],
  ...SCRIPTS.map((name): [string, RegExp] => [name, new RegExp(`^\\p{Script=${name}}$`, "u")]),
  ["other letters", /^[\p{L}\p{M}]$/u],
  ["punctuation and symbols", /^[^]$/u],
];
/** A character as people see it that is shown as emoji: by itself, by a variation selector, or as a keycap. */
const EMOJI = /\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f|\u20e3/u;
const segmenter = new Intl.Segmenter("en");

export interface KindRow {
  kind: string;
  nCharacters: number;
  nBytes: number;
  /** Tokens; one that covers several kinds counts for each by its share of bytes. */
  nTokens: number;
}

/** Statistics of the first `limit` bytes of a text. All code points of what people see as one character are of one kind. */
export function kindsOf(text: string, vocabulary: Vocabulary, ids: Uint32Array, limit: number): KindRow[] {
  const rows = [...KINDS.map(([kind]) => kind), "emoji"].map((kind): KindRow => ({ kind, nCharacters: 0, nBytes: 0, nTokens: 0 }));
  const known = new Map<string, number>();
  let token = 0;
  let length = ids.length ? vocabulary.lengths[ids[0]!]! : 0;
  let end = length;
  let at = 0;
  for (const { segment } of segmenter.segment(text.slice(0, limit))) {
    if (at >= limit || token >= ids.length) break;
    let kind = known.get(segment);
    if (kind === undefined) {
      const base = String.fromCodePoint(segment.codePointAt(0)!);
      kind = EMOJI.test(segment) ? KINDS.length : KINDS.findIndex(([, pattern]) => pattern.test(base));
      known.set(segment, kind);
    }
    const row = rows[kind]!;
    let n = 0;
    for (const character of segment) {
      const code = character.codePointAt(0)!;
      n += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      row.nCharacters++;
    }
    row.nBytes += n;
    for (let i = 0; i < n; i++, at++) {
      while (at >= end && token + 1 < ids.length) {
        token++;
        length = vocabulary.lengths[ids[token]!]!;
        end += length;
      }
      if (length > 0) row.nTokens += 1 / length;
    }
  }
  return rows.filter((row) => row.nBytes > 0).sort((a, b) => b.nBytes - a.nBytes);
}
