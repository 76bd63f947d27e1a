/* The picture of `skua bench --plot`: prefill and decode rates by depth, T(w) / T(1) by rows. Plain SVG with its own ground, in the colours
 * that the reader's system asks for, light or dark; see bench.h.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "cmd/bench.h"
#include "cmd/inspect_value.h"

#define PANEL_W 340 /* a panel with its labels */
#define PANEL_H 276 /* without the legend */
#define LEGEND_H 17 /* of each of its lines */
#define PLOT_X 56   /* the plot inside of it */
#define PLOT_Y 44
#define PLOT_W 260
#define PLOT_H 180
#define TOP 40      /* the title's room */
#define MAX_TICKS 6

static const char style[] =
    "<style>\n"
    ".ground{fill:#ffffff}text{fill:#222222;font:12px sans-serif}.name{font-size:14px;font-weight:bold}.grid{stroke:#dddddd}\n"
    ".axis{stroke:#666666}.line{fill:none;stroke-width:2}.bound{stroke-dasharray:5 4}\n"
    ".s0{stroke:#1f6feb}.s1{stroke:#c2410c}.s2{stroke:#15803d}.s3{stroke:#9333ea}.d0{fill:#1f6feb}.d1{fill:#c2410c}.d2{fill:#15803d}"
    ".d3{fill:#9333ea}\n"
    "@media (prefers-color-scheme:dark){.ground{fill:#15181d}text{fill:#e6e6e6}.grid{stroke:#333840}.axis{stroke:#9aa0a6}"
    ".s0{stroke:#6ea8ff}.s1{stroke:#ff9d5c}.s2{stroke:#5fd38a}.s3{stroke:#c59bff}.d0{fill:#6ea8ff}.d1{fill:#ff9d5c}.d2{fill:#5fd38a}"
    ".d3{fill:#c59bff}}\n"
    "</style>\n";
#define N_COLOURS 4

struct panel {
    double left, top;  /* of the plot */
    double max_x, max_y; /* values at its right and upper edge; 0 at the others */
};

static double px(const struct panel *p, double x) { return p->left + PLOT_W * x / p->max_x; }
static double py(const struct panel *p, double y) { return p->top + PLOT_H * (1 - y / p->max_y); }

/* 1, 2 or 5 times a power of ten: the least that divides up to max into fewer than MAX_TICKS steps. */
static double tick_step(double max)
{
    double step = pow(10, floor(log10(max / MAX_TICKS)));
    while (max / step >= MAX_TICKS)
        step *= max / (2 * step) < MAX_TICKS ? 2 : max / (5 * step) < MAX_TICKS ? 5 : 10;
    return step;
}

static void label(struct strbuf *out, double x, double y, const char *anchor, const char *class_name, const char *text)
{
    strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y, anchor, class_name, text);
}

static void axes(struct strbuf *out, struct panel *p, const char *title, const char *x_name, double max_x, double max_y)
{
    char text[32];
    const double step_x = tick_step(max_x), step_y = tick_step(max_y);
    p->max_x = max_x;
    p->max_y = step_y * ceil(max_y / step_y + 0.05); /* some room above the highest point */
    label(out, p->left, p->top - 14, "start", " class=\"name\"", title);
    label(out, p->left + PLOT_W / 2.0, p->top + PLOT_H + 36, "middle", "", x_name);
    for (int i = 0; i * step_y <= p->max_y * 1.0001; i++) {
        const double y = py(p, i * step_y);
        strbuf_printf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", i ? "grid" : "axis", p->left, y,
                      p->left + PLOT_W, y);
        snprintf(text, sizeof text, "%g", i * step_y);
        label(out, p->left - 6, y + 4, "end", "", text);
    }
    for (int i = 0; i * step_x <= p->max_x * 1.0001; i++) {
        snprintf(text, sizeof text, "%g", i * step_x);
        label(out, px(p, i * step_x), p->top + PLOT_H + 18, "middle", "", text);
    }
}

/* One line of a panel: the results of a kind with so many tokens (0: any), in the order in which they were measured. value: what is drawn;
   x: where. Points only, too, so that a single one is seen. */
typedef double value_fn(const struct bench *b, const struct bench_result *r);

static double rate_of(const struct bench *b, const struct bench_result *r)
{
    (void)b;
    return bench_rate(r);
}
static double bound_of(const struct bench *b, const struct bench_result *r) { return 1 / bench_bound(b, r->bytes); }
static double ratio_of(const struct bench *b, const struct bench_result *r)
{
    (void)b;
    return r->ratio;
}

static double x_of(const struct bench_result *r) { return r->kind == BENCH_BATCH ? r->rows : r->depth; }

static bool drawn(const struct bench_result *r, enum bench_kind kind, int32_t tokens)
{
    return r->kind == kind && (!tokens || r->tokens == tokens);
}

static void series(const struct bench *b, struct strbuf *out, const struct panel *p, enum bench_kind kind, int32_t tokens, value_fn *value,
                   int colour, bool bound)
{
    int n = 0;
    strbuf_printf(out, "<path class=\"line s%d%s\" d=\"", colour % N_COLOURS, bound ? " bound" : "");
    for (int i = 0; i < b->n_results; i++)
        if (drawn(&b->results[i], kind, tokens))
            strbuf_printf(out, "%s%.1f %.1f", n++ ? " L" : "M", px(p, x_of(&b->results[i])), py(p, value(b, &b->results[i])));
    strbuf_puts(out, "\"/>\n");
    for (int i = 0; i < b->n_results && !bound; i++)
        if (drawn(&b->results[i], kind, tokens))
            strbuf_printf(out, "<circle class=\"d%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", colour % N_COLOURS,
                          px(p, x_of(&b->results[i])), py(p, value(b, &b->results[i])));
}

static void legend(struct strbuf *out, const struct panel *p, int place, int colour, bool bound, const char *text)
{
    const double y = p->top + PLOT_H + 36 + LEGEND_H * (place + 1);
    strbuf_printf(out, "<line class=\"line s%d%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", colour % N_COLOURS,
                  bound ? " bound" : "", p->left, y - 4, p->left + 24, y - 4);
    label(out, p->left + 32, y, "start", "", text);
}

static double largest(const struct bench *b, enum bench_kind kind, value_fn *value)
{
    double max = 0;
    for (int i = 0; i < b->n_results; i++)
        if (b->results[i].kind == kind)
            max = fmax(max, value ? value(b, &b->results[i]) : x_of(&b->results[i]));
    return max;
}

/* ---- panels ---- */

static bool any(const struct bench *b, enum bench_kind kind) { return largest(b, kind, rate_of) > 0; }

static void by_depth(const struct bench *b, struct strbuf *out, struct panel *p, enum bench_kind kind, const struct bench_list *tokens)
{
    const double deepest = largest(b, kind, NULL);
    char text[48];
    double max = largest(b, kind, rate_of);
    if (kind == BENCH_TG)
        max = fmax(max, largest(b, kind, bound_of));
    axes(out, p, kind == BENCH_PP ? "prefill, tokens/s" : "decode, tokens/s", "tokens in the session before", deepest > 0 ? deepest : 1,
         max);
    for (int i = 0; i < tokens->n; i++) {
        series(b, out, p, kind, tokens->v[i], rate_of, i, false);
        snprintf(text, sizeof text, kind == BENCH_PP ? "%d tokens" : "%d steps", tokens->v[i]);
        legend(out, p, i, i, false, text);
    }
    if (kind == BENCH_TG) {
        series(b, out, p, kind, tokens->v[0], bound_of, tokens->n, true);
        legend(out, p, tokens->n, tokens->n, true, "memory bound");
    }
}

static void by_rows(const struct bench *b, struct strbuf *out, struct panel *p)
{
    axes(out, p, "a step of w rows, T(w) / T(1)", "rows", largest(b, BENCH_BATCH, NULL), largest(b, BENCH_BATCH, ratio_of));
    series(b, out, p, BENCH_BATCH, 0, ratio_of, 0, false);
}

static void append_xml(struct strbuf *out, const char *s)
{
    for (; *s; s++)
        if (*s == '<' || *s == '>' || *s == '&')
            strbuf_puts(out, *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : "&amp;");
        else
            strbuf_putc(out, *s);
}

static void title(const struct bench *b, struct strbuf *out)
{
    const skua_engine_info i = skua_engine_get_info(b->engine);
    const char *name = *i.name ? i.name : i.arch;
    struct strbuf safe = {0};
    value_append_escaped(&safe, name, strlen(name));
    strbuf_printf(out, "<text x=\"%d\" y=\"26\" class=\"name\">", PLOT_X);
    append_xml(out, strbuf_str(&safe));
    strbuf_printf(out, ", %s, %d thread%s</text>\n", i.kernels, i.n_threads, i.n_threads == 1 ? "" : "s");
    out->failed = out->failed || strbuf_failed(&safe);
    strbuf_free(&safe);
}

int bench_svg(const struct bench *b, struct strbuf *out, skua_error *err)
{
    const enum bench_kind kinds[] = {BENCH_PP, BENCH_TG, BENCH_BATCH};
    const int legends = b->opt->pp.n > b->opt->tg.n + 1 ? b->opt->pp.n : b->opt->tg.n + 1, height = TOP + PANEL_H + LEGEND_H * legends;
    int n = 0, width = 0;
    for (int i = 0; i < 3; i++)
        width += any(b, kinds[i]) ? PANEL_W : 0;
    strbuf_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", width, height,
                  width, height);
    strbuf_puts(out, style);
    strbuf_puts(out, "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n");
    title(b, out);
    for (int i = 0; i < 3; i++) {
        struct panel p = {.left = n * PANEL_W + PLOT_X, .top = TOP + PLOT_Y};
        if (!any(b, kinds[i]))
            continue;
        n++;
        if (kinds[i] == BENCH_BATCH)
            by_rows(b, out, &p);
        else
            by_depth(b, out, &p, kinds[i], kinds[i] == BENCH_PP ? &b->opt->pp : &b->opt->tg);
    }
    strbuf_puts(out, "</svg>\n");
    return strbuf_failed(out) ? error_nomem(err, "picture", out->len) : 0;
}
