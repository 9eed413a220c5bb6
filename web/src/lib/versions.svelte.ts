/** Versions of the tokenizers that the page has loaded: what depends on one is asked again when its files have changed. */

import { SvelteMap } from "svelte/reactivity";

class Versions {
  /** Stamps by id, as the server last sent them. */
  private readonly stamps = new Map<string, string>();
  /** How often each has changed since the page was opened. */
  private readonly changes = new SvelteMap<string, number>();
  private readonly failed = new Set<string>();
  onChange: (tokenizer: string) => void = () => {};

  /** A key of a tokenizer as it is now; another one after its files have changed. Reactive. */
  key(tokenizer: string): string {
    return `${tokenizer} ${this.changes.get(tokenizer) ?? 0}`;
  }

  /** The stamp of a tokenizer; undefined before it is loaded. */
  stamp(tokenizer: string): string | undefined {
    return this.stamps.get(tokenizer);
  }

  /** Take note that a tokenizer could not be loaded. */
  fail(tokenizer: string): void {
    this.failed.add(tokenizer);
  }

  /** Ask again for what could not be loaded. */
  retry(): void {
    for (const tokenizer of this.failed) this.change(tokenizer);
    this.failed.clear();
  }

  /** Take note of the stamp in an answer. */
  note(tokenizer: string, stamp: string): void {
    const before = this.stamps.get(tokenizer);
    this.stamps.set(tokenizer, stamp);
    if (before === undefined || before === stamp) return;
    this.change(tokenizer);
    this.onChange(tokenizer);
  }

  private change(tokenizer: string): void {
    this.changes.set(tokenizer, (this.changes.get(tokenizer) ?? 0) + 1);
  }
}

export const versions = new Versions();
