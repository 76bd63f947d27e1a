#!/usr/bin/env python3
"""The tidy test: rules about the tree that a compiler does not check. Run from anywhere; prints FILE:LINE: RULE: what is wrong, and
counts the rules that hold and those that do not.

A rule is a function that takes a tree, {path: text, or bytes for a binary file}, and yields (path, line, message). Its name, without
the leading underscores, is the rule's name. tests/tidy/selftest.py plants violations of each.
"""
import os
import posixpath
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# ---- what the tree looks like ----

# A folder of src/ includes only itself and folders of earlier groups.
ORDER = [["base"], ["gguf", "quant", "tok", "jinja"], ["kern", "convert"], ["dev"], ["model", "sample"], ["spec"], ["engine"], ["api", "http"],
         ["cmd"]]
LEVEL = {folder: level for level, group in enumerate(ORDER) for folder in group}
# Within a group: tensor views need block sizes, which are facts of a weight type.
SAME_LEVEL = {("gguf", "quant/type.h")}
# Narrower than the order: what these folders may include of others.
ONLY = {
    "http": lambda target: target.startswith("base/"),
    "api": lambda target: target.startswith(("base/", "sample/", "tok/", "jinja/"))
    or target in ("engine/batcher.h", "engine/prefix_cache.h", "engine/chat_prompt.h", "engine/think_split.h", "skua.h"),
}
# Inner parts of a folder and who, outside of it, may look at them (nobody).
INNER = ("kern/cpu/", "kern/ref/", "quant/cpu/")
# System headers that a folder must not know.
FOREIGN = {
    "http": r"jansson\.h",
    "api": r"sys/socket\.h|netinet/.*|arpa/inet\.h|netdb\.h|event2/.*",
    "model": r"immintrin\.h|arm_neon\.h|cuda.*",
}

ROOT_FILES = {"Makefile", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore", ".gitattributes"}
ROOT_FOLDERS = {".ci", "bench", "docs", "include", "models", "src", "tests", "tools"}
TEST_FOLDERS = {"unit", "kern", "golden", "model", "e2e", "fuzz", "fault", "tidy", "support", "data"}
KERNEL_ISAS = ("avx2", "avxvnni", "avx512", "avx512vnni", "neon", "dotprod", "i8mm")
KERNEL_FOLDERS = ("src/kern/cpu/", "src/quant/cpu/")
KERNEL_FILES = {"dispatch.c"}  # in those folders, for the base machine

MAX_FILE_LINES = 1000
MAX_FUNCTION_LINES = 100
MAX_LINE = 140
MAX_SCRIPT_LINE = 180
MAX_FILE_BYTES = 2 << 20
LONG_FILES = re.compile(r"_(tables?|grids?)\.[ch]$")
LONG_LINES = re.compile(r"(tools/jinja_(cases|chats|random)\.py|tests/e2e/.*\.sh)$")  # one template, one check a line
BINARIES = ("models/", "tests/data/", "tests/fuzz/corpus/")


def is_code(path):
    return path.endswith((".c", ".h"))


def is_script(path):
    return path.endswith((".sh", ".bash", ".py")) or path == ".ci/run"


def is_source(path):
    return is_code(path) or is_script(path) or path.endswith((".mk", "Makefile"))


def lines_of(tree, wanted):
    for path, text in tree.items():
        if isinstance(text, str) and wanted(path):
            for number, line in enumerate(text.split("\n"), 1):
                yield path, number, line


def search(tree, wanted, pattern, message):
    pattern = re.compile(pattern)
    for path, number, line in lines_of(tree, wanted):
        m = pattern.search(line)
        if m:
            yield path, number, message.format(m.group(0))


def code_only(text):
    """C text with comments, and the insides of strings and character constants, blanked; line breaks stay."""
    def blank(m):
        token = m.group(0)
        if token[0] in "\"'":
            return token[0] + " " * (len(token) - 2) + token[-1]
        return re.sub(r"[^\n]", " ", token)
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)


def in_src(path):
    return path.startswith("src/") and is_code(path)


def src_code(tree, wanted=lambda path: True):
    """The tree's src/ without comments and strings."""
    return {path: code_only(text) for path, text in tree.items() if in_src(path) and wanted(path)}


# ---- folders ----

def _layering(tree):
    for path, number, line in lines_of(tree, in_src):
        parts = path.split("/")
        if len(parts) < 3:
            yield path, number, "a source file directly in src/"
            return
        folder = parts[1]
        if folder not in LEVEL:
            if number == 1:
                yield path, number, f"src/{folder} is not a folder of the design; known are {', '.join(LEVEL)}"
            continue
        m = re.match(r'\s*#\s*include\s+([<"])([^">]+)', line)
        if not m:
            continue
        target = m.group(2)
        if m.group(1) == "<":
            if re.fullmatch(FOREIGN.get(folder, "$"), target):
                yield path, number, f"{folder} must not know <{target}>"
            continue
        other = target.split("/")[0]
        if other == folder:
            if path.startswith("src/kern/ref/") and target.startswith("kern/cpu/"):
                yield path, number, "the reference must not look at the kernels"
        elif folder in ONLY:
            if not ONLY[folder](target):
                yield path, number, f"{folder} must not include {target}"
        elif target == "skua.h":
            continue
        elif other not in LEVEL:
            yield path, number, f'"{target}" is not named by its path from src/'
        elif LEVEL[other] >= LEVEL[folder] and (folder, target) not in SAME_LEVEL:
            yield path, number, f"{folder} includes {target}, which does not lie below it"
        elif target.startswith(INNER) and not (folder == "dev" and posixpath.basename(path).startswith("dev_")):
            yield path, number, f"{target} is an inner part of {other}"


def _public_header(tree):
    for path, number, line in lines_of(tree, lambda p: p.startswith("include/")):
        m = re.match(r'\s*#\s*include\s+"', line)
        if m:
            yield path, number, "the public header includes system headers only"


def _places(tree):
    for path in tree:
        parts = path.split("/")
        if len(parts) == 1 and path not in ROOT_FILES:
            yield path, 0, "a stray file in the root"
        elif len(parts) > 1 and parts[0] not in ROOT_FOLDERS:
            yield path, 0, f"a stray folder {parts[0]}/ in the root"
        elif parts[0] == "tests" and len(parts) == 2 and parts[1] not in ("run.sh", "tests.mk", "README.md"):
            yield path, 0, "a stray file in tests/"
        elif parts[0] == "tests" and len(parts) > 2 and parts[1] not in TEST_FOLDERS:
            yield path, 0, f"tests/{parts[1]} is not a folder of the design; known are {', '.join(sorted(TEST_FOLDERS))}"


def _folders_explained(tree):
    """Each folder of src/ is in docs/ARCHITECTURE.md, each of tests/ in tests/README.md."""
    for top, page in (("src", "docs/ARCHITECTURE.md"), ("tests", "tests/README.md")):
        text = tree.get(page, "")
        for folder in sorted({p.split("/")[1] for p in tree if p.startswith(top + "/") and p.count("/") > 1}):
            if not re.search(rf"\b{top}/{folder}\b", text):
                yield page, 0, f"says nothing about {top}/{folder}"


def _file_names(tree):
    for path in tree:
        name = posixpath.basename(path)
        if is_code(path) and not re.fullmatch(r"[a-z][a-z0-9_]*\.[ch]", name):
            yield path, 0, "names of C files are lower case with underscores"
        if path.startswith(KERNEL_FOLDERS) and path.endswith(".c") and name not in KERNEL_FILES:
            if not re.fullmatch(rf"[a-z0-9_]+_({'|'.join(KERNEL_ISAS)})\.c", name):
                yield path, 0, f"a kernel file is named <op>_<isa>.c, isa one of {', '.join(KERNEL_ISAS)}: it would not be compiled"
        if re.match(r"tests/(unit|kern|golden|model|fault)/", path) and path.endswith(".c"):
            helper = tree.get(re.sub(r"\.c$", ".h", path))
            if not name.startswith("test_") and helper is None:
                yield path, 0, "a test program is named test_*.c: it would not be run"


def _compiled(tree):
    """The Makefile names every folder of src/ that has C files."""
    m = re.search(r"^LIBDIRS\s*:?=(.*)$", tree.get("Makefile", ""), re.M)
    listed = set(m.group(1).split()) | {"kern/cpu", "quant/cpu", "cmd"} if m else set()
    for folder in sorted({posixpath.dirname(p)[4:] for p in tree if p.startswith("src/") and p.endswith(".c")} - listed):
        yield "Makefile", 0, f"LIBDIRS lacks {folder}: its files are not compiled"


# ---- sizes and form ----

def _file_lines(tree):
    for path, text in tree.items():
        if is_source(path) and not LONG_FILES.search(path) and text.count("\n") > MAX_FILE_LINES:
            yield path, MAX_FILE_LINES, f"{text.count(chr(10))} lines; at most {MAX_FILE_LINES}, except tables"


def _function_lines(tree):
    for path, text in tree.items():
        if not is_code(path):
            continue
        start = 0
        for number, line in enumerate(text.split("\n"), 1):
            if line.startswith("{"):
                start = number
            elif line.startswith("}"):
                if start and number - start - 1 > MAX_FUNCTION_LINES:
                    yield path, start, f"a function of {number - start - 1} lines; at most {MAX_FUNCTION_LINES}"
                start = 0


def _line_length(tree):
    for path, number, line in lines_of(tree, is_source):
        limit = MAX_LINE if is_code(path) else MAX_SCRIPT_LINE
        if len(line) > limit and not LONG_LINES.match(path):
            yield path, number, f"{len(line)} characters; at most {limit}"


def _whitespace(tree):
    def text_file(path):
        return is_source(path) or path.endswith(".md") or "/" not in path
    for path, number, line in lines_of(tree, text_file):
        if line.rstrip("\r") != line:
            yield path, number, "a carriage return"
        elif line != line.rstrip():
            yield path, number, "blanks at the end of the line"
        elif "\t" in line and (is_code(path) or is_script(path)):
            yield path, number, "a tab"
    for path, text in tree.items():
        if isinstance(text, str) and text_file(path) and not text.endswith("\n"):
            yield path, text.count("\n") + 1, "no line break at the end of the file"


def _text(tree):
    """Files are UTF-8 text, except where binaries belong; nothing big lies elsewhere."""
    for path, text in tree.items():
        if path.startswith(BINARIES):
            continue
        if isinstance(text, bytes):
            yield path, 0, f"not UTF-8 text; binary files belong in {', '.join(BINARIES)}"
        elif len(text.encode()) > MAX_FILE_BYTES:
            yield path, 0, f"{len(text.encode())} bytes; at most {MAX_FILE_BYTES}"


def _opening_comment(tree):
    for path, text in tree.items():
        if is_code(path) and not text.startswith("/*"):
            yield path, 1, "a C file opens with a comment that says what it is"
        elif path.endswith(".py") and not re.match(r'#!/usr/bin/(env )?python3\n"""|"""', text):
            yield path, 1, "a Python file opens with a text that says what it is"
        elif is_script(path) and not path.endswith(".py") and not re.match(r"(#!.*\n)?# \S", text):
            yield path, 1, "a script opens with a comment that says what it is"


def _include_guards(tree):
    """Named after the path in src/ and include/, unique in tests/; none in a header that is included once and says so."""
    guards = {}
    for path, text in tree.items():
        if not path.endswith(".h") or re.match(r"/\*[^/]*\b[Ii]ncluded once\b", text):
            continue
        m = re.search(r"^#ifndef (SKUA_\w+_H|SKUA_H)\n#define \1$", text, re.M)
        guard = m.group(1) if m else None
        wanted = "SKUA_H" if path == "include/skua.h" else "SKUA_" + re.sub(r"[/.]", "_", re.sub(r"^(src|include)/", "", path)).upper()
        if path.startswith(("src/", "include/")) and guard != wanted or not guard:
            yield path, 1, f"the include guard {wanted} is not there"
        elif guard in guards:
            yield path, 1, f"the include guard {guard} is also that of {guards[guard]}"
        else:
            guards[guard] = path


def prototypes(text):
    """(line, name) of every function that a header declares without a word about it: no comment before it in its paragraph, none on
    its lines."""
    number, commented, open_comment = 0, False, False
    buffer, start = "", 0
    for line in text.split("\n"):
        number += 1
        if not line.strip():
            commented = False
        had_comment = "/*" in line or "//" in line or open_comment
        if "/*" in line:
            open_comment = "*/" not in line[line.index("/*"):]
        elif "*/" in line:
            open_comment = False
        commented = commented or had_comment
        code = code_only(line) if not open_comment else ""
        if not buffer and not re.match(r"[A-Za-z_]", line):
            continue
        if not buffer:
            start = number
        buffer += code + " "
        if code.rstrip().endswith((";", "{", "}")) or line.startswith("#"):
            m = re.match(r"(?!typedef|static|#|return)[A-Za-z_][\w\s*]*?\b(\w+)\s*\([^()]*(\([^()]*\)[^()]*)*\)[^{}=]*;\s*$", buffer)
            if m and not commented:
                yield start, m.group(1)
            buffer = ""


def _public_functions(tree):
    for path, text in tree.items():
        if path.endswith(".h") and path.startswith(("src/", "include/")):
            for number, name in prototypes(text):
                yield path, number, f"{name} is declared without a word about it"


# ---- words ----

def _unfinished(tree):
    words = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))
    yield from search(tree, lambda p: is_source(p) or p.endswith(".md"), rf"\b({words})\b", "'{}': finish it, or say in the docs what is missing")
    yield from search(tree, is_code, r"^\s*#\s*if\s+0\b", "dead code ({})")


def _machine_paths(tree):
    for path, number, line in lines_of(tree, lambda p: is_source(p) or p.endswith((".md", ".json"))):
        m = re.search(r"(?<![\w.$}/-])/(work|tmp|root|home|mnt|Users)\b", line)
        if m and not (m.group(1) == "tmp" and "TMPDIR" in line):
            yield path, number, f"a path of some machine, '{m.group(0)}' (temporary files: TMPDIR)"


def _hosts(tree):
    """Nothing depends on, or names, a package registry."""
    hosts = (r"pypi\.org", r"pythonhosted\.org", r"registry\.npmjs", r"crates\.io", r"rubygems\.org", r"deb\.debian\.org", r"archive\.ubuntu\.com",
             r"docker\.io", r"ghcr\.io", r"quay\.io", r"proxy\.golang\.org", r"repo\.maven", r"conda\.anaconda\.org", r"formulae\.brew\.sh")
    yield from search(tree, lambda p: not p.startswith(BINARIES), "|".join(hosts), "a registry host, '{}'")


def _own_words(tree):
    """The tree speaks of the program, not of how it came to be written. (A name that begins "claude-" is a model's; Claude Code is a client.)"""
    words = (r"(?<!/)\b[Cc]laude\b(?!-| Code)", r"\bsub-?agents?\b", r"\bchatbot\b", r"\bthis workplace\b", r"\bthe lead\b", r"\b(this|the|a) (issue|ticket) #?\d+\b",
             r"\bas an AI\b")
    yield from search(tree, lambda p: (is_source(p) or p.endswith(".md")) and not p.startswith("tests/tidy/"), "|".join(words), "'{}'")


def _links(tree):
    folders = {posixpath.dirname(p) for p in tree}
    for path, number, line in lines_of(tree, lambda p: p.endswith(".md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:|#", target):
                continue
            full = posixpath.normpath(posixpath.join(posixpath.dirname(path), target.split("#")[0]))
            if full not in tree and full not in folders:
                yield path, number, f"a link to {target}, which is not there"


def _version(tree):
    m = re.search(r"^VERSION\s*:?=\s*(\S+)", tree.get("Makefile", ""), re.M)
    if not m:
        yield "Makefile", 0, "no VERSION"
    elif not re.search(rf"(?<![\d.]){re.escape(m.group(1))}(?![\d.])", tree.get("CHANGELOG.md", "")):
        yield "CHANGELOG.md", 0, f"says nothing about version {m.group(1)}"


# ---- code ----

def outside_cmd(path):
    return not path.startswith("src/cmd/")


def _quiet_library(tree):
    """Below the commands nothing prints, exits or aborts; errors are returned."""
    code = src_code(tree, outside_cmd)
    yield from search(code, in_src, r"\b(_?exit|abort|quick_exit|v?printf|puts|putchar|perror)\s*\(|\bstderr\b|\bstdout\b",
                      "'{}' below the commands: return an error")


def _memory(tree):
    """All memory comes from base/mem.h, where an allocation can be made to fail."""
    code = src_code(tree, lambda p: not p.startswith("src/base/mem."))
    yield from search(code, in_src, r"(?<![\w.>])(malloc|calloc|realloc|reallocarray|strn?dup|v?asprintf|aligned_alloc|posix_memalign|free)\s*\(",
                      "'{}': use base/mem.h")


def _forbidden_calls(tree):
    """Calls that have no safe use, or depend on hidden state."""
    code = src_code(tree)
    yield from search(code, in_src, r"(?<![\w.>])(gets|v?sprintf|strtok|s?rand|random|tmpnam|mktemp|alloca|system|asctime|ctime|gmtime|localtime)\s*\(",
                      "'{}'")


def _exact_arithmetic(tree):
    """The order and rounding of every operation is part of the product."""
    makefile = tree.get("Makefile", "")
    if "-ffp-contract=off" not in makefile:
        yield "Makefile", 0, "-ffp-contract=off is missing"
    yield from search(tree, lambda p: p.endswith(("Makefile", ".mk")), r"(?<!no-)fast-math|-Ofast|-march=native|-funsafe-math\S*|-fassociative-math",
                      "'{}' changes results")
    yield from search(src_code(tree), in_src, r"__attribute__\s*\(\(\s*(optimize|target)\b|#\s*pragma\s+(GCC\s+(optimize|target)|STDC\s+FP_CONTRACT)",
                      "'{}': flags belong in the Makefile")


def _tests_assert(tree):
    """A test program checks something and reports it in a way that the runner counts."""
    for path, text in tree.items():
        if re.match(r"tests/\w+/test_\w+\.c$", path):
            if not re.search(r"\bCHECK\s*\(|\bassert_\w+\s*\(|\bfault_commands_sweep\s*\(", text):
                yield path, 0, "no CHECK and no assert_...: it checks nothing"
            if not re.search(r"\bsupport_finish\s*\(|\bcmocka_run_group_tests|\bh_run_tests?\b", text):
                yield path, 0, "neither support_finish nor cmocka_run_group_tests closes it"


def _scripts(tree):
    for path, text in tree.items():
        if re.search(r"\.(sh|py)$", path) or path == ".ci/run":
            lines = text.split("\n")
            if path.endswith(".sh") and not lines[0].startswith("#!"):
                yield path, 1, "a script without #!"
            if path.endswith(".py"):
                try:
                    compile(text, path, "exec")
                except SyntaxError as e:
                    yield path, e.lineno or 0, f"Python: {e.msg}"


RULES = [(name[1:], rule) for name, rule in list(globals().items()) if re.fullmatch(r"_[a-z_]*[a-z]", name) and callable(rule)]


def check(tree):
    """Every rule over the tree: {rule name: [(path, line, message)]}."""
    return {name: sorted(rule(tree)) for name, rule in RULES}


def load(root):
    """What belongs to the project: tracked or new files; in a copy without its repository, everything but build products."""
    git = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=False)
    if git.returncode == 0 and os.path.exists(os.path.join(root, ".git")):
        paths = git.stdout.decode().split("\0")
    else:
        paths = [os.path.relpath(os.path.join(folder, f), root) for folder, _, files in os.walk(root) for f in files]
        paths = [p for p in paths if not re.match(r"build/|\.git/|skua$|.*\.[od]$|.*__pycache__/", p)]
    tree = {}
    for path in sorted(set(filter(None, paths))):
        full = os.path.join(root, path)
        if not os.path.isfile(full) or os.path.islink(full):
            continue  # deleted, not yet committed
        with open(full, "rb") as f:
            data = f.read()
        try:
            tree[path] = data.decode() if b"\0" not in data and not path.endswith(".gguf") else data
        except UnicodeDecodeError:
            tree[path] = data
    return tree


def main():
    tree = load(ROOT)
    found = check(tree)
    for name, violations in found.items():
        for path, line, message in violations:
            print(f"{path}:{line}: {name}: {message}")
    bad = sum(map(bool, found.values()))
    print(f"{len(tree)} files, {sum(map(len, found.values()))} violations")
    print(f"{len(found) - bad} passed, {bad} failed")
    sys.exit(1 if bad or len(tree) < 50 else 0)


if __name__ == "__main__":
    main()
