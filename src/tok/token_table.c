/* Token table; see token_table.h. */
#include "tok/token_table.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "tok/byte_alphabet.h"

#define NO_TOKEN UINT32_MAX

int token_table_init(struct token_table *t, size_t count, skua_error *err)
{
    *t = (struct token_table){0};
    if (count == 0 || count > TOKEN_MAX_COUNT)
        return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.tokens has %zu entries, expected 1 to %u", count, TOKEN_MAX_COUNT);
    uint32_t n_slots = 16;
    while (n_slots / 2 < count)
        n_slots *= 2;
    t->cap = (uint32_t)count;
    t->slot_mask = n_slots - 1;
    t->text_cap = count * 8;
    t->start = mem_alloc((count + 1) * sizeof *t->start);
    t->kind = mem_alloc(count);
    t->text = mem_alloc(t->text_cap);
    t->slots = mem_alloc(n_slots * sizeof *t->slots);
    if (!t->start || !t->kind || !t->text || !t->slots)
        return error_nomem(err, "vocabulary", count * 16 + n_slots * sizeof *t->slots);
    t->start[0] = 0;
    memset(t->slots, 0xFF, n_slots * sizeof *t->slots);
    return 0;
}

void token_table_free(struct token_table *t)
{
    mem_free(t->start);
    mem_free(t->kind);
    mem_free(t->text);
    mem_free(t->slots);
    *t = (struct token_table){0};
}

/* The slot that holds these bytes, or the free one where they would go. */
static struct token_slot *find_slot(const struct token_table *t, const char *bytes, size_t len, uint32_t hash)
{
    for (uint32_t i = hash & t->slot_mask;; i = (i + 1) & t->slot_mask) {
        struct token_slot *slot = &t->slots[i];
        if (slot->id == NO_TOKEN)
            return slot;
        if (slot->hash != hash)
            continue;
        size_t have;
        const char *text = token_table_text(t, slot->id, &have);
        if (have == len && memcmp(text, bytes, len) == 0)
            return slot;
    }
}

uint64_t token_table_prefetch(const struct token_table *t, const char *bytes, size_t len)
{
    uint64_t hash = XXH3_64bits(bytes, len);
    __builtin_prefetch(&t->slots[(uint32_t)hash & t->slot_mask]);
    return hash;
}

int32_t token_table_find_hashed(const struct token_table *t, const char *bytes, size_t len, uint64_t hash)
{
    const struct token_slot *slot = find_slot(t, bytes, len, (uint32_t)hash);
    return slot->id == NO_TOKEN ? -1 : (int32_t)slot->id;
}

int32_t token_table_find(const struct token_table *t, const char *bytes, size_t len)
{
    return token_table_find_hashed(t, bytes, len, XXH3_64bits(bytes, len));
}

bool token_table_is(const struct token_table *t, uint32_t id, const char *bytes, size_t len)
{
    if (t->repeats || id >= t->n || t->kind[id] != TOKEN_NORMAL)
        return false;
    size_t have;
    const char *text = token_table_text(t, id, &have);
    return have == len && memcmp(text, bytes, len) == 0;
}

static int reserve_text(struct token_table *t, size_t extra, skua_error *err)
{
    size_t need = t->text_size + extra; /* both are far below SIZE_MAX */
    if (need <= t->text_cap)
        return 0;
    if (need > UINT32_MAX)
        return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.tokens: the texts exceed 4 GiB at entry %u", t->n);
    size_t cap = t->text_cap * 2 > need ? t->text_cap * 2 : need;
    char *p = mem_realloc(t->text, cap);
    if (!p)
        return error_nomem(err, "token texts", cap);
    t->text = p;
    t->text_cap = cap;
    return 0;
}

static bool is_padding(const char *text, size_t len, uint32_t id)
{
    char name[24];
    int n = snprintf(name, sizeof name, "[PAD%u]", id);
    return (size_t)n == len && memcmp(text, name, len) == 0;
}

int token_table_add(struct token_table *t, const char *text, size_t len, int32_t type, skua_error *err)
{
    static const uint8_t kind_of_type[6] = {0, TOKEN_NORMAL, TOKEN_UNUSED, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED};
    uint32_t id = t->n;
    if (type == 6)
        return error_set(err, SKUA_EUNSUPPORTED,
                         "tokenizer.ggml.token_type[%u] is 6 (byte), which a byte-level (gpt2) vocabulary cannot have", id);
    if (type < 1 || type > 5)
        return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.token_type[%u] is %d, expected 1 to 5", id, type);
    if (len > TOKEN_MAX_BYTES)
        return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.tokens[%u] has %zu bytes, expected at most %u", id, len, TOKEN_MAX_BYTES);
    int rc = reserve_text(t, len, err);
    if (rc)
        return rc;
    uint8_t kind = kind_of_type[type];
    if (len == 0 || (len >= 6 && text[0] == '[' && is_padding(text, len, id)))
        kind = TOKEN_UNUSED;
    char *out = t->text + t->text_size;
    size_t out_len;
    if (kind != TOKEN_NORMAL || !byte_alphabet_decode(text, len, out, &out_len)) {
        if (kind == TOKEN_NORMAL)
            kind = TOKEN_LITERAL;
        if (len)
            memcpy(out, text, len);
        out_len = len;
    }
    t->text_size += out_len;
    t->kind[id] = kind;
    t->start[id + 1] = (uint32_t)t->text_size;
    t->n++;
    if (kind == TOKEN_NORMAL) {
        uint32_t hash = (uint32_t)XXH3_64bits(out, out_len);
        struct token_slot *slot = find_slot(t, out, out_len, hash);
        if (slot->id == NO_TOKEN)
            *slot = (struct token_slot){.hash = hash, .id = id};
        else
            t->repeats = true;
    }
    return 0;
}

const char *token_quote(char *out, size_t out_size, const char *text, size_t len)
{
    size_t k = 0;
    out[k++] = '"';
    for (size_t i = 0; i < len; i++) {
        if (k + 9 > out_size) { /* room for one escape, "...", the quote and the terminator */
            memcpy(out + k, "...", 3);
            k += 3;
            break;
        }
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c < 0x7F)
            out[k++] = (char)c;
        else
            k += (size_t)snprintf(out + k, 5, "\\x%02X", c);
    }
    out[k++] = '"';
    out[k] = '\0';
    return out;
}
