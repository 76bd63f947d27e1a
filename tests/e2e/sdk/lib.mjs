// A real server, and checks that count.
import assert from 'node:assert';
import { spawn } from 'node:child_process';

const { SKUA, MODEL } = process.env;
let passed = 0, failed = 0;

export async function test(name, body) {
    try {
        await body();
        passed++;
    } catch (e) {
        failed++;
        console.error(`FAIL: ${name}: ${String(e?.stack ?? e).slice(0, 1200)}`);
    }
}

export function finish() {
    console.log(`${passed} passed, ${failed} failed`);
    process.exit(failed ? 1 : 0);
}

export const same = (got, want) => assert.deepStrictEqual(got, want);
export const ok = (condition, what) => assert.ok(condition, what);

// The error that the promise fails with.
export async function error(promise) {
    try {
        await promise;
    } catch (e) {
        return e;
    }
    throw new Error('no error came');
}

export async function until(condition, what) {
    for (const end = Date.now() + 60000; !(await condition()); await new Promise(r => setTimeout(r, 20)))
        if (Date.now() > end)
            throw new Error('waited in vain: ' + what);
}

export async function server(...options) {
    const env = { ...process.env };
    for (const name of ['SKUA_MODEL', 'SKUA_CPU', 'SKUA_API_KEY'])
        delete env[name];
    const child = spawn(SKUA, ['serve', '-m', MODEL, '--port', '0', ...options], { stdio: ['ignore', 'pipe', 'pipe'], env });
    let text = '';
    const ended = new Promise(r => child.on('exit', (code, signal) => r({ code, signal })));
    child.stdout.on('data', d => { text += d; });
    child.stderr.on('data', d => { text += d; });
    process.on('exit', () => child.kill('SIGKILL'));
    let port;
    await until(() => {
        if (child.exitCode !== null)
            throw new Error('the server did not start: ' + text);
        port = text.match(/listening on http:\/\/\S+:(\d+)$/m)?.[1];
        return port;
    }, 'the start of the server');
    const base = `http://127.0.0.1:${port}`;
    await until(async () => (await fetch(base + '/ready')).status === 200, 'a loaded model');
    return {
        base,
        async stop() {
            child.kill('SIGTERM');
            const { code } = await ended;
            await test('the server ends well', () => ok(code === 0 && !/Sanitizer|runtime error/.test(text), `status ${code}: ${text.slice(-800)}`));
        },
        async metric(name) {
            const line = (await (await fetch(base + '/metrics')).text()).split('\n').find(l => l.startsWith(name + ' '));
            return line ? Number(line.split(' ')[1]) : 0;
        },
        async idle() {
            await until(async () => (await (await fetch(base + '/slots')).json()).every(s => !s.is_processing), 'a free engine');
        },
    };
}

// A fetch that lets the first n requests fail as a busy server would, and tells how many there were and when.
export function busyFirst(n, headers) {
    const times = [];
    const fetcher = async (...args) => {
        times.push(Date.now());
        if (times.length <= n)
            return new Response('{"error":{"message":"busy","type":"rate_limit_error"}}', { status: 429, headers });
        return fetch(...args);
    };
    return { fetcher, times };
}

export const FRANCE = 'What is the capital of France?';
export const WEATHER = 'What is the weather in Paris?';
export const CITY = {
    type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false,
};
export const ANSWER = {
    type: 'object', additionalProperties: false, required: ['capital', 'large', 'rank'],
    properties: { capital: { type: 'string', maxLength: 12 }, large: { type: 'boolean' }, rank: { type: 'integer', minimum: 1, maximum: 9 } },
};
export function fits(v) {
    same(Object.keys(v), ['capital', 'large', 'rank']);
    ok(typeof v.capital === 'string' && typeof v.large === 'boolean' && v.rank >= 1 && v.rank <= 9, JSON.stringify(v));
}
// Without ids and times, which differ from answer to answer.
export function plain(v) {
    const out = { ...v };
    for (const k of ['id', 'call_id', 'parsed', 'parsed_arguments', 'signature', 'encrypted_content', 'citations'])
        delete out[k];
    for (const k of Object.keys(out))
        if (Array.isArray(out[k]))
            out[k] = out[k].map(x => (x && typeof x === 'object' ? plain(x) : x));
        else if (out[k] && typeof out[k] === 'object')
            out[k] = plain(out[k]);
    return out;
}
