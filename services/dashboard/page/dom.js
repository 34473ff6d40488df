// Elements made from plain values. Every text becomes a text node: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";
// Characters that hide or move others, U+202E for one, are written out; newlines and tabs stay.
const HIDING = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

export function visible(text) {
  return String(text).replace(HIDING, (found) => {
    if (found === "\n" || found === "\t") return found;
    const code = found.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return "\u27e8U+" + code.toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
  });
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, part] of Object.entries(value)) element.style.setProperty(key, part);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// A place whose content is made anew when what it shows has changed, and left alone when it has not.
export class Place {
  constructor(node, render) {
    this.node = node;
    this.render = render;
    this.shown = undefined;
  }
  show(value) {
    const key = JSON.stringify(value);
    if (key === this.shown) return;
    this.shown = key;
    this.node.replaceChildren(
      ...[this.render(value)].flat(3).filter((one) => one !== null && one !== undefined && one !== false),
    );
  }
}

function framed(caption, head, rows, kind) {
  return el(
    "div",
    { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    el(
      "table",
      { class: kind },
      el("caption", {}, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          head.map((name) => el("th", { scope: "col" }, name)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name), cells)),
      ),
    ),
  );
}

export function table(caption, head, rows) {
  return framed(
    caption,
    head,
    rows.map(([name, ...values]) => [name, ...values.map((value) => el("td", {}, value))]),
    "plain",
  );
}

// One row per level, one bar per column; `levels` are {name, shares: [{text, share, style}]}.
export function bars(caption, first, columns, levels) {
  const bar = ({ text, share, style }) =>
    el(
      "td",
      {},
      el("span", { class: "text" }, text),
      el(
        "span",
        { class: "rail", "aria-hidden": "true" },
        el("span", {
          class: "fill " + (style ?? "after"),
          style: { width: 100 * Math.min(1, Math.max(0, share ?? 0)) + "%" },
        }),
      ),
    );
  return framed(
    caption,
    [first, ...columns],
    levels.map((level) => [level.name, ...level.shares.map(bar)]),
    "bars",
  );
}
