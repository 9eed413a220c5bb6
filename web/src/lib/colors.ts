/** Colours of numbers. */

/** Background for a surprisal, in bits per byte: from clear to strong. */
export function surprisalColor(bitsPerByte: number | null): string | null {
  if (bitsPerByte === null || !Number.isFinite(bitsPerByte)) return "var(--sunken)";
  const share = Math.min(1, Math.max(0, bitsPerByte / 6));
  return `color-mix(in srgb, var(--c3-strong) ${Math.round(100 * share)}%, var(--panel))`;
}
