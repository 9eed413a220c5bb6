/** Search a vocabulary: by text, regular expression or bytes; filter; sort. */

import type { Vocabulary } from "./vocabulary";

export type SearchMode = "text" | "regex" | "hex";
export type SortKey = "id" | "length" | "count" | "uses" | "text";

export const FILTERS = {
  word: "whole words",
  digits: "digits",
  space: "white space",
  invalid: "not valid UTF-8",
  special: "special",
  unused: "never used in the text",
} as const;
export type Filter = keyof typeof FILTERS;

/** What does not change while one types: the tokens as text, and their kinds. */
export class VocabularyIndex {
  readonly ids: Uint32Array;
  readonly texts: string[] = [];
  private readonly kinds: Uint8Array;

  constructor(readonly vocabulary: Vocabulary) {
    const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    const loose = new TextDecoder("utf-8", { ignoreBOM: true });
    this.kinds = new Uint8Array(vocabulary.size);
    const ids: number[] = [];
    for (let id = 0; id < vocabulary.size; id++) {
      if (!vocabulary.exists(id)) {
        this.texts.push("");
        continue;
      }
      ids.push(id);
      const data = vocabulary.bytes(id);
      let text: string;
      let kind = 0;
      try {
        text = strict.decode(data);
        if (/^ ?\p{L}[\p{L}\p{M}]*$/u.test(text)) kind |= 1;
        if (/^ ?\p{N}+$/u.test(text)) kind |= 2;
        if (/^\s+$/u.test(text)) kind |= 4;
      } catch {
        text = loose.decode(data);
        kind |= 8;
      }
      if (vocabulary.isSpecial(id)) kind |= 16;
      this.kinds[id] = kind;
      this.texts.push(text);
    }
    this.ids = Uint32Array.from(ids);
  }

  /** Return the ids that match, sorted. Throws a SyntaxError for a wrong expression or wrong bytes. */
  find(
    query: string,
    mode: SearchMode,
    filters: readonly Filter[],
    sort: SortKey,
    isDescending: boolean,
    uses: Uint32Array,
  ): Uint32Array {
    const matches = this.matcher(query, mode);
    const mask = filters.reduce((bits, each) => bits | (FILTER_BITS[each] ?? 0), 0);
    const isUnused = filters.includes("unused");
    const found = this.ids.filter(
      (id) => (this.kinds[id]! & mask) === mask && (!isUnused || !uses[id]) && matches(id),
    );
    const vocabulary = this.vocabulary;
    const keys: Record<Exclude<SortKey, "text">, (id: number) => number> = {
      id: (id) => id,
      length: (id) => vocabulary.lengths[id]!,
      count: (id) => vocabulary.count(id) ?? -1,
      uses: (id) => uses[id] ?? 0,
    };
    if (sort === "text") {
      const texts = this.texts;
      found.sort((a, b) => (texts[a]! < texts[b]! ? -1 : texts[a]! > texts[b]! ? 1 : a - b));
    } else if (sort !== "id") {
      const key = keys[sort];
      found.sort((a, b) => key(a) - key(b) || b - a);
    }
    return isDescending ? found.reverse() : found;
  }

  private matcher(query: string, mode: SearchMode): (id: number) => boolean {
    if (!query) return () => true;
    if (mode === "regex") {
      const pattern = new RegExp(query, "u");
      return (id) => pattern.test(this.texts[id]!);
    }
    if (mode === "hex") {
      const digits = query.replace(/[\s,]|0x/g, "").toLowerCase();
      if (!/^([0-9a-f]{2})+$/.test(digits)) throw new SyntaxError("write bytes as pairs of hexadecimal digits, such as e2 80");
      const wanted = Uint8Array.from(digits.match(/../g)!, (pair) => parseInt(pair, 16));
      return (id) => includes(this.vocabulary.bytes(id), wanted);
    }
    const own = this.vocabulary;
    return (id) => this.texts[id]!.includes(query) || (own.isSpecial(id) && own.special.get(id)!.includes(query));
  }
}

const FILTER_BITS: Partial<Record<Filter, number>> = { word: 1, digits: 2, space: 4, invalid: 8, special: 16 };

function includes(data: Uint8Array, wanted: Uint8Array): boolean {
  outer: for (let start = 0; start + wanted.length <= data.length; start++) {
    for (let i = 0; i < wanted.length; i++) if (data[start + i] !== wanted[i]) continue outer;
    return true;
  }
  return false;
}

export interface Bin {
  label: string;
  n: number;
}

/** How many of the tokens have each length in bytes. */
export function lengthBins(vocabulary: Vocabulary, ids: Uint32Array): Bin[] {
  const most = 16;
  const bins = Array.from({ length: most }, (_, i): Bin => ({ label: i + 1 === most ? `${most}+` : String(i + 1), n: 0 }));
  for (const id of ids) bins[Math.min(most, vocabulary.lengths[id]!) - 1]!.n++;
  return bins;
}

/** How many of the tokens have a value of each power of ten; the first bin is for 0. */
export function powerBins(ids: Uint32Array, value: (id: number) => number | null): Bin[] {
  const bins: Bin[] = ["0", "1–9", "10–99", "100–999", "1k–10k", "10k–100k", "100k–1M", "1M+"].map((label) => ({ label, n: 0 }));
  for (const id of ids) {
    const own = value(id);
    if (own === null) continue;
    bins[own < 1 ? 0 : Math.min(7, 1 + Math.floor(Math.log10(own)))]!.n++;
  }
  while (bins.length > 2 && bins.at(-1)!.n === 0) bins.pop();
  return bins;
}
