#!/usr/bin/python3
"""Expected outputs of the chat-template corpus, from python3-jinja2 3.1 set up as Hugging Face transformers sets it up.

  jinja_oracle.py               write the expectations into tests/golden/jinja/*.json (cases from tools/jinja_cases.py)
  jinja_oracle.py --check       exit 1 when a stored expectation differs from what jinja2 renders now
  jinja_oracle.py --random N SEED FILE   write N random cases, with expectations, to FILE

A corpus file is {"values": {name: value}, "cases": [...]}. A case is {"name", "template", "context", "time"?} plus "expected"
(the rendering) or "error": {"kind": exception class, "message", "line" (null when jinja2 does not tell)}. The template, and
each variable of the context, may be {"use": name}: the value of that name.
"""
import copy
import datetime
import glob
import json
import os
import random
import sys
import traceback

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "jinja")


class Generation(jinja2.ext.Extension):
    """{% generation %} blocks: rendered as their content, inside a function as transformers does."""
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(lineno)

    @jinja2.pass_eval_context
    def _render(self, context, caller):
        return caller()


def make_environment(time):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(time, datetime.timezone.utc).replace(tzinfo=None).strftime(format)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def run(case):
    """The case with "expected" or "error" filled in."""
    case = {k: v for k, v in case.items() if k not in ("expected", "error")}
    env = make_environment(case.get("time", 1700000000))
    try:
        case["expected"] = env.from_string(case["template"]).render(**copy.deepcopy(case["context"]))
        case["expected"].encode("utf-8")
    except Exception as e:  # every failure of a template is an expectation
        case.pop("expected", None)
        line = getattr(e, "lineno", None)
        if line is None:
            for frame in traceback.extract_tb(e.__traceback__):
                if frame.filename == "<template>":
                    line = frame.lineno
        message = e.message if isinstance(e, jinja2.TemplateError) else str(e)
        case["error"] = {"kind": type(e).__name__, "message": message, "line": line}
    return case


def dump(cases, path):
    """Long values that occur more than once are written once."""
    seen, names = {}, {}
    for c in cases:
        for v in [c["template"], *c["context"].values()]:
            text = json.dumps(v, ensure_ascii=False)
            seen[text] = seen.get(text, 0) + 1

    def use(v):
        text = json.dumps(v, ensure_ascii=False)
        if len(text) < 60 or seen[text] < 2:
            return v
        return {"use": names.setdefault(text, str(len(names)))}

    small = [{**c, "template": use(c["template"]), "context": {k: use(v) for k, v in c["context"].items()}} for c in cases]
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"values": {\n' + ",\n".join(f"{json.dumps(n)}: {t}" for t, n in names.items()) + '\n}, "cases": [\n')
        f.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in small) + "\n]}\n")


def load(path):
    with open(path, encoding="utf-8") as f:
        stored = json.load(f)
    values = stored["values"]
    value = lambda v: values[v["use"]] if isinstance(v, dict) and list(v) == ["use"] else v
    return [{**c, "template": value(c["template"]), "context": {k: value(v) for k, v in c["context"].items()}} for c in stored["cases"]]


def write_all():
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import jinja_cases
    os.makedirs(FOLDER, exist_ok=True)
    for name, cases in jinja_cases.corpus().items():
        done = [run(c) for c in cases]
        dump(done, os.path.join(FOLDER, name + ".json"))
        print(f"{name}: {len(done)} cases, {sum('error' in c for c in done)} of them errors")


def check_all():
    bad = count = 0
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.json"))):
        for case in load(path):
            count += 1
            now = run(case)
            if now != case:
                bad += 1
                print(f"{os.path.basename(path)}: {case['name']}: stored {case.get('expected', case.get('error'))!r}, "
                      f"jinja2 says {now.get('expected', now.get('error'))!r}")
    print(f"{count} cases, {bad} differ")
    return bad or not count


def main():
    if sys.argv[1:] == ["--check"]:
        sys.exit(1 if check_all() else 0)
    if sys.argv[1:2] == ["--random"]:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import jinja_random
        n, seed, path = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
        dump([run(c) for c in jinja_random.cases(n, random.Random(seed))], path)
        return
    write_all()


if __name__ == "__main__":
    main()
