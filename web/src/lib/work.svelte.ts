/** A computation that somebody asked for: its result, what the result is of, and whether it is under way. */

import { messageOf } from "./api";

export class Work<T> {
  result: T | null = $state.raw(null);
  problem: string | null = $state(null);
  isRunning = $state(false);
  /** The key of the result. */
  private resultOf = $state("");
  /** The key of what is under way. */
  private startedOf = "";
  private controller: AbortController | null = null;

  /** `key` names what would be computed now: text, model and whatever else the result depends on. */
  constructor(
    private readonly key: () => string,
    private readonly compute: (signal: AbortSignal) => Promise<T>,
  ) {}

  async start(): Promise<void> {
    this.controller?.abort();
    const own = new AbortController();
    this.controller = own;
    this.startedOf = this.key();
    this.isRunning = true;
    this.problem = null;
    try {
      const result = await this.compute(own.signal);
      if (own.signal.aborted) return;
      this.result = result;
      this.resultOf = this.startedOf;
    } catch (error) {
      if (!own.signal.aborted) this.problem = messageOf(error);
    } finally {
      if (this.controller === own) {
        this.controller = null;
        this.isRunning = false;
      }
    }
  }

  stop(): void {
    this.controller?.abort();
  }

  /** The result is of something else than what would be computed now. */
  get isStale(): boolean {
    return this.result !== null && this.resultOf !== this.key();
  }

  /** Compute again what is there and not of something else, such as after its model has changed, and return whether it was. */
  async again(): Promise<boolean> {
    if (this.result === null || this.isRunning || this.isStale) return false;
    await this.start();
    return this.problem === null;
  }

  /** Compute anew what is there, or under way, for something else; and what is not there, if it is wanted. */
  redo(isWanted = false): void {
    const isUpToDate = this.isRunning ? this.startedOf === this.key() : this.result ? !this.isStale : !isWanted;
    if (isUpToDate) return;
    this.result = null;
    void this.start();
  }
}
