// Responses by the client "openai".
import OpenAI from 'openai';
import { ANSWER, CITY, FRANCE, WEATHER, error, finish, fits, ok, plain, same, server, test } from './lib.mjs';

const s = await server('--ctx', '4096', '--parallel', '2');
const client = new OpenAI({ apiKey: 'none', baseURL: s.base + '/v1', maxRetries: 0 });
const ask = (input, fields = {}) => ({ model: 'gpt-5', input, temperature: 0, max_output_tokens: 120, ...fields });
const tools = [{ type: 'function', name: 'get_weather', description: 'Get the current weather for a city', parameters: CITY, strict: true }];
const quiet = { reasoning: { effort: 'none' } };

// Whole = what the client puts together of the stream; every event in its turn.
async function both(body) {
    const whole = await client.responses.create(body), stream = client.responses.stream(body);
    const types = [];
    let next = 0;
    for await (const e of stream) {
        same(e.sequence_number, next++);
        types.push(e.type);
    }
    const joined = await stream.finalResponse();
    same(types[0], 'response.created');
    ok(['response.completed', 'response.incomplete'].includes(types.at(-1)), types.at(-1));
    same(plain(joined).output, plain(whole).output);
    same(joined.usage.output_tokens, whole.usage.output_tokens);
    return whole;
}

await test('plain', async () => {
    const a = await both(ask(FRANCE, quiet));
    same([a.object, a.status, a.output_text], ['response', 'completed', 'The capital of France is Paris.']);
    same(a.output.map(o => o.type), ['message']);
});
await test('thinking', async () => {
    const a = await both(ask(FRANCE, { include: ['reasoning.encrypted_content'] }));
    same(a.output.map(o => o.type), ['reasoning', 'message']);
    ok(a.usage.output_tokens_details.reasoning_tokens > 3 && a.output[0].encrypted_content);
    const b = await both(ask([{ role: 'user', content: FRANCE }, ...a.output, { role: 'user', content: 'And of Italy?' }]));
    ok(b.usage.input_tokens > a.usage.input_tokens);
});
await test('instructions, and items as input', async () => {
    const a = await both(ask([{ type: 'message', role: 'user', content: [{ type: 'input_text', text: FRANCE }] }], { instructions: 'Be brief.', ...quiet }));
    ok(a.output_text.includes('Paris'), a.output_text);
});
for (const [name, choice] of [['auto', 'auto'], ['required', 'required'], ['named', { type: 'function', name: 'get_weather' }]])
    await test(`a tool call, ${name}`, async () => {
        const a = await both(ask(WEATHER, { tools, tool_choice: choice }));
        const call = a.output.find(o => o.type === 'function_call');
        same([call.name, JSON.parse(call.arguments)], ['get_weather', { city: 'Paris' }]);
        const b = await both(ask([{ role: 'user', content: WEATHER }, ...a.output, { type: 'function_call_output', call_id: call.call_id, output: 'sunny' }],
            { tools }));
        ok(b.usage.input_tokens > a.usage.input_tokens + call.arguments.length / 8);
    });
await test('a custom tool', async () => {
    const custom = [{ type: 'custom', name: 'note', description: 'Writes a note.' }];
    const a = await both(ask('Write a note.', { tools: custom, tool_choice: { type: 'custom', name: 'note' }, ...quiet }));
    const call = a.output.find(o => o.type === 'custom_tool_call');
    same([call.name, typeof call.input], ['note', 'string']);
});
await test('structured output', async () => {
    const body = ask(FRANCE, { text: { format: { type: 'json_schema', name: 'answer', schema: ANSWER, strict: true } }, ...quiet, max_output_tokens: 300 });
    fits((await client.responses.parse(body)).output_parsed);
    await both(body);
});
await test('length', async () => {
    const a = await both(ask(FRANCE, { ...quiet, max_output_tokens: 16, instructions: 'Count.', temperature: 0.8 , top_p: 1 }));
    if (a.status === 'incomplete')
        same(a.incomplete_details.reason, 'max_output_tokens');
});
await test('count', async () => {
    const a = await client.responses.create(ask(FRANCE, quiet)), n = await client.responses.inputTokens.count({ model: 'x', input: FRANCE, ...quiet });
    same(n.input_tokens, a.usage.input_tokens);
});
await test('kept answers', async () => {
    const a = await client.responses.create(ask(FRANCE, quiet)), next = [{ role: 'user', content: 'And of Italy?' }];
    const got = await client.responses.retrieve(a.id);
    same([got.id, got.output, got.output_text], [a.id, a.output, a.output_text]);
    const b = await both(ask(next, { ...quiet, previous_response_id: a.id }));
    const whole = await client.responses.create(ask([{ role: 'user', content: FRANCE }, ...a.output, ...next], quiet));
    same([b.output_text, b.usage.input_tokens], [whole.output_text, whole.usage.input_tokens]);
    const items = [];
    for await (const item of client.responses.inputItems.list(b.id, { limit: 2, order: 'asc' }))
        items.push(item);
    same(items.map(i => i.content[0].text), [FRANCE, a.output_text, next[0].content]);
    await client.responses.delete(a.id);
    ok((await error(client.responses.retrieve(a.id))) instanceof OpenAI.NotFoundError);
});
await test('errors', async () => {
    for (const [fields, param] of [[{ temperature: 'hot' }, 'temperature'], [{ input: 7 }, 'input'], [{ previous_response_id: 'resp_x' }, 'previous_response_id']]) {
        const e = await error(client.responses.create(ask(FRANCE, fields)));
        ok(e instanceof OpenAI.BadRequestError, String(e));
        same(e.param, param);
    }
    const e = await error(client.responses.create(ask('word '.repeat(6000))));
    same([e.status, e.code, e.param], [400, 'context_length_exceeded', 'input']);
});
await test('an abort in mid-stream', async () => {
    const stream = await client.responses.create(ask('Go on.', { ...quiet, stream: true, max_output_tokens: 3900, ignore_eos: true }));
    let n = 0;
    for await (const e of stream)
        if (e.type === 'response.output_text.delta' && ++n === 3)
            break;
    await s.idle();
    same(n, 3);
});
await s.stop();
finish();
