// Times of llama.cpp. Usage: node peer.mjs DIR MODEL PREFILL DECODE REPEAT THREADS, where DIR holds node_modules. Prints one JSON line:
// {"pp": [ms of each prompt], "tg": [ms of each step]}. Like skua bench: an untimed step before each group of steps, and logits of the last
// row every time. (evaluateWithoutGeneratingNewTokens would leave out the output head; _noSampling leaves out choosing a token.)
import {resolve} from "node:path";
import {pathToFileURL} from "node:url";

const [,, folder, modelPath, ...numbers] = process.argv;
const [prefill, decode, repeat, threads] = numbers.map(Number);
const {getLlama} = await import(pathToFileURL(resolve(folder, "node_modules/node-llama-cpp/dist/index.js")));
const llama = await getLlama({build: "never", gpu: false, logLevel: "error"});
const model = await llama.loadModel({modelPath});
const context = await model.createContext({contextSize: prefill + decode + 64, batchSize: 512, threads, flashAttention: true});
const sequence = context.getSequence();
const ids = [...Array(prefill + decode + 2)].map((_, i) => 100 + (i * 7919) % 7000);

async function time(tokens) {
    const begin = performance.now();
    const iterator = sequence.evaluateWithMetadata(tokens, {}, {temperature: 0, yieldEogToken: true, _noSampling: true});
    await iterator.next();
    const ms = performance.now() - begin;
    await iterator.return();
    return ms;
}

const result = {pp: [], tg: []};
await time(ids.slice(0, prefill)); // touches the weights
for (let i = 0; i < repeat; i++) {
    await sequence.clearHistory();
    result.pp.push(await time(ids.slice(0, prefill)));
    await sequence.clearHistory();
    await time(ids.slice(0, 1));
    for (let k = 0; k < decode; k++)
        result.tg.push(await time([ids[1 + k]]));
}
console.log(JSON.stringify(result));
process.exit(0);
