// Chat completions, completions and models by the client "openai".
import OpenAI from 'openai';
import { ANSWER, CITY, FRANCE, WEATHER, busyFirst, error, finish, fits, ok, same, server, test, until } from './lib.mjs';

const s = await server('--ctx', '4096', '--parallel', '4');
const client = new OpenAI({ apiKey: 'none', baseURL: s.base + '/v1', maxRetries: 0 });
const ask = (content, fields = {}) => ({
    model: 'gpt-5', messages: [{ role: 'user', content }], temperature: 0, max_completion_tokens: 80, ...fields,
});
const tools = [
    { type: 'function', function: { name: 'get_weather', description: 'Get the current weather for a city', parameters: CITY } },
    { type: 'function', function: { name: 'get_time', description: 'Get the local time of a city', parameters: CITY, strict: true } },
];
const sampled = { temperature: 0.8, seed: 11 };

async function streamed(body) {
    return client.chat.completions.stream({ ...body, stream_options: { include_usage: true } }).finalChatCompletion();
}

// What the client puts together of a stream = the whole answer.
async function both(body) {
    const whole = await client.chat.completions.create(body), joined = await streamed(body);
    const choice = c => ({
        index: c.index, finish: c.finish_reason, content: c.message.content || null, thinking: c.message.reasoning_content,
        calls: (c.message.tool_calls ?? []).map(x => [x.type, x.function.name, x.function.arguments]),
    });
    const chosen = joined.choices.map(choice);
    same(chosen.map(c => ({ ...c, thinking: undefined })), whole.choices.map(c => ({ ...choice(c), thinking: undefined })));
    for (const k of ['prompt_tokens', 'completion_tokens', 'total_tokens'])
        same(joined.usage[k], whole.usage[k]);
    return whole;
}

await test('plain', async () => {
    const a = await both(ask(FRANCE, { reasoning_effort: 'none' }));
    same(a.choices[0].message.content, 'The capital of France is Paris.');
    same([a.object, a.choices[0].finish_reason, a.model], ['chat.completion', 'stop', 'tiny-q8_0']);
    ok(!('reasoning_content' in a.choices[0].message));
});
await test('sampled with a seed', async () => { await both(ask('Tell me about the sea.', sampled)); });
await test('thinking', async () => {
    const body = ask(FRANCE), a = await client.chat.completions.create(body);
    let thinking = '', content = '', role;
    for await (const c of await client.chat.completions.create({ ...body, stream: true })) {
        const d = c.choices[0].delta;
        role ??= d.role;
        thinking += d.reasoning_content ?? '';
        content += d.content ?? '';
    }
    same([role, thinking, content], ['assistant', a.choices[0].message.reasoning_content, a.choices[0].message.content]);
    ok(thinking.length > 5 && a.usage.completion_tokens_details.reasoning_tokens > 3);
});
await test('thinking budget', async () => {
    const a = await client.chat.completions.create(ask(FRANCE, { thinking_budget: 4, max_completion_tokens: 200 }));
    ok(a.usage.completion_tokens_details.reasoning_tokens < 60 && a.choices[0].message.content, JSON.stringify(a));
});
await test('several choices', async () => {
    const a = await both(ask('Say something.', { ...sampled, n: 3, max_completion_tokens: 24 }));
    same(a.choices.map(c => c.index), [0, 1, 2]);
});
await test('stop', async () => {
    const a = await both(ask(FRANCE, { reasoning_effort: 'none', stop: [' France', 'zzz'] }));
    same([a.choices[0].message.content, a.choices[0].finish_reason], ['The capital of', 'stop']);
});
await test('length', async () => {
    const a = await both(ask(FRANCE, { reasoning_effort: 'none', max_completion_tokens: 3 }));
    same([a.choices[0].finish_reason, a.usage.completion_tokens], ['length', 3]);
});
await test('log-probabilities', async () => {
    const body = ask(FRANCE, { reasoning_effort: 'none', logprobs: true, top_logprobs: 3 });
    const a = await client.chat.completions.create(body), b = await streamed(body);
    const rows = a.choices[0].logprobs.content;
    same(rows.map(r => r.token).join(''), a.choices[0].message.content);
    ok(rows.every(r => r.top_logprobs.length === 3 && r.top_logprobs[0].logprob === r.logprob && r.logprob <= 0));
    same(rows.flatMap(r => r.bytes), [...Buffer.from(a.choices[0].message.content)]);
    same(b.choices[0].logprobs.content, rows);
});
await test('a tool call', async () => {
    const a = await both(ask(WEATHER, { tools }));
    const [call] = a.choices[0].message.tool_calls;
    same([a.choices[0].finish_reason, call.function.name, JSON.parse(call.function.arguments)], ['tool_calls', 'get_weather', { city: 'Paris' }]);
    const next = await client.chat.completions.create(ask('', {
        tools, messages: [{ role: 'user', content: WEATHER }, a.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'sunny' }],
    }));
    ok(next.usage.prompt_tokens > a.usage.prompt_tokens + a.usage.completion_tokens);
    ok(next.usage.prompt_tokens_details.cached_tokens >= a.usage.prompt_tokens + a.usage.completion_tokens - 8, JSON.stringify([a.usage, next.usage]));
});
for (const [name, choice, want] of [['required', 'required', 'get_weather'],
    ['named', { type: 'function', function: { name: 'get_weather' } }, 'get_weather'],
    ['named and strict', { type: 'function', function: { name: 'get_time' } }, 'get_time']])
    for (const effort of ['none', 'low'])
        await test(`forced call, ${name}, thinking ${effort}`, async () => {
            const a = await both(ask(WEATHER, { tools, tool_choice: choice, reasoning_effort: effort, max_completion_tokens: 200 }));
            const { message } = a.choices[0], [call] = message.tool_calls;
            same([a.choices[0].finish_reason, message.content, call.function.name], ['tool_calls', null, want]);
            same(Object.keys(JSON.parse(call.function.arguments)), ['city']);
            if (want === 'get_weather')
                same(JSON.parse(call.function.arguments), { city: 'Paris' });
        });
await test('no call allowed', async () => {
    const a = await both(ask(WEATHER, { tools, tool_choice: 'none' }));
    ok(!a.choices[0].message.tool_calls && a.choices[0].finish_reason !== 'tool_calls');
});
await test('parallel calls in history, one at a time from now on', async () => {
    const calls = ['Paris', 'Rome'].map((city, i) => ({
        id: `call_${i}`, type: 'function', function: { name: 'get_weather', arguments: JSON.stringify({ city }) },
    }));
    const messages = [{ role: 'user', content: 'What is the weather in Paris and in Rome?' }, { role: 'assistant', content: null, tool_calls: calls },
        ...calls.map(c => ({ role: 'tool', tool_call_id: c.id, content: 'It is sunny.' })), { role: 'user', content: WEATHER }];
    const a = await both(ask('', { messages, tools, parallel_tool_calls: false, tool_choice: 'required', max_completion_tokens: 200 }));
    same(a.choices[0].message.tool_calls.length, 1);
});
await test('the client\'s own loop of tools', async () => {
    const cities = [];
    const run = client.chat.completions.runTools(ask(WEATHER, {
        tools: [{ type: 'function', function: {
            name: 'get_weather', description: 'Get the current weather for a city', parameters: CITY, parse: JSON.parse,
            function: ({ city }) => { cities.push(city); return 'It is sunny.'; },
        } }],
    }), { maxChatCompletions: 3 });
    await run.done().catch(() => null); // a small model may go on calling
    same(cities[0], 'Paris');
});
const json_schema = { name: 'answer', schema: ANSWER, strict: true };
for (const effort of ['none', 'low'])
    await test(`structured output, thinking ${effort}`, async () => {
        const body = ask(FRANCE, { response_format: { type: 'json_schema', json_schema }, reasoning_effort: effort, max_completion_tokens: 300 });
        const a = await client.chat.completions.parse(body), b = await streamed(body);
        fits(a.choices[0].message.parsed);
        same(JSON.parse(b.choices[0].message.content), a.choices[0].message.parsed);
    });
await test('any object', async () => {
    const a = await client.chat.completions.create(ask('Give me JSON.', {
        response_format: { type: 'json_object' }, reasoning_effort: 'none', max_completion_tokens: 300,
    }));
    if (a.choices[0].finish_reason === 'stop')
        same(typeof JSON.parse(a.choices[0].message.content), 'object');
    else
        ok(a.choices[0].message.content.startsWith('{'));
});
await test('completions', async () => {
    const body = { model: 'x', prompt: ['The capital of France is', 'Two plus two'], n: 2, temperature: 0, max_tokens: 6, logprobs: 2 };
    const a = await client.completions.create(body), texts = ['', '', '', ''];
    for await (const c of await client.completions.create({ ...body, stream: true }))
        for (const choice of c.choices)
            texts[choice.index] += choice.text;
    same(texts, a.choices.map(c => c.text));
    ok(a.choices.every(c => c.logprobs.tokens.join('') === c.text));
});
await test('models', async () => {
    const list = [];
    for await (const m of client.models.list())
        list.push(m.id);
    same(list, ['tiny-q8_0']);
    same((await client.models.retrieve('tiny-q8_0')).max_model_len, 4096);
    same((await error(client.models.retrieve('gpt-5'))).code, 'model_not_found');
});

// ---- errors ----

await test('wrong fields', async () => {
    for (const [fields, param] of [[{ temperature: 9 }, 'temperature'], [{ messages: 'Hi' }, 'messages'], [{ top_logprobs: 3 }, 'top_logprobs'],
        [{ messages: [{ role: 'user', content: 'a' }, { role: 'judge', content: 'b' }] }, 'messages[1].role'], [{ n: 99 }, 'n'],
        [{ tool_choice: 'required' }, 'tool_choice']]) {
        const e = await error(client.chat.completions.create(ask(FRANCE, fields)));
        ok(e instanceof OpenAI.BadRequestError && e.type === 'invalid_request_error' && e.requestID, String(e));
        same(e.param, param);
    }
});
await test('too long', async () => {
    for (const stream of [false, true]) {
        const e = await error(client.chat.completions.create(ask('word '.repeat(6000), { stream })));
        ok(e instanceof OpenAI.BadRequestError && e.message.includes('maximum context length is 4096 tokens'), String(e));
        same([e.code, e.param, e.error.n_ctx], ['context_length_exceeded', 'messages', 4096]);
        ok(e.message.includes(String(e.error.n_prompt_tokens)));
    }
});
await test('unknown path', async () => ok((await error(client.get('/nothing'))) instanceof OpenAI.NotFoundError));
await test('embeddings', async () => ok((await error(client.embeddings.create({ model: 'x', input: 'a' }))) instanceof OpenAI.BadRequestError));
await test('unsupported schema', async () => {
    const schema = { type: 'object', properties: {}, additionalProperties: false, not: {} };
    const e = await error(client.chat.completions.create(ask(FRANCE, {
        response_format: { type: 'json_schema', json_schema: { name: 'a', schema, strict: true } },
    })));
    same([e.status, e.code], [400, 'unsupported_schema']);
});

// ---- abort ----

const endless = { ignore_eos: true, max_completion_tokens: 3900, reasoning_effort: 'none' };
await test('an abort in mid-stream frees the engine', async () => {
    const aborter = new AbortController();
    const stream = await client.chat.completions.create(ask('Go on.', { ...endless, stream: true }), { signal: aborter.signal });
    let n = 0;
    for await (const c of stream)
        if (c.choices[0].delta.content && ++n === 3)
            break; // the client aborts
    await s.idle();
    ok(n === 3 && await s.metric('skua_requests_running') === 0);
});
await test('an abort of an answer that is not streamed', async () => {
    const aborter = new AbortController();
    const e = error(client.chat.completions.create(ask('Go on.', endless), { signal: aborter.signal }));
    await until(async () => await s.metric('skua_requests_running') === 1, 'the request runs');
    aborter.abort();
    ok((await e) instanceof OpenAI.APIUserAbortError);
    await s.idle();
});
await test('a time limit of the client', async () => {
    const e = await error(client.chat.completions.create(ask('Go on.', { ...endless, messages: [{ role: 'user', content: 'word '.repeat(1500) }] }),
        { timeout: 150 }));
    ok(e instanceof OpenAI.APIConnectionTimeoutError, String(e));
    await s.idle();
});
await test('after all that', async () => {
    const a = await client.chat.completions.create(ask(FRANCE, { reasoning_effort: 'none' }));
    same(a.choices[0].message.content, 'The capital of France is Paris.');
});

// ---- retries ----

await test('retry-after-ms is obeyed', async () => {
    const { fetcher, times } = busyFirst(2, { 'retry-after-ms': '120' });
    const c = new OpenAI({ apiKey: 'none', baseURL: s.base + '/v1', fetch: fetcher });
    same((await c.chat.completions.create(ask(FRANCE, { max_completion_tokens: 1 }))).object, 'chat.completion');
    same(times.length, 3);
});
await s.stop();

const strict = await server('--ctx', '65536', '--parallel', '1', '--queue', '0', '--api-key', 'secret', '--strict-model', '--alias', 'small');
const open = (apiKey, more) => new OpenAI({ apiKey, baseURL: strict.base + '/v1', maxRetries: 0, ...more });
await test('wrong key', async () => {
    const e = await error(open('wrong').chat.completions.create(ask(FRANCE, { model: 'small' })));
    ok(e instanceof OpenAI.AuthenticationError && e.code === 'invalid_api_key', String(e));
});
await test('strict model', async () => {
    const e = await error(open('secret').chat.completions.create(ask(FRANCE)));
    ok(e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.param === 'model', String(e));
});
await test('busy: 429, and the client tries again when told', async () => {
    const stream = await open('secret').chat.completions.create(ask('Go on.', { ...endless, max_completion_tokens: 60000, model: 'small', stream: true }));
    for await (const c of stream.iterator?.() ?? stream) {
        if (!c.choices[0].delta.content)
            continue;
        const e = await error(open('secret').chat.completions.create(ask(FRANCE, { model: 'small' })));
        ok(e instanceof OpenAI.RateLimitError && e.code === 'queue_full' && Number(e.headers.get('retry-after')) >= 1, String(e));
        const waiting = open('secret', { maxRetries: 4 }).chat.completions.create(ask(FRANCE, { model: 'small', max_completion_tokens: 2 }));
        setTimeout(() => stream.controller.abort(), 200);
        same((await waiting).object, 'chat.completion');
        break;
    }
});
await strict.stop();
finish();
