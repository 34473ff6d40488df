// Numbers as the page shows them, the same way as the report does.

export const NOTHING = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);

export function number(value, digits = 3) {
  if (!known(value)) return NOTHING;
  let text;
  if (value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e7)) {
    const places = value === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
    text = value.toLocaleString("en", { minimumFractionDigits: 0, maximumFractionDigits: places });
  } else text = value.toExponential(digits - 1);
  return text === "-0" ? "0" : text.replace(/-/g, "\u2212");
}

export function percent(value) {
  if (!known(value)) return NOTHING;
  const text = (100 * value).toFixed(1);
  if (text === "100.0" && value < 1) return "> 99.9%";
  if (text === "0.0" && value > 0) return "< 0.1%";
  return text.replace("-", "\u2212") + "%";
}

export function duration(seconds) {
  if (!known(seconds) || seconds < 0) return NOTHING;
  if (seconds === 0) return "0 s";
  if (seconds < 0.1) return number(1000 * seconds) + " ms";
  if (seconds < 10) return seconds.toFixed(seconds < 1 ? 2 : 1) + " s";
  const whole = Math.round(seconds);
  const [minutes, rest] = [Math.floor(whole / 60), whole % 60];
  if (minutes < 60) return minutes ? `${minutes} min ${String(rest).padStart(2, "0")} s` : `${rest} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min` : `${Math.floor(hours / 24)} days`;
}

export const signed = (value) => (known(value) && value > 0 ? "+" : "") + number(value);
export const count = (value) => (known(value) ? Math.round(value).toLocaleString("en") : NOTHING);
export const ago = (time, now) => (time ? duration(Math.max(0, Math.round(now - time))) + " ago" : NOTHING);
// Beside an axis there is no room, and values are round.
export const onAxis = new Map([
  [percent, (value) => number(100 * value) + "%"],
  [duration, (value) => number(value) + " s"],
]);
