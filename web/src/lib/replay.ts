/** Merges of a text, replayed rank by rank. */

import type { Schemas } from "./api";
import { hexBytes } from "./api";
import type { Vocabulary } from "./vocabulary";

export interface Replay {
  pretokens: { bytes: Uint8Array; start: number; special: boolean; ids: number[]; steps: Schemas["Step"][] }[];
  /** The ranks that occur, in ascending order. */
  ranks: number[];
}

export function replayOf(explained: Schemas["Explained"]): Replay {
  const ranks = new Set<number>();
  let start = 0;
  const pretokens = explained.pretokens.map((each) => {
    const bytes = hexBytes(each.bytes);
    for (const step of each.steps) ranks.add(step.rank);
    start += bytes.length;
    return { bytes, start: start - bytes.length, special: each.special, ids: each.ids, steps: each.steps };
  });
  return { pretokens, ranks: [...ranks].sort((a, b) => a - b) };
}

/** The ids of the parts of a pre-token after its first `n` merges. */
export function partsAfter(vocabulary: Vocabulary, pretoken: Replay["pretokens"][number], n: number): number[] {
  const isWhole = pretoken.special || (pretoken.steps.length === 0 && pretoken.ids.length === 1);
  if (isWhole && pretoken.bytes.length > 1) return pretoken.ids;
  const parts = Array.from(pretoken.bytes, (byte) => vocabulary.byteIds[byte]!);
  for (const step of pretoken.steps.slice(0, n)) parts.splice(step.at, 2, vocabulary.idOfRank.get(step.rank)!);
  return parts;
}

/** The ids of the text after all merges of a rank up to `rank`; -1 for none. */
export function idsAt(vocabulary: Vocabulary, replay: Replay, rank: number): Uint32Array {
  const ids: number[] = [];
  for (const pretoken of replay.pretokens) {
    const n = pretoken.steps.findIndex((step) => step.rank > rank);
    ids.push(...partsAfter(vocabulary, pretoken, n < 0 ? pretoken.steps.length : n));
  }
  return Uint32Array.from(ids);
}
