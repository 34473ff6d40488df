// Elements made from plain values. Every text becomes a text node: nothing here parses HTML.

// Characters that hide or move others, U+202E for one, are written out; newlines and tabs stay.
const HIDING = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

function visible(text) {
  return String(text).replace(HIDING, (found) => {
    if (found === "\n" || found === "\t") return found;
    const code = found.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return "\u27e8U+" + code.toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
  });
}

function fill(element, [first, ...rest]) {
  const isPlain = first?.constructor === Object;
  const children = isPlain ? rest : [first, ...rest];
  for (const [name, value] of Object.entries(isPlain ? first : {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, part] of Object.entries(value)) element.style.setProperty(key, part);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(4)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

// `what` is a tag and classes, as in "p.note"; attributes come first and may be left out.
function el(what, ...content) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  return fill(element, content);
}

// A place whose content is made anew when what it shows has changed, and left alone when it has not.
class Place {
  constructor(node, render) {
    this.node = node;
    this.render = render;
    this.shown = undefined;
  }
  show(value) {
    const key = JSON.stringify(value);
    if (key === this.shown) return;
    this.shown = key;
    this.node.replaceChildren(...[this.rendered(value)].flat(3).filter(Boolean));
  }
  // A file that is not what it should be costs its own part of the page and no other.
  rendered(value) {
    try {
      return this.render(value);
    } catch (error) {
      return el("p.empty", "This part cannot be shown: " + error.message);
    }
  }
}

// What needs no place of its own is made anew when any of it changed.
const section = (id, title, ...children) =>
  el("section", { "aria-labelledby": id }, el("h2", { id }, title), children);

// A list of texts or of other contents.
const list = (what, contents, attributes = {}) => {
  const items = contents.map((one) => el("li", ...[one].flat()));
  return el(what, attributes, items);
};

const LONG_CHARS = 70;
// Names and values, without those that have none.
function facts(items, kind = "") {
  const known = items.filter(([, value]) => value && value !== NOTHING).map(([name, value]) => [name, String(value)]);
  const item = ([name, text]) =>
    el("div", { class: text.length > LONG_CHARS && "wide" }, el("dt", name), el("dd", text.slice(0, 200)));
  return el("dl", { class: "facts " + kind }, known.map(item));
}

// Mark a table that is wider than its place, and whether its end is in view.
function markOverflow(node) {
  const mark = () => {
    node.classList.toggle("overflows", node.scrollWidth > node.clientWidth + 1);
    node.classList.toggle("at-end", node.scrollLeft + node.clientWidth >= node.scrollWidth - 1);
  };
  const observer = new ResizeObserver(mark);
  for (const one of [node, ...node.children]) observer.observe(one);
  node.addEventListener("scroll", mark, { passive: true });
  return node;
}

function framed(caption, head, rows, kind) {
  const cells = head.map((name) => el("th", { scope: "col" }, name));
  const lines = rows.map(([name, ...values]) => el("tr", el("th", { scope: "row" }, name), values));
  const made = el("table", { class: kind }, el("caption", caption), el("thead", el("tr", cells)), el("tbody", lines));
  return markOverflow(el("div.scroll", { role: "region", tabindex: "0", "aria-label": caption }, made));
}

function table(caption, head, rows) {
  const isLong = (value) => typeof value === "string" && value.length > 40;
  const cell = (value) => el("td", { class: isLong(value) && "long" }, value);
  return framed(
    caption,
    head,
    rows.map(([name, ...values]) => [name, ...values.map(cell)]),
    "plain",
  );
}

// One row per level, one bar per column; `levels` are {name, shares: [{text, share, style}]}.
function bars(caption, first, columns, levels) {
  const bar = ({ text, share, style = "after" }) => {
    const width = 100 * Math.min(1, Math.max(0, share ?? 0)) + "%";
    const fill = el("span", { class: "fill " + style, style: { width } });
    return el("td", el("span.text", text), el("span.rail", { "aria-hidden": "true" }, fill));
  };
  const rows = levels.map((level) => [level.name, ...level.shares.map(bar)]);
  return framed(caption, [first, ...columns], rows, "bars");
}
