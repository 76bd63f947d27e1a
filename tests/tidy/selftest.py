#!/usr/bin/env python3
"""Proves that the tidy test can fail: a small clean tree passes every rule, and each planted violation is found by its rule, at its
place, and by no other rule."""
import sys

import tidy

DOC = "/* What it is. */\n"
CLEAN = {
    "Makefile": "VERSION  := 1.2.0\nFP := -ffp-contract=off -fno-fast-math\nLIBDIRS  := base gguf quant kern kern/ref dev model engine api http\n",
    "CHANGELOG.md": "# Changes\n\n## 1.2.0\n",
    "README.md": "See [the docs](docs/ARCHITECTURE.md), [sources](src/base), [elsewhere](https://example.com/a).\n",
    "docs/ARCHITECTURE.md": "`src/base` `src/gguf` `src/quant` `src/kern` `src/dev` `src/model` `src/engine` `src/api` `src/http` `src/cmd`\n",
    "tests/README.md": "`tests/unit`, `tests/kern`, `tests/tidy`, `tests/data`\n",
    "tests/run.sh": "#!/usr/bin/env bash\n# Runs the tests.\necho \"${TMPDIR:-/tmp}\"\n",
    "tests/tidy/tidy.py": '#!/usr/bin/env python3\n"""Rules."""\n',
    "tests/unit/test_mem.c": DOC + "int main(void)\n{\n    CHECK(1, \"one\");\n    return support_finish(\"mem\");\n}\n",
    "tests/kern/test_op.c": DOC + "static void one(void **s)\n{\n    assert_int_equal(1, 1);\n}\nint main(void)\n{\n"
                            "    return cmocka_run_group_tests(tests, NULL, NULL);\n}\n",
    "include/skua.h": DOC + "#ifndef SKUA_H\n#define SKUA_H\n\n#include <stdint.h>\n\n/* It says something. */\nint skua_say(void);\n\n#endif\n",
    "src/base/mem.h": DOC + "#ifndef SKUA_BASE_MEM_H\n#define SKUA_BASE_MEM_H\n\n#include \"skua.h\"\n\n/* As the C library's. */\n"
                      "void *mem_alloc(size_t n);\nvoid mem_free(void *p);\n\nint mem_live(void); /* blocks */\n\n"
                      "typedef int mem_fn(int);\nstatic inline int twice(int x)\n{\n    return 2 * x;\n}\n\n#endif\n",
    "src/base/mem.c": DOC + "#include \"base/mem.h\"\n\n#include <stdlib.h>\n\nvoid *mem_alloc(size_t n)\n{\n    return malloc(n);\n}\n",
    "src/quant/type.h": DOC + "#ifndef SKUA_QUANT_TYPE_H\n#define SKUA_QUANT_TYPE_H\n#endif\n",
    "src/gguf/gguf.c": DOC + "#include \"base/mem.h\"\n#include \"quant/type.h\"\n\n/* no malloc(1), no printf() here */\n"
                       "static const char text[] = \"abort() and stderr\";\n",
    "src/kern/kern.c": DOC + "#include \"kern/ref/kern_ref.h\"\n#include \"quant/half.h\"\n",
    "src/kern/ref/row.c": DOC + "#include \"kern/kern.h\"\n",
    "src/kern/cpu/dispatch.c": DOC,
    "src/kern/cpu/row_avx2.c": DOC + "#include \"kern/cpu/row_impl.h\"\n",
    "src/kern/cpu/row_impl.h": "/* Included once, by row_<isa>.c. */\n",
    "src/dev/dev_cpu.c": DOC + "#include \"kern/cpu/kern_tiers.h\"\n",
    "src/model/forward.c": DOC + "#include \"dev/dev.h\"\n#include \"kern/kern.h\"\n",
    "src/engine/engine.c": DOC + "#include \"model/forward.h\"\n#include \"skua.h\"\n",
    "src/api/openai.c": DOC + "#include \"base/mem.h\"\n#include \"engine/batcher.h\"\n#include <jansson.h>\n",
    "src/http/http.c": DOC + "#include \"base/mem.h\"\n#include <sys/socket.h>\n",
    "src/cmd/main.c": DOC + "#include \"engine/engine.h\"\nint main(void)\n{\n    printf(\"%d\", 1);\n    exit(0);\n}\n",
    "tools/make.py": '#!/usr/bin/env python3\n"""Makes."""\nprint(1)\n',
    "tests/data/model.gguf": b"GGUF\0\xff",
}


def cut(text, old, new):
    assert text.count(old) == 1, (text, old)
    return text.replace(old, new)


def more(path, addition):
    return {path: CLEAN[path] + addition}


def swap(path, old, new):
    return {path: cut(CLEAN[path], old, new)}


HOST = "pypi" + ".org"
PLANTED = [  # rule, files added or replaced (None: removed), part of the message
    ("layering", more("src/base/mem.c", '#include "quant/type.h"\n'), "does not lie below"),
    ("layering", more("src/gguf/gguf.c", '#include "quant/half.h"\n'), "does not lie below"),
    ("layering", more("src/gguf/gguf.c", '  #  include "jinja/jinja.h"\n'), "does not lie below"),
    ("layering", more("src/kern/kern.c", '#include "dev/dev.h"\n'), "does not lie below"),
    ("layering", more("src/engine/engine.c", '#include "cmd/opts.h"\n'), "does not lie below"),
    ("layering", more("src/model/forward.c", '#include "sample/sampler.h"\n'), "does not lie below"),
    ("layering", more("src/model/forward.c", '#include "kern/cpu/kern_tiers.h"\n'), "inner part"),
    ("layering", more("src/engine/engine.c", '#include "kern/ref/kern_ref.h"\n'), "inner part"),
    ("layering", more("src/kern/ref/row.c", '#include "kern/cpu/row_impl.h"\n'), "reference must not"),
    ("layering", more("src/model/forward.c", "#include <immintrin.h>\n"), "must not know"),
    ("layering", more("src/api/openai.c", "#include <sys/socket.h>\n"), "must not know"),
    ("layering", more("src/api/openai.c", '#include "http/http.h"\n'), "must not include"),
    ("layering", more("src/api/openai.c", '#include "engine/session.h"\n'), "must not include"),
    ("layering", more("src/http/http.c", "#include <jansson.h>\n"), "must not know"),
    ("layering", more("src/http/http.c", '#include "engine/engine.h"\n'), "must not include"),
    ("layering", more("src/engine/engine.c", '#include "session.h"\n'), "not named by its path"),
    ("public_header", more("include/skua.h", '#include "base/mem.h"\n'), "system headers only"),
    ("places", {"notes.txt": "x\n"}, "stray file in the root"),
    ("places", {"scratch/a.txt": "x\n"}, "stray folder"),
    ("places", {"tests/new.txt": "x\n"}, "stray file in tests"),
    ("folders_explained", swap("docs/ARCHITECTURE.md", "`src/quant` ", ""), "src/quant"),
    ("folders_explained", swap("tests/README.md", "`tests/kern`, ", ""), "tests/kern"),
    ("file_names", {"src/base/Mem2.c": DOC}, "lower case"),
    ("file_names", {"src/kern/cpu/row_sse2.c": DOC}, "would not be compiled"),
    ("file_names", {"tests/unit/mem.c": DOC}, "would not be run"),
    ("compiled", swap("Makefile", " quant", "").copy() | {"src/quant/type.c": DOC}, "lacks quant"),
    ("file_lines", more("src/base/mem.c", "\n" * tidy.MAX_FILE_LINES), "lines; at most"),
    ("function_lines", more("src/base/mem.c", "void f(void)\n{\n" + "    x();\n" * (tidy.MAX_FUNCTION_LINES + 1) + "}\n"), "a function of"),
    ("line_length", more("src/base/mem.c", "/*" + "x" * tidy.MAX_LINE + "*/\n"), "characters; at most"),
    ("line_length", more("tests/run.sh", "# " + "x" * tidy.MAX_SCRIPT_LINE + "\n"), "characters; at most"),
    ("whitespace", more("src/base/mem.c", "\tint x;\n"), "a tab"),
    ("whitespace", more("README.md", "trailing \n"), "blanks at the end"),
    ("whitespace", more("Makefile", "X := 1\r\n"), "carriage return"),
    ("whitespace", more("tools/make.py", "print(2)"), "no line break"),
    ("text", {"docs/picture": b"\x89PNG\0"}, "not UTF-8"),
    ("text", {"docs/huge.md": "x" * (tidy.MAX_FILE_BYTES + 1) + "\n"}, "bytes; at most"),
    ("opening_comment", {"src/base/new.c": "int x;\n"}, "opens with a comment"),
    ("opening_comment", {"tools/new.sh": "#!/bin/sh\nset -eu\n"}, "opens with a comment"),
    ("opening_comment", {"tools/new.py": "#!/usr/bin/env python3\nimport sys\n"}, "opens with a text"),
    ("include_guards", {"src/base/new.h": DOC + "/* One. */\nint one(void);\n"}, "SKUA_BASE_NEW_H"),
    ("include_guards", {"src/base/new.h": DOC + "#ifndef SKUA_OTHER_H\n#define SKUA_OTHER_H\n#endif\n"}, "SKUA_BASE_NEW_H"),
    ("include_guards", {"tests/unit/a.h": DOC + "#ifndef SKUA_TESTS_A_H\n#define SKUA_TESTS_A_H\n#endif\n",
                        "tests/kern/a.h": DOC + "#ifndef SKUA_TESTS_A_H\n#define SKUA_TESTS_A_H\n#endif\n"}, "is also that of"),
    ("public_functions", swap("include/skua.h", "/* It says something. */\n", ""), "skua_say is declared"),
    ("public_functions", swap("src/base/mem.h", " /* blocks */", ""), "mem_live is declared"),
    ("public_functions", swap("src/base/mem.h", "typedef int mem_fn(int);", "const struct thing *mem_find(int n,\n    void (*each)(int));"),
     "mem_find is declared"),
    ("unfinished", more("src/base/mem.c", "/* TO" "DO: more */\n"), "finish it"),
    ("unfinished", more("README.md", "FIX" "ME\n"), "finish it"),
    ("unfinished", more("src/base/mem.c", "#if 0\n#endif\n"), "dead code"),
    ("machine_paths", more("tests/run.sh", "cat /wo" "rk/file\n"), "a path of some machine"),
    ("machine_paths", more("tests/run.sh", "cat /tm" "p/file\n"), "a path of some machine"),
    ("machine_paths", more("README.md", "cd /ro" "ot/skua\n"), "a path of some machine"),
    ("hosts", more("tools/make.py", f"# https://{HOST}/x\n"), HOST),
    ("hosts", more("README.md", f"{HOST}\n"), HOST),
    ("own_words", more("README.md", "As the lead said.\n"), "the lead"),
    ("own_words", more("src/base/mem.c", "/* see the issue" " 12 */\n"), "the issue 12"),
    ("links", more("README.md", "[gone](docs/GONE.md)\n"), "docs/GONE.md"),
    ("links", more("docs/ARCHITECTURE.md", "[gone](README.md#top)\n"), "README.md#top"),
    ("version", swap("CHANGELOG.md", "1.2.0", "1.2.01"), "1.2.0"),
    ("version", swap("Makefile", "VERSION  := 1.2.0\n", ""), "no VERSION"),
    ("quiet_library", more("src/gguf/gguf.c", "void f(void) { abort(); }\n"), "abort"),
    ("quiet_library", more("src/gguf/gguf.c", 'void f(void) { fputs("x", stderr); }\n'), "stderr"),
    ("quiet_library", more("src/engine/engine.c", 'void f(void) { printf("x"); }\n'), "printf"),
    ("memory", more("src/gguf/gguf.c", "void *f(void) { return malloc(1); }\n"), "malloc"),
    ("memory", more("src/cmd/main.c", "void f(char *p) { free(p); }\n"), "free"),
    ("forbidden_calls", more("src/cmd/main.c", 'void f(char *p) { sprintf(p, "x"); }\n'), "sprintf"),
    ("forbidden_calls", more("src/base/mem.c", "int f(void) { return rand(); }\n"), "rand"),
    ("exact_arithmetic", swap("Makefile", "-ffp-contract=off ", ""), "is missing"),
    ("exact_arithmetic", more("Makefile", "OPT := -Ofast\n"), "-Ofast"),
    ("exact_arithmetic", more("Makefile", "OPT := -ffast-math\n"), "fast-math"),
    ("exact_arithmetic", more("src/kern/kern.c", "#pragma STDC FP_CONTRACT ON\n"), "FP_CONTRACT"),
    ("exact_arithmetic", more("src/kern/kern.c", '__attribute__((target("avx2"))) void f(void);\n'), "target"),
    ("tests_assert", swap("tests/unit/test_mem.c", '    CHECK(1, "one");\n', ""), "checks nothing"),
    ("tests_assert", swap("tests/kern/test_op.c", "    return cmocka_run_group_tests(tests, NULL, NULL);\n", ""), "closes it"),
    ("scripts", {"tools/new.sh": "# A script.\n"}, "without #!"),
    ("scripts", more("tools/make.py", "def\n"), "Python"),
]


def violations(tree):
    return [(rule, *v) for rule, found in tidy.check(tree).items() for v in found]


def main():
    bad = 0

    def expect(good, message):
        nonlocal bad
        if not good:
            bad += 1
            print(message)

    found = violations(CLEAN)
    expect(not found, f"the clean tree: {found}")
    for rule, files, message in PLANTED:
        found = violations(CLEAN | files)
        expect(len(found) == 1 and found[0][0] == rule and message in found[0][3] and (found[0][1] in files or not found[0][2]),
               f"{rule}, {sorted(files)}: want one violation with '{message}', got {found}")
    # a folder that the design does not know breaks every rule about folders
    rules = {v[0] for v in violations(CLEAN | {"src/extra/x.c": DOC, "tests/extra/x.sh": "#!/bin/sh\n# A script.\n"})}
    expect(rules == {"layering", "places", "folders_explained", "compiled"}, f"unknown folders: {rules}")
    untested = {name for name, _ in tidy.RULES} - {rule for rule, _, _ in PLANTED}
    expect(not untested, f"no violation is planted for {sorted(untested)}")
    print(f"{len(PLANTED) + 3 - bad} passed, {bad} failed")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
