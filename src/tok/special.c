/* Special tokens in text; see special.h. The ids are sorted by text, so the tokens that share a prefix are a range, and
   following the text byte by byte narrows that range by binary search. Most text bytes begin no token and cost one table
   look-up. */
#include "tok/special.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tok/token_table.h"

struct item {
    const char *text;
    uint32_t len, id;
};

static int compare_items(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;
    int c = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    if (c)
        return c;
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool in_set(const struct token_table *tokens, uint32_t id, bool with_control)
{
    return tokens->kind[id] == TOKEN_USER_DEFINED || (with_control && tokens->kind[id] == TOKEN_CONTROL);
}

int special_set_init(struct special_set *s, const struct token_table *tokens, bool with_control, skua_error *err)
{
    *s = (struct special_set){.tokens = tokens};
    size_t count = 0;
    for (uint32_t id = 0; id < tokens->n; id++)
        count += in_set(tokens, id, with_control);
    struct item *items = mem_alloc(count * sizeof *items);
    s->ids = mem_alloc(count * sizeof *s->ids);
    int rc = 0;
    if (!items || !s->ids) {
        rc = error_nomem(err, "special tokens", count * sizeof *items);
        goto out;
    }
    size_t k = 0;
    for (uint32_t id = 0; id < tokens->n; id++) {
        if (!in_set(tokens, id, with_control))
            continue;
        size_t len;
        const char *text = token_table_text(tokens, id, &len);
        if (len > SPECIAL_MAX_BYTES) {
            rc = error_set(err, SKUA_EFORMAT, "tokenizer.ggml.tokens[%u], a special token, has %zu bytes, expected at most %u", id,
                           len, SPECIAL_MAX_BYTES);
            goto out;
        }
        items[k++] = (struct item){text, (uint32_t)len, id};
    }
    qsort(items, count, sizeof *items, compare_items);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && items[i].len == items[i - 1].len && memcmp(items[i].text, items[i - 1].text, items[i].len) == 0)
            continue;
        s->first[(uint8_t)items[i].text[0]] = true; /* an empty text makes a token unused: there is a first byte */
        s->ids[s->n++] = items[i].id;
    }
out:
    mem_free(items);
    return rc;
}

void special_set_free(struct special_set *s)
{
    mem_free(s->ids);
    *s = (struct special_set){0};
}

/* First index in [lo, hi) whose token has at place depth a byte of at least want. All of [lo, hi) agree before depth; a
   token that ends there sorts first. */
static uint32_t lower_bound(const struct special_set *s, uint32_t lo, uint32_t hi, size_t depth, unsigned want)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        size_t len;
        const char *text = token_table_text(s->tokens, s->ids[mid], &len);
        if (len == depth || (uint8_t)text[depth] < want)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Length of the longest token that is a prefix of text[0, n), 0 if none. */
static size_t longest_prefix(const struct special_set *s, const char *text, size_t n, uint32_t *id)
{
    uint32_t lo = 0, hi = s->n;
    size_t best = 0;
    for (size_t depth = 0; depth < n; depth++) {
        unsigned c = (uint8_t)text[depth];
        lo = lower_bound(s, lo, hi, depth, c);
        hi = lower_bound(s, lo, hi, depth, c + 1);
        if (lo == hi)
            break;
        size_t len;
        token_table_text(s->tokens, s->ids[lo], &len);
        if (len == depth + 1) {
            best = len;
            *id = s->ids[lo];
        }
    }
    return best;
}

bool special_set_find(const struct special_set *s, const char *text, size_t n, size_t from, size_t *at, uint32_t *id)
{
    for (size_t i = from; i < n; i++) {
        if (s->first[(uint8_t)text[i]] && longest_prefix(s, text + i, n - i, id)) {
            *at = i;
            return true;
        }
    }
    return false;
}

int32_t special_set_lookup(const struct special_set *s, const char *text, size_t len)
{
    uint32_t id;
    return len > 0 && longest_prefix(s, text, len, &id) == len ? (int32_t)id : -1;
}
