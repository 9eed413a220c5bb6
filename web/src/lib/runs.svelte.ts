/** Metrics of runs as they grow. */

import { float64, get, type Schemas } from "./api";

export const AXES = {
  step: "steps",
  tokens: "tokens",
  bytes: "bytes of text",
  flops: "FLOPs",
  seconds: "seconds of training",
} as const;
export type Axis = keyof typeof AXES;

/** Values of step records. */
export const STEP_METRICS = {
  bits_per_byte: "bits per byte",
  loss: "loss (nats per token)",
  learning_rate: "learning rate",
  grad_norm: "gradient norm",
  tokens_per_second: "tokens per second",
} as const;
export type StepMetric = keyof typeof STEP_METRICS;

export interface Point {
  x: Record<Axis, number>;
  value: number;
}

type Columns = Record<string, Float64Array>;
type Others = Record<string, Record<string, unknown>[]>;

export class RunMetrics {
  /** Changes when records came. */
  version = $state(0);
  columns: Columns = {};
  axes: Record<Axis, Float64Array> = emptyAxes();
  others: Others = {};
  error: string | null = $state(null);
  private cursor = "";
  private isReading = false;

  constructor(readonly id: string) {}

  async refresh(): Promise<void> {
    if (this.isReading) return;
    this.isReading = true;
    try {
      const found = await get<Schemas["Metrics"]>(`/runs/${this.id}/metrics?cursor=${encodeURIComponent(this.cursor)}`);
      this.cursor = found.cursor;
      const columns: Columns = Object.fromEntries(Object.entries(found.columns).map(([name, packed]) => [name, float64(packed)]));
      const n = columns["step"]?.length ?? 0;
      const hasOthers = Object.keys(found.others).length > 0;
      if (found.is_reset) {
        this.columns = columns;
        this.others = found.others;
      } else {
        for (const [name, values] of Object.entries(columns)) this.columns[name] = joined(this.columns[name], values);
        for (const [kind, records] of Object.entries(found.others)) (this.others[kind] ??= []).push(...records);
      }
      if (n || hasOthers || found.is_reset) {
        this.axes = axesOf(this.columns);
        this.version++;
      }
      this.error = null;
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error);
    } finally {
      this.isReading = false;
    }
  }

  get nSteps(): number {
    return this.columns["step"]?.length ?? 0;
  }

  get validation(): Record<string, unknown>[] {
    return this.others["validation"] ?? [];
  }

  /** The position of a record of another kind on an axis: that of the last step record before it. */
  xOf(step: number, axis: Axis): number {
    const steps = this.columns["step"];
    if (!steps?.length) return axis === "step" ? step : NaN;
    if (axis === "step") return step;
    let low = 0;
    let high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle]! <= step) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? 0 : this.axes[axis][low - 1]!;
  }
}

const emptyAxes = (): Record<Axis, Float64Array> => ({
  step: new Float64Array(),
  tokens: new Float64Array(),
  bytes: new Float64Array(),
  flops: new Float64Array(),
  seconds: new Float64Array(),
});

function joined(a: Float64Array | undefined, b: Float64Array): Float64Array {
  if (!a?.length) return b;
  if (!b.length) return a;
  const both = new Float64Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** Bytes, FLOPs and seconds up to each step record, from what it says of loss and speed. */
function axesOf(columns: Columns): Record<Axis, Float64Array> {
  const none = new Float64Array();
  const column = (name: string): Float64Array => columns[name] ?? none;
  const tokens = column("n_tokens");
  const [loss, bits, rate, flops] = [column("loss"), column("bits_per_byte"), column("tokens_per_second"), column("flops_per_second")];
  const axes = { ...emptyAxes(), step: column("step"), tokens };
  axes.bytes = new Float64Array(tokens.length);
  axes.flops = new Float64Array(tokens.length);
  axes.seconds = new Float64Array(tokens.length);
  let perToken = 0;
  for (let i = 0; i < tokens.length; i++) {
    const n = tokens[i]! - (i ? tokens[i - 1]! : 0);
    // Bits per byte are the loss in bits, divided by the bytes of a token.
    const own = loss[i]! / Math.LN2 / bits[i]!;
    if (Number.isFinite(own) && own > 0) perToken = own;
    const speed = rate[i]! > 0 ? rate[i]! : NaN;
    axes.bytes[i] = (i ? axes.bytes[i - 1]! : 0) + n * perToken;
    axes.seconds[i] = (i ? axes.seconds[i - 1]! : 0) + (Number.isFinite(speed) ? n / speed : 0);
    axes.flops[i] = (i ? axes.flops[i - 1]! : 0) + (Number.isFinite(speed) ? (n * (flops[i]! || 0)) / speed : 0);
  }
  return axes;
}

/** Exponential moving average that does not lag at the start; 0 leaves values as they are. */
export function smoothed(values: ArrayLike<number>, weight: number): Float64Array {
  const result = new Float64Array(values.length);
  let sum = 0;
  let total = 0;
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    if (Number.isFinite(value)) {
      sum = weight * sum + (1 - weight) * value;
      total = weight * total + (1 - weight);
    }
    result[i] = Number.isFinite(value) && total > 0 ? sum / total : NaN;
  }
  return result;
}

/** At most `most` points that keep the lowest and highest value of each stretch, so that peaks stay visible. */
export function thinned(x: Float64Array, y: Float64Array, most: number): [Float64Array, Float64Array] {
  const n = x.length;
  if (n <= most) return [x, y];
  const size = Math.ceil((2 * n) / most);
  const keptX: number[] = [];
  const keptY: number[] = [];
  for (let start = 0; start < n; start += size) {
    let low = -1;
    let high = -1;
    const end = Math.min(n, start + size);
    for (let i = start; i < end; i++) {
      if (!Number.isFinite(y[i]!)) continue;
      if (low < 0 || y[i]! < y[low]!) low = i;
      if (high < 0 || y[i]! > y[high]!) high = i;
    }
    if (low < 0) continue;
    for (const i of low === high ? [low] : [Math.min(low, high), Math.max(low, high)]) {
      keptX.push(x[i]!);
      keptY.push(y[i]!);
    }
  }
  return [Float64Array.from(keptX), Float64Array.from(keptY)];
}
