/* Character classes and pre-tokenizers: the published vectors, and PCRE2 running the published expressions as the oracle.
   PCRE2 and utf8proc may know different versions of Unicode: only code points assigned in both are compared, and those
   that neither knows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "tok/pretok.h"
#include "tok/unicode_class.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

#define LIMIT UNICODE_LIMIT
#define N_STRINGS 200000
#define SEED 20240601u

/* The published expressions; \s is White_Space under UCP, except for U+180E (see test_classes). */
#define HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?"
#define TAIL "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const struct oracle {
    const char *name, *expression;
} oracles[] = {
    {"qwen35", HEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+" TAIL},
    {"qwen2", HEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+" TAIL},
};

static pcre2_code *compile(const char *expression)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    assert_non_null(code);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* only speed: the interpreter gives the same */
    return code;
}

/* flags[cp] |= bit for every code point that the one-character expression matches. */
static void mark(uint8_t *flags, const char *expression, uint8_t bit)
{
    pcre2_code *code = compile(expression);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    for (uint32_t cp = 0; cp < LIMIT; cp++) {
        char s[4];
        int n = utf8_encode(cp, s);
        if (n && pcre2_match(code, (PCRE2_SPTR)s, (size_t)n, 0, PCRE2_NO_UTF_CHECK, match, NULL) > 0)
            flags[cp] |= bit;
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
}

#define UNASSIGNED 128
static uint8_t pcre_class[LIMIT];

static int classes_setup(void **state)
{
    (void)state;
    mark(pcre_class, "\\p{L}", CLASS_LETTER);
    mark(pcre_class, "\\p{M}", CLASS_MARK);
    mark(pcre_class, "\\p{N}", CLASS_NUMBER);
    mark(pcre_class, "\\s", CLASS_SPACE);
    mark(pcre_class, "[\\r\\n]", CLASS_NEWLINE);
    mark(pcre_class, "\\p{Cn}", UNASSIGNED);
    return 0;
}

static bool comparable(uint32_t cp)
{
    bool pcre_knows = !(pcre_class[cp] & UNASSIGNED);
    bool utf8proc_knows = utf8proc_category((utf8proc_int32_t)cp) != UTF8PROC_CATEGORY_CN;
    return (cp < 0xD800 || cp > 0xDFFF) && pcre_knows == utf8proc_knows;
}

static void test_classes(void **state)
{
    (void)state;
    const struct unicode_classes *t = unicode_classes_get();
    unsigned long compared = 0, letters = 0, marks = 0;
    for (uint32_t cp = 0; cp < LIMIT; cp++) {
        if (!comparable(cp))
            continue;
        unsigned ours = unicode_class(t, cp), theirs = pcre_class[cp] & ~(unsigned)UNASSIGNED;
        if (cp == 0x180E) { /* no white space since Unicode 6.3, but PCRE2 keeps it in \s */
            CHECK(ours == 0 && theirs == CLASS_SPACE);
            continue;
        }
        if (ours != theirs)
            fail_msg("U+%04X: class %u, PCRE2 says %u", (unsigned)cp, ours, theirs);
        compared++;
        letters += ours == CLASS_LETTER;
        marks += ours == CLASS_MARK;
    }
    checks += compared;
    CHECK(compared > 1100000 && letters > 130000 && marks > 2000);
}

/* Pieces joined by '|' for comparison with a vector. */
static void split_joined(const char *name, const char *text, char *out)
{
    const struct pretok *p = pretok_by_name(name, strlen(name));
    size_t n = strlen(text), k = 0;
    for (size_t i = 0; i < n;) {
        size_t end = pretok_next(p, unicode_classes_get(), text, n, i);
        assert_true(end > i && end <= n);
        if (i)
            out[k++] = '|';
        memcpy(out + k, text + i, end - i);
        k += end - i;
        i = end;
    }
    out[k] = '\0';
}

static void test_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *pre, *text, *pieces;
    } vectors[] = {
        {"qwen35", "I'm 12", "I|'m| |1|2"},
        {"qwen35", "foo  bar\n\n baz", "foo| | bar|\n\n| baz"},
        {"qwen35", "a->b();\nx=1", "a|->|b|();\n|x|=|1"},
        {"qwen35", "don'T stop!!  \n  end  ", "don|'T| stop|!!|  \n| | end|  "},
        {"qwen35", "\n \n\n a", "\n \n\n| a"},
        {"qwen35", "'Llama", "'Ll|ama"},
        {"qwen35", "e\u0301tude", "e\u0301tude"},
        {"qwen35", "\u0301\u0301!", "\u0301\u0301|!"},
        {"qwen35", "!\u0301", "!\u0301"},
        {"qwen35", "1\u0301", "1|\u0301"},
        {"qwen35", "'\u017Ftop 'K", "'\u017F|top| '|K"}, /* U+017F folds to s */
        {"qwen35", "'\u212Aelvin", "'\u212Aelvin"},      /* U+212A folds to k, which is in no contraction */
        {"qwen35", "'", "'"},
        {"qwen35", "'r'v'l'Re'vE'LL'", "'r|'v|'l|'Re|'vE|'LL|'"},
        {"qwen35", "\r\n\r\nx", "\r\n\r\n|x"},
        {"qwen35", " \t x", " \t| x"},
        {"qwen35", "\tx", "\tx"},
        {"qwen35", "\nx", "\n|x"},
        {"qwen35", " !?\r\n\n x", " !?\r\n\n| x"},
        {"qwen35", "\u00A0\u3000", "\u00A0\u3000"},
        {"qwen35", "\u00A0\u3000.", "\u00A0|\u3000|."},
        {"qwen35", "\xC3(\xFF\xFE", "\xC3(\xFF\xFE"}, /* no UTF-8: as if U+FFFD, which is no letter */
        {"qwen35", "\xFFz", "\xFFz"},
        {"qwen2", "e\u0301tude", "e|\u0301tude"},
        {"qwen2", "\u0301\u0301!", "\u0301\u0301!"},
        {"qwen2", " \u0301", " \u0301"},
        {"qwen2", "I'M 12", "I|'M| |1|2"},
        {"deepseek-r1-qwen", "e\u0301tude", "e|\u0301tude"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        char got[256];
        split_joined(vectors[i].pre, vectors[i].text, got);
        checks++;
        assert_string_equal(got, vectors[i].pieces);
    }
    CHECK(pretok_by_name("qwen35", 5) == NULL && pretok_by_name("gpt-2", 5) == NULL && pretok_by_name("", 0) == NULL);
}

/* The characters that the strings are made of: a pool per general category, and a pool of those that decide. */
struct pools {
    uint32_t *by_category[32];
    size_t n[32];
    unsigned used[32], n_used;
};

static void pools_fill(struct pools *p)
{
    memset(p, 0, sizeof *p);
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned c = 0; c < 32 && pass; c++) {
            p->by_category[c] = malloc((p->n[c] + 1) * sizeof(uint32_t));
            assert_non_null(p->by_category[c]);
            if (p->n[c])
                p->used[p->n_used++] = c;
            p->n[c] = 0;
        }
        for (uint32_t cp = 0; cp < LIMIT; cp++) {
            if (!comparable(cp) || cp == 0x180E)
                continue;
            unsigned c = (unsigned)utf8proc_category((utf8proc_int32_t)cp);
            if (pass)
                p->by_category[c][p->n[c]] = cp;
            p->n[c]++;
        }
    }
}

static const uint32_t deciding[] = {' ', ' ', ' ', '\n', '\n', '\r', '\t', 0x0B, 0x0C, 0x85, 0xA0, 0x2028, 0x2029, 0x3000, 0x1680,
                                    '\'', '\'', '\'', '\'', 's', 'S', 't', 'T', 'r', 'R', 'e', 'E', 'v', 'V', 'm', 'M', 'l', 'L',
                                    'l', 'd', 'D', 0x17F, 0x212A, 'k', 'K', 0x131, 0x130, '1', '9', 0x660, 0xB2, 0x2160, 0x301,
                                    0x300, 0x94D, 0x20DD, '!', '.', '-', '<', '|', 0x2019, 0x200B, 0x200D, 0xFEFF, 0x1C, 0x1F,
                                    0x1F600, 0xDF, 0x3B1, 0x4E2D, 0xFFFD, 0x10FFFF, 0xE000, 0xFB05};

static size_t random_string(const struct pools *p, uint64_t *rng, char *out)
{
    uint64_t r = rng_next(rng);
    unsigned mode = r % 4, length = 1 + (unsigned)(r >> 8) % 40;
    size_t k = 0;
    for (unsigned i = 0; i < length; i++) {
        uint64_t q = rng_next(rng);
        bool from_category = mode == 0 || (mode == 1 && q % 2);
        uint32_t cp;
        if (from_category) {
            unsigned c = p->used[(q >> 8) % p->n_used];
            cp = p->by_category[c][(q >> 16) % p->n[c]];
        } else {
            cp = deciding[(q >> 8) % (sizeof deciding / sizeof deciding[0])];
        }
        unsigned times = mode == 3 && q >> 60 == 0 ? 5 : 1; /* runs of one character */
        while (times--)
            k += (size_t)utf8_encode(cp, out + k);
    }
    return k;
}

static void test_against_pcre2(void **state)
{
    (void)state;
    struct pools pools;
    pools_fill(&pools);
    CHECK(pools.n_used == 29); /* every general category but surrogates */
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    for (size_t o = 0; o < sizeof oracles / sizeof oracles[0]; o++) {
        const struct pretok *p = pretok_by_name(oracles[o].name, strlen(oracles[o].name));
        assert_non_null(p);
        pcre2_code *code = compile(oracles[o].expression);
        uint64_t rng = SEED + o;
        unsigned long pieces = 0;
        for (unsigned string = 0; string < N_STRINGS; string++) {
            char text[40 * 5 * 4];
            size_t n = random_string(&pools, &rng, text);
            for (size_t i = 0; i < n; pieces++) {
                int rc = pcre2_match(code, (PCRE2_SPTR)text, n, i, PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, match, NULL);
                assert_true(rc > 0);
                size_t want = pcre2_get_ovector_pointer(match)[1];
                size_t got = pretok_next(p, unicode_classes_get(), text, n, i);
                if (got != want)
                    fail_msg("%s, seed %u, string %u, byte %zu of %zu: piece ends at %zu, PCRE2 says %zu", oracles[o].name, SEED,
                             string, i, n, got, want);
                i = want;
            }
        }
        printf("  %s: %u strings, %lu pieces as PCRE2 cuts them\n", oracles[o].name, N_STRINGS, pieces);
        CHECK(pieces > 2 * N_STRINGS);
        checks += N_STRINGS;
        pcre2_code_free(code);
    }
    pcre2_match_data_free(match);
    for (unsigned c = 0; c < 32; c++)
        free(pools.by_category[c]);
}

/* Long runs of one kind, which a backtracking matcher or a rescanning one would not survive. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const units[] = {" ", "\n", "x", "!", "'", " \n", "\u0301", "\xFF", "1", " !"};
    const size_t n = 1 << 20;
    char *text = malloc(n + 8);
    assert_non_null(text);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t len = strlen(units[u]), size = 0;
        for (; size < n; size += len)
            memcpy(text + size, units[u], len);
        size_t pieces = 0;
        for (size_t i = 0; i < size; pieces++)
            i = pretok_next(pretok_by_name("qwen35", 6), unicode_classes_get(), text, size, i);
        CHECK(pieces == (units[u][0] == '1' ? n : !strcmp(units[u], " !") ? n / 2 : 1));
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes), cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_against_pcre2), cmocka_unit_test(test_long_runs)};
    int failed = cmocka_run_group_tests(tests, classes_setup, NULL);
    printf("test_tok_pretok: %lu checks\n", checks);
    return failed || !checks;
}
