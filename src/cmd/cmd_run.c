/* skua run: one answer, or a chat. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/opts.h"
#include "cmd/profile_report.h"
#include "cmd/run_answer.h"
#include "convert/stream.h"
#include "engine/engine.h"
#include "tok/tokenizer.h"

#define MAX_PROMPT_BYTES ((size_t)256 << 20)

static const char help[] =
    "usage: skua run [OPTIONS] [PROMPT]\n"
    "\n"
    "Answers PROMPT through the model's chat template: the answer goes to standard output, everything else to standard error.\n"
    "Without PROMPT: from --file or standard input; on a terminal, a chat.\n"
    "\n"
    ENGINE_HELP
    "  -f, --file FILE          read the prompt from a file ('-': standard input)\n"
    "      --system TEXT        system message\n"
    "      --raw                give the prompt to the model as it is, without the chat template\n"
    "      --think, --no-think  switch the model's thinking on or off (default: as the template does)\n"
    "      --show-thinking      print the thinking to standard error also when that is no terminal\n"
    "      --special            print control tokens, the end token too\n"
    "  -q, --quiet              no line of figures\n"
    "      --stats              at the end, what drafting came to\n"
    "      --draft-trace FILE   write a line of JSON for each round with drafts: drafter, drafts, how many were accepted (A)\n"
    "      --profile            at the end, where the time went: per op and role, prefill and decode apart\n"
    "\n"
    DRAFT_HELP
    "\n"
    "  -n, --max-tokens N       stop after N tokens (default: when the model ends; a full context is an error)\n"
    "      --stop TEXT          stop before TEXT (up to 16 times)\n"
    "      --temp T             temperature, 0 to 2; 0 = always the likeliest token\n"
    "      --top-k N            of the N likeliest tokens (0 = off)\n"
    "      --top-p P            of the likeliest tokens that together reach P (1 = off)\n"
    "      --min-p P            of the tokens at least P times as likely as the likeliest (0 = off)\n"
    "      --repeat-penalty R   divide the logits of recent tokens by R (1 = off)\n"
    "      --repeat-last-n N    recent = the last N tokens (-1 = all)\n"
    "      --presence-penalty X, --frequency-penalty X   -2 to 2, for generated tokens\n"
    "      --logit-bias ID=X    add X (-100 to 100) to a token's logit; -100 bans it, 100 forces it\n"
    "  -s, --seed S             seed (default 0): same seed, same answer\n"
    "Sampling defaults: the model file's, else the family's published values.\n"
    "\n"
    "example: skua run --temp 0 \"What is the capital of France?\"\n";

enum {
    OPT_SYSTEM = 256, OPT_RAW, OPT_THINK, OPT_NO_THINK, OPT_SHOW_THINKING, OPT_SPECIAL, OPT_STOP, OPT_TEMP, OPT_TOP_K, OPT_TOP_P, OPT_MIN_P,
    OPT_REPEAT, OPT_REPEAT_N, OPT_PRESENCE, OPT_FREQUENCY, OPT_BIAS, OPT_PROFILE, OPT_STATS, OPT_TRACE
};

static const struct option long_options[] = {ENGINE_LONGS,
                                             DRAFT_LONGS,
                                             {"file", required_argument, NULL, 'f'},
                                             {"system", required_argument, NULL, OPT_SYSTEM},
                                             {"raw", no_argument, NULL, OPT_RAW},
                                             {"think", no_argument, NULL, OPT_THINK},
                                             {"no-think", no_argument, NULL, OPT_NO_THINK},
                                             {"show-thinking", no_argument, NULL, OPT_SHOW_THINKING},
                                             {"special", no_argument, NULL, OPT_SPECIAL},
                                             {"quiet", no_argument, NULL, 'q'},
                                             {"profile", no_argument, NULL, OPT_PROFILE},
                                             {"stats", no_argument, NULL, OPT_STATS},
                                             {"draft-trace", required_argument, NULL, OPT_TRACE},
                                             {"max-tokens", required_argument, NULL, 'n'},
                                             {"stop", required_argument, NULL, OPT_STOP},
                                             {"temp", required_argument, NULL, OPT_TEMP},
                                             {"temperature", required_argument, NULL, OPT_TEMP},
                                             {"top-k", required_argument, NULL, OPT_TOP_K},
                                             {"top-p", required_argument, NULL, OPT_TOP_P},
                                             {"min-p", required_argument, NULL, OPT_MIN_P},
                                             {"repeat-penalty", required_argument, NULL, OPT_REPEAT},
                                             {"repeat-last-n", required_argument, NULL, OPT_REPEAT_N},
                                             {"presence-penalty", required_argument, NULL, OPT_PRESENCE},
                                             {"frequency-penalty", required_argument, NULL, OPT_FREQUENCY},
                                             {"logit-bias", required_argument, NULL, OPT_BIAS},
                                             {"seed", required_argument, NULL, 's'},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

/* ---- options ---- */

static int add_bias(struct run_options *o, const char *arg, skua_error *err)
{
    const char *eq = strchr(arg, '=');
    char id_text[24];
    int64_t id = 0;
    double bias = 0;
    if (!eq || (size_t)(eq - arg) >= sizeof id_text)
        return error_set(err, SKUA_EARG, "--logit-bias '%s'; expected ID=X, for example 8177=-100", arg);
    if (o->sampling.value.n_bias == SAMPLER_MAX_BIAS)
        return error_set(err, SKUA_ELIMIT, "--logit-bias more than %d times", SAMPLER_MAX_BIAS);
    memcpy(id_text, arg, (size_t)(eq - arg));
    id_text[eq - arg] = '\0';
    int rc = opt_i64("--logit-bias (id)", id_text, 0, INT32_MAX, &id, err);
    if (!rc)
        rc = opt_f64("--logit-bias", eq + 1, -SAMPLER_BIAS_LIMIT, SAMPLER_BIAS_LIMIT, &bias, err);
    o->bias[o->sampling.value.n_bias++] = (skua_logit_bias){(int32_t)id, (float)bias};
    o->sampling.value.bias = o->bias;
    return rc;
}

/* A value of the command line that could not be read, or is out of the field's range. */
static int bad_value(enum sampler_field field, const char *flag, const char *arg, skua_error *err)
{
    return error_set(err, SKUA_EARG, "%s is '%s', expected %s", flag, arg, sampler_field_expected(field));
}

static int number_option(struct run_options *o, enum sampler_field field, const char *flag, const char *arg, double *v, skua_error *err)
{
    o->sampling.given |= 1u << field;
    bool ok = !opt_f64(flag, arg, -1e9, 1e9, v, NULL) && !sampler_field_check(&o->sampling.value, field, NULL);
    return ok ? 0 : bad_value(field, flag, arg, err);
}

static int integer_option(struct run_options *o, enum sampler_field field, const char *flag, const char *arg, int32_t *v, skua_error *err)
{
    int64_t i = 0;
    o->sampling.given |= 1u << field;
    if (opt_i64(flag, arg, -1, INT32_MAX, &i, NULL))
        return bad_value(field, flag, arg, err);
    *v = (int32_t)i;
    return sampler_field_check(&o->sampling.value, field, NULL) ? bad_value(field, flag, arg, err) : 0;
}

static int sampling_option(struct run_options *o, int c, const char *arg, skua_error *err)
{
    skua_sampling *v = &o->sampling.value;
    switch (c) {
    case OPT_TEMP: return number_option(o, SAMPLER_TEMPERATURE, "--temp", arg, &v->temperature, err);
    case OPT_TOP_K: return integer_option(o, SAMPLER_TOP_K, "--top-k", arg, &v->top_k, err);
    case OPT_TOP_P: return number_option(o, SAMPLER_TOP_P, "--top-p", arg, &v->top_p, err);
    case OPT_MIN_P: return number_option(o, SAMPLER_MIN_P, "--min-p", arg, &v->min_p, err);
    case OPT_REPEAT: return number_option(o, SAMPLER_REPETITION_PENALTY, "--repeat-penalty", arg, &v->repetition_penalty, err);
    case OPT_REPEAT_N: return integer_option(o, SAMPLER_PENALTY_LAST_N, "--repeat-last-n", arg, &v->penalty_last_n, err);
    case OPT_PRESENCE: return number_option(o, SAMPLER_PRESENCE_PENALTY, "--presence-penalty", arg, &v->presence_penalty, err);
    case OPT_FREQUENCY: return number_option(o, SAMPLER_FREQUENCY_PENALTY, "--frequency-penalty", arg, &v->frequency_penalty, err);
    case OPT_BIAS: return add_bias(o, arg, err);
    case 's':
        o->sampling.given |= 1u << SAMPLER_SEED;
        return opt_u64("--seed", arg, &v->seed, err);
    default: return error_set(err, SKUA_EARG, "unknown option");
    }
}

static int plain_option(struct run_options *o, int c, const char *arg, skua_error *err)
{
    switch (c) {
    case 'f': o->file = arg; return 0;
    case OPT_SYSTEM: o->system = arg; return 0;
    case OPT_RAW: o->raw = true; return 0;
    case OPT_THINK: o->think = THINK_ON; return 0;
    case OPT_NO_THINK: o->think = THINK_OFF; return 0;
    case OPT_SHOW_THINKING: o->show_thinking = true; return 0;
    case OPT_SPECIAL: o->special = true; return 0;
    case 'q': o->quiet = true; return 0;
    case OPT_PROFILE: o->profile = true; return 0;
    case OPT_STATS: o->stats = true; return 0;
    case OPT_TRACE:
        o->trace = arg;
        o->draft.given = true;
        return 0;
    case 'n': return opt_i64("--max-tokens", arg, 0, INT32_MAX, &o->max_tokens, err);
    case OPT_STOP:
        if (o->n_stop == RUN_MAX_STOP)
            return error_set(err, SKUA_ELIMIT, "--stop more than %d times", RUN_MAX_STOP);
        if (!*arg)
            return error_set(err, SKUA_EARG, "--stop '' is empty; expected text to stop before");
        o->stop[o->n_stop++] = arg;
        return 0;
    default: return sampling_option(o, c, arg, err);
    }
}

/* A model file in place of the prompt: what other programs take there. */
static bool names_model(const char *prompt)
{
    const size_t n = strlen(prompt);
    return n > 5 && !strcmp(prompt + n - 5, ".gguf") && !access(prompt, F_OK);
}

/* 0, 1 (help was printed), or an error. */
static int parse(int argc, char **argv, struct run_options *o, skua_error *err)
{
    int c, rc = 0;
    opts_begin();
    while (!rc && (c = opts_next("run", argc, argv, ENGINE_SHORTS "f:n:qs:h", long_options, err)) != OPTS_END) {
        if (c == OPTS_BAD)
            return SKUA_EARG;
        if (c == 'h') {
            fputs(help, stdout);
            return 1;
        }
        rc = engine_option(&o->engine, c, optarg, err);
        rc = rc ? rc : draft_option(&o->draft, c, optarg, err);
        rc = rc > 0 ? 0 : rc < 0 ? rc : plain_option(o, c, optarg, err);
    }
    if (!rc && optind < argc)
        o->prompt = argv[optind++];
    if (!rc && o->prompt && names_model(o->prompt))
        rc = error_set(err, SKUA_EARG, "'%s' is a file, not a prompt; expected -m %s", o->prompt, o->prompt);
    if (!rc && optind < argc)
        rc = error_set(err, SKUA_EARG, "more than one prompt ('%s'); put the prompt in quotes, and a model's file behind -m", argv[optind]);
    if (!rc && o->prompt && o->file)
        rc = error_set(err, SKUA_EARG, "both a prompt and --file; expected one of them");
    if (!rc && o->raw && (o->system || o->think != THINK_AS_TEMPLATE))
        rc = error_set(err, SKUA_EARG, "--raw does not go with --system, --think or --no-think: it uses no chat template");
    if (!rc)
        rc = draft_check(&o->draft, err);
    return rc;
}

/* ---- one answer ---- */

static int build_prompt(struct run *r, const char *text, size_t n, struct chat_prompt *out, skua_error *err)
{
    struct chatlog log = {0};
    json_t *args = NULL;
    if (r->opt.raw)
        return tokenizer_encode(r->engine->tokenizer, text, n, true, &out->ids, err);
    int rc = chatlog_init(&log, err);
    if (!rc && r->opt.system)
        rc = chatlog_set_system(&log, r->opt.system, strlen(r->opt.system), err);
    if (!rc)
        rc = chatlog_add(&log, "user", text, n, NULL, 0, err);
    if (!rc)
        rc = run_template_args(r, &args, err);
    if (!rc)
        rc = chat_prompt_build(r->engine, log.messages, NULL, args, out, err);
    json_decref(args);
    chatlog_free(&log);
    return rc;
}

static int answer_once(struct run *r, const char *text, size_t n, skua_error *err)
{
    struct chat_prompt prompt = {0};
    int rc = build_prompt(r, text, n, &prompt, err);
    if (!rc)
        rc = run_answer(r, &prompt.ids, prompt.opens_thinking, err);
    if (r->answer.len && (r->term.out_tty || !r->opt.raw))
        if ((putchar('\n') == EOF || fflush(stdout)) && !rc)
            rc = error_set(err, SKUA_EIO, "cannot write to standard output: %s", strerror(errno));
    run_figures(r);
    chat_prompt_free(&prompt);
    return rc;
}

static int print_profile(struct run *r, skua_error *err)
{
    struct strbuf out = {0};
    int rc = profile_check(&r->profile, err);
    profile_text(&r->profile, &out);
    if (!rc && strbuf_failed(&out))
        rc = error_nomem(err, "profile", out.len);
    if (!rc)
        fputs(strbuf_str(&out), stderr);
    strbuf_free(&out);
    return rc;
}

static int print_stats(struct run *r, skua_error *err)
{
    struct strbuf out = {0};
    const skua_draft_stats stats = skua_session_draft_stats(r->session);
    draft_stats_text(&stats, &out);
    int rc = strbuf_failed(&out) ? error_nomem(err, "figures", out.len) : 0;
    if (!rc)
        fputs(strbuf_str(&out), stderr);
    strbuf_free(&out);
    return rc;
}

static int open_trace(struct run *r, skua_error *err)
{
    const char *path = r->opt.trace;
    if (!path)
        return 0;
    if (file_is_same(path, r->opt.draft.params.source))
        return error_set(err, SKUA_EARG, "%s: is the drafter; expected another name for the trace", path);
    if (r->opt.file && file_is_same(path, r->opt.file))
        return error_set(err, SKUA_EARG, "%s: is the prompt; expected another name for the trace", path);
    if (stream_check_output(r->engine->gguf, path, err))
        return err->code;
    r->trace = fopen(path, "w");
    return r->trace ? 0 : error_set(err, SKUA_EIO, "%s: cannot be written: %s", path, strerror(errno));
}

static int close_trace(struct run *r, int rc, skua_error *err)
{
    if (!r->trace)
        return rc;
    const bool failed = ferror(r->trace);
    if ((fclose(r->trace) || failed) && !rc)
        rc = error_set(err, SKUA_EIO, "%s: cannot be written: %s", r->opt.trace, strerror(errno));
    if (r->trace_lacks && !rc)
        rc = error_set(err, SKUA_ENOMEM, "%s: out of memory for %d of its lines", r->opt.trace, r->trace_lacks);
    r->trace = NULL;
    return rc;
}

static int work(struct run *r, skua_error *err)
{
    struct run_options *o = &r->opt;
    char *text = NULL;
    size_t n = o->prompt ? strlen(o->prompt) : 0;
    bool chat = !o->prompt && !o->file && r->term.in_tty;
    int rc = 0;
    if (chat && o->raw)
        return error_set(err, SKUA_EARG, "--raw needs a prompt, a --file or standard input");
    if (!chat && !o->prompt) /* before the model is opened: a wrong name should be told at once */
        rc = file_read_all(o->file ? o->file : "-", MAX_PROMPT_BYTES, &text, &n, err);
    if (!rc)
        rc = engine_open(&o->engine, "run", &r->engine, err);
    if (!rc)
        rc = draft_attach(&o->draft, "run", r->engine, o->quiet, err);
    if (!rc)
        rc = open_trace(r, err);
    if (!rc)
        rc = engine_session(&o->engine, "run", r->engine, &r->session, err);
    if (!rc && o->profile)
        profile_attach(&r->profile, r->engine);
    bool switchable = true;
    if (!rc && o->think != THINK_AS_TEMPLATE)
        rc = chat_template_uses(r->engine, "enable_thinking", &switchable, err);
    if (!rc && !switchable)
        opts_warn("run", "this model's chat template has no thinking switch; --think and --no-think change nothing");
    if (!rc)
        rc = chat ? run_chat(r, err) : answer_once(r, text ? text : o->prompt, n, err);
    if (!rc && o->profile)
        rc = print_profile(r, err);
    if (!rc && o->stats)
        rc = print_stats(r, err);
    rc = close_trace(r, rc, err);
    mem_free(text);
    return rc;
}

int cmd_run(int argc, char **argv)
{
    static struct run r; /* large (the bias table), and one per process */
    skua_error err = {0};
    r = (struct run){.opt = {.max_tokens = -1, .draft = DRAFT_OPTIONS_INIT}};
    int rc = parse(argc, argv, &r.opt, &err);
    if (rc > 0)
        return OPTS_OK;
    if (rc) {
        draft_options_free(&r.opt.draft);
        return opts_fail("run", OPTS_USAGE, &err);
    }
    term_probe(&r.term);
    rc = work(&r, &err);
    profile_free(&r.profile);
    draft_options_free(&r.opt.draft);
    skua_session_free(r.session);
    skua_engine_close(r.engine);
    strbuf_free(&r.reasoning);
    strbuf_free(&r.answer);
    return rc ? opts_fail("run", OPTS_FAILED, &err) : OPTS_OK;
}
