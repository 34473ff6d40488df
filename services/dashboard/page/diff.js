// What differs between two texts, word by word: the longest common subsequence of their tokens.
const MOST_TOKENS = 1500;
const LEAST_LIKENESS = 0.4;
const TOKEN = /[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu;

// Both texts as lists of [text, changed]; null where they are too long to compare, or have next to nothing in common.
export function difference(before, after) {
  const [a, b] = [before.match(TOKEN) ?? [], after.match(TOKEN) ?? []];
  if (a.length > MOST_TOKENS || b.length > MOST_TOKENS) return null;
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      common[i * width + j] =
        a[i] === b[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  if (2 * common[0] < LEAST_LIKENESS * (a.length + b.length)) return null;
  const [left, right] = [[], []];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      pushSpan(left, a[i], false);
      pushSpan(right, b[j], false);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1]))
      pushSpan(left, a[i++], true);
    else pushSpan(right, b[j++], true);
  }
  return [left, right];
}

function pushSpan(spans, text, changed) {
  const end = spans.at(-1);
  if (end && end[1] === changed) end[0] += text;
  else spans.push([text, changed]);
}
