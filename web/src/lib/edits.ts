/** The difference between two texts, in code points, as the server counts. */

export interface Edit {
  start: number;
  end: number;
  text: string;
}

const isLow = (unit: number): boolean => (unit & 0xfc00) === 0xdc00;

/** The smallest replacement of one stretch that turns `before` into `after`. */
export function editBetween(before: string, after: string): Edit {
  const n = Math.min(before.length, after.length);
  let start = 0;
  while (start < n && before.charCodeAt(start) === after.charCodeAt(start)) start++;
  // Not between the halves of a surrogate pair.
  if (start > 0 && (isLow(before.charCodeAt(start)) || isLow(after.charCodeAt(start)))) start--;
  let end = 0;
  while (
    end < n - start &&
    before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end)
  )
    end++;
  if (end > 0 && (isLow(before.charCodeAt(before.length - end)) || isLow(after.charCodeAt(after.length - end))))
    end--;
  const first = codePoints(before, 0, start);
  return {
    start: first,
    end: first + codePoints(before, start, before.length - end),
    text: after.slice(start, after.length - end),
  };
}

function codePoints(text: string, from: number, to: number): number {
  let n = to - from;
  for (let i = from; i < to; i++) if (isLow(text.charCodeAt(i))) n--;
  return n;
}
