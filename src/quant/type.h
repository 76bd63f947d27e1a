/* The registry of tensor element types: the number stored in a file, its name, and the geometry of its blocks.
 *
 * A block holds block_elements consecutive elements of one row in block_bytes bytes; a block never spans rows, so a row
 * length must be a multiple of block_elements. Rows are stored back to back without padding.
 *
 * This header is the one part of src/quant that src/gguf includes (the container's size arithmetic needs the block
 * geometry), and for that reason it knows only base and says nothing about how a block is coded.
 */
#ifndef SKUA_QUANT_TYPE_H
#define SKUA_QUANT_TYPE_H

#include <stddef.h>
#include <stdint.h>

/* Values are the ids in files. Missing numbers (4, 5, 31..33, 38) were withdrawn from the format. */
enum qtype {
    QTYPE_F32 = 0,
    QTYPE_F16 = 1,
    QTYPE_Q4_0 = 2,
    QTYPE_Q4_1 = 3,
    QTYPE_Q5_0 = 6,
    QTYPE_Q5_1 = 7,
    QTYPE_Q8_0 = 8,
    QTYPE_Q8_1 = 9, /* activations only */
    QTYPE_Q2_K = 10,
    QTYPE_Q3_K = 11,
    QTYPE_Q4_K = 12,
    QTYPE_Q5_K = 13,
    QTYPE_Q6_K = 14,
    QTYPE_Q8_K = 15, /* activations only */
    QTYPE_IQ2_XXS = 16,
    QTYPE_IQ2_XS = 17,
    QTYPE_IQ3_XXS = 18,
    QTYPE_IQ1_S = 19,
    QTYPE_IQ4_NL = 20,
    QTYPE_IQ3_S = 21,
    QTYPE_IQ2_S = 22,
    QTYPE_IQ4_XS = 23,
    QTYPE_I8 = 24,
    QTYPE_I16 = 25,
    QTYPE_I32 = 26,
    QTYPE_I64 = 27,
    QTYPE_F64 = 28,
    QTYPE_IQ1_M = 29,
    QTYPE_BF16 = 30,
    QTYPE_TQ1_0 = 34,
    QTYPE_TQ2_0 = 35,
    QTYPE_Q4_64A = 36, /* private use of a withdrawn id; other programs use the number for other types */
    QTYPE_Q2_64A = 37, /* likewise */
    QTYPE_MXFP4 = 39,
    QTYPE_NVFP4 = 40,
    QTYPE_Q1_0 = 41,
    QTYPE_Q2_0 = 42,
    QTYPE_END = 43     /* one past the largest id */
};

struct qtype_info {
    const char *name; /* "Q4_K" */
    uint32_t block_elements;
    uint32_t block_bytes;
};

/* NULL for an id that is unknown or withdrawn. Any 32-bit value may be asked for. */
const struct qtype_info *qtype_info(uint32_t id);

/* The id of a name in any letter case ("q4_k"), or -1. */
int qtype_from_name(const char *name);

/* Bytes of a row of ne0 elements; 0 when the type is unknown, ne0 is 0 or no multiple of the block, or the size does not
   fit size_t. */
size_t qtype_row_bytes(uint32_t id, uint64_t ne0);

#endif
