/** A small vocabulary made of the tokens of one answer, for components that take one. */

import { hexBytes } from "./api";
import type { Cut } from "./boundaries";
import { Vocabulary } from "./vocabulary";

const base64 = (bytes: Uint8Array): string => {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
};

/** Tokens in hexadecimal, as a cut whose ids are their positions. */
export function cutOf(tokens: readonly string[]): Cut {
  const parts = tokens.map(hexBytes);
  const data = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  const lengths = new Uint32Array(parts.map((part) => part.length));
  let at = 0;
  for (const part of parts) {
    data.set(part, at);
    at += part.length;
  }
  const none = new Uint32Array(parts.length).fill(0xffffffff);
  const packed = (array: Uint32Array): string => base64(new Uint8Array(array.buffer));
  return {
    vocabulary: new Vocabulary({
      stamp: "",
      n_vocab: parts.length,
      data: base64(data),
      lengths: packed(lengths),
      left: packed(none),
      right: packed(none),
      ranks: packed(none),
      counts: null,
      special: {},
    }),
    ids: Uint32Array.from(parts.keys()),
  };
}
