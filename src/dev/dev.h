/* The device seam: memory and execution of op lists (kern/kern.h). A model knows only this interface; a backend is a set of
 * these functions.
 *
 * Buffers belong to the device that made them. Sizes and offsets are in bytes. Functions that can fail return 0 or SKUA_E...
 * A device executes one op list at a time; calls on one device from several threads must be serialised by the caller.
 */
#ifndef SKUA_DEV_DEV_H
#define SKUA_DEV_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kern/kern.h"

struct dev;

struct dev_ops {
    /* New zeroed memory. The CPU device takes it from the system in whole pages that cost nothing until touched. */
    int (*buf_alloc)(struct dev *d, size_t size, struct kern_buf **out, skua_error *err);
    /* Wrap memory of the host that stays valid until buf_free (mapped weights). Read-only. */
    int (*buf_wrap)(struct dev *d, const void *host, size_t size, struct kern_buf **out, skua_error *err);
    void (*buf_free)(struct dev *d, struct kern_buf *b); /* NULL allowed */
    void (*write)(struct dev *d, struct kern_view dst, const void *src, size_t size);
    /* Also from another thread while this one computes, if nothing writes there. */
    void (*read)(struct dev *d, struct kern_view src, void *dst, size_t size);
    void (*copy)(struct dev *d, struct kern_view dst, struct kern_view src, size_t size); /* places that do not overlap */
    void (*clear)(struct dev *d, struct kern_view dst, size_t size);
    /* Execute ops in order, as if one after the other. Returns when the results are readable. */
    int (*run)(struct dev *d, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, skua_error *err);
    /* What MATMUL takes for a weight type: enum kern_act, or -1 if the type cannot be multiplied. */
    int (*act_kind)(const struct dev *d, uint32_t weight_type);
    /* Has this device a layout of its own (kern_weight.tiles) for matrices of this type with n_out rows? */
    bool (*tiles_fit)(const struct dev *d, uint32_t weight_type, int32_t n_out);
    /* The matrices of w in that layout, as large as the original. */
    int (*tile)(struct dev *d, const struct kern_weight *w, struct kern_buf **out, skua_error *err);
    void (*destroy)(struct dev *d);
};

/* Called on the calling thread before each op of a list, when all earlier ones are complete and this one has not begun: it may read
   what the op's views show. */
typedef void dev_observer(void *user, const struct kern_op *op, const struct kern_batch *batch);

/* Called on the calling thread after a list has run, with the time that each op took: from the moment when the ops before it were
   complete to the moment when it was, as the calling thread saw them. */
typedef void dev_timer(void *user, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, const uint64_t *ns);

struct dev {
    const struct dev_ops *ops;
    const char *name;        /* "cpu" */
    const char *kernels;     /* the tier in use: "avx512vnni", ... */
    int n_threads, n_threads_prefill; /* for passes of up to 16 rows, and for larger ones */
    bool tiling;             /* the caller's to set: matrices that fit are tiled when they are bound (model/bind.h) */
    void (*on_tiled)(void *user, size_t bytes); /* NULL, or called after each such matrix. The caller's to set */
    void *on_tiled_user;
    size_t allocated_bytes;  /* live buf_alloc memory */
    dev_observer *observer;  /* NULL: nobody watches. The caller's to set between runs; results do not depend on it */
    void *observer_user;
    dev_timer *timer;        /* NULL: no time is taken. The caller's to set between runs; ops run the same way with and without */
    void *timer_user;
};

/* The CPU device with n_threads threads (>= 1) for passes of few rows and n_threads_prefill for others, and a kernel table
   (kern_reference, or one of kern_select). */
int dev_cpu_create(const struct kern_table *table, int n_threads, int n_threads_prefill, struct dev **out, skua_error *err);

#endif
