/** Tokens made visible: spaces, line ends, control characters, and bytes that are part of a character. */

export type PartKind = "text" | "space" | "newline" | "tab" | "control" | "bytes";

export interface Part {
  kind: PartKind;
  shown: string;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const COMBINING = /^\p{M}/u;
// Beside control characters: those that change the direction of text, or show nothing.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}\u00a0\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0]/u;

/** Length of the valid UTF-8 character at `at`, or 0. */
function characterLength(data: Uint8Array, at: number): number {
  const first = data[at]!;
  const n = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (n === 0 || at + n > data.length) return 0;
  try {
    decoder.decode(data.subarray(at, at + n));
    return n;
  } catch {
    return 0;
  }
}

export function visibleParts(data: Uint8Array): Part[] {
  const parts: Part[] = [];
  const add = (kind: PartKind, shown: string): void => {
    const last = parts.at(-1);
    if (last?.kind === kind && kind !== "newline") last.shown += kind === "bytes" ? ` ${shown}` : shown;
    else parts.push({ kind, shown });
  };
  let text: string | null = null;
  try {
    text = decoder.decode(data);
  } catch {
    // Some bytes are part of a character.
  }
  if (text !== null) {
    for (const character of text) addCharacter(character, add);
  } else {
    for (let at = 0; at < data.length; ) {
      const n = characterLength(data, at);
      if (n === 0) add("bytes", data[at]!.toString(16).padStart(2, "0"));
      else addCharacter(decoder.decode(data.subarray(at, at + n)), add);
      at += n || 1;
    }
  }
  const first = parts[0];
  // A mark without its base would attach to the token before.
  if (first?.kind === "text" && COMBINING.test(first.shown)) first.shown = `\u25cc${first.shown}`;
  return parts;
}

function addCharacter(character: string, add: (kind: PartKind, shown: string) => void): void {
  if (character === " ") add("space", "·");
  else if (character === "\n") add("newline", "↵");
  else if (character === "\t") add("tab", "⇥");
  else if (INVISIBLE.test(character) && character !== "\u200d" && character !== "\u200c") {
    const code = character.codePointAt(0)!;
    if (code < 0x20) add("control", String.fromCodePoint(0x2400 + code));
    else add("control", `U+${code.toString(16).toUpperCase().padStart(4, "0")}`);
  } else add("text", character);
}

export const shownText = (data: Uint8Array): string =>
  visibleParts(data)
    .map((part) => (part.kind === "bytes" ? `⟨${part.shown}⟩` : part.shown))
    .join("");

export const hexOf = (data: Uint8Array): string => Array.from(data, (b) => b.toString(16).padStart(2, "0")).join(" ");

/** Fill a chip with the parts of a token. Only text nodes: markup in a token stays text. */
export function fillChip(chip: HTMLElement, data: Uint8Array): void {
  for (const part of visibleParts(data)) {
    if (part.kind === "text") {
      chip.append(part.shown);
    } else {
      const inner = document.createElement("span");
      inner.className = `p-${part.kind}`;
      inner.textContent = part.shown;
      chip.append(inner);
    }
  }
}
