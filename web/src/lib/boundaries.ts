/** Where several tokenizers cut the same bytes. */

import type { Vocabulary } from "./vocabulary";

export interface Cut {
  vocabulary: Vocabulary;
  ids: Uint32Array;
}

/** Part of a text between two boundaries that all tokenizers have. */
export interface Segment {
  start: number;
  end: number;
  /** By tokenizer, the range of its tokens. */
  tokens: [number, number][];
}

export interface Alignment {
  segments: Segment[];
  /** Boundaries that all have; the start and the end of the text do not count. */
  nShared: number;
  /** By tokenizer: boundaries that no other one has. */
  nAlone: number[];
  /** By tokenizer: all boundaries. */
  nAll: number[];
}

/** Align tokens by bytes. The texts of all must be the same; `limit` is the number of segments that are returned. */
export function align(cuts: readonly Cut[], limit: number): Alignment {
  const n = cuts.length;
  const at = new Uint32Array(n);
  const ends = new Float64Array(n);
  const firsts = new Uint32Array(n);
  const alignment: Alignment = { segments: [], nShared: 0, nAlone: Array(n).fill(0), nAll: Array(n).fill(0) };
  const lengthAt = (k: number): number => cuts[k]!.vocabulary.lengths[cuts[k]!.ids[at[k]!]!] ?? 0;
  for (let k = 0; k < n; k++) {
    if (cuts[k]!.ids.length === 0) return alignment;
    ends[k] = lengthAt(k);
  }
  let start = 0;
  for (;;) {
    let least = Infinity;
    for (let k = 0; k < n; k++) least = Math.min(least, ends[k]!);
    let nEqual = 0;
    let last = -1;
    for (let k = 0; k < n; k++) {
      if (ends[k] !== least) continue;
      nEqual++;
      last = k;
    }
    const isShared = nEqual === n;
    if (isShared) {
      if (alignment.segments.length < limit) {
        alignment.segments.push({
          start,
          end: least,
          tokens: Array.from({ length: n }, (_, k): [number, number] => [firsts[k]!, at[k]! + 1]),
        });
      }
      start = least;
    }
    let isOver = false;
    for (let k = 0; k < n; k++) {
      if (ends[k] !== least) continue;
      at[k]!++;
      if (isShared) firsts[k] = at[k]!;
      if (at[k]! >= cuts[k]!.ids.length) {
        ends[k] = Infinity;
        isOver = true;
      } else {
        ends[k] = least + lengthAt(k);
        alignment.nAll[k]!++;
      }
    }
    if (isOver) return alignment;
    if (isShared) alignment.nShared++;
    else if (nEqual === 1) alignment.nAlone[last]!++;
  }
}
