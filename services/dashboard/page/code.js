// Code with its strings and numbers told apart, by patterns that hold for most languages, and no parser.
import { el } from "./dom.js";

const CODE_TOKEN = /(?<string>"(?:\\[\s\S]|[^"\\\n])*")|(?<number>\b[0-9][0-9A-Za-z_.]*)/g;
const MOST_CODE_CHARS = 20_000;

export function highlighted(text) {
  if (text.length > MOST_CODE_CHARS) return [text];
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(CODE_TOKEN)) {
    parts.push(
      text.slice(end, found.index),
      el("span", { class: found.groups.string ? "code-s" : "code-n" }, found[0]),
    );
    end = found.index + found[0].length;
  }
  parts.push(text.slice(end));
  return parts;
}
