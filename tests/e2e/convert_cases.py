#!/usr/bin/env python3
"""skua convert on small random checkpoints: every tensor of the file against the formulas, value by value; packed weights and their
factors; bad checkpoints, each refused by name. convert_cases.py PROGRAM FOLDER; prints "PASSED FAILED" last.
"""
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from fractions import Fraction

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checkpoint import *  # noqa: E402,F403

PROGRAM, WORK = sys.argv[1:3]
counts = [0, 0]


def check(ok, what):
    counts[not ok] += 1
    if not ok:
        print("FAIL: " + what, file=sys.stderr)


def run(*args):
    r = subprocess.run([PROGRAM, "convert", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if r.returncode not in (0, 1, 2) or "Sanitizer" in r.stderr or "runtime error" in r.stderr:
        check(False, f"{args}: status {r.returncode}: {r.stderr[:600]}")
    return r


OUT = os.path.join(WORK, "out.gguf")


def folder(tensors, config, **options):
    path = os.path.join(WORK, "checkpoint")
    shutil.rmtree(path, ignore_errors=True)
    save(path, tensors, config, **options)
    return path


def convert(name, tensors, config, *args, notes="", **options):
    """The file's (keys, tensors); notes: a pattern of standard error, which else must be empty."""
    r = run(folder(tensors, config, **options), OUT, *args)
    check(r.returncode == 0, f"{name}: status {r.returncode}: {r.stderr[:400]}")
    check(bool(re.search(notes, r.stderr)) if notes else r.stderr == "", f"{name}: standard error '{r.stderr[:300]}', expected '{notes}'")
    return read_gguf(OUT) if r.returncode == 0 else ({}, {})


# ---- what a file should hold, from the definitions ----

def tile(values, nk, nv, unit):
    """new[(j*nK + k)*unit + d] = old[(k*r + j)*unit + d]"""
    r, out = nv // nk, [None] * len(values)
    for k in range(nk):
        for j in range(r):
            for d in range(unit):
                out[(j * nk + k) * unit + d] = values[(k * r + j) * unit + d]
    return out


def plus_one(values):
    return singles([x + 1 for x in values])


def fma(a, b, c):
    """a * b + c of singles, rounded once."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = f32(float(exact))
    step = 2.0 ** (max(math.frexp(near)[1], -125) - 24)
    return min((f32(near + k * step / 2) for k in range(-2, 3)), key=lambda x: (abs(Fraction(x) - exact), int(x / step) % 2))


def exponential(x):
    """The definition in src/convert/hf_exp.c, in exact arithmetic rounded step by step."""
    q = float(round(f32(x * f32(1.44269504088896341))))
    r = fma(q, f32(-1.42860677e-6), fma(q, f32(-6.93145752e-1), x))
    p, d = f32(5.082762527590693718096e-04), f32(2.159509375685829852307e-02)
    for k in (6.757896990527504603057e-03, 5.114512081637298353406e-02, 2.473615434895520810817e-01, 7.257664613233124478488e-01,
              9.999999999980870924916e-01):
        p = fma(p, r, f32(k))
    for k in (-2.742335390411667452936e-01, 1.0):
        d = fma(d, r, f32(k))
    y = math.ldexp(f32(p / d), int(q))
    assert abs(y - math.exp(x)) <= 2.0 ** (math.frexp(y)[1] - 24) * 2
    return y


def expected(t, c, values=None):
    """{GGUF name: (ne, values)} of a plain checkpoint; values: of what is packed in t."""
    values = values or {}

    def get(name):
        return values.get(name) or t[name].values

    e, d, nk, nv = c["hidden_size"], c["linear_key_head_dim"], c["linear_num_key_heads"], c["linear_num_value_heads"]
    qk, v, n = 2 * nk * d, nv * d, c["num_hidden_layers"]
    out = {"token_embd.weight": ([e, c["vocab_size"]], get("model.embed_tokens.weight")),
           "output_norm.weight": ([e], plus_one(get("model.norm.weight"))),
           "output.weight": ([e, c["vocab_size"]], get("lm_head.weight"))}

    def rows(flat, width):
        return [flat[i:i + width] for i in range(0, len(flat), width)]

    def flat(lists):
        return [x for row in lists for x in row]

    for i in range(n + c.get("mtp_num_hidden_layers", 0)):
        hf, b = f"model.layers.{i}." if i < n else "mtp.layers.0.", f"blk.{i}."
        for name, source in (("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm")):
            out[b + name + ".weight"] = ([e], plus_one(get(hf + source + ".weight")))
        if i < n and (i + 1) % c["full_attention_interval"]:
            la = hf + "linear_attn."
            qkv = rows(get(la + "in_proj_qkv.weight"), e)
            out[b + "attn_qkv.weight"] = ([e, qk + v], flat(qkv[:qk] + tile(qkv[qk:], nk, nv, d)))
            out[b + "attn_gate.weight"] = ([e, v], flat(tile(rows(get(la + "in_proj_z.weight"), e), nk, nv, d)))
            conv = rows(get(la + "conv1d.weight"), 4)
            out[b + "ssm_conv1d.weight"] = ([4, qk + v], flat(conv[:qk] + tile(conv[qk:], nk, nv, d)))
            out[b + "ssm_alpha.weight"] = ([e, nv], flat(tile(rows(get(la + "in_proj_a.weight"), e), nk, nv, 1)))
            out[b + "ssm_beta.weight"] = ([e, nv], flat(tile(rows(get(la + "in_proj_b.weight"), e), nk, nv, 1)))
            out[b + "ssm_dt.bias"] = ([nv], tile(get(la + "dt_bias"), nk, nv, 1))
            out[b + "ssm_a"] = ([nv], [-exponential(x) for x in tile(get(la + "A_log"), nk, nv, 1)])
            out[b + "ssm_norm.weight"] = ([d], get(la + "norm.weight"))
            out[b + "ssm_out.weight"] = ([v, e], flat(tile(r, nk, nv, d) for r in rows(get(la + "out_proj.weight"), v)))
        else:
            h, hd, hk = c["num_attention_heads"], c["head_dim"], c["num_key_value_heads"]
            for role, name, ne in (("q", "q", [e, 2 * hd * h]), ("k", "k", [e, hd * hk]), ("v", "v", [e, hd * hk]), ("o", "output", [hd * h, e])):
                out[b + f"attn_{name}.weight"] = (ne, get(hf + f"self_attn.{role}_proj.weight"))
            for role in "qk":
                out[b + f"attn_{role}_norm.weight"] = ([hd], plus_one(get(hf + f"self_attn.{role}_norm.weight")))
        if "num_experts" in c:
            x, f, s = c["num_experts"], c["moe_intermediate_size"], c["shared_expert_intermediate_size"]
            out[b + "ffn_gate_inp.weight"] = ([e, x], get(hf + "mlp.gate.weight"))
            fused = rows(get(hf + "mlp.experts.gate_up_proj"), f * e)
            out[b + "ffn_gate_exps.weight"] = ([e, f, x], flat(fused[0::2]))
            out[b + "ffn_up_exps.weight"] = ([e, f, x], flat(fused[1::2]))
            out[b + "ffn_down_exps.weight"] = ([f, e, x], get(hf + "mlp.experts.down_proj"))
            out[b + "ffn_gate_inp_shexp.weight"] = ([e], get(hf + "mlp.shared_expert_gate.weight"))
            for role, ne in (("gate", [e, s]), ("up", [e, s]), ("down", [s, e])):
                out[b + f"ffn_{role}_shexp.weight"] = (ne, get(hf + f"mlp.shared_expert.{role}_proj.weight"))
        else:
            f = c["intermediate_size"]
            for role, ne in (("gate", [e, f]), ("up", [e, f]), ("down", [f, e])):
                out[b + f"ffn_{role}.weight"] = (ne, get(hf + f"mlp.{role}_proj.weight"))
    if c.get("mtp_num_hidden_layers"):
        b = f"blk.{n}.nextn."
        out[b + "eh_proj.weight"] = ([2 * e, e], get("mtp.fc.weight"))
        for name, source in (("enorm", "pre_fc_norm_embedding"), ("hnorm", "pre_fc_norm_hidden"), ("shared_head_norm", "norm")):
            out[b + name + ".weight"] = ([e], plus_one(get(f"mtp.{source}.weight")))
    return out


def compare(name, got, want, types=None, tolerance=0.0):
    """types: {pattern: type}, else F32 for what is small and BF16; tolerance: of values that are encoded again, times their size."""
    check(set(got) == set(want), f"{name}: tensors {sorted(set(got) ^ set(want))[:6]} are on one side only")
    small = r"norm\.weight$|ssm_(conv1d|alpha|beta)\.weight$|ffn_gate_inp(_shexp)?\.weight$|ssm_a$|bias$|scale$"
    for n in set(got) & set(want):
        ne, values = want[n]
        wanted = next((ty for pattern, ty in (types or {}).items() if re.search(pattern, n)), 0 if re.search(small, n) else 30)
        check(got[n][0] == ne and got[n][1] == wanted, f"{name}: {n} is {got[n][:2]}, expected {[ne, wanted]}")
        if got[n][0] != ne:
            continue
        have, limit = floats(got[n]), max(map(abs, values)) * tolerance if got[n][1] in (1, 8, 30) else 0
        worst = max(abs(a - b) for a, b in zip(have, values))
        check(worst <= limit, f"{name}: {n} differs by {worst}, expected at most {limit}")


# ---- good checkpoints ----

dense, moe = target_config(), moe_config()
t = target(dense)
keys, got = convert("dense", t, dense)
want = expected(t, dense)
compare("dense", got, want)
check(list(got)[:3] == ["token_embd.weight", "output_norm.weight", "output.weight"], "dense: order")
check(keys["qwen35.ssm.time_step_rank"] == (4, 6) and keys["qwen35.ssm.inner_size"] == (4, 384) and keys["qwen35.rope.dimension_count"] == (4, 8)
      and keys["qwen35.block_count"] == (4, 3) and keys["qwen35.nextn_predict_layers"] == (4, 1), "dense: keys")
plain_file = open(OUT, "rb").read()
for name, args, types, tolerance in (("f32", ["--type", "f32"], {"": 0}, 0), ("f16", ["--type", "F16"], {}, 1e-3), ("q8_0", ["--type=q8_0"], {}, 5e-3)):
    kinds = types or {r"norm\.weight$|ssm_(conv1d|alpha|beta)|ssm_a|bias": 0, "": {"f16": 1, "q8_0": 8}[name]}
    compare(name, convert(name, t, dense, *args)[1], want, kinds, tolerance)
convert("two shards", t, dense, shards=2)
check(open(OUT, "rb").read() == plain_file, "two shards give the same file")

renamed = {("model.language_model." + n[6:] if n.startswith("model.") else n): x for n, x in t.items()}
renamed["model.visual.blocks.0.attn.qkv.weight"] = plain([8, 8], random.Random(3))
renamed["model.visual.merger.norm.weight"] = plain([8], random.Random(3))
outer = {"architectures": ["Qwen3_5ForConditionalGeneration"], "vision_config": {"depth": 1}, "image_token_id": 5, "hidden_size": 9,
         "text_config": {k: v for k, v in dense.items() if k != "architectures"}}
convert("multimodal", renamed, outer, notes=r"^skua convert: warning: the vision tower is left out \(2 tensors, 0.0 MiB\)\n$")
check(open(OUT, "rb").read() == plain_file, "a multimodal checkpoint gives the same file")
convert("names as MLX has them", {("language_model.model." + n[6:] if n.startswith("model.") else "language_model." + n): x for n, x in t.items()},
        dense)
check(open(OUT, "rb").read() == plain_file, "other prefixes give the same file")

fused, e, d, nk, nv = dict(t), 64, 64, 2, 6
qkv, z = fused.pop("model.layers.0.linear_attn.in_proj_qkv.weight"), fused.pop("model.layers.0.linear_attn.in_proj_z.weight")
b, a = fused.pop("model.layers.0.linear_attn.in_proj_b.weight"), fused.pop("model.layers.0.linear_attn.in_proj_a.weight")
groups, ba, r = [], [], nv // nk
for k in range(nk):
    for source, first, n in ((qkv, k * d, d), (qkv, (nk + k) * d, d), (qkv, 2 * nk * d + k * r * d, r * d), (z, k * r * d, r * d)):
        groups += source.values[first * e:(first + n) * e]
    ba += b.values[k * r * e:(k + 1) * r * e] + a.values[k * r * e:(k + 1) * r * e]
fused["model.layers.0.linear_attn.in_proj_qkvz.weight"] = Tensor("BF16", [2 * nk * d + 2 * nv * d, e], groups)
fused["model.layers.0.linear_attn.in_proj_ba.weight"] = Tensor("BF16", [2 * nv, e], ba)
convert("fused projections", fused, dense)
check(open(OUT, "rb").read() == plain_file, "fused projections give the same file")

mlx_style = dict(t)
conv = mlx_style["model.layers.0.linear_attn.conv1d.weight"]
mlx_style["model.layers.0.linear_attn.conv1d.weight"] = Tensor(conv.dtype, [conv.shape[0], 4, 1], conv.values)
_, got = convert("norms with 1 added already", mlx_style, dense)
for n in ("model.norm.weight", "mtp.norm.weight", "model.layers.1.self_attn.q_norm.weight"):
    name = {"model.norm.weight": "output_norm.weight", "mtp.norm.weight": "blk.2.nextn.shared_head_norm.weight"}.get(n, "blk.1.attn_q_norm.weight")
    check(floats(got[name]) == t[n].values, f"norms with 1 added already: {name}")

keys, got = convert("--no-mtp", t, dense, "--no-mtp")
compare("--no-mtp", got, {n: x for n, x in want.items() if not n.startswith("blk.2.")})
check(keys["qwen35.block_count"] == (4, 2) and "qwen35.nextn_predict_layers" not in keys, "--no-mtp: keys")
keys, got = convert("--mtp-only", t, dense, "--mtp-only")
compare("--mtp-only", got, {n: x for n, x in want.items() if not n.startswith("blk.") or n.startswith("blk.2.")})
check(keys["qwen35.block_count"] == (4, 3) and keys["qwen35.nextn_predict_layers"] == (4, 1), "--mtp-only: keys")
convert("announced MTP that is not there", {n: x for n, x in t.items() if not n.startswith("mtp.")}, dense, notes="announces an MTP block")

tied = {n: x for n, x in t.items() if n != "lm_head.weight"}
_, got = convert("tied", tied, target_config(tie_word_embeddings=True))
check("output.weight" not in got and len(got) == len(want) - 1, "tied: no output.weight")
keys, _ = convert("layers that follow no interval", {**tied, **{}}, target_config(tie_word_embeddings=True, full_attention_interval=4, layer_types=[
    "linear_attention", "full_attention"]))
check(keys["qwen35.attention.recurrent_layers"] == (9, (7, [1, 0, 0])), "layers that follow no interval: key")
keys, _ = convert("yarn", t, target_config(rope_parameters={"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0,
                                                            "original_max_position_embeddings": 128, "attention_factor": 1.138629}))
check(keys["qwen35.rope.scaling.type"] == (8, "yarn") and keys["qwen35.rope.scaling.factor"] == (6, 4.0)
      and keys["qwen35.rope.scaling.original_context_length"] == (4, 128) and keys["qwen35.rope.freq_base"] == (6, 1e6), "yarn: keys")

tm = target(moe)
keys, got = convert("moe", tm, moe, shards=3)
wantm = expected(tm, moe)
compare("moe", got, wantm)
moe_file = open(OUT, "rb").read()
check(keys["general.architecture"] == (8, "qwen35moe") and keys["qwen35moe.expert_count"] == (4, 3), "moe: keys")
parts = {}
for n, x in tm.items():
    if ".experts." not in n:
        parts[n] = x
        continue
    stem, f = n[:n.index("experts.")] + "experts.", 64
    for i in range(3):
        matrix = x.values[i * len(x.values) // 3:(i + 1) * len(x.values) // 3]
        if n.endswith("down_proj"):
            parts[f"{stem}{i}.down_proj.weight"] = Tensor("BF16", [e, f], matrix)
        else:
            parts[f"{stem}{i}.gate_proj.weight"] = Tensor("BF16", [f, e], matrix[:f * e])
            parts[f"{stem}{i}.up_proj.weight"] = Tensor("BF16", [f, e], matrix[f * e:])
convert("one tensor for each expert", parts, moe)
check(open(OUT, "rb").read() == moe_file, "one tensor for each expert gives the same file")

# ---- tokenizer ----

keys, _ = convert("tokenizer", t, dense)
tokens, kinds = keys["tokenizer.ggml.tokens"][1][1], keys["tokenizer.ggml.token_type"][1][1]
check(len(tokens) == 320 and tokens[259:266] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|odd|>", "<think>", "a b", "[PAD265]"],
      f"tokens: {tokens[255:270]}")
check(kinds[255:266] == [1] * 4 + [3, 3, 3, 3, 4, 4, 5], f"token types: {kinds[255:270]}")
check(keys["tokenizer.ggml.merges"][1][1] == ["t h", "th e", "\u0120 a"], "merges as pairs")
check([keys[f"tokenizer.ggml.{k}_token_id"][1] for k in ("eos", "padding", "bos")] == [261, 259, 259], "special tokens")
check(keys["tokenizer.ggml.pre"] == (8, "qwen35") and keys["tokenizer.chat_template"] == (8, "{{ messages }}"), "splitter and template")


def with_files(name, files, notes="", tensors=t, config=dense, args=()):
    path = folder(tensors, config)
    for file, value in files.items():
        with open(os.path.join(path, file), "w") as f:
            f.write(value if isinstance(value, str) else json.dumps(value))
    r = run(path, OUT, *args)
    check(r.returncode == 0 and (bool(re.search(notes, r.stderr)) if notes else not r.stderr), f"{name}: {r.returncode} '{r.stderr[:300]}'")
    return read_gguf(OUT)[0] if r.returncode == 0 else {}


words = tokenizer()
words["model"]["merges"] = ["t h", "th e", "\u0120 a"]
check(with_files("merges as strings", {"tokenizer.json": words})["tokenizer.ggml.merges"][1][1] == ["t h", "th e", "\u0120 a"], "merges as strings")
words["pre_tokenizer"] = {"type": "Whitespace"}
check(with_files("unknown splitter", {"tokenizer.json": words}, "no pattern that is known")["tokenizer.ggml.pre"] == (8, "qwen35"), "unknown splitter")
keys = with_files("template of its own", {"chat_template.jinja": "{# own #}"})
check(keys["tokenizer.chat_template"] == (8, "{# own #}"), "chat_template.jinja")
keys = with_files("named templates", {"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}],
                                                                "added_tokens_decoder": {"300": {"content": "<extra>", "special": False}}}})
check(keys["tokenizer.chat_template"] == (8, "d") and keys["tokenizer.ggml.tokens"][1][1][300] == "<extra>", "list of templates, decoder's tokens")
keys = with_files("template in JSON", {"tokenizer_config.json": {}, "chat_template.json": {"chat_template": "j"}})
check(keys["tokenizer.chat_template"] == (8, "j") and "tokenizer.ggml.eos_token_id" not in keys, "chat_template.json")
keys = with_files("sampling", {"generation_config.json": {"do_sample": True, "temperature": 0.5, "top_k": 7, "top_p": 0.75, "min_p": 0.25,
                                                          "repetition_penalty": 1.5}})
check({k[17:]: v[1] for k, v in keys.items() if k.startswith("general.sampling.")}
      == {"temp": 0.5, "top_k": 7, "top_p": 0.75, "min_p": 0.25, "penalty_repeat": 1.5}, "sampling keys")
keys = with_files("sampling out of range", {"generation_config.json": {"temperature": 9, "top_k": 7}}, "'temperature' is not a number from 0 to 2")
check(keys["general.sampling.top_k"] == (5, 7) and "general.sampling.temp" not in keys, "sampling out of range is left out")
keys = with_files("no sampling", {"generation_config.json": {"do_sample": False, "temperature": 0.5}})
check(not any(k.startswith("general.sampling.") for k in keys), "no sampling keys for greedy decoding")

# ---- packed checkpoints ----

big = target_config(intermediate_size=256)
rng = random.Random(5)


def packed(name, config, pack, types, quant, args=(), kept=True, of=target, tolerance=0.0, only=r"(proj|in_proj_\w+|embed_tokens|lm_head)\.weight$"):
    tensors, values = of(config), {}
    for n in list(tensors):
        if re.search(only, n) and "in_proj_a" not in n and "in_proj_b" not in n:
            values[n] = pack(tensors, n)
    _, result = convert(name, tensors, {**config, **quant}, *args)
    wanted = expected(tensors, config, values)
    extra = {n: x for n, x in result.items() if n.endswith("scale")}
    compare(name, {n: x for n, x in result.items() if n not in extra}, wanted, types, tolerance)
    return extra, tensors


mlx = {"quantization": {"group_size": 64, "bits": 4}}
matrices = r"(attn_(q|k|v|output|qkv|gate)|ssm_out|ffn_(gate|up|down)|token_embd|output)\.weight$"
for bits, kind in ((4, 36), (2, 37)):
    packed(f"MLX affine {bits} bits", big, lambda x, n, k=bits: pack_affine(x, n, k, 64, rng), {matrices: kind}, mlx)
for bits, group, scales in ((8, 64, "BF16"), (4, 32, "BF16"), (4, 64, "F32")):
    packed(f"MLX affine {bits} bits in groups of {group}, {scales}", big, lambda x, n: pack_affine(x, n, bits, group, rng, scales), {}, mlx,
           tolerance=4e-3)
packed("MLX affine, dequantized", big, lambda x, n: pack_affine(x, n, 4, 64, rng), {matrices: 0, "eh_proj": 0}, mlx, ["--dequantize", "--type", "f32"])


def unfactored(x, n, factor, **options):
    """What the blocks of an NVFP4 tensor hold: the factor lies beside them, but an embedding has none and is encoded again."""
    return [v if "embed" in n else v / factor for v in pack_nvfp4(x, n, rng, factor=factor, **options)]


factored = matrices.replace("token_embd|", "")


extra, _ = packed("ModelOpt NVFP4", big, lambda x, n: unfactored(x, n, 0.125), {factored: 40},
                  {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})
check(len(extra) == 2 * sum(1 for n in expected(target(big), big) if re.search(factored, n)), "ModelOpt NVFP4: two numbers for each weight")
check(all(floats(x) == [0.125 if n.endswith(".scale") else 0.5] and x[0] == [1] for n, x in extra.items()), "ModelOpt NVFP4: factors")
extra, _ = packed("MLX NVFP4", big, lambda x, n: unfactored(x, n, 0.25, mlx=True), {factored: 40}, {"quantization": {"mode": "nvfp4"}})
check(extra and all(n.endswith(".scale") and floats(x) == [0.25] for n, x in extra.items()), "MLX NVFP4: factors")
extra, _ = packed("MLX NVFP4 without factors", big, lambda x, n: pack_nvfp4(x, n, rng, True, None), {matrices: 40}, {"quantization": {"mode": "nvfp4"}})
check(not extra, "MLX NVFP4 without factors: none are written")
packed("ModelOpt NVFP4, dequantized", big, lambda x, n: pack_nvfp4(x, n, rng), {matrices: 0, "eh_proj": 0},
       {"quantization_config": {"quant_algo": "NVFP4"}}, ["--dequantize", "--type", "f32"])

for block in ((128, 128), (16, 32)):
    packed(f"FP8 in blocks of {block}", big, lambda x, n: pack_fp8(x, n, rng, block), {matrices: 0, "eh_proj": 0},
           {"quantization_config": {"quant_method": "fp8", "weight_block_size": list(block)}}, ["--type", "f32"])
packed("FP8 with one scale", big, lambda x, n: pack_fp8(x, n, rng, None), {matrices: 0, "eh_proj": 0},
       {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, ["--type", "f32"])
_, got = convert("moe FP8", *(lambda x: (x, {**moe, "quantization_config": {"quant_method": "fp8"}}))(
    {**tm, **(lambda y: (globals().__setitem__("fp8_values", pack_fp8(y, "model.layers.0.mlp.experts.down_proj", rng, (128, 128))), y)[1])(dict(tm))}))
check(len(floats(got["blk.0.ffn_down_exps.weight"])) == len(fp8_values)
      and max(abs(x - y) for x, y in zip(floats(got["blk.0.ffn_down_exps.weight"]), fp8_values)) <= 4e-3 * max(map(abs, fp8_values)), "FP8 stack of experts")

experts, values = dict(parts), {}
for i in range(3):
    for n in [n for n in parts if f".experts.{i}." in n]:
        values[n] = [v / 2 ** i for v in pack_nvfp4(experts, n, rng, factor=2.0 ** i, input_scale=float(10 + i))]
_, got = convert("NVFP4 experts", experts, {**moe, "quantization_config": {"quant_algo": "NVFP4"}})
check(got["blk.0.ffn_up_exps.weight"][1] == 40 and floats(got["blk.0.ffn_up_exps.weight"])
      == [v for i in range(3) for v in values[f"model.layers.0.mlp.experts.{i}.up_proj.weight"]], "NVFP4 experts: data")
check(got["blk.0.ffn_up_exps.scale"][0] == [3] and floats(got["blk.0.ffn_up_exps.scale"]) == [1, 2, 4]
      and floats(got["blk.2.ffn_down_exps.input_scale"]) == [10, 11, 12], "NVFP4 experts: factors")

stacked = {n: x for n, x in tm.items() if ".experts." not in n}
for prefix in ("model.layers.0.", "model.layers.1.", "mtp.layers.0."):
    for role, shape in (("gate", [3, 64, 64]), ("up", [3, 64, 64]), ("down", [3, 64, 64])):
        n = f"{prefix}mlp.switch_mlp.{role}_proj.weight"
        stacked[n] = plain(shape, rng)
        values[n] = pack_affine(stacked, n, 4, 64, rng)
_, got = convert("MLX experts", stacked, {**moe, **mlx})
check(got["blk.1.ffn_gate_exps.weight"][:2] == ([64, 64, 3], 36)
      and floats(got["blk.1.ffn_gate_exps.weight"]) == values["model.layers.1.mlp.switch_mlp.gate_proj.weight"], "MLX experts")

# ---- drafters ----

target_folder = os.path.join(WORK, "target")
save(target_folder, {}, dense)
c1 = drafter_config()
td = drafter(c1)
keys, got = convert("dflash", td, c1, "--tokenizer", target_folder, with_tokenizer=False)
check(keys["dflash.target_layers"] == (9, (5, [1, 2])) and keys["tokenizer.ggml.mask_token_id"] == (4, 300) and "dflash.attention.causal" not in keys
      and "tokenizer.chat_template" not in keys, "dflash: keys")
check(floats(got["blk.0.ffn_norm.weight"]) == td["layers.0.post_attention_layernorm.weight"].values and got["fc.weight"][0] == [128, 64], "dflash")
own = dict(td)
own["embed_tokens.weight"], own["lm_head.weight"] = plain([320, 64], rng), plain([320, 64], rng)
_, got = convert("dflash with its own embedding", own, c1, "--tokenizer", target_folder, with_tokenizer=False)
check({"token_embd.weight", "output.weight"} <= set(got), "dflash with its own embedding")
c3 = drafter_config(inner={"target_layer_ids": None, "mask_token_id": None}, num_hidden_layers=2, num_target_layers=8, is_causal=True,
                    layer_types=["sliding_attention", "full_attention"], sliding_window=64)
deep = os.path.join(WORK, "deep")
save(deep, {}, target_config(num_hidden_layers=8))
write_json(deep, "tokenizer_config.json", {"mask_token": "<|odd|>"})
keys, _ = convert("default layers, mask of the tokenizer", drafter(c3), c3, "--tokenizer", deep, with_tokenizer=False)
check(keys["dflash.target_layers"] == (9, (5, [2, 6])) and keys["tokenizer.ggml.mask_token_id"] == (4, 262), "default layers and mask")
check(keys["dflash.attention.causal"] == (7, 1) and keys["dflash.attention.sliding_window"] == (4, 64)
      and keys["dflash.attention.sliding_window_pattern"] == (9, (7, [1, 0])), "causal, window")
cs = drafter_config("Qwen3DSparkModel", dflash_config=None, mask_token_id=300, target_layer_ids=[0, 1], markov_rank=32, sample_from_anchor=True)
ts = drafter(cs)
ts["markov_head.markov_w1.weight"], ts["markov_head.markov_w2.weight"] = plain([320, 32], rng), plain([320, 32], rng)
ts["confidence_head.proj.weight"], ts["confidence_head.proj.bias"] = plain([1, 96], rng), plain([1], rng)
keys, got = convert("dspark", ts, cs, "--tokenizer", target_folder, with_tokenizer=False)
check(got["markov_w1.weight"][0] == [32, 320] and got["conf_proj.weight"][:2] == ([96], 0) and got["conf_proj.bias"][0] == [1]
      and keys["dflash.sample_from_anchor"] == (7, 1), "dspark")

# ---- bad checkpoints: status, one line, no file ----


def refused(name, pattern, tensors=None, config=None, change=None, args=(), status=1, **options):
    path = folder(tensors or t, config or dense, **options)
    if change:
        change(path)
    if os.path.exists(OUT):
        os.remove(OUT)
    r = run(path, OUT, *args)
    lines = r.stderr.splitlines()
    check(r.returncode == status and lines and re.search(pattern, lines[-1]) and all("warning" in x for x in lines[:-1]) and r.stdout == "",
          f"{name}: status {r.returncode} (want {status}), '{r.stderr[:400]}' (want '{pattern}')")
    check(not os.path.exists(OUT) and not [x for x in os.listdir(WORK) if ".tmp." in x], f"{name}: a file is left")


def without(name):
    return {n: x for n, x in t.items() if n != name}


def remove(file):
    return lambda path: os.remove(os.path.join(path, file))


def write(file, text):
    def change(path):
        with open(os.path.join(path, file), "wb") as f:
            f.write(text if isinstance(text, bytes) else json.dumps(text).encode())
    return change


def truncate(path):
    file = os.path.join(path, "model.safetensors")
    os.truncate(file, os.path.getsize(file) - 100)


def header(edit):
    def change(path):
        info, data = header_bytes(t)
        data = edit(info, data) or data
        write_raw(os.path.join(path, "model.safetensors"), info, data)
    return change


def index(edit):
    def change(path):
        file = os.path.join(path, "model.safetensors.index.json")
        d = json.load(open(file))
        edit(d["weight_map"])
        json.dump(d, open(file, "w"))
    return change


gate = "model.layers.0.mlp.gate_proj.weight"
refused("no config", r"config\.json: cannot open", change=remove("config.json"))
refused("config that is no JSON", r"config\.json: not valid JSON: line 1", change=write("config.json", b"{"))
refused("config that is a list", r"config\.json: is not a JSON object", change=write("config.json", []))
refused("unknown architecture", r"architecture 'LlamaForCausalLM' is not supported; supported: Qwen3_5ForCausalLM, .*DFlashDraftModel", config={
    **dense, "architectures": ["LlamaForCausalLM"]})
for field, value, what in (("architectures", None, "missing"), ("hidden_size", None, "missing"), ("hidden_size", 0, "is 0"), ("hidden_size", "64", "'64'"),
                           ("num_hidden_layers", 1 << 40, "is 1099511627776"), ("num_hidden_layers", 2.0, "is 2"), ("vocab_size", -1, "is -1"),
                           ("num_key_value_heads", 3, "a divisor"), ("rms_norm_eps", 0, "is 0"), ("head_dim", 33, "even"), ("hidden_act", "gelu", "'gelu'"),
                           ("linear_num_value_heads", 3, "a multiple"), ("linear_value_head_dim", 32, "the same as"), ("attention_bias", True, "is true"),
                           ("mtp_num_hidden_layers", 2, "from 0 to 1"), ("attn_output_gate", False, "is false"), ("layer_types", ["full_attention"], "per layer"),
                           ("layer_types", ["conv", "full_attention"], "'conv'"), ("eos_token_id", 320, "is 320"), ("tie_word_embeddings", 1, "is 1"),
                           ("rope_parameters", {"rope_type": "llama3"}, "'llama3'"), ("rope_parameters", {"partial_rotary_factor": 2}, "is 2"),
                           ("rope_parameters", {"mrope_section": [9, 9, 9]}, "sum"), ("rope_parameters", {"rope_type": "yarn"}, "'factor' is missing"),
                           ("rope_parameters", {"rope_type": "yarn", "factor": 4, "attention_factor": 2}, "'attention_factor' is 2; .* 1.13863"),
                           ("rope_parameters", {"rope_type": "yarn", "factor": 4, "beta_fast": 8}, "'beta_fast' is 8; .* 32"), ("max_position_embeddings", 0, "is 0")):
    refused(f"{field} = {value}", rf"config\.json: .*{what}",
            config={k: v for k, v in {**dense, field: value}.items() if v is not None})
refused("more experts in use than there are", "num_experts_per_tok", tm, {**moe, "num_experts_per_tok": 4})
for name, quant, what in (("gptq", {"quantization_config": {"quant_method": "gptq"}}, "quant_method 'gptq'"),
                          ("compressed-tensors", {"quantization_config": {"quant_method": "compressed-tensors"}}, "'compressed-tensors'"),
                          ("modelopt W4A8", {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}}, "quant_algo 'W4A8_AWQ'"),
                          ("MLX mxfp4", {"quantization": {"mode": "mxfp4", "group_size": 32}}, "mode 'mxfp4'"),
                          ("fp8 e5m2", {"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}}, "'e5m2'")):
    refused(f"quantization {name}", what + ".* is not supported; supported: fp8", config={**dense, **quant})

refused("tensor missing", f"tensor '{gate[6:]}' is missing", without(gate))
refused("tensor missing in shards", f"model-00001-of-00002.safetensors and the files beside it: tensor '{gate[6:]}' is missing", without(gate), shards=2)
refused("wrong shape", rf"tensor '{gate}' has shape \[128, 32\], expected \[128, 64\]", {**t, gate: plain([128, 32], rng)})
refused("wrong dtype", f"tensor '{gate}' is of dtype I32, expected F32, F16 or BF16", {**t, gate: Tensor("I32", [128, 64], [0] * 8192)})
refused("packed integers without a quantization", "is of dtype U8, expected", {**t, gate: Tensor("U8", [128, 64], [0] * 8192)})
refused("FP8 without scales", "no tensor of that name with _scale_inv", {**t, gate: Tensor("F8_E4M3", [128, 64], [0] * 8192)})
refused("NaN", f"tensor '{gate}', row 1", {**t, gate: Tensor("F32", [128, 64], [0.0] * 70 + [math.nan] + [0.0] * 8121)})
down = "model.layers.1.mlp.experts.down_proj"
refused("infinity in an expert", f"tensor '{down}', matrix 2, row 63: ", {**tm, down: Tensor("F32", [3, 64, 64], [0.0] * 12287 + [math.inf])}, moe)
refused("too large for F16", f"tensor '{gate}', row 1: .* too large for F16", {**t, gate: Tensor("F32", [128, 64], [0.0] * 70 + [1e6] + [0.0] * 8121)},
        args=["--type", "f16"])
refused("two names for one tensor", "are the same part of the model", {**t, "model.language_model.norm.weight": t["model.norm.weight"]})
refused("a bias", "this architecture has no such bias", {**t, "model.layers.1.self_attn.q_proj.bias": plain([8], rng)})
refused("a layer too many", "is of layer 7, but config.json has num_hidden_layers 2", {**t, "model.layers.7.mlp.gate_proj.weight": plain([8], rng)})
convert("unknown tensor", {**t, "model.odd": plain([8], rng)}, dense, notes=r"^skua convert: warning: unknown tensors .*: 1, 'model\.odd' for one\n$")
convert("harmless tensors", {**t, "model.layers.1.self_attn.rotary_emb.inv_freq": plain([8], rng)}, dense)
refused("MTP of a checkpoint without", "has no MTP block", {n: x for n, x in t.items() if not n.startswith("mtp.")}, args=["--mtp-only"])

refused("neither file nor index", "has neither model.safetensors nor", change=remove("model.safetensors"))
refused("missing shard", r"model-00002-of-00002.safetensors: cannot open", shards=2, change=remove("model-00002-of-00002.safetensors"))
refused("truncated file", "do not lie in the|truncated", change=truncate)
refused("empty file", "too few", change=write("model.safetensors", b""))
refused("header length beyond the file", "truncated", change=write("model.safetensors", b"\xff" * 16))
refused("header that is no JSON", "not valid JSON", change=write("model.safetensors", struct.pack("<Q", 4) + b"{abc"))
refused("a hole", "a hole", change=header(lambda i, d: i[gate].update(data_offsets=[x + 2 for x in i[gate]["data_offsets"]]) or d + b"\0\0"))
refused("an overlap", "an overlap", change=header(lambda i, d: i[gate].update(data_offsets=[x - 2 for x in i[gate]["data_offsets"]])))
refused("bytes of no tensor", "2 bytes of data belong to no tensor", change=header(lambda i, d: d + b"\0\0"))
refused("unknown dtype", "dtype 'BF17' is unknown", change=header(lambda i, d: i[gate].update(dtype="BF17")))
refused("size and shape differ", "bytes of data, but dtype and shape", change=header(lambda i, d: i[gate].update(shape=[128, 65])))
refused("negative size", "not an integer of at least 0", change=header(lambda i, d: i[gate].update(shape=[-128, 64])))
refused("too many elements", "too many elements", change=header(lambda i, d: i[gate].update(shape=[1 << 40, 1 << 40])))
double = json.dumps(header_bytes(t)[0])
refused("duplicate tensor in a file", "duplicate", change=lambda path: write_raw(os.path.join(path, "model.safetensors"), (double[:-1] + ", " + json.dumps(
    {gate: header_bytes(t)[0][gate]})[1:]).encode(), header_bytes(t)[1]))


def same_twice(path):
    info, data = header_bytes({gate: t[gate], "x": t[gate]})
    write_raw(os.path.join(path, "extra.safetensors"), info, data)
    index(lambda m: m.update(x="extra.safetensors"))(path)


refused("duplicate tensor in two files", f"tensor '{gate}' is also in", shards=2, change=same_twice)
for bad_name in ("../model-00001-of-00002.safetensors", "sub/x.safetensors", "/x", "", "a\\b", "..", 5):
    refused(f"index that names {bad_name!r}", "is not the plain name of a file in this folder", shards=2, change=index(lambda m: m.update({gate: bad_name})))
refused("index that names the wrong file", "where the index has it", shards=2, change=index(lambda m: m.update({gate: "model-00001-of-00002.safetensors"} if m[
    gate].startswith("model-00002") else {gate: "model-00002-of-00002.safetensors"})))
refused("index with a tensor that is nowhere", "'nowhere' is not in", shards=2, change=index(lambda m: m.update(nowhere="model-00001-of-00002.safetensors")))
refused("index without a map", "no 'weight_map'", shards=2, change=write("model.safetensors.index.json", {"weight_map": []}))
path = folder(t, dense, shards=2)
index(lambda m: m.pop("model.norm.weight"))(path)
r = run(path, OUT)
check(r.returncode == 0 and "that are not in the index: 1, 'model.norm.weight'" in r.stderr, "a tensor that the index lacks is told")

refused("target without a tokenizer", r"tokenizer\.json: cannot open", with_tokenizer=False)
for name, edit, what in (("a token id too large", lambda w: w["model"]["vocab"].update(zzz=320), "the id of token 'zzz' is 320"),
                         ("two tokens with an id", lambda w: w["model"]["vocab"].update(zzz=5), "have the same id 5"),
                         ("another kind", lambda w: w["model"].update(type="Unigram"), "'Unigram'"),
                         ("no vocabulary", lambda w: w["model"].pop("vocab"), "no 'model.vocab'"),
                         ("no merges", lambda w: w["model"].pop("merges"), "no 'model.merges'"),
                         ("a merge of three", lambda w: w["model"].update(merges=["a b c"]), "'a b c'"),
                         ("a merge of one", lambda w: w["model"].update(merges=[["a"]]), "merge 0"),
                         ("an added token without text", lambda w: w["added_tokens"].append({"id": 300}), "'added_tokens' entry 6")):
    words = tokenizer()
    edit(words)
    refused("tokenizer: " + name, r"tokenizer\.json: .*" + what, change=write("tokenizer.json", words))

refused("drafter without a tokenizer", "is a drafter .* --tokenizer must name", td, c1, with_tokenizer=False)
refused("drafter with --no-mtp", "is a drafter; --mtp-only and --no-mtp", td, c1, args=["--tokenizer", target_folder, "--no-mtp"])
refused("drafter of another target", "'vocab_size' is 321", td, c1, args=["--tokenizer", target_folder],
        change=lambda path: write("config.json", target_config(vocab_size=321))(target_folder))
write_json(target_folder, "config.json", target_config(hidden_size=32))
refused("drafter of a narrower target", "not its target", td, c1, args=["--tokenizer", target_folder])
write_json(target_folder, "config.json", c1)
refused("a drafter as target", "is a drafter; expected the target", td, c1, args=["--tokenizer", target_folder])
write_json(target_folder, "config.json", dense)
for field, value, what in (("mask_token_id", 320, "is 320"), ("target_layer_ids", [1, 0], "rising"), ("target_layer_ids", [1, 2], "below the target's 2"),
                           ("target_layer_ids", [], "target_layer_ids"), ("block_size", 1, "is 1"), ("draft_vocab_size", 100, "whole vocabulary")):
    refused(f"drafter: {field} = {value}", what, td, drafter_config(inner={field: value}), args=["--tokenizer", target_folder])
refused("drafter: no mask", "mask_token_id", td, drafter_config(inner={"mask_token_id": None}), args=["--tokenizer", target_folder])
refused("DFlash2 without its keys", "'conv_kernel_size' is missing", td, drafter_config("DFlash2DraftModel"), args=["--tokenizer", target_folder])

refused("an unknown type", "--type is 'q4_k', expected bf16, f16, f32 or q8_0", args=["--type", "q4_k"], status=2)
refused("both MTP options", "exclude each other", args=["--mtp-only", "--no-mtp"], status=2)
refused("three operands", "expected a checkpoint's folder", args=["x"], status=2)
path = folder(t, dense)
for name, args, what in (("a file for a folder", [os.path.join(path, "config.json"), OUT], "is not a folder"), ("no such folder", [path + "x", OUT], "no such folder"),
                         ("output in no folder", [path, os.path.join(WORK, "no", "x.gguf")], "cannot create"),
                         ("output onto the input", [path, os.path.join(path, "model.safetensors")], "is a file of the checkpoint"),
                         ("tokenizer that is no folder", [path, OUT, "--tokenizer", OUT + "x"], "no such folder")):
    r = run(*args)
    check(r.returncode == 1 and re.fullmatch(rf"skua convert: .*{what}.*\n", r.stderr), f"{name}: {r.returncode} '{r.stderr[:300]}'")

print(*counts)
