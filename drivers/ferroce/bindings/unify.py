#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Take out of bindgen's output what `kernel::bindings` already defines in full.

usage: unify.py KERNEL_BINDINGS GENERATED OUTPUT

Both inputs are bindgen's, formatted by rustfmt: an item starts in column 0 with
its attributes and ends at the first line that closes it. A type that is opaque
in the kernel's file (a zero-sized body) is kept here, and so are the names that
bindgen numbers itself, since the numbers differ from file to file.
"""

import re
import sys

NAME = re.compile(r"^pub (?:struct|union|type|const|static|enum) (?:mut )?(\w+)")
IMPL = re.compile(r"^(?:unsafe )?impl(?:<[^>]*>)? (?:.* for )?(\w+)")
OPAQUE = re.compile(r"_unused: \[u8; 0\]|_address: u8|_bindgen_opaque_blob")


def items(path):
    """Yields each top-level item as its text."""
    item, depth = [], 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            item.append(line)
            depth += sum(map(line.count, "{[(")) - sum(map(line.count, "}])"))
            code = line.rstrip()
            if depth == 0 and code.endswith((";", "}")):
                yield "".join(item)
                item = []
    if item:
        yield "".join(item)


def declared(item):
    """The name that an item defines, and the name that it implements for."""
    for line in item.splitlines():
        name = NAME.match(line)
        if name:
            return name.group(1), None
        impl = IMPL.match(line)
        if impl:
            return None, impl.group(1)
    return None, None


def main():
    kernel, generated, output = sys.argv[1:]
    full = set()
    for item in items(kernel):
        name, _ = declared(item)
        if name and not name.startswith("_bindgen_ty_") and not OPAQUE.search(item):
            full.add(name)
    with open(output, "w", encoding="utf-8") as out:
        for item in items(generated):
            name, target = declared(item)
            if name in full or target in full:
                continue
            out.write(item)


if __name__ == "__main__":
    main()
