"""Comparison of quantized files with llama.cpp's; bench/peer_quant.sh tells what and how.
peer_quant.py SKUA DIR_OF_NODE_MODULES DIR_OF_LIBRARIES SHARED WORK"""
import concurrent.futures, ctypes, hashlib, json, math, os, re, struct, subprocess, sys
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p)
import numpy as np

SKUA, PEER, BINS, SHARED, WORK = sys.argv[1:]
HERE = os.path.dirname(os.path.abspath(__file__))
RATIO_BAR = 1.01    # ours / theirs, error of every tensor
MARGIN_BAR = 0.25   # greedy answers may part where skua has the two tokens closer than this (ln p); elsewhere skua must be nearer than
                    # llama.cpp to what llama.cpp itself says with the same weights decoded to F32
TOKENS = 24
CHUNKS = 4
QUESTIONS = ["What is the capital of France?", "What is the capital of Italy?", "What is 37 + 45?", "How do you spell boat?",
             "Tell me a story about a fox and an owl."]
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
# Recipe: llama.cpp's file type of that name, or None where it has none (then its base file type and our types by name are given).
RECIPES = {"Q8_0": 7, "Q6_K": 18, "Q5_K_M": 17, "Q4_K_M": 15, "Q4_K_S": 14, "Q3_K_M": 12, "Q2_K": 10, "IQ4_XS": 30, "MXFP4": 38,
           "APEX-Quality": None, "APEX-Balanced": None, "APEX-Compact": None, "APEX-Mini": None}
# The types that these recipes do not use on models as small as the tiny ones, each for all matrices.
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ2_XXS", "IQ2_S", "NVFP4"]
MATRICES = r"^(blk.*(attn|ffn|ssm_out).*|output)\.weight$"
NEEDS_IMATRIX = {"IQ2_XXS", "IQ2_S"}


# ---- GGUF files, as far as it takes to find tensors ----

class Tensor:
    def __init__(self, shape, kind, data):
        self.shape, self.kind, self.data = shape, kind, data  # shape: columns first


def read_gguf(path):
    """name -> Tensor; data is a view from the tensor's first byte to the end of the file."""
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    at, alignment = 24, 32
    _, _, n_tensors, n_keys = struct.unpack("<IIQQ", bytes(raw[:24]))
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def number(form):
        nonlocal at
        value, = struct.unpack_from(form, raw, at)
        at += struct.calcsize(form)
        return value

    def string():
        nonlocal at
        n = number("<Q")
        at += n
        return bytes(raw[at - n:at]).decode("utf-8", "replace")

    def skip(kind):
        nonlocal at
        if kind == 8:
            string()
        elif kind == 9:
            inner, n = number("<I"), number("<Q")
            if inner in sizes:
                at += sizes[inner] * n
            else:
                for _ in range(n):
                    skip(inner)
        else:
            at += sizes[kind]

    for _ in range(n_keys):
        key, kind = string(), number("<I")
        if key == "general.alignment":
            alignment = number("<I")
        else:
            skip(kind)
    found = []
    for _ in range(n_tensors):
        name = string()
        shape = [number("<Q") for _ in range(number("<I"))]
        found.append((name, shape, number("<I"), number("<Q")))
    base = -(-at // alignment) * alignment
    return {name: Tensor(shape, kind, raw[base + offset:]) for name, shape, kind, offset in found}


def read_imatrix(path):
    """name -> float32 [matrices][columns]: mean squares of the columns, 1 for an expert that saw nothing."""
    tensors, out = read_gguf(path), {}
    for name, t in tensors.items():
        if not name.endswith(".in_sum2"):
            continue
        counts = tensors[name[:-8] + ".counts"]
        n = math.prod(counts.shape)
        sums = t.data[:4 * t.shape[0] * n].view(np.float32).reshape(n, -1)
        count = counts.data[:4 * n].view(np.float32).reshape(n, 1)
        out[name[:-8]] = np.ascontiguousarray(np.where(count > 0, sums / np.maximum(count, 1), 1), np.float32)
    return out


# ---- llama.cpp through its libraries ----

class Traits(Structure):
    _fields_ = [("name", c_char_p), ("block", c_int64), ("interleave", c_int64), ("size", c_size_t), ("quantized", c_bool),
                ("to_float", CFUNCTYPE(None, c_void_p, c_void_p, c_int64)), ("from_float", c_void_p)]


class Override(Structure):
    _fields_ = [("pattern", c_char_p), ("type", c_int)]


class Weights(Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("size", c_size_t)]


class Params(Structure):
    _fields_ = [("threads", c_int32), ("ftype", c_int), ("output", c_int), ("embedding", c_int), ("requantize", c_bool),
                ("quantize_output", c_bool), ("only_copy", c_bool), ("pure", c_bool), ("keep_split", c_bool), ("dry_run", c_bool),
                ("imatrix", c_void_p), ("kv", c_void_p), ("types", c_void_p), ("prune", c_void_p), ("max_buffer", c_size_t)]


ggml = ctypes.CDLL(os.path.join(BINS, "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
llama = ctypes.CDLL(os.path.join(BINS, next(f for f in sorted(os.listdir(BINS)) if re.match(r"libllama\.v?[\d.]*so|libllama\.so", f))))
ggml.ggml_get_type_traits.restype = POINTER(Traits)
ggml.ggml_quantize_requires_imatrix.restype = c_bool
ggml.ggml_quantize_chunk.restype = c_size_t
ggml.ggml_quantize_chunk.argtypes = [c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p]
llama.llama_model_quantize_default_params.restype = Params
llama.llama_model_quantize.argtypes = [c_char_p, c_char_p, POINTER(Params)]
ON_LOG = CFUNCTYPE(None, c_int, c_char_p, c_void_p)
llama_log = []
on_log = ON_LOG(lambda level, text, _: llama_log.append(text.decode("utf-8", "replace")) if level >= 3 else None)
llama.llama_log_set(on_log, None)
pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1)


def traits(kind):
    return ggml.ggml_get_type_traits(kind).contents


def tensor_bytes(t):
    row = t.shape[0] // traits(t.kind).block * traits(t.kind).size
    return t.data[:row * math.prod(t.shape[1:])]


def decode(kind, data, n):
    """n values; the one decoder for both sides."""
    data = np.ascontiguousarray(data)
    if kind == 0:
        return data.view(np.float32)[:n]
    out = np.empty(n, np.float32)
    traits(kind).to_float(data.ctypes.data, out.ctypes.data, n)
    return out


def llama_quantize(kind, values, shape, weights):
    """Bytes of llama.cpp's quantizer for float32 values of that shape; weights [matrices][columns] or None."""
    columns, rows, matrices = shape[0], math.prod(shape[1:2]), math.prod(shape[2:])
    row = columns // traits(kind).block * traits(kind).size
    out = np.zeros(matrices * rows * row, np.uint8)
    if weights is None and ggml.ggml_quantize_requires_imatrix(kind):
        sys.exit(f"llama.cpp's quantizer of {traits(kind).name.decode()} cannot do without an imatrix")
    ggml.ggml_quantize_init(kind)
    step, jobs = max(1, rows // 4), []
    for m in range(matrices):
        w = weights[m].ctypes.data if weights is not None else None
        for r in range(0, rows, step):
            first = m * rows + r
            jobs.append(pool.submit(ggml.ggml_quantize_chunk, kind, values.ctypes.data + first * columns * 4, out.ctypes.data + first * row,
                                    0, min(step, rows - r), columns, w))
    if sum(j.result() for j in jobs) != out.size:
        sys.exit(f"llama.cpp's quantizer wrote another number of bytes for {traits(kind).name}")
    return out


def llama_file(source, target, ftype, imatrix, overrides):
    p = llama.llama_model_quantize_default_params()
    p.threads, p.ftype, p.requantize = 2, ftype, True
    if imatrix:
        entries = (Weights * (len(imatrix) + 1))(*[Weights(n.encode(), w.ctypes.data, w.size) for n, w in imatrix.items()])
        p.imatrix = ctypes.cast(entries, c_void_p)
    if overrides:
        patterns = (Override * (len(overrides) + 1))(*[Override(f"^{re.escape(n)}$".encode(), k) for n, k in overrides.items()])
        p.types = ctypes.cast(patterns, c_void_p)
    llama_log.clear()
    return llama.llama_model_quantize(source.encode(), target.encode(), byref(p)) == 0


# ---- skua ----

def skua(*args, text=None, may_fail=False):
    p = subprocess.run([SKUA, *args], input=text, stdin=subprocess.DEVNULL if text is None else None, capture_output=True, text=True)
    if p.returncode and not may_fail:
        sys.exit(f"skua {' '.join(args)}: status {p.returncode}: {p.stderr.strip()}")
    return p


# ---- 1: errors ----

class Model:
    def __init__(self, name, path, text):
        self.name, self.path = name, path
        self.tensors = read_gguf(path)
        self.imatrix_path = os.path.join(WORK, name + ".imatrix.gguf")
        skua("imatrix", "-m", path, "-f", text, "--chunks", "8", "--output-weight", self.imatrix_path)
        self.imatrix = read_imatrix(self.imatrix_path)
        self.mtp = max(int(m[1]) for m in map(re.compile(r"blk\.(\d+)\.nextn").match, self.tensors) if m)
        self.files = []   # (recipe, with imatrix, our path, their path or None)
        self.known = {}   # (tensor, type, with weights) -> (rmse of theirs, their bytes)

    def errors(self, name, t, weights, scale):
        """rmse of ours, rmse of theirs, same bytes. scale: of ours, a value per matrix (NVFP4), or None."""
        source, n = self.tensors[name], math.prod(t.shape)
        values = np.ascontiguousarray(decode(source.kind, tensor_bytes(source), n))
        key = (name, t.kind, weights is not None)

        def rms(data, scale=None):
            decoded = decode(t.kind, data, n).astype(np.float64)
            if scale is not None:
                decoded = (decoded.reshape(scale.size, -1) * scale.reshape(-1, 1)).reshape(-1)
            return float(np.sqrt(np.mean(np.square(decoded - values))))

        if key not in self.known:
            theirs = llama_quantize(t.kind, values, t.shape, weights)
            self.known[key] = rms(theirs), theirs
        their_rmse, theirs = self.known[key]
        ours = tensor_bytes(t)
        same = scale is None and np.array_equal(ours, theirs)
        return (their_rmse if same else rms(ours, scale)), their_rmse, same


def compare_tensors(model, path, with_imatrix):
    """Figures of a file of ours: tensors, equal ones, the worst ratio and whose it is, types."""
    worst, where, n, equal, kinds = 0.0, "", 0, 0, {}
    tensors = read_gguf(path)
    for name, t in tensors.items():
        if name.endswith(".scale"):
            continue
        if name not in model.tensors:
            sys.exit(f"{path}: tensor {name} is not in the source")
        if t.kind == model.tensors[name].kind:
            continue
        weights = model.imatrix.get(name) if with_imatrix else None
        scale = tensors.get(re.sub(r"weight$", "scale", name))
        scale = None if scale is None else tensor_bytes(scale).view(np.float32)
        ours, theirs, same = model.errors(name, t, weights, scale)
        ratio = ours / theirs if theirs else (1.0 if ours == 0 else math.inf)
        kind = traits(t.kind).name.decode()
        kinds[kind] = kinds.get(kind, 0) + 1
        n, equal = n + 1, equal + same
        if ratio > worst:
            worst, where = ratio, f"{name} {kind}"
    return n, equal, worst, where, kinds


def table_errors(models):
    print("\n1. Error of every quantized tensor against BF16 values: ours / llama.cpp's\n")
    print(f"{'model':6} {'recipe':14} {'imatrix':7} {'tensors':>7} {'same bytes':>10} {'worst ratio':>11}  worst at; types")
    ok = {"recipe": True, "type": True}
    for m in models:
        for with_imatrix in (False, True):
            options = ["-i", m.imatrix_path] if with_imatrix else []
            jobs = [(r, [r], f) for r, f in RECIPES.items()]
            # The MTP block has no statistics, and the types that need them cannot be had there.
            jobs += [("all " + t, ["Q8_0", "--tensor", rf"blk\.{m.mtp}\.=Q8_0", "--tensor", f"{MATRICES}={t}"], -1)
                     for t in TYPES if with_imatrix or t not in NEEDS_IMATRIX]
            for label, args, ftype in jobs:
                path = os.path.join(WORK, f"{m.name}-{label.replace(' ', '-')}-{int(with_imatrix)}.gguf")
                p = skua("quantize", m.path, path, *args, *options, may_fail=True)
                kind = "type" if ftype == -1 else "recipe"
                if p.returncode:
                    ok[kind] = False
                    print(f"{m.name:6} {label:14} {'yes' if with_imatrix else 'no':7} FAILED: {p.stderr.strip().splitlines()[-1]}")
                    continue
                n, equal, worst, where, kinds = compare_tensors(m, path, with_imatrix)
                ok[kind] = ok[kind] and worst <= RATIO_BAR
                print(f"{m.name:6} {label:14} {'yes' if with_imatrix else 'no':7} {n:7} {equal:10} {worst:11.6f}  {where}; "
                      + " ".join(f"{k} {v}" for k, v in kinds.items()), flush=True)
                if ftype == -1:
                    os.remove(path)
                else:
                    m.files.append([label, with_imatrix, path, None])
        m.known.clear()
    return ok


def llama_files(models):
    print("\n   Whole files: llama.cpp's recipe of that name (APEX: its file of our types) against ours\n")
    print(f"{'model':6} {'recipe':14} {'imatrix':7} {'tensors':>7} {'same type':>9} {'same bytes':>10}  other types (ours/theirs)")
    ok = True
    for m in models:
        for f in m.files:
            label, with_imatrix, path, _ = f
            ours = read_gguf(path)
            ftype, overrides = RECIPES[label], None
            if ftype is None:
                ftype, overrides = 18, {n: t.kind for n, t in ours.items() if t.kind != m.tensors[n].kind}
            target = path.replace(".gguf", ".llama.gguf")
            if not llama_file(m.path, target, ftype, m.imatrix if with_imatrix else None, overrides):
                ok = False
                print(f"{m.name:6} {label:14} {'yes' if with_imatrix else 'no':7} llama.cpp FAILED: {''.join(llama_log[-3:]).strip()}")
                continue
            f[3], theirs = target, read_gguf(target)
            same_type = [n for n in ours if n in theirs and theirs[n].kind == ours[n].kind]
            same = [n for n in same_type if np.array_equal(tensor_bytes(ours[n]), tensor_bytes(theirs[n]))]
            other = [f"{n} {traits(ours[n].kind).name.decode()}/{traits(theirs[n].kind).name.decode() if n in theirs else 'absent'}"
                     for n in ours if n not in same_type]
            print(f"{m.name:6} {label:14} {'yes' if with_imatrix else 'no':7} {len(ours):7} {len(same_type):9} {len(same):10}  "
                  + ", ".join(other[:3]) + (f" and {len(other) - 3} more" if len(other) > 3 else ""), flush=True)
    return ok


# ---- 2: distance from the BF16 model ----

def digest(path):
    h = hashlib.sha256()
    for name, t in sorted(read_gguf(path).items()):
        h.update(f"{name} {t.kind} ".encode())
        h.update(tensor_bytes(t))
    return h.digest()


def table_kl(models, text):
    print(f"\n2. Distance from the BF16 model, {CHUNKS} chunks of 512 tokens of the project's documents\n")
    print(f"{'model':6} {'recipe':14} {'imatrix':7} {'bits/w':>7} {'ln PPL ratio':>20} {'mean KL':>19} {'same best':>9}  "
          "llama.cpp's file: bits/w, mean KL")
    for m in models:
        base, known = os.path.join(WORK, m.name + ".logp"), {}
        options = ["-f", text, "--chunks", str(CHUNKS), "--json"]
        p = json.loads(skua("perplexity", "-m", m.path, *options, "--save-base", base).stdout)
        weights = sum(math.prod(t.shape) for t in m.tensors.values())
        print(f"{m.name:6} {'BF16':14} {'':7} {bits(m.path, weights):7.3f}   perplexity {p['perplexity']:.4f} "
              f"+- {p['perplexity_error']:.4f}, {p['tokens_scored']} tokens")

        def measure(path):
            key = digest(path)
            if key not in known:
                known[key] = json.loads(skua("perplexity", "-m", path, *options, "--kl-base", base).stdout)["base"]
            return known[key]

        for label, with_imatrix, ours, theirs in m.files:
            b, peer = measure(ours), "-"
            if theirs:
                t = measure(theirs)
                peer = f"{bits(theirs, weights):.3f}, " + ("the same tensors" if t is b else f"{t['kl_divergence']['mean']:.6f}")
            kl = b["kl_divergence"]
            print(f"{m.name:6} {label:14} {'yes' if with_imatrix else 'no':7} {bits(ours, weights):7.3f} "
                  f"{b['ln_perplexity_ratio']:9.5f} +- {b['ln_perplexity_ratio_error']:.5f} {kl['mean']:8.6f} +- {kl['mean_error']:.6f} "
                  f"{100 * b['same_best']:8.2f}%  {peer}", flush=True)


def bits(path, weights):
    return 8 * sum(tensor_bytes(t).size for t in read_gguf(path).values()) / weights


# ---- 3: each other's files ----

def ask_llama(models):
    """The answers of peer_quant.mjs, by path; models as it takes them."""
    job = os.path.join(WORK, "job.json")
    with open(job, "w", encoding="utf-8") as f:
        json.dump({"models": models, "tokens": TOKENS}, f)
    p = subprocess.run(["node", os.path.join(HERE, "peer_quant.mjs"), PEER, job], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    lines = [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]
    if p.returncode or len(lines) != len(models):
        sys.exit(f"node: status {p.returncode}: {p.stderr.strip()[-500:]}")
    return {a["model"]: a for a in lines}


def spell(path, ids):
    return skua("tokenize", "-m", path, "--decode", text=" ".join(map(str, ids))).stdout


def margins(path, ids, here, there):
    """ln p of skua's next token (here) over llama.cpp's (there): as skua has it, as llama.cpp has it, and as llama.cpp has it when it
    has decoded all weights to F32 itself, so that neither side's rounding of activations is in it."""
    decoded = os.path.join(WORK, "decoded.gguf")
    if not llama_file(path, decoded, 0, None, None):
        sys.exit(f"llama.cpp does not decode {path}: {''.join(llama_log[-3:]).strip()}")
    top = json.loads(skua("logits", "-m", path, "--ids", ",".join(map(str, ids)), "--pos", "-1", "--top", "50", "--json").stdout)
    peer = ask_llama([{"path": p, "probes": [ids]} for p in (path, decoded)])
    tops = [dict(top["positions"][0]["top"])] + [dict(peer[p]["probes"][0]) for p in (path, decoded)]
    return [t.get(here, -math.inf) - t.get(there, -math.inf) if here in t or there in t else math.nan for t in tops]


def compare_answers(path, theirs):
    """Agreeing answers, faults, skua's widest margin at a parting, and lines for each parting."""
    agree, faults, widest, lines = 0, [], 0.0, []
    for question, t in zip(QUESTIONS, theirs["prompts"]):
        p = json.loads(skua("logits", "-m", path, "--prompt", "-", "--greedy", str(TOKENS), "--pos", "-1", "--json",
                            text=CHAT.format(question)).stdout)
        if p["ids"] != t["ids"]:
            faults.append(f"{question!r}: other prompt ids")
            continue
        run = skua("run", "-m", path, "--temp", "0", "--repeat-penalty", "1", "--presence-penalty", "0", "--frequency-penalty", "0",
                   "--no-think", "--special", "-q", "-n", str(TOKENS), question).stdout
        if run.strip() != spell(path, p["greedy"]).strip():
            faults.append(f"{question!r}: skua run says {run!r}, skua logits {spell(path, p['greedy'])!r}")
        if p["greedy"] == t["greedy"]:
            agree += 1
            continue
        i = next((i for i, (a, b) in enumerate(zip(p["greedy"], t["greedy"])) if a != b), None)
        if i is None:
            faults.append(f"{question!r}: answers of other lengths")
            continue
        a, b = p["greedy"][i], t["greedy"][i]
        here, there, exact = margins(path, p["ids"] + p["greedy"][:i], a, b)
        widest = max(widest, abs(here))
        if not (here <= MARGIN_BAR or abs(here - exact) <= abs(there - exact)):
            faults.append(f"{question!r}: skua is farther from the exact margin than llama.cpp")
        lines.append(f"    {question!r} part at token {i + 1}: skua {spell(path, [a])!r}, llama.cpp {spell(path, [b])!r}; ln p of the one "
                     f"over the other: skua {here:.3f}, llama.cpp {there:.3f}, with F32 weights {exact:.3f}")
        lines += [f"      skua      {spell(path, p['greedy'])!r}", f"      llama.cpp {spell(path, t['greedy'])!r}"]
    return agree, faults, widest, lines


def table_answers(models):
    print(f"\n3. Greedy answers ({TOKENS} tokens) to {len(QUESTIONS)} prompts, skua and llama.cpp on the same file\n")
    print(f"{'model':6} {'recipe':14} {'imatrix':7} {'file by':9} {'agree':>5}  widest margin of skua at a parting")
    ok = True
    for m in models:
        rows = [("BF16", False, "skua", m.path)]
        rows += [(r, i, by, path) for r, i, ours, theirs in m.files if i for by, path in (("skua", ours), ("llama.cpp", theirs)) if path]
        prompts = [CHAT.format(q) for q in QUESTIONS]
        answers = ask_llama([{"path": path, "prompts": prompts} for _, _, _, path in rows])
        for label, with_imatrix, by, path in rows:
            head = f"{m.name:6} {label:14} {'yes' if with_imatrix else 'no':7} {by:9}"
            if "error" in answers[path]:
                ok = False
                print(f"{head} llama.cpp does not load it: {answers[path]['error']}")
                continue
            agree, faults, widest, lines = compare_answers(path, answers[path])
            ok = ok and not faults
            print(f"{head} {agree:3}/{len(QUESTIONS)}  {f'{widest:.3f}' if lines else ''}", flush=True)
            for line in lines + ["    FAULT " + f for f in faults]:
                print(line)
        print(f"    {m.name} BF16, skua's file, llama.cpp says:")
        for q, t in zip(QUESTIONS, answers[m.path]["prompts"]):
            print(f"      {q!r}: {spell(m.path, t['greedy'])!r}")
    return ok


def main():
    root = os.path.dirname(HERE)
    calibration, text = os.path.join(root, "docs", "ARCHITECTURE.md"), os.path.join(WORK, "text")
    with open(text, "w", encoding="utf-8") as out:
        for name in ("README.md", "docs/formats.md"):
            with open(os.path.join(root, name), encoding="utf-8") as f:
                out.write(f.read())
    moe = os.path.join(WORK, "tiny-moe-bf16.gguf")
    skua("convert", os.path.join(SHARED, "hf", "tiny-moe"), moe, "--type", "bf16")
    models = [Model("dense", os.path.join(SHARED, "models", "tiny-bf16.gguf"), calibration), Model("moe", moe, calibration)]
    with open(os.path.join(PEER, "node_modules", "node-llama-cpp", "llama", "binariesGithubRelease.json"), encoding="utf-8") as f:
        print(f"{skua('--version').stdout.strip()} and llama.cpp {json.load(f)['release']}")
    errors = table_errors(models)
    bars = [(f"recipes: error of every tensor <= {RATIO_BAR} of llama.cpp's", errors["recipe"]),
            ("the same for every type", errors["type"]), ("llama.cpp makes a file for every recipe", llama_files(models))]
    table_kl(models, text)
    bars.append(("both run each other's files, answers the same or parting where that is no fault of skua's", table_answers(models)))
    print("\nbars: " + "; ".join(f"{name}: {'met' if ok else 'MISSED'}" for name, ok in bars))
    sys.exit(0 if all(ok for _, ok in bars) else 1)


main()
