"""Rust as tree-sitter reads it: texts of task authors, that is signatures and tests.

Answers are cut into tokens instead (`lexer`): tree-sitter takes 13 s for 72 kB of `r#"`, and
hidden words have to be found as the compiler reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import tree_sitter_rust
from tree_sitter import Language, Node, Parser

from services.graders.rust.lexer import KEYWORDS, remove_comments

_LANGUAGE = Language(tree_sitter_rust.language())
_WORDS = {
    "function_item": "fn",
    "function_signature_item": "fn",
    "struct_item": "struct",
    "enum_item": "enum",
    "trait_item": "trait",
    "type_item": "type",
    "associated_type": "type",
    "const_item": "const",
    "static_item": "static",
    "impl_item": "impl",
    "mod_item": "mod",
    "use_declaration": "use",
}
_BODILESS = re.compile(r"(\b(?:trait|enum)\s[^;{}()]*);")
"""`pub trait T;`, which signatures may have and Rust does not."""


@dataclass(slots=True)
class Declaration:
    """An item of a signature, a module, a trait or an `impl`."""

    node: Node
    word: str
    """`fn`, `struct`, `impl` ...; empty for what cannot be declared."""
    name: str
    attributes: list[Node] = field(default_factory=list)

    @property
    def start(self) -> int:
        """Offset of its first attribute, in bytes."""
        return (self.attributes or [self.node])[0].start_byte

    @property
    def first_line(self) -> int:
        """1-based."""
        return (self.attributes or [self.node])[0].start_point[0] + 1

    @property
    def is_broken(self) -> bool:
        """It is a part of a text that cannot be parsed."""
        parent = self.node.parent
        return parent is not None and parent.has_error

    def list_members(self) -> list[Declaration]:
        """Return the items in its braces."""
        return list(iter_declarations(self.node, "body"))


def parse(text: str) -> Node:
    return Parser(_LANGUAGE).parse(text.encode()).root_node


def normalize(signature: str) -> str:
    """Return a signature as Rust that can be parsed, without comments; all lines stay."""
    text = _BODILESS.sub(r"\1 {}", remove_comments(signature).rstrip())
    return text if text.endswith((";", "}")) else f"{text};"


def read_declarations(signature: str) -> list[Declaration]:
    """Return the items of a signature."""
    return list(iter_declarations(parse(normalize(signature))))


def iter_declarations(parent: Node, field: str = "") -> Iterator[Declaration]:
    """Yield the items in a node, or in its `field`."""
    attributes: list[Node] = []
    for node in list_parts(parent, field):
        if node.type in ("attribute_item", "inner_attribute_item"):
            attributes.append(node)
        elif node.type != "empty_statement":
            yield Declaration(node, _WORDS.get(node.type, ""), get_name(node), attributes)
            attributes = []


def get_text(node: Node | None) -> str:
    """Return the node's text in one line."""
    if node is None or node.text is None:
        return ""
    return " ".join(node.text.decode().split())


def get_field(node: Node, name: str) -> str:
    """Return the text of a field; empty if the node has none of this name."""
    return get_text(node.child_by_field_name(name))


def get_name(node: Node) -> str:
    """Return the name, without a mark that it does not need."""
    name = get_field(node, "name")
    plain = name.removeprefix("r#")
    return name if plain in KEYWORDS else plain


def list_parts(node: Node | None, field: str = "") -> list[Node]:
    """Return what stands in a node, or in its `field`, without signs and comments."""
    inner = node.child_by_field_name(field) if node and field else node
    children = inner.named_children if inner else []
    return [child for child in children if "comment" not in child.type]


def find_child(node: Node | None, kind: str) -> Node | None:
    children = node.children if node else []
    return next((child for child in children if child.type == kind), None)


def iter_nodes(node: Node) -> Iterator[Node]:
    nodes = [node]
    while nodes:
        current = nodes.pop()
        yield current
        nodes.extend(current.children)


def iter_leaves(node: Node) -> Iterator[Node]:
    """Yield words, signs and comments in their order."""
    nodes = [node]
    while nodes:
        current = nodes.pop()
        if not current.children or current.type == "lifetime":
            yield current
        else:
            nodes.extend(reversed(current.children))


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    """Empty in a tuple."""
    type_: str
    is_public: bool


def list_fields(body: Node | None) -> list[Field]:
    """Return the fields of a struct or a variant."""
    fields = []
    is_public = False
    for child in list_parts(body):
        if child.type == "field_declaration":
            is_public = get_text(find_child(child, "visibility_modifier")) == "pub"
            fields.append(Field(get_name(child), get_field(child, "type"), is_public))
        elif child.type == "visibility_modifier":
            is_public = get_text(child) == "pub"
        elif child.type != "attribute_item":
            fields.append(Field("", get_text(child), is_public))
            is_public = False
    return fields
