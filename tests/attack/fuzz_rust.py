"""Random texts, split into tokens by the Rust grader's lexer and by rustc: both must see the same.

rustc's tokens are those of a procedural macro, which runs in the compiler itself; its first lines
(`#!`) are seen in whole files. Texts that rustc refuses are left out: they compile nowhere. `python
-m tests.attack.fuzz_rust --number 100000`; the same seed gives the same texts.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from services.graders.rust.lexer import Kind, code

EDITIONS = ("2015", "2018", "2021", "2024")
_SPACES = ("\t", "\n", "\x0b", "\x0c", "\r\n", " ", "\x85", "\u200e", "\u200f", "\u2028", "\u2029")
_PIECES = (
    *_SPACES,
    *(
        '"',
        "'",
        'r"',
        'r#"',
        '"#',
        'r##"',
        '"##',
        "b'",
        'b"',
        'br"',
        'br#"',
        'c"',
        'cr"',
        'cr#"',
        '"\\\\"',
        '"\\""',
    ),
    *(
        "//",
        "///",
        "////",
        "//!",
        "/*",
        "*/",
        "/**",
        "/***",
        "/*!",
        "/**/",
        "#",
        "!",
        "#!",
        "[",
        "]",
        "#![",
        "---",
    ),
    *(
        "r#",
        "r#fn",
        "'r#a",
        "'a",
        "'a'",
        "'\\''",
        "'\\u{61}'",
        "' '",
        "'\"'",
        "b'\"'",
        "'/'",
        "k#",
        "'\\\\'",
    ),
    *(
        "unsafe",
        "fn",
        "x",
        "_",
        "é",
        "e\u0301",
        "ℵ",
        "京",
        "a\u200db",
        "0",
        "1u8",
        "0x_f",
        "{",
        "}",
        "(",
        ")",
        "<",
        ">",
    ),
    *(";", ",", ":", "::", "->", "=", "&", "|", "$", "@", "~", "?", "%", "^", "*", "/"),
)
_BALANCED = ("{{{}}}", "({})", "[{}]", "{}", "/*{}*/", '"{}"', 'r#"{}"#', "//{}\n")
_MACRO = r"""
extern crate proc_macro;
use proc_macro::{Delimiter, TokenStream, TokenTree};
use std::fmt::Write;

fn write(stream: TokenStream, out: &mut String) {
    let mut lifetime = false;
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                write!(out, "{open}\x1f").unwrap();
                write(group.stream(), out);
                write!(out, "{close}\x1f").unwrap();
            }
            TokenTree::Punct(one) if one.as_char() == '\'' => lifetime = true,
            TokenTree::Punct(one) => write!(out, "{}\x1f", one.as_char()).unwrap(),
            TokenTree::Ident(one) => {
                let name = one.to_string();
                let mark = if lifetime { "'" } else { "" };
                lifetime = false;
                write!(out, "{mark}{}\x1f", name.strip_prefix("r#").unwrap_or(&name)).unwrap();
            }
            TokenTree::Literal(one) => {
                let text = one.to_string();
                let text = if text.contains(['"', '\'']) { "\"" } else { "0" };
                write!(out, "{text}\x1f").unwrap();
            }
        }
    }
}

#[proc_macro]
pub fn look(_: TokenStream) -> TokenStream {
    let texts = std::fs::read_to_string(std::env::var("FUZZ_TEXTS").unwrap()).unwrap();
    let mut out = String::new();
    for text in texts.split('\0') {
        match std::panic::catch_unwind(|| text.parse::<TokenStream>()) {
            Ok(Ok(stream)) => write(stream, &mut out),
            _ => out.push_str("refused"),
        }
        out.push('\0');
    }
    std::fs::write(std::env::var("FUZZ_TOKENS").unwrap(), out).unwrap();
    TokenStream::new()
}
"""


def texts(seed: int, number: int) -> Iterator[str]:
    rnd = random.Random(seed)
    for _ in range(number):
        text = "".join(rnd.choices(_PIECES, k=rnd.randint(1, 8)))
        for _ in range(rnd.randint(0, 3)):
            text = "".join(rnd.choices(_PIECES, k=rnd.randint(0, 3))) + rnd.choice(
                _BALANCED
            ).format(text)
        yield text


def first_lines(seed: int, number: int) -> Iterator[str]:
    """Files in which `Hidden` is defined or not, as the first line is read; `Shown` always."""
    rnd = random.Random(seed)
    between = (
        *_SPACES,
        "/**/",
        "/* a */",
        "/* [ */",
        "/** a */",
        "/*! a */",
        "//\n",
        "// [\n",
        "/// a\n",
        "//! a\n",
        "////\n",
    )
    for _ in range(number):
        start = rnd.choice(("", "", "", "\ufeff", " ", "\n"))
        behind = "".join(rnd.choices(between, k=rnd.randint(0, 4)))
        attribute = rnd.choice(("[allow(unused)]", "[allow(unused)]", "/usr/bin/env x"))
        yield f"{start}#!{behind}{attribute} struct Hidden;\nstruct Shown;\n"


def of_rustc(found: Sequence[str], edition: str, folder: Path) -> list[list[str] | None]:
    """The tokens of each text; None for one that rustc refuses."""
    (folder / "look.rs").write_text(_MACRO)
    (folder / "main.rs").write_text("extern crate look; look::look!(); fn main() {}")
    (folder / "texts").write_text("\0".join(found), newline="")
    out = ["--out-dir", str(folder)]
    subprocess.run(
        ["rustc", "--crate-type=proc-macro", f"--edition={edition}", *out, str(folder / "look.rs")],
        check=True,
    )
    places = {"FUZZ_TEXTS": str(folder / "texts"), "FUZZ_TOKENS": str(folder / "tokens")}
    command = [
        "rustc",
        "--emit=metadata",
        f"--edition={edition}",
        *out,
        "-L",
        str(folder),
        str(folder / "main.rs"),
    ]
    subprocess.run(command, env={**os.environ, **places}, stderr=subprocess.DEVNULL, check=False)
    said = (folder / "tokens").read_bytes().decode().split("\0")[:-1]
    return [None if one == "refused" else _comparable(one.split("\x1f")) for one in said]


def of_lexer(text: str, edition: str) -> list[str]:
    """The tokens that the grader sees in the text."""
    marks = {Kind.TEXT: '"', Kind.NUMBER: "0"}
    return _comparable(
        marks.get(one.kind, one.text.replace("'r#", "'").removeprefix("r#"))
        for one in code(text, edition)
    )


def _comparable(found: Iterable[str]) -> list[str]:
    """Without numbers, points and signs of numbers, which are parts of numbers or not, and without
    doc comments."""
    kept = (
        unicodedata.normalize(
            "NFC", "\x1f".join(one for one in found if one and one not in ("0", ".", "+", "-"))
        )
        + "\x1f"
    )
    kept = re.sub('#\x1f(?:!\x1f)?\\[\x1fdoc\x1f=\x1f"\x1f\\]\x1f', "", kept)
    return [one for one in kept.split("\x1f") if one]


def differences(seed: int, number: int) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """(edition, text, tokens of the lexer, tokens of rustc) where they are not the same."""
    found = list(texts(seed, number))
    for at, edition in enumerate(EDITIONS):
        own = found[at :: len(EDITIONS)]
        with tempfile.TemporaryDirectory() as folder:
            for text, tokens in zip(own, of_rustc(own, edition, Path(folder)), strict=True):
                if (
                    tokens is None
                    or text.startswith(("#!", "\ufeff"))
                    or (seen := of_lexer(text, edition)) == tokens
                ):
                    continue
                if _is_accepted(text, edition, Path(folder)):
                    yield edition, text, seen, tokens


def _is_accepted(text: str, edition: str, folder: Path) -> bool:
    """The text is a macro's input without an error; a procedural macro is not told of all."""
    file = folder / "accepted.rs"
    file.write_text(
        f"macro_rules! m {{ ($($t:tt)*) => {{}} }}\nm! {{\n{text}\n}}\nfn main() {{}}", newline=""
    )
    command = [
        "rustc",
        "--emit=metadata",
        f"--edition={edition}",
        "--out-dir",
        str(folder),
        str(file),
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def first_line_differences(seed: int, number: int) -> Iterator[str]:
    """Files of which lexer and rustc read the first line in different ways."""
    with tempfile.TemporaryDirectory() as folder:
        for text in first_lines(seed, number):
            file = Path(folder) / "lib.rs"
            file.write_text(text, newline="")
            command = [
                "rustc",
                "--crate-type=lib",
                "-Zunpretty=expanded",
                "--edition=2021",
                str(file),
            ]
            done = subprocess.run(
                command,
                env={**os.environ, "RUSTC_BOOTSTRAP": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            if "struct Shown" in done.stdout:
                seen = any(token.text == "Hidden" for token in code(text))
                if seen != bool(
                    re.search("^struct Hidden", done.stdout, re.MULTILINE)
                ):  # it repeats a shebang
                    yield text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = 0
    for edition, text, own, of_compiler in differences(arguments.seed, arguments.number):
        wrong += 1
        print(f"--- edition {edition}: {text!r}\nlexer: {own}\nrustc: {of_compiler}")
    for text in first_line_differences(arguments.seed, arguments.number // 500):
        wrong += 1
        print(f"--- first line: {text!r}")
    print(f"{arguments.number} texts; {wrong} that lexer and rustc read in different ways")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
