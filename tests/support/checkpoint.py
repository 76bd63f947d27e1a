#!/usr/bin/env python3
"""Small checkpoints with random weights, in every way in which checkpoints store them, and a plain reader of GGUF files: for tests that
compare a conversion with what it should be. Only the standard library.

A checkpoint is a dictionary {name: Tensor}; save() writes it as safetensors with config.json and a tokenizer beside it.
"""
import functools
import json
import math
import os
import random
import struct

FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def singles(values):
    """Each rounded to F32."""
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


E4M3 = [(-1.0 if b & 0x80 else 1.0) * ((b & 0x7F) / 512 if b & 0x78 == 0 else (1 + (b & 7) / 8) * 2.0 ** ((b >> 3 & 15) - 7)) for b in range(256)]


class Tensor:
    """values: a flat list of numbers for float dtypes, of integers for the others."""
    def __init__(self, dtype, shape, values):
        self.dtype, self.shape, self.values = dtype, list(shape), values
        assert len(values) == math.prod(shape)

    @functools.cached_property
    def data(self):
        n = len(self.values)
        if self.dtype == "BF16":  # the values are BF16 already
            wide = struct.pack(f"<{n}f", *self.values)
            half = bytearray(2 * n)
            half[0::2], half[1::2] = wide[2::4], wide[3::4]
            return bytes(half)
        return struct.pack(f"<{n}" + {"F32": "f", "F16": "e", "F64": "d", "U8": "B", "I8": "b", "F8_E4M3": "B", "U32": "I", "I32": "i",
                                      "I64": "q"}[self.dtype], *self.values)


def plain(shape, rng, dtype="BF16", scale=0.1):
    n = math.prod(shape)
    if dtype == "BF16":  # 8 bits of mantissa
        unit = 2.0 ** round(math.log2(scale / 128))
        return Tensor(dtype, shape, [(b - 128) * unit for b in rng.randbytes(n)])
    kind = "f" if dtype == "F32" else "e"
    return Tensor(dtype, shape, list(struct.unpack(f"<{n}{kind}", struct.pack(f"<{n}{kind}", *[rng.gauss(0, scale) for _ in range(n)]))))


def header_bytes(tensors, metadata=None):
    """The JSON of a safetensors file as a dictionary, and its data."""
    info, data = {}, b""
    if metadata is not None:
        info["__metadata__"] = metadata
    for name, t in tensors.items():
        d = t.data
        info[name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [len(data), len(data) + len(d)]}
        data += d
    return info, data


def write_raw(path, info, data):
    text = info if isinstance(info, bytes) else json.dumps(info).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f)


def tokenizer():
    """265 tokens: the 256 bytes, a few merges, added tokens of each kind."""
    alphabet = [chr(b) for b in list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))]
    alphabet += [chr(0x100 + i) for i in range(256 - len(alphabet))]
    vocab = {c: i for i, c in enumerate(alphabet)}
    merges = [["t", "h"], ["th", "e"], ["\u0120", "a"]]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    added = [{"id": len(vocab) + i, "content": c, "special": s} for i, (c, s) in
             enumerate([("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<|odd|>", False), ("<think>", False),
                        ("a\u2581b", False)])]
    pattern = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    return {"added_tokens": added, "model": {"type": "BPE", "vocab": vocab, "merges": merges},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": pattern}}, {"type": "ByteLevel"}]}}


def save(folder, tensors, config, shards=1, with_tokenizer=True):
    os.makedirs(folder, exist_ok=True)
    write_json(folder, "config.json", config)
    if with_tokenizer:
        write_json(folder, "tokenizer.json", tokenizer())
        write_json(folder, "tokenizer_config.json", {"eos_token": {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>", "add_bos_token": False,
                                                     "chat_template": "{{ messages }}"})
    if shards == 1:
        write_raw(os.path.join(folder, "model.safetensors"), *header_bytes(tensors))
        return
    names, index = list(tensors), {}
    for s in range(shards):
        file = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
        part = {n: tensors[n] for n in names[s::shards]}
        index.update({n: file for n in part})
        write_raw(os.path.join(folder, file), *header_bytes(part, {"format": "pt"}))
    write_json(folder, "model.safetensors.index.json", {"metadata": {"total_size": 0}, "weight_map": index})


# ---- a language model ----

def target_config(**changes):
    """nK = 2 key heads, nV = 6 value heads of 64: r = 3."""
    c = {"architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "max_position_embeddings": 512,
         "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
         "linear_conv_kernel_dim": 4, "full_attention_interval": 2, "tie_word_embeddings": False, "hidden_act": "silu",
         "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "rope_type": "default"},
         "mtp_num_hidden_layers": 1}
    c.update(changes)
    return {k: v for k, v in c.items() if v is not None}


def moe_config(**changes):
    return target_config(architectures=["Qwen3_5MoeForCausalLM"], intermediate_size=None, num_experts=3, num_experts_per_tok=2,
                         moe_intermediate_size=64, shared_expert_intermediate_size=64, **changes)


def ffn(t, prefix, c, rng):
    e = c["hidden_size"]
    if "num_experts" not in c:
        f = c["intermediate_size"]
        t[prefix + "mlp.gate_proj.weight"], t[prefix + "mlp.up_proj.weight"] = plain([f, e], rng), plain([f, e], rng)
        t[prefix + "mlp.down_proj.weight"] = plain([e, f], rng)
        return
    x, f, s = c["num_experts"], c["moe_intermediate_size"], c["shared_expert_intermediate_size"]
    t[prefix + "mlp.gate.weight"] = plain([x, e], rng)
    t[prefix + "mlp.experts.gate_up_proj"] = plain([x, 2 * f, e], rng)
    t[prefix + "mlp.experts.down_proj"] = plain([x, e, f], rng)
    t[prefix + "mlp.shared_expert_gate.weight"] = plain([1, e], rng)
    for role, shape in (("gate", [s, e]), ("up", [s, e]), ("down", [e, s])):
        t[prefix + f"mlp.shared_expert.{role}_proj.weight"] = plain(shape, rng)


def attention(t, prefix, c, rng):
    e, d, h, hk = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    for role, shape in (("q", [2 * d * h, e]), ("k", [d * hk, e]), ("v", [d * hk, e]), ("o", [e, d * h])):
        t[prefix + f"self_attn.{role}_proj.weight"] = plain(shape, rng)
    for role in "qk":
        t[prefix + f"self_attn.{role}_norm.weight"] = plain([d], rng)


def delta_net(t, prefix, c, rng):
    e, d, nk, nv = c["hidden_size"], c["linear_key_head_dim"], c["linear_num_key_heads"], c["linear_num_value_heads"]
    channels = 2 * nk * d + nv * d
    for name, shape in (("in_proj_qkv.weight", [channels, e]), ("in_proj_z.weight", [nv * d, e]), ("in_proj_a.weight", [nv, e]),
                        ("in_proj_b.weight", [nv, e]), ("conv1d.weight", [channels, 1, 4]), ("A_log", [nv]), ("dt_bias", [nv]),
                        ("norm.weight", [d]), ("out_proj.weight", [e, nv * d])):
        t[prefix + "linear_attn." + name] = plain(shape, rng, "F32" if name in ("A_log", "norm.weight") else "BF16")


def target(c, seed=1):
    return dict(made_target(json.dumps(c), seed))


@functools.lru_cache(maxsize=None)
def made_target(config, seed):
    c = json.loads(config)
    rng, t, e = random.Random(seed), {}, c["hidden_size"]
    t["model.embed_tokens.weight"] = plain([c["vocab_size"], e], rng)
    t["model.norm.weight"] = plain([e], rng)
    if not c["tie_word_embeddings"]:
        t["lm_head.weight"] = plain([c["vocab_size"], e], rng)
    blocks = [(f"model.layers.{i}.", (i + 1) % c["full_attention_interval"] != 0) for i in range(c["num_hidden_layers"])]
    for prefix, recurrent in blocks + [("mtp.layers.0.", False)] * c.get("mtp_num_hidden_layers", 0):
        t[prefix + "input_layernorm.weight"], t[prefix + "post_attention_layernorm.weight"] = plain([e], rng), plain([e], rng)
        (delta_net if recurrent else attention)(t, prefix, c, rng)
        ffn(t, prefix, c, rng)
    if c.get("mtp_num_hidden_layers"):
        t["mtp.fc.weight"] = plain([e, 2 * e], rng)
        for name in ("mtp.norm.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight"):
            t[name] = plain([e], rng)
    return t


# ---- a drafter ----

def drafter_config(kind="DFlashDraftModel", inner=None, **changes):
    c = {"architectures": [kind], "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 1e7, "max_position_embeddings": 512, "block_size": 4,
         "num_target_layers": 2, "dflash_config": {"mask_token_id": 300, "target_layer_ids": [0, 1], **(inner or {})}}
    c.update(changes)
    return {k: v for k, v in c.items() if v is not None}


def drafter(c, seed=2):
    rng, t, e, d, f = random.Random(seed), {}, c["hidden_size"], c["head_dim"], c["intermediate_size"]
    t["fc.weight"] = plain([e, 2 * e], rng)
    t["hidden_norm.weight"], t["norm.weight"] = plain([e], rng), plain([e], rng)
    for i in range(c["num_hidden_layers"]):
        p = f"layers.{i}."
        t[p + "input_layernorm.weight"], t[p + "post_attention_layernorm.weight"] = plain([e], rng), plain([e], rng)
        h, hk = c["num_attention_heads"], c["num_key_value_heads"]
        for role, shape in (("q", [d * h, e]), ("k", [d * hk, e]), ("v", [d * hk, e]), ("o", [e, d * h])):
            t[p + f"self_attn.{role}_proj.weight"] = plain(shape, rng)
        for role in "qk":
            t[p + f"self_attn.{role}_norm.weight"] = plain([d], rng)
        for role, shape in (("gate", [f, e]), ("up", [f, e]), ("down", [e, f])):
            t[p + f"mlp.{role}_proj.weight"] = plain(shape, rng)
    return t


# ---- packings: each replaces a matrix by packed parts and returns the values that these stand for ----

def pack_affine(t, name, bits, group, rng, scales="BF16"):
    rows, cols = math.prod(t[name].shape[:-1]), t[name].shape[-1]
    lead, stem = t[name].shape[:-1], name[:-len("weight")]
    codes = [b >> 8 - bits for b in rng.randbytes(rows * cols)]
    per = 32 // bits
    words = [sum(c << bits * k for k, c in enumerate(codes[i:i + per])) for i in range(0, len(codes), per)]
    s, b = plain(lead + [cols // group], rng, scales, 0.01), plain(lead + [cols // group], rng, scales)
    t[name] = Tensor("U32", lead + [cols // per], words)
    t[stem + "scales"], t[stem + "biases"] = s, b
    products = singles([c * s.values[i // group] for i, c in enumerate(codes)])
    return singles([x + b.values[i // group] for i, x in enumerate(products)])


def pack_nvfp4(t, name, rng, mlx=False, factor=0.125, input_scale=0.5):
    lead, cols, stem = t[name].shape[:-1], t[name].shape[-1], name[:-len("weight")]
    n = math.prod(t[name].shape)
    codes, s = [b >> 4 for b in rng.randbytes(n)], [b % 0x7F for b in rng.randbytes(n // 16)]
    octets = [codes[i] | codes[i + 1] << 4 for i in range(0, n, 2)]
    if mlx:
        words = [struct.unpack("<I", bytes(octets[i:i + 4]))[0] for i in range(0, len(octets), 4)]
        t[name], t[stem + "scales"] = Tensor("U32", lead + [cols // 8], words), Tensor("U8", lead + [cols // 16], s)
        if factor is not None:
            t[stem + "global_scale"] = Tensor("F32", [], [factor])
    else:
        t[name], t[stem + "weight_scale"] = Tensor("U8", lead + [cols // 2], octets), Tensor("F8_E4M3", lead + [cols // 16], s)
        t[stem + "weight_scale_2"] = Tensor("F32", [], [factor])
        t[stem + "input_scale"] = Tensor("F32", [], [input_scale])
    factor = 1 if factor is None else factor  # a power of two: exact
    return [FP4[c] * E4M3[s[i // 16]] * factor for i, c in enumerate(codes)]


def pack_fp8(t, name, rng, block):
    """block: (rows, columns) of one scale, or None for one scale in all."""
    shape, stem = t[name].shape, name
    rows, cols = shape[-2:]
    codes = [b if b & 0x7F != 0x7F else b - 1 for b in rng.randbytes(math.prod(shape))]
    t[name] = Tensor("F8_E4M3", shape, codes)
    if block is None:
        t[stem + "_scale"] = Tensor("F32", [], [0.0625])
        return [E4M3[c] * 0.0625 for c in codes]
    br, bc = -(-rows // block[0]), -(-cols // block[1])
    s = plain(shape[:-2] + [br, bc], rng, "F32")
    t[stem + "_scale_inv"] = s
    return singles([E4M3[c] * s.values[(i // (rows * cols) * br + i // cols % rows // block[0]) * bc + i % cols // block[1]]
                    for i, c in enumerate(codes)])


# ---- GGUF ----

def read_gguf(path):
    """({key: (type, value)}, {name: (ne, type, bytes)}); of arrays (element type, list)."""
    d, p = open(path, "rb").read(), 8

    def u(f):
        nonlocal p
        v = struct.unpack_from("<" + f, d, p)[0]
        p += struct.calcsize(f"<{f}")
        return v

    def string():
        nonlocal p
        n = u("Q")
        p += n
        return d[p - n:p]

    def value(t):
        if t == 8:
            return string().decode()
        if t == 9:
            e, n = u("I"), u("Q")
            return e, [value(e) for _ in range(n)]
        return u({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}[t])

    n_tensors, n_keys, keys, infos = u("Q"), u("Q"), {}, []
    for _ in range(n_keys):
        k, t = string().decode(), u("I")
        keys[k] = (t, value(t))
    for _ in range(n_tensors):
        name = string().decode()
        ne = [u("Q") for _ in range(u("I"))]
        infos.append((name, ne, u("I"), u("Q")))
    start = -(-p // 32) * 32
    block = {0: (1, 4), 1: (1, 2), 8: (32, 34), 30: (1, 2), 36: (64, 36), 37: (64, 20), 40: (64, 36)}
    tensors = {}
    for name, ne, t, offset in infos:
        elements, size = block[t]
        n = math.prod(ne) // elements * size
        tensors[name] = (ne, t, d[start + offset:start + offset + n])
        assert len(tensors[name][2]) == n
    return keys, tensors


def floats(tensor):
    """The values of a tensor of a GGUF file."""
    ne, t, data = tensor
    n = math.prod(ne)
    if t == 0:
        return list(struct.unpack(f"<{n}f", data))
    if t == 1:
        return list(struct.unpack(f"<{n}e", data))
    if t == 30:
        wide = bytearray(4 * n)
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        return list(struct.unpack(f"<{n}f", wide))
    out = []
    if t == 8:
        for i in range(0, len(data), 34):
            scale = struct.unpack_from("<e", data, i)[0]
            out += [q * scale for q in struct.unpack_from("<32b", data, i + 2)]
    elif t in (36, 37):
        bits, size = (4, 36) if t == 36 else (2, 20)
        for i in range(0, len(data), size):
            scale, bias = (from_bf16(x) for x in struct.unpack_from("<2H", data, i + size - 4))
            table = [f32(f32(c * scale) + bias) for c in range(1 << bits)]
            out += [table[data[i + k * bits // 8] >> k * bits % 8 & (1 << bits) - 1] for k in range(64)]
    else:
        for i in range(0, len(data), 36):
            for k in range(64):
                byte = data[i + 4 + k // 16 * 8 + k % 8]
                out.append(FP4[byte >> 4 if k % 16 >= 8 else byte & 15] * E4M3[data[i + k // 16]])
    return out
