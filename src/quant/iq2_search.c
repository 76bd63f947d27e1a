/* Codebook search; see iq2_search.h. Digit tuples are numbered in base 3, element 0 lowest. at[tuple] is the entry when the
   tuple is one, else -1 - (position in list) of a count followed by that many entries. */
#include "quant/iq2_search.h"

#include <pthread.h>

#include "quant/fit.h"
#include "quant/iq2_grid.h"

#define TUPLES 6561 /* 3^8 */

/* Tuples without an entry, and the neighbours of all of them together: properties of the codebooks. */
#define XXS_LIST (6305 + 113157)
#define S_LIST   (5537 + 44716)

struct iq2_book {
    const uint16_t *codes;
    int entries;
    int shells; /* how many distinct distances count as near */
    int list_size;
    uint16_t *list;
    uint16_t *list_codes; /* the codes of the entries in list */
    int32_t at[TUPLES];
};

#define PADDING  16 /* readable elements behind the codes */

static uint16_t xxs_list[XXS_LIST], xxs_list_codes[XXS_LIST + PADDING], s_list[S_LIST], s_list_codes[S_LIST + PADDING];
static struct iq2_book xxs = {.codes = iq2_xxs_codes, .entries = 256, .shells = 2, .list_size = XXS_LIST, .list = xxs_list,
                              .list_codes = xxs_list_codes};
static struct iq2_book s = {.codes = iq2_s_codes, .entries = 1024, .shells = 1, .list_size = S_LIST, .list = s_list,
                            .list_codes = s_list_codes};

uint16_t iq2_code(const struct iq2_book *book, int entry)
{
    return book->codes[entry];
}

/* Square distance of two packed digit octets, at most 32. */
static int distance(uint32_t a, uint32_t b)
{
    int sum = 0;
    for (int i = 0; i < 8; i++) {
        int d = (int)(a >> 2 * i & 3) - (int)(b >> 2 * i & 3);
        sum += d * d;
    }
    return sum;
}

/* Append the neighbours of one tuple, by (distance, entry), to the list at position used; returns the new position. */
static int list_neighbours(struct iq2_book *book, uint32_t code, int used)
{
    uint8_t far[1024];
    int count_at[33] = {0};
    for (int e = 0; e < book->entries; e++) {
        far[e] = (uint8_t)distance(code, book->codes[e]);
        count_at[far[e]]++;
    }
    int start = used++, shells = 0;
    for (int d = 1; d < 33 && shells < book->shells; d++) {
        if (count_at[d] == 0)
            continue;
        shells++;
        for (int e = 0; e < book->entries; e++)
            if (far[e] == d && used < book->list_size) {
                book->list_codes[used] = book->codes[e];
                book->list[used++] = (uint16_t)e;
            }
    }
    book->list[start] = (uint16_t)(used - start - 1);
    return used;
}

static uint32_t tuple_code(int tuple)
{
    uint32_t code = 0;
    for (int i = 0; i < 8; i++, tuple /= 3)
        code |= (uint32_t)(tuple % 3) << 2 * i;
    return code;
}

static int code_tuple(uint32_t code)
{
    int tuple = 0;
    for (int i = 7; i >= 0; i--)
        tuple = 3 * tuple + (int)(code >> 2 * i & 3);
    return tuple;
}

static void build(struct iq2_book *book)
{
    for (int t = 0; t < TUPLES; t++)
        book->at[t] = -1;
    for (int e = 0; e < book->entries; e++)
        book->at[code_tuple(book->codes[e])] = e;
    int used = 0;
    for (int t = 0; t < TUPLES; t++)
        if (book->at[t] < 0) {
            book->at[t] = -1 - used;
            used = list_neighbours(book, tuple_code(t), used);
        }
}

static void build_xxs(void) { build(&xxs); }
static void build_s(void) { build(&s); }

const struct iq2_book *iq2_book_xxs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build_xxs);
    return &xxs;
}

const struct iq2_book *iq2_book_s(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build_s);
    return &s;
}

int iq2_tuple(const float *x, float id)
{
    int tuple = 0;
    for (int i = 7; i >= 0; i--)
        tuple = 3 * tuple + fit_rne_clamped(0.5f * (id * x[i] - 1.0f), 0, 2);
    return tuple;
}

int iq2_lookup(const struct iq2_book *book, int tuple, struct iq2_near *near)
{
    int at = book->at[tuple];
    if (at >= 0)
        return at;
    near->entries = book->list - at; /* -1 - at, and one for the count */
    near->codes = book->list_codes - at;
    near->count = near->entries[-1];
    return -1;
}

int iq2_nearest(const struct iq2_book *book, const float *x, const float *root_w, float id, float scale, bool *exact)
{
    struct iq2_near near;
    int best = iq2_lookup(book, iq2_tuple(x, id), &near);
    *exact = best >= 0;
    if (*exact)
        return best;
    float best_error = 0.0f;
    for (int c = 0; c < near.count; c++) {
        float error = 0.0f;
        for (int i = 0; i < 8; i++) {
            float d = scale * (float)iq2_level(near.codes[c], i) - x[i];
            error += root_w[i] * d * d;
        }
        if (c == 0 || error < best_error) {
            best = near.entries[c];
            best_error = error;
        }
    }
    return best;
}
