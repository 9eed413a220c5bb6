/** Tokens in chunks, of which only those in sight are in the page. */

import type { Vocabulary } from "./vocabulary";

const LEAST = 100;
const MOST = 300;

export interface Chunks {
  /** First token of each chunk; one more for the end. */
  firsts: Uint32Array;
  /** First byte of each chunk; one more for the end. */
  bytes: Uint32Array;
  /** Line ends in each chunk. */
  newlines: Uint16Array;
}

/** Divide tokens into chunks that end at line ends, where there are any within reach. */
export function chunksOf(vocabulary: Vocabulary, ids: Uint32Array): Chunks {
  const firsts: number[] = [0];
  const starts: number[] = [0];
  const newlines: number[] = [];
  const { lengths, hasNewline } = vocabulary;
  let first = 0;
  let at = 0;
  let ends = 0;
  for (let i = 0; i < ids.length; i++) {
    const id = ids[i]!;
    at += lengths[id] ?? 0;
    const isEnd = hasNewline[id] === 1;
    if (isEnd) ends++;
    const n = i + 1 - first;
    if ((isEnd && n >= LEAST) || n >= MOST || i + 1 === ids.length) {
      firsts.push(i + 1);
      starts.push(at);
      newlines.push(ends);
      first = i + 1;
      ends = 0;
    }
  }
  return { firsts: Uint32Array.from(firsts), bytes: Uint32Array.from(starts), newlines: Uint16Array.from(newlines) };
}

/** Index of the last value that is at most `value`, in ascending order. */
export function lastAtMost(values: Uint32Array | Float64Array, value: number): number {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (values[middle]! <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** First byte of a token. */
export function byteOfToken(vocabulary: Vocabulary, ids: Uint32Array, chunks: Chunks, index: number): number {
  const chunk = lastAtMost(chunks.firsts, Math.min(index, ids.length));
  let at = chunks.bytes[chunk] ?? 0;
  for (let i = chunks.firsts[chunk] ?? 0; i < index; i++) at += vocabulary.lengths[ids[i]!] ?? 0;
  return at;
}

/** The token that a byte belongs to, or -1. */
export function tokenOfByte(vocabulary: Vocabulary, ids: Uint32Array, chunks: Chunks, byte: number): number {
  if (ids.length === 0 || byte >= chunks.bytes.at(-1)!) return -1;
  const chunk = lastAtMost(chunks.bytes, byte);
  let at = chunks.bytes[chunk]!;
  for (let i = chunks.firsts[chunk]!; i < ids.length; i++) {
    at += vocabulary.lengths[ids[i]!] ?? 0;
    if (at > byte) return i;
  }
  return -1;
}
