/** The page's entries in the history of the browser: a step makes a new one, other changes rewrite the last. */

const PAUSE_MS = 150;

/** `T` is what an entry has beside its URL, as long as the page lives. */
export class Entries<T> {
  /** Fragment of the URL when it was last read or written here. */
  private known = "";
  private number = 0;
  private readonly kept = new Map<number, T>();
  private next: { fragment: string; kept: T } | null = null;
  private isStep = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** Write a fragment once changes pause. A step keeps what was there before it. */
  note(fragment: string, kept: T, isStep: boolean): void {
    if (isStep && !this.isStep) {
      this.write();
      this.isStep = true;
    }
    this.next = { fragment, kept };
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), PAUSE_MS);
  }

  private write(): void {
    const next = this.next;
    this.next = null;
    clearTimeout(this.timer);
    // Somebody else has just changed it: that one is read when its event comes.
    if (!next || location.hash !== this.known) return;
    if (this.isStep) {
      for (const number of this.kept.keys()) if (number > this.number) this.kept.delete(number);
      history.pushState({ entry: ++this.number }, "", next.fragment);
    } else {
      history.replaceState({ entry: this.number }, "", next.fragment);
    }
    this.isStep = false;
    this.known = location.hash;
    this.kept.set(this.number, next.kept);
  }

  /** Take over the entry that the browser shows now. Return whether it was written here, and what it has beside its URL. */
  follow(): { isOwn: boolean; kept: T | undefined } {
    clearTimeout(this.timer);
    this.next = null;
    this.isStep = false;
    this.known = location.hash;
    const number = (history.state as { entry?: unknown } | null)?.entry;
    const isOwn = typeof number === "number";
    this.number = isOwn ? number : this.number + 1;
    return { isOwn, kept: isOwn ? this.kept.get(number) : undefined };
  }
}
