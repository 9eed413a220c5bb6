/** A vocabulary in columns, as the server sends it. */

import { bytes, get, uint32, type Schemas } from "./api";
import { versions } from "./versions.svelte";
import { fillChip, shownText } from "./visible";

export const NO_TOKEN = 0xffffffff;
const NEWLINE = 10;

export class Vocabulary {
  /** Of the files that it is from: ids with another one are not its ids. */
  readonly stamp: string;
  /** One more than the highest id. */
  readonly size: number;
  /** Number of tokens, with special ones: ids may have gaps. */
  readonly nTokens: number;
  readonly data: Uint8Array;
  readonly lengths: Uint32Array;
  readonly left: Uint32Array;
  readonly right: Uint32Array;
  readonly ranks: Uint32Array;
  readonly counts: number[] | null;
  readonly special: ReadonlyMap<number, string>;
  /** Start of each token in `data`; one more for the end. */
  readonly starts: Uint32Array;
  /** 1 for tokens with a line end. */
  readonly hasNewline: Uint8Array;
  /** Id of each single byte. */
  readonly byteIds = new Uint32Array(256).fill(NO_TOKEN);
  /** Id of the token that the merge of each rank makes. */
  readonly idOfRank: Map<number, number> = new Map();
  private readonly templates = new Map<number, HTMLElement>();
  private children: Map<number, number[]> | null = null;

  constructor(columns: Schemas["VocabularyColumns"]) {
    this.stamp = columns.stamp;
    this.size = columns.n_vocab;
    this.data = bytes(columns.data);
    this.lengths = uint32(columns.lengths);
    this.left = uint32(columns.left);
    this.right = uint32(columns.right);
    this.ranks = uint32(columns.ranks);
    this.counts = columns.counts;
    this.special = new Map(Object.entries(columns.special).map(([text, id]) => [id, text]));
    this.starts = new Uint32Array(this.size + 1);
    this.hasNewline = new Uint8Array(this.size);
    for (let id = 0, at = 0; id < this.size; id++) {
      const n = this.lengths[id]!;
      this.starts[id + 1] = at + n;
      for (let i = at; i < at + n; i++) if (this.data[i] === NEWLINE) this.hasNewline[id] = 1;
      if (n === 1 && !this.special.has(id)) this.byteIds[this.data[at]!] = id;
      const rank = this.ranks[id]!;
      if (rank !== NO_TOKEN) this.idOfRank.set(rank, id);
      at += n;
    }
    this.nTokens = this.lengths.reduce((sum, length) => sum + Number(length > 0), 0);
  }

  bytes(id: number): Uint8Array {
    return id < this.size ? this.data.subarray(this.starts[id], this.starts[id + 1]) : new Uint8Array();
  }

  shown(id: number): string {
    return this.special.get(id) ?? shownText(this.bytes(id));
  }

  exists(id: number): boolean {
    return id < this.size && this.lengths[id]! > 0;
  }

  isSpecial(id: number): boolean {
    return this.special.has(id);
  }

  /** Count in training of the pair that the token was merged from. */
  count(id: number): number | null {
    const rank = this.ranks[id] ?? NO_TOKEN;
    return rank === NO_TOKEN ? null : (this.counts?.[rank] ?? null);
  }

  /** A new element that shows a token. */
  chip(id: number): HTMLElement {
    let template = this.templates.get(id);
    if (!template) {
      template = document.createElement("span");
      template.className = this.isSpecial(id) ? "tok special" : "tok";
      template.dir = "auto";
      fillChip(template, this.bytes(id));
      if (this.templates.size > 20000) this.templates.clear();
      this.templates.set(id, template);
    }
    return template.cloneNode(true) as HTMLElement;
  }

  /** Ids of the tokens that are merged from a token and another one. */
  childrenOf(id: number): number[] {
    if (!this.children) {
      this.children = new Map();
      const add = (part: number, child: number): void => {
        const known = this.children!.get(part);
        if (known) known.push(child);
        else this.children!.set(part, [child]);
      };
      for (let child = 0; child < this.size; child++) {
        if (this.ranks[child] === NO_TOKEN) continue;
        add(this.left[child]!, child);
        if (this.right[child] !== this.left[child]) add(this.right[child]!, child);
      }
    }
    return this.children.get(id) ?? [];
  }
}

const loaded = new Map<string, Promise<Vocabulary>>();

/** Reactive: an effect that calls it runs again when the tokenizer has changed. */
export function loadVocabulary(tokenizer: string): Promise<Vocabulary> {
  const key = versions.key(tokenizer);
  let found = loaded.get(key);
  if (!found) {
    found = get<Schemas["VocabularyColumns"]>(`/tokenizers/${tokenizer}/vocabulary`).then((columns) => {
      versions.note(tokenizer, columns.stamp);
      return new Vocabulary(columns);
    });
    loaded.set(key, found);
    found.catch(() => {
      loaded.delete(key);
      versions.fail(tokenizer);
    });
    if (loaded.size > 8) loaded.delete(loaded.keys().next().value!);
  }
  return found;
}
