// Answers of llama.cpp. Usage: node peer_quant.mjs DIR JOB.json, where DIR holds node_modules and JOB.json is
// {"models": [{"path", "prompts": [text], "probes": [ids]}], "tokens": N}, prompts and probes optional. Prints one JSON line per model:
// {"model", "prompts": [{"ids", "greedy"}], "probes": [[[id, ln p] of the fifty likeliest next tokens]]}, or {"model", "error"}.
import {readFileSync} from "node:fs";
import {resolve} from "node:path";
import {pathToFileURL} from "node:url";

const [,, folder, jobFile] = process.argv;
const job = JSON.parse(readFileSync(jobFile, "utf8"));
const {getLlama} = await import(pathToFileURL(resolve(folder, "node_modules/node-llama-cpp/dist/index.js")));
const llama = await getLlama({build: "never", gpu: false, logLevel: "error"});

async function answer(model, sequence, ids) {
    await sequence.clearHistory();
    const greedy = [];
    for await (const id of sequence.evaluate(ids, {temperature: 0, yieldEogToken: true})) {
        greedy.push(id);
        if (greedy.length >= job.tokens || model.isEogToken(id))
            break;
    }
    return {ids, greedy};
}

async function likeliest(sequence, ids) {
    await sequence.clearHistory();
    const last = [ids.at(-1), {generateNext: {probabilities: true, options: {temperature: 1, topK: 0, topP: 1, minP: 0}}}];
    const output = await sequence.controlledEvaluate([...ids.slice(0, -1), last]);
    const best = [...output[ids.length - 1].next.probabilities.entries()].sort((a, b) => b[1] - a[1]).slice(0, 50);
    return best.map(([id, p]) => [id, Math.log(p)]);
}

for (const {path, prompts, probes} of job.models) {
    try {
        const model = await llama.loadModel({modelPath: path});
        const context = await model.createContext({contextSize: 512, threads: 1});
        const sequence = context.getSequence();
        const reply = {model: path, prompts: [], probes: []};
        for (const text of prompts ?? [])
            reply.prompts.push(await answer(model, sequence, model.tokenize(text, true)));
        for (const ids of probes ?? [])
            reply.probes.push(await likeliest(sequence, ids));
        console.log(JSON.stringify(reply));
        await model.dispose();
    } catch (error) {
        console.log(JSON.stringify({model: path, error: String(error)}));
    }
}
process.exit(0);
