"""Completions of one piece, repeated, for what grading costs the worker itself: models that do not
stop write these."""

from __future__ import annotations

MB = 1_000_000
PIECES: dict[str, tuple[str, ...]] = {
    "rust": (
        *(
            "fn g<",
            "macro_rules!a{",
            "macro_rules! a { ($x:expr) => { ",
            "impl PartialEq for A {",
            "<'a as ",
            "&'a &'b (",
        ),
        *(
            "pub fn f<'a, 'b>(x: &'a &'b ",
            "struct A { b: A",
            "mod a {",
            "use a::{",
            "#[derive(",
            "#![",
            "|| -> &'a ",
        ),
        *(
            "/*",
            "/**/",
            "//",
            'r#"',
            '"',
            "'",
            "'a ",
            "b'",
            "\\",
            "(",
            "[",
            "{",
            "<",
            ">",
            ")",
            "]",
            "}",
            ";",
            "x",
            "1",
        ),
        *(
            " ",
            "\n",
            "\t",
            "```",
            "```rust\n",
            "~~~",
            "<think>",
            "</think>",
            "<|im_end|>",
            "assert!(",
            "todo!()",
            "é",
            "\0",
        ),
        *(
            "```rust src/a.rs\n",
            "// src/a.rs\n",
            "trait A: PartialEq {",
            "type A = B;",
            "r#a ",
            "'r#a ",
            "\u200e",
            "#!",
        ),
    ),
    "ocaml": (
        *(
            "let rec f x = ",
            "let x = 1 ;; ",
            "(*",
            "(**)",
            '"',
            "{|",
            "{a|",
            "'",
            "begin ",
            "(",
            "[|",
            "fun x -> ",
            "if ",
        ),
        *(
            "match x with ",
            "module A = struct ",
            "a.b.",
            "-> ",
            "| A ",
            "and ",
            " ",
            "\n",
            "\t",
            "x",
            "1",
            "```",
            "~~~",
        ),
        *(
            "```ocaml\n",
            "<think>",
            "</think>",
            "<|im_end|>",
            "assert false ",
            "failwith ",
            "é",
            "\0",
            ";;",
            "#",
            "~a:",
            "'a ",
        ),
    ),
    "story": (
        *(
            "As a user, ",
            "As a user, I want a, so that b. ",
            "I want ",
            "so that ",
            "and ",
            "so",
            ". ",
            ", ",
            "-",
            "* ",
            "1. ",
        ),
        *(
            " ",
            "\n",
            "\t",
            "x",
            "a b ",
            "As",
            "as a as a ",
            "# ",
            "|",
            "{",
            "[",
            '"',
            "<div>",
            "```",
            "<think>",
            "</think>",
        ),
        *(
            "\u200b",
            "\u0430",
            "é",
            "\0",
            "\U0001f600",
            "(",
            ":",
            "/",
            "_",
            "**",
            "Given ",
            "AC: ",
            "In order to ",
            "Epic: ",
        ),
    ),
}
"""By grader. A row of `make bench-full` and a test repeat each to a megabyte."""
NESTED = {
    "20 kB of `fn g<`": "fn g<" * 4_000,
    "40 kB of `macro_rules!a{`": "macro_rules!a{" * 2_900,
    "many named blocks": "".join(
        f"```rust src/a{n}.rs\npub fn f() {{}}\n```\n" for n in range(6_000)
    ),
    "many lifetimes": "fn f<" + "".join(f"'a{n}, " for n in range(6_000)) + ">() {}",
    "many lifetimes of references": "fn f<'a>(x: "
    + "".join(f"&'a{n} " for n in range(8_000))
    + "u8) {}",
    "types that name each other": "".join(f"struct A{n}(A{n + 1});" for n in range(5_000)),
    "own equality of many types": "".join(
        f"struct A{n}; impl PartialEq for A{n} {{ fn eq(&self, _: &Self) -> bool {{ true }} }}\n"
        for n in range(700)
    ),
    "functions that refer to each other": "".join(
        f"fn f{n}<'a, 'b>(x: &'a &'b u8) -> &'a u8 {{ f{n} }}\n" for n in range(1_500)
    ),
}
"""For Rust: texts that were quadratic, or come near to what was."""


def repeated(piece: str) -> str:
    return piece * (MB // len(piece))
