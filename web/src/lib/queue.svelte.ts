/** Requests of this page that wait for a worker of the server. */

import { SvelteMap } from "svelte/reactivity";

const POLL_MS = 1000;

class Queue {
  private waiting = new SvelteMap<unknown, number>();

  /** How many jobs wait before the last request that waits; null if none does. */
  get before(): number | null {
    return this.waiting.size ? Math.max(...this.waiting.values()) : null;
  }

  set(request: unknown, before: number | null): void {
    if (before === null) this.waiting.delete(request);
    else this.waiting.set(request, before);
  }

  /** Ask once a second how many jobs wait before a request, until the returned function is called. */
  watch(request: unknown, ask: () => Promise<number | null>): () => void {
    let isOver = false;
    const timer = setInterval(() => {
      ask().then(
        (before) => this.set(request, isOver ? null : before),
        () => this.set(request, null),
      );
    }, POLL_MS);
    return () => {
      isOver = true;
      clearInterval(timer);
      this.set(request, null);
    };
  }
}

export const queue = new Queue();
