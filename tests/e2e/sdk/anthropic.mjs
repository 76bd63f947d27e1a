// Messages by the client "@anthropic-ai/sdk".
import Anthropic from '@anthropic-ai/sdk';
import { ANSWER, CITY, FRANCE, WEATHER, error, finish, fits, ok, plain, same, server, test } from './lib.mjs';

const s = await server('--ctx', '4096', '--parallel', '2');
const client = new Anthropic({ apiKey: 'none', baseURL: s.base, maxRetries: 0 });
const off = { thinking: { type: 'disabled' } };
const ask = (content, fields = {}) => ({ model: 'claude-sonnet-4-5', max_tokens: 120, temperature: 0, messages: [{ role: 'user', content }], ...fields });
const tools = [{ name: 'get_weather', description: 'Get the current weather for a city', input_schema: CITY }];

// Whole = what the client puts together of the stream.
async function both(body) {
    const whole = await client.messages.create(body), joined = await client.messages.stream(body).finalMessage();
    same(plain(joined).content, plain(whole).content);
    same([joined.stop_reason, joined.stop_sequence, joined.usage.output_tokens], [whole.stop_reason, whole.stop_sequence, whole.usage.output_tokens]);
    return whole;
}

await test('plain', async () => {
    const a = await both(ask(FRANCE, off));
    same(plain(a).content, [{ type: 'text', text: 'The capital of France is Paris.' }]);
    same([a.type, a.role, a.model, a.stop_reason], ['message', 'assistant', 'claude-sonnet-4-5', 'end_turn']);
});
await test('any name of a model is echoed', async () => same((await client.messages.create(ask(FRANCE, { model: 'my-model', ...off }))).model, 'my-model'));
await test('thinking, and back with its signature', async () => {
    const a = await both(ask(FRANCE, { thinking: { type: 'enabled', budget_tokens: 1024 }, max_tokens: 2000, temperature: 1, top_k: 1 }));
    same(a.content.map(b => b.type), ['thinking', 'text']);
    ok(a.content[0].signature && a.usage.output_tokens > 8);
    const b = await client.messages.create(ask('', { messages: [{ role: 'user', content: FRANCE }, { role: 'assistant', content: a.content },
        { role: 'user', content: 'And of Italy?' }] }));
    ok(b.usage.input_tokens + b.usage.cache_read_input_tokens > a.usage.input_tokens + a.usage.cache_read_input_tokens);
});
await test('system, and the beginning of the answer', async () => {
    const a = await both(ask('', { system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }], ...off,
        messages: [{ role: 'user', content: FRANCE }, { role: 'assistant', content: 'The capital of France is' }] }));
    ok(a.content[0].text.startsWith(' Paris'), JSON.stringify(a.content));
});
await test('a stop string, and a limit', async () => {
    const a = await both(ask(FRANCE, { ...off, stop_sequences: [' France'] }));
    same([a.stop_reason, a.stop_sequence, a.content[0].text], ['stop_sequence', ' France', 'The capital of']);
    same((await both(ask(FRANCE, { ...off, max_tokens: 3 }))).stop_reason, 'max_tokens');
});
for (const [name, choice] of [['auto', { type: 'auto' }], ['any', { type: 'any' }], ['named', { type: 'tool', name: 'get_weather' }]])
    await test(`a tool call, ${name}`, async () => {
        const a = await both(ask(WEATHER, { tools, tool_choice: choice, ...off }));
        const use = a.content.find(b => b.type === 'tool_use');
        same([a.stop_reason, use.name, use.input], ['tool_use', 'get_weather', { city: 'Paris' }]);
        const b = await both(ask('', { tools, ...off, messages: [{ role: 'user', content: WEATHER }, { role: 'assistant', content: a.content },
            { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: [{ type: 'text', text: 'sunny' }] }] }] }));
        ok(b.content.length > 0);
    });
await test('structured output', async () => {
    const a = await both(ask(FRANCE, { ...off, max_tokens: 300, output_config: { format: { type: 'json_schema', schema: ANSWER } } }));
    fits(JSON.parse(a.content[0].text));
});
await test('count', async () => {
    const body = ask(FRANCE, { system: 'Be brief.', tools, ...off }), a = await client.messages.create(body);
    const { max_tokens: _, temperature: __, ...rest } = body;
    same((await client.messages.countTokens(rest)).input_tokens, a.usage.input_tokens + a.usage.cache_read_input_tokens);
});
await test('errors', async () => {
    for (const fields of [{ max_tokens: undefined }, { messages: 'Hi' }, { temperature: 'hot' }, { tool_choice: { type: 'tool', name: 'none' } }]) {
        const e = await error(client.messages.create(ask(FRANCE, fields)));
        ok(e instanceof Anthropic.BadRequestError && e.error.error.type === 'invalid_request_error' && e.requestID, String(e));
    }
    const e = await error(client.messages.create(ask('word '.repeat(6000))));
    ok(e.status === 400 && /prompt is too long: \d+ tokens > \d+ maximum/.test(e.message), e.message);
    ok((await error(client.get('/v1/messages/batches'))) instanceof Anthropic.NotFoundError);
});
await test('an abort in mid-stream', async () => {
    const stream = client.messages.stream(ask('Go on.', { ...off, max_tokens: 3900, ignore_eos: true }));
    stream.on('text', () => stream.abort());
    ok((await error(stream.finalMessage())) instanceof Anthropic.APIUserAbortError);
    await s.idle();
});
await s.stop();
const locked = await server('--ctx', '4096', '--api-key', 'secret');
await test('keys', async () => {
    const open = apiKey => new Anthropic({ apiKey, baseURL: locked.base, maxRetries: 0 });
    ok((await error(open('wrong').messages.create(ask(FRANCE)))) instanceof Anthropic.AuthenticationError);
    same((await open('secret').messages.create(ask(FRANCE, off))).role, 'assistant');
});
await locked.stop();
finish();
