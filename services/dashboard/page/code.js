// Code with its comments, strings, numbers and words of the language told apart, by a few patterns and no parser.
import { el } from "./dom.js";

const WORDS = {
  ocaml:
    "and as assert begin class constraint do done downto else end exception external false for fun function functor if in include inherit initializer lazy let match method module mutable new nonrec object of open or private rec sig struct then to true try type val virtual when while with",
  rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
};
const COMMENT = { ocaml: "\\(\\*[\\s\\S]*?(?:\\*\\)|$)", rust: "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)" };
const STRING = '"(?:\\\\[\\s\\S]|[^"\\\\])*(?:"|$)';
const MOST_CHARS = 20_000;

export function highlighted(text, grader) {
  if (!(grader in WORDS) || text.length > MOST_CHARS) return [text];
  const words = new Set(WORDS[grader].split(" "));
  const pattern = new RegExp(
    `(?<comment>${COMMENT[grader]})|(?<string>${STRING})|(?<number>\\b[0-9][0-9A-Za-z_.]*)|(?<word>[A-Za-z_][A-Za-z0-9_']*)`,
    "g",
  );
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(pattern)) {
    const { comment, string, number, word } = found.groups;
    const kind = comment ? "c" : string ? "s" : number ? "n" : word && words.has(word) ? "w" : null;
    if (kind === null) continue;
    parts.push(text.slice(end, found.index), el("span", { class: "code-" + kind }, found[0]));
    end = found.index + found[0].length;
  }
  parts.push(text.slice(end));
  return parts;
}
