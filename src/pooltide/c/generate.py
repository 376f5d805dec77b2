"""The texts that are made from `signatures`: headers, C code of the library, table of the documentation.

The project stores none of them except the table, so that a change of a page changes all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..operators.dtypes import ERRORS, STATUS
from .signatures import C_ENUMS, HANDLES, CFunction, functions

LIBRARY = "libpooltide_acl.so"
ALIASES = ("libascendcl.so", "libnnopbase.so", "libopapi.so")  # names that programs pass to the linker
RUNTIME_HEADER = "acl/acl.h"
_MADE = "/* Made by pooltide from its pages; changes here are lost. */\n"
_FAILURES = {"aclError": ERRORS["ACL_ERROR_INTERNAL_ERROR"], "aclnnStatus": STATUS["ACLNN_ERR_INNER"]}


def headers(table: Sequence[CFunction] | None = None) -> dict[str, str]:
    """Every header's text by its path."""
    table = functions() if table is None else table
    paths = dict.fromkeys(function.header for function in table)
    return {path: _header(path, [f for f in table if f.header == path]) for path in paths}


def _header(path: str, table: Sequence[CFunction]) -> str:
    guard = "POOLTIDE_" + "".join(c if c.isalnum() else "_" for c in path).upper()
    if path == RUNTIME_HEADER:
        preamble = _preamble()
        summary = ""
    else:
        preamble = f'#include "{RUNTIME_HEADER}"\n'
        summary = f"/* {table[0].summary} */\n"
    body = "\n".join(f"POOLTIDE_API {function.declaration};" for function in table)
    return (
        f"{_MADE}#ifndef {guard}\n#define {guard}\n\n{preamble}\n"
        f'#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{summary}{body}\n\n'
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif\n"
    )


def _preamble() -> str:
    enums = "\n".join(
        f"typedef enum {{ {', '.join(f'{n} = {code}' for n, code in values.items())} }} {name};"
        for name, values in C_ENUMS.items()
    )
    codes = "\n".join(f"#define {name} {code}" for name, code in (ERRORS | STATUS).items())
    opaque = "\n".join(f"typedef struct {handle} {handle};" for handle in HANDLES)
    return f"""#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOLTIDE_API __attribute__((visibility("default")))

typedef int aclError;
typedef int32_t aclnnStatus;
typedef void *aclrtStream;
{opaque}

{enums}

{codes}
"""


def entries(table: Sequence[CFunction] | None = None) -> str:
    """The C definitions of all functions: each stores its arguments as words and calls Python."""
    table = functions() if table is None else table
    includes = "".join(f'#include "{path}"\n' for path in dict.fromkeys(f.header for f in table))
    rows = "".join(f"    {_row(f)},\n" for f in table)
    bodies = "\n".join(_body(index, f) for index, f in enumerate(table))
    return f"{_MADE}{includes}\nstatic const Entry entries[] = {{\n{rows}}};\n\n{bodies}"


def _row(function: CFunction) -> str:
    """Name, parameter kinds, result kind, and the result of a call that fails before Python runs.

    The kind of an array is "a" and the position of its length.
    """
    names = [p.name for p in function.parameters]
    kinds = "".join(
        "o" if p.out else f"a{names.index(p.length)}" if p.kind == "a" else "p" if p.kind == "h" else p.kind
        for p in function.parameters
    )
    result = "p" if function.result == "h" else function.result
    return f'{{"{function.name}", "{kinds}", \'{result}\', {_FAILURES.get(function.returns, 0)}}}'


def _body(index: int, function: CFunction) -> str:
    words = ", ".join(f"(Word)({p.name})" for p in function.parameters) or "0"
    return (
        f"{function.declaration} {{\n"
        f"    const Word words[] = {{{words}}};\n"
        f"    return ({function.returns})call_python({index}, words);\n}}\n"
    )


def coverage(table: Iterable[CFunction] | None = None) -> str:
    """The function table of the documentation, in Markdown."""
    rows = (f"| `{f.name}` | `{f.header}` | `{f.declaration}` |" for f in table or functions())
    return "\n".join(["| function | header | declaration |", "|---|---|---|", *rows]) + "\n"


def cmake_config() -> str:
    """A package config: find_package(pooltide), then link pooltide::acl."""
    return f"""# Made by pooltide.
get_filename_component(_pooltide "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
if(NOT TARGET pooltide::acl)
  add_library(pooltide::acl SHARED IMPORTED)
  set_target_properties(pooltide::acl PROPERTIES
    IMPORTED_LOCATION "${{_pooltide}}/lib/{LIBRARY}"
    IMPORTED_SONAME "{LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${{_pooltide}}/include"
    INTERFACE_LINK_OPTIONS "-Wl,--disable-new-dtags,-rpath,${{_pooltide}}/lib")
endif()
set(pooltide_FOUND TRUE)
"""
