/** Numbers for people. */

export const count = (n: number): string => n.toLocaleString("en-US");

export function size(n: number): string {
  if (n < 1000) return `${n} bytes`;
  if (n < 1_000_000) return `${(n / 1000).toFixed(n < 10_000 ? 1 : 0)} KB`;
  return `${(n / 1_000_000).toFixed(1)} MB`;
}

export const plural = (n: number, word: string): string => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

export function percent(share: number, digits = 1): string {
  const text = (100 * share).toFixed(digits);
  return share > 0 && Number(text) === 0 ? `<${(10 ** -digits).toFixed(digits)} %` : `${text} %`;
}

export function short(n: number): string {
  const size = Math.abs(n);
  if (!Number.isFinite(n)) return "–";
  if (size >= 1e12) return `${(n / 1e12).toPrecision(3)}T`;
  if (size >= 1e9) return `${(n / 1e9).toPrecision(3)}G`;
  if (size >= 1e6) return `${(n / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${(n / 1e3).toPrecision(3)}k`;
  if (size === 0 || Number.isInteger(n)) return String(n);
  return size >= 0.001 ? String(Number(n.toPrecision(4))) : n.toExponential(2);
}

export function ago(seconds: number): string {
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} days ago`;
}
