"""Takes the C functions of `signatures`.

Returns texts: the headers, the C code of the library, and the tables of the documentation. It must not touch
files: the project stores only the tables, so that a change of a page changes all texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..operators.dtypes import ERRORS, RUNTIME, STATUS
from .signatures import C_ENUMS, HANDLES, VOID_HANDLES, CFunction, CParameter, functions, missing_functions

LIBRARY = "libpooltide_acl.so"
# The library under the names that programs pass to the linker and to dlopen, CANN 6.3 to 9.2.
ALIASES = (
    *("libascendcl.so", "libacl_rt.so", "libnnopbase.so", "libopapi.so"),
    *("libopapi_nn.so", "libopapi_math.so", "libopapi_cv.so", "libopapi_transformer.so"),
    *("libacl_op_compiler.so", "libacl_op_executor.so", "libacl_mdl.so", "libacl_cblas.so"),
    *("libacl_tdt_channel.so", "libacl_tdt_queue.so", "libascend_dump.so", "libmsprofiler.so"),
)
RUNTIME_HEADER = "acl/acl.h"
# Headers of one include: all runtime functions are in RUNTIME_HEADER.
_RUNTIME_NAMES = (
    *("acl/acl_base.h", "acl/acl_rt.h", "acl/acl_op.h", "acl/acl_mdl.h", "acl/acl_op_compiler.h"),
    *("acl/acl_prof.h", "acl/acl_tdt.h", "acl/ops/acl_dvpp.h", "aclnn/acl_meta.h", "aclnn/aclnn_base.h"),
)
_ALL_OPERATORS = tuple(f"aclnnop/aclnn_ops_{part}.h" for part in ("nn", "math", "cv", "transformer", "ras"))
_MADE = "/* Made by pooltide from its pages; changes here are lost. */\n"
_FAILURES = {"aclError": ERRORS["ACL_ERROR_INTERNAL_ERROR"], "aclnnStatus": STATUS["ACLNN_ERR_INNER"]}
_OVERLOADS = """
#ifdef __cplusplus
/* The overload of CANN 9.1 and later. */
static inline aclError aclrtCreateStream(aclrtStream *stream, uint32_t priority, uint32_t flag) {
    return aclrtCreateStreamWithConfig(stream, priority, flag);
}
#endif
"""


def headers(table: Sequence[CFunction] | None = None) -> dict[str, str]:
    """Every header's text by its path."""
    table = functions() if table is None else table
    paths = dict.fromkeys(function.header for function in table)
    texts = {path: _header(path, [f for f in table if f.header == path]) for path in paths}
    operators = [path for path in paths if path != RUNTIME_HEADER]
    for path in _RUNTIME_NAMES:
        texts[path] = _including(path, [RUNTIME_HEADER])
    texts["acl/acl_rt_api.h"] = _including("acl/acl_rt_api.h", [RUNTIME_HEADER], _OVERLOADS)
    for path in operators:
        for name in other_names(path) - texts.keys():
            texts[name] = _including(name, [path])
    return texts | {path: _including(path, operators or [RUNTIME_HEADER]) for path in _ALL_OPERATORS}


def other_names(path: str) -> set[str]:
    """The other paths of an operator's header: in level2/, and with avg_pool for avgpool and back."""
    folder, _, file = path.rpartition("/")
    pairs = {"aclnn_avgpool": "aclnn_avg_pool", "aclnn_avg_pool": "aclnn_avgpool"}
    other = next((new + file.removeprefix(old) for old, new in pairs.items() if file.startswith(old)), file)
    return {f"{folder}/level2/{file}", f"{folder}/level2/{other}", f"{folder}/{other}"} - {path}


def _including(path: str, targets: Sequence[str], rest: str = "") -> str:
    """A header that includes others, by paths from its own folder: `#include <acl_meta.h>` is legal too."""
    up = "../" * path.count("/")
    lines = "".join(f'#include "{up}{target}"\n' for target in targets)
    return f"{_MADE}#ifndef {_guard(path)}\n#define {_guard(path)}\n\n{lines}{rest}\n#endif\n"


def _guard(path: str) -> str:
    return "POOLTIDE_" + "".join(c if c.isalnum() else "_" for c in path).upper()


def _header(path: str, table: Sequence[CFunction]) -> str:
    guard = _guard(path)
    if path == RUNTIME_HEADER:
        preamble = _preamble()
        summary = ""
    else:
        preamble = f'#include "{"../" * path.count("/")}{RUNTIME_HEADER}"\n'
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
    flags = (pair for group in RUNTIME["flags"].values() for pair in group.items())
    codes += "\n" + "\n".join(f"#define {name} {code:#010x}U" for name, code in flags)
    structs = [*HANDLES, *(name for group in RUNTIME["missing"] for name in group["opaque"])]
    opaque = "\n".join(f"typedef struct {name} {name};" for name in structs)
    pointers = "\n".join(f"typedef void *{name};" for name in VOID_HANDLES)
    return f"""#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOLTIDE_API __attribute__((visibility("default")))

typedef int aclError;
typedef int32_t aclnnStatus;
typedef uint16_t aclFloat16;
{pointers}
typedef void *aclrtDrvMemHandle;
typedef void *aclmdlRI;
{opaque}
typedef struct aclrtExceptionInfo aclrtExceptionInfo;
typedef union {{
    uint16_t moduleId; uint32_t deviceId; uint32_t vaFlag; uint8_t rsv[8];
}} aclrtMallocAttrValue;
typedef void (*aclrtExceptionInfoCallback)(aclrtExceptionInfo *exceptionInfo);
typedef void (*aclrtCallback)(void *userData);

{enums}

typedef struct {{ aclrtMallocAttrType attr; aclrtMallocAttrValue value; }} aclrtMallocAttribute;
typedef struct {{ aclrtMallocAttribute *attrs; size_t numAttrs; }} aclrtMallocConfig;

{codes}
#define ACL_APP_LOG(level, ...) aclAppLog(level, __func__, __FILE__, __LINE__, __VA_ARGS__)
"""


def entries(table: Sequence[CFunction] | None = None) -> str:
    """The C definitions of all functions: each stores its arguments as words and calls Python."""
    table = functions() if table is None else table
    includes = "".join(f'#include "{path}"\n' for path in dict.fromkeys(f.header for f in table))
    rows = "".join(f"    {_row(f)},\n" for f in table)
    bodies = "\n".join(filter(None, (_body(index, f) for index, f in enumerate(table))))
    return f"{_MADE}{includes}\nstatic const Entry entries[] = {{\n{rows}}};\n\n{bodies}"


def _row(function: CFunction) -> str:
    """Name, parameter kinds, result kind, and the result of a call that fails before Python runs."""
    names = [p.name for p in function.parameters]
    kinds = "".join(_kind(p, names) for p in function.parameters)
    result = "p" if function.result == "h" else function.result
    return f'{{"{function.name}", "{kinds}", \'{result}\', {_FAILURES.get(function.returns, 0)}}}'


def _kind(parameter: CParameter, names: Sequence[str]) -> str:
    """A parameter as the library packs and unpacks it; c/shim.c lists the letters."""
    if parameter.out:
        narrow = "g" if parameter.kind == "f" else "q"
        return "x" if parameter.kind in "abet" else narrow if parameter.narrow else "o"
    if parameter.kind in "abet":
        return f"{parameter.kind}{names.index(parameter.length)}"
    return "p" if parameter.kind in "hv" else parameter.kind


def _body(index: int, function: CFunction) -> str:
    if function.native:
        return ""
    words = ", ".join(_word(p) for p in function.parameters) or "0"
    result = "" if function.returns == "void" else f"return ({function.returns})"
    unused = "".join(f"    (void){name};\n" for name in _arguments(function.prototype))
    return (
        f"{function.declaration} {{\n{unused}"
        f"    const Word words[] = {{{words}}};\n"
        f"    {result}call_python({index}, words, (Word)__builtin_return_address(0));\n}}\n"
    )


def _word(parameter: CParameter) -> str:
    if parameter.kind in "fd" and not parameter.out:
        return f"double_word({parameter.name})"
    return f"(Word)({parameter.name})"


def _arguments(prototype: str) -> list[str]:
    """The names of the parameters of a prototype."""
    return [name for name in re.findall(r"(\w+)(?:\[\])?[,)]", prototype) if name != "void"]


def coverage(table: Iterable[CFunction] | None = None) -> str:
    """The function table of the documentation, in Markdown."""
    real = (f for f in table or functions() if not f.prototype)
    rows = (f"| `{f.name}` | `{f.header}` | `{f.declaration}` |" for f in real)
    return "\n".join(["| function | header | declaration |", "|---|---|---|", *rows]) + "\n"


def only_declared() -> str:
    """The table of the functions that fail with 207000, in Markdown."""
    rows = []
    for group in RUNTIME["missing"]:
        names = (f.name for f in missing_functions() if f.prototype in group["functions"])
        rows.append(f"| {group['belongs_to']} | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(["| part of CANN | functions |", "|---|---|", *rows]) + "\n"


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
    INTERFACE_LINK_OPTIONS "-Wl,--disable-new-dtags;SHELL:-Xlinker -rpath -Xlinker \\"${{_pooltide}}/lib\\"")
endif()
set(pooltide_FOUND TRUE)
"""
