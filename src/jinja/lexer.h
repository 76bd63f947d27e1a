/* Template text to tokens, one at a time, with jinja2's rules for whitespace control, trim_blocks, lstrip_blocks and raw. */
#ifndef SKUA_JINJA_LEXER_H
#define SKUA_JINJA_LEXER_H

#include "jinja/ast.h"

enum token_type {
    T_EOF, T_DATA, T_VARIABLE_BEGIN, T_VARIABLE_END, T_BLOCK_BEGIN, T_BLOCK_END,
    T_NAME, T_STRING, T_INTEGER, T_FLOAT,
    T_ADD, T_SUB, T_DIV, T_FLOORDIV, T_MUL, T_MOD, T_POW, T_TILDE, T_LBRACKET, T_RBRACKET, T_LPAREN, T_RPAREN, T_LBRACE,
    T_RBRACE, T_EQ, T_NE, T_GT, T_GTEQ, T_LT, T_LTEQ, T_ASSIGN, T_DOT, T_COLON, T_PIPE, T_COMMA, T_SEMICOLON
};

struct token {
    enum token_type type;
    uint32_t line, col;
    struct str text; /* data, names, strings (unescaped) */
    int64_t i;
    double f;
};

#define LEXER_MAX_BRACKETS 256

struct lexer {
    struct compile *c;
    struct str src;   /* newlines are \n, the last one removed */
    size_t pos;
    enum { LEX_ROOT, LEX_BLOCK, LEX_VARIABLE } state;
    char brackets[LEXER_MAX_BRACKETS]; /* closing brackets to come */
    uint32_t nbrackets;
    size_t mark, mark_line_start; /* position whose line is known */
    uint32_t mark_line;
    uint32_t last_line, last_col; /* of the token before: where the end of the template is reported */
};

bool lexer_init(struct lexer *lx, struct compile *c, struct str src); /* false after compile_fail */
bool lexer_next(struct lexer *lx, struct token *t);
const char *token_type_text(enum token_type type); /* as jinja2 names it in messages */

#endif
