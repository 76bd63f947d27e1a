#!/usr/bin/env python3
"""A DSpark drafter with random weights, and what it drafts: the backbone, the Markov head and the confidence head in plain double
arithmetic, straight from their formulas. Writes tests/data/dspark.gguf and tests/data/dspark.json, which tests/unit/test_dspark.c compares
the engine with. Run it again only to change them: the same script writes the same files.
"""
import json
import math
import os
import random
import struct

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
E, HEADS, KV_HEADS, DIM, FF, LAYERS, VOCAB, RANK = 32, 2, 1, 16, 48, 2, 40, 8
TAPS, TARGET_LAYERS, BLOCK, MASK, EPS, THETA = [1, 3], 5, 6, 37, 1e-6, 1e4
WINDOW = [8, 0]        # of the layers; 0: none
CAUSAL = [True, False]  # a layer with a window is causal, one without is not
SAMPLABLE = 38         # ids from here on are reserved

rng = random.Random(20)


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def matrix(rows, cols, scale):
    return [[single(rng.gauss(0, scale)) for _ in range(cols)] for _ in range(rows)]


def norm_weight(n):
    return [single(1 + rng.gauss(0, 0.2)) for _ in range(n)]


def make_weights():
    w = {"fc.weight": matrix(E, len(TAPS) * E, 0.15), "enc.output_norm.weight": norm_weight(E), "output_norm.weight": norm_weight(E),
         "token_embd.weight": matrix(VOCAB, E, 0.5), "output.weight": matrix(VOCAB, E, 0.5),
         "markov_w1.weight": matrix(VOCAB, RANK, 1.0), "markov_w2.weight": matrix(VOCAB, RANK, 1.8),
         "conf_proj.weight": matrix(1, E + RANK, 0.3), "conf_proj.bias": [single(0.25)]}
    for i in range(LAYERS):
        b = f"blk.{i}."
        w.update({b + "attn_norm.weight": norm_weight(E), b + "ffn_norm.weight": norm_weight(E), b + "attn_q_norm.weight": norm_weight(DIM),
                  b + "attn_k_norm.weight": norm_weight(DIM), b + "attn_q.weight": matrix(HEADS * DIM, E, 0.6),
                  b + "attn_k.weight": matrix(KV_HEADS * DIM, E, 0.6), b + "attn_v.weight": matrix(KV_HEADS * DIM, E, 0.6),
                  b + "attn_output.weight": matrix(E, HEADS * DIM, 0.4), b + "ffn_gate.weight": matrix(FF, E, 0.2),
                  b + "ffn_up.weight": matrix(FF, E, 0.2), b + "ffn_down.weight": matrix(E, FF, 0.2)})
    return w


# ---- the mathematics ----


def times(m, x):
    return [math.fsum(a * b for a, b in zip(row, x)) for row in m]


def plus(a, b):
    return [x + y for x, y in zip(a, b)]


def rms(weight, x):
    scale = 1 / math.sqrt(math.fsum(v * v for v in x) / len(x) + EPS)
    return [v * scale * g for v, g in zip(x, weight)]


def rope(x, position):
    half, out = DIM // 2, list(x)
    for i in range(half):
        angle = position * THETA ** (-2 * i / DIM)
        out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def heads(x, n):
    return [x[h * DIM:(h + 1) * DIM] for h in range(n)]


def silu(x):
    return x / (1 + math.exp(-x))


def softmax(x):
    most = max(x)
    e = [math.exp(v - most) for v in x]
    return [v / math.fsum(e) for v in e]


def key_value(w, layer, x, position):
    b = f"blk.{layer}."
    k = [rope(rms(w[b + "attn_k_norm.weight"], h), position) for h in heads(times(w[b + "attn_k.weight"], x), KV_HEADS)]
    return k, heads(times(w[b + "attn_v.weight"], x), KV_HEADS)


def attention(w, layer, rows, context, n_ctx):
    """rows: normed rows of the block; context: one fused row per position."""
    b, out = f"blk.{layer}.", []
    past = [key_value(w, layer, c, p) for p, c in enumerate(context)]
    block = [key_value(w, layer, x, n_ctx + i) for i, x in enumerate(rows)]
    for i, x in enumerate(rows):
        o = []
        for h, q in enumerate(heads(times(w[b + "attn_q.weight"], x), HEADS)):
            q = rope(rms(w[b + "attn_q_norm.weight"], q), n_ctx + i)
            seen = [kv for p, kv in enumerate(past) if not WINDOW[layer] or n_ctx + i - p < WINDOW[layer]]
            seen += [kv for j, kv in enumerate(block) if not CAUSAL[layer] or j <= i]
            g = h // (HEADS // KV_HEADS)
            p = softmax([math.fsum(a * c for a, c in zip(q, k[g])) / math.sqrt(DIM) for k, _ in seen])
            o += [math.fsum(pi * v[g][d] for pi, (_, v) in zip(p, seen)) for d in range(DIM)]
        out.append(times(w[b + "attn_output.weight"], o))
    return out


def block_rows(w, taps, anchor, n_rows):
    """Rows of the block behind the output norm."""
    context = [rms(w["enc.output_norm.weight"], times(w["fc.weight"], s)) for s in taps]
    u = [list(w["token_embd.weight"][MASK if i else anchor]) for i in range(n_rows)]
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        a = attention(w, layer, [rms(w[b + "attn_norm.weight"], x) for x in u], context, len(taps))
        u = [plus(x, y) for x, y in zip(u, a)]
        for i, x in enumerate(u):
            m = rms(w[b + "ffn_norm.weight"], x)
            gate, up = times(w[b + "ffn_gate.weight"], m), times(w[b + "ffn_up.weight"], m)
            u[i] = plus(x, times(w[b + "ffn_down.weight"], [silu(g) * v for g, v in zip(gate, up)]))
    return [rms(w["output_norm.weight"], x) for x in u]


def draft(w, case):
    y = block_rows(w, case["taps"], case["anchor"], case["n_rows"])[0 if case["anchor_first"] else 1:]
    allowed = [t for t in case["list"] or range(VOCAB) if t < SAMPLABLE and t != MASK]
    prev, out = case["anchor"], []
    for row in y[:case["n"]]:
        u = [case["logit_scale"] * v for v in times(w["output.weight"], row)]
        if case["softcap"]:
            u = [case["softcap"] * math.tanh(v / case["softcap"]) for v in u]
        low = w["markov_w1.weight"][prev]
        t = plus(u, times(w["markov_w2.weight"], low))
        conf = 1 / (1 + math.exp(-(times(w["conf_proj.weight"], row + low)[0] + w["conf_proj.bias"][0])))
        order = sorted(allowed, key=lambda i: (-t[i], i))
        assert t[order[0]] - t[order[1]] > 1e-3, "too close to call"
        out.append({"id": order[0], "confidence": conf, "top": order[:8], "score": [t[i] for i in order[:8]],
                    "plain": max(allowed, key=lambda i: u[i])})
        prev = order[0]
    return out


# ---- the files ----


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def key(name, kind, value):
    fmt = {4: "<I", 6: "<f", 7: "<B"}
    if isinstance(value, list):
        return text(name) + struct.pack("<IIQ", 9, kind, len(value)) + b"".join(struct.pack({5: "<i", 7: "<B"}[kind], v) for v in value)
    return text(name) + struct.pack("<I", kind) + (text(value) if kind == 8 else struct.pack(fmt[kind], value))


def write_gguf(path, w):
    d = "dflash."
    keys = [key("general.architecture", 8, "dflash"), key(d + "block_count", 4, LAYERS), key(d + "embedding_length", 4, E),
            key(d + "feed_forward_length", 4, FF), key(d + "context_length", 4, 4096), key(d + "attention.head_count", 4, HEADS),
            key(d + "attention.head_count_kv", 4, KV_HEADS), key(d + "attention.key_length", 4, DIM),
            key(d + "attention.value_length", 4, DIM), key(d + "attention.layer_norm_rms_epsilon", 6, EPS),
            key(d + "rope.freq_base", 6, THETA), key(d + "block_size", 4, BLOCK), key(d + "target_layers", 5, [t + 1 for t in TAPS]),
            key(d + "attention.sliding_window", 4, max(WINDOW)),
            key(d + "attention.sliding_window_pattern", 7, [x > 0 for x in WINDOW]), key("tokenizer.ggml.mask_token_id", 4, MASK)]
    infos, data = b"", b""
    for name, m in w.items():
        rows = m if isinstance(m[0], list) else [m]
        dims = [len(rows[0])] + ([len(rows)] if len(rows) > 1 else [])
        infos += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", n) for n in dims) + struct.pack("<IQ", 0, len(data))
        data += b"".join(struct.pack(f"<{len(r)}f", *r) for r in rows)
        data += b"\0" * (-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(w), len(keys)) + b"".join(keys) + infos
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + data)


def main():
    w, cases = make_weights(), []
    for n_ctx, anchor, first, n_rows, n, scale, cap, ids in (
            (0, 5, True, 6, 6, 1.0, 0.0, None), (1, 11, True, 6, 6, 1.0, 0.0, None), (13, 2, True, 6, 6, 1.0, 0.0, None),
            (13, 2, True, 6, 3, 1.0, 0.0, None), (13, 2, True, 3, 3, 1.0, 0.0, None), (7, 20, False, 6, 5, 1.0, 0.0, None),
            (7, 20, False, 3, 2, 1.0, 0.0, None), (4, 30, True, 6, 6, 0.5, 4.0, None), (4, 30, True, 6, 6, 1.0, 0.0, [3, 9, 12, 13, 31, 37, 39])):
        case = {"anchor": anchor, "anchor_first": first, "n_rows": n_rows, "n": n, "logit_scale": scale, "softcap": cap, "list": ids,
                "taps": [[single(rng.gauss(0, 1)) for _ in range(len(TAPS) * E)] for _ in range(n_ctx)]}
        case["drafts"] = draft(w, case)
        cases.append(case)
    changed = sum(d["id"] != d["plain"] for c in cases for d in c["drafts"])
    assert changed > 10, "the Markov head must matter"
    write_gguf(os.path.join(DATA, "dspark.gguf"), w)
    with open(os.path.join(DATA, "dspark.json"), "w") as f:
        f.write("[" + ",\n".join(json.dumps(c) for c in cases) + "]\n")


main()
