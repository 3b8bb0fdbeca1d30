// The official openai package against a gateway and through the redirect of a global node.
import { check, counting, end, env, retries, want } from "./fleet.mjs";
import OpenAI from "openai";

const messages = [{ role: "user", content: "Where do I run?" }];
const model = "llama-3.1-8b";
const client = (baseURL, more = {}) => new OpenAI({ apiKey: env("FLEET_KEY"), baseURL, maxRetries: 0, ...more });

for (const [way, base] of [["gateway", env("GATEWAY_URL")], ["redirect", env("GLOBAL_URL")]]) {
  const ai = client(`${base}/v1`);
  await check(`${way}: chat`, async () => {
    const r = await ai.chat.completions.create({ model, messages, max_tokens: 20 });
    want(r.choices[0].message.content && r.usage.completion_tokens > 0, JSON.stringify(r));
    return `${r.usage.completion_tokens} tokens`;
  });
  await check(`${way}: chat, streamed, with usage`, async () => {
    const stream = await ai.chat.completions.create({ model, messages, max_tokens: 20, stream: true, stream_options: { include_usage: true } });
    let text = "", chunks = 0, usage;
    for await (const c of stream) { chunks++; text += c.choices[0]?.delta?.content ?? ""; usage = c.usage ?? usage; }
    want(text && usage?.completion_tokens > 0, `text ${JSON.stringify(text)}, usage ${JSON.stringify(usage)}`);
    return `${chunks} chunks`;
  });
  await check(`${way}: chat, streamed, not asked for usage`, async () => {
    const stream = await ai.chat.completions.create({ model, messages, max_tokens: 10, stream: true });
    let end;
    for await (const c of stream) { want(!c.usage, "usage without a request for it"); end = c.choices[0]?.finish_reason ?? end; }
    want(end, "no finish reason");
    return end;
  });
  await check(`${way}: chat, left in the middle`, async () => {
    const stream = await ai.chat.completions.create({ model, messages, max_tokens: 2000, stream: true });
    for await (const _ of stream) break;
    stream.controller.abort();
  });
  await check(`${way}: completions`, async () => {
    const r = await ai.completions.create({ model, prompt: "Once", max_tokens: 10 });
    want(r.choices[0].text, JSON.stringify(r));
  });
  await check(`${way}: embeddings`, async () => {
    const r = await ai.embeddings.create({ model, input: ["a", "b"], encoding_format: "float" });
    want(r.data.length === 2 && r.data[0].embedding.length > 0 && r.data[1].index === 1, JSON.stringify(r).slice(0, 200));
    return `${r.data[0].embedding.length} dimensions`;
  });
  await check(`${way}: models`, async () => {
    const ids = [];
    for await (const m of ai.models.list()) ids.push(m.id);
    want(ids.includes(model), ids.join(" "));
    const one = await ai.models.retrieve(model);
    want(one.id === model && one.object === "model", JSON.stringify(one));
    return ids.join(" ");
  });
  await check(`${way}: an unknown model is a NotFoundError`, async () => {
    const e = await ai.chat.completions.create({ model: "no-such", messages }).catch((e) => e);
    want(e instanceof OpenAI.NotFoundError && e.code === "model_not_found" && e.requestID, `${e?.constructor?.name} ${e}`);
  });
  await check(`${way}: a bad request is a BadRequestError`, async () => {
    const e = await ai.chat.completions.create({ model, messages, max_tokens: -1 }).catch((e) => e);
    want(e instanceof OpenAI.BadRequestError, `${e?.constructor?.name} ${e}`);
  });
}
await check("gateway: a wrong key is an AuthenticationError, and is not retried", async () => {
  const seen = counting();
  const e = await client(`${env("GATEWAY_URL")}/v1`, { apiKey: "wrong", maxRetries: 2, fetch: seen.fetch }).models.list().catch((e) => e);
  want(e instanceof OpenAI.AuthenticationError && seen.calls.length === 1, `${e} after ${seen.calls.length} calls`);
});
await check("gateway: 429 is a RateLimitError with Retry-After, and the client waits as long", async () => {
  const seen = counting();
  const ai = client(`${env("GATEWAY_URL")}/v1`, { apiKey: env("FLEET_LIMITED_KEY"), maxRetries: 1, fetch: seen.fetch });
  const ask = () => ai.chat.completions.create({ model, messages, max_tokens: 5 });
  let e;
  for (let i = 0; i < 40 && !seen.calls.some((c) => c.status === 429); i++) await ask().catch((x) => { e = x; });
  const at = seen.calls.findIndex((c) => c.status === 429);
  want(at >= 0, `no 429 in ${seen.calls.length} calls`);
  const [first, next] = [seen.calls[at], seen.calls[at + 1]];
  const after = Number(first.headers.get("retry-after-ms") ?? 1000 * Number(first.headers.get("retry-after")));
  want(after > 0 && first.headers.get("x-ratelimit-limit-requests"), `headers ${JSON.stringify([...first.headers])}`);
  want(next, `it was not retried; x-should-retry ${first.headers.get("x-should-retry")}`);
  const waited = next.at - first.at;
  want(waited >= 0.95 * Math.min(after, 60000), `waited ${waited} ms of ${after}`);
  return `Retry-After ${after} ms, waited ${Math.round(waited)} ms, then ${next.status}`;
});
await check("gateway: no capacity is a 503 InternalServerError with Retry-After", async () => {
  const seen = counting();
  const e = await client(`${env("GATEWAY_URL")}/v1`, { maxRetries: 0, fetch: seen.fetch }).chat.completions.create({ model: "unserved-model", messages }).catch((e) => e);
  want(e instanceof OpenAI.InternalServerError && e.status === 503 && Number(seen.calls[0].headers.get("retry-after")) > 0, `${e?.constructor?.name} ${e} ${JSON.stringify([...(seen.calls[0]?.headers ?? [])])}`);
  return `${e.code}, Retry-After ${seen.calls[0].headers.get("retry-after")} s`;
});
await retries((o) => client(`${env("GATEWAY_URL")}/v1`, o), (ai, { model, content, headers }) => ai.chat.completions.create({ model, messages: [{ role: "user", content }], max_tokens: 5 }, { headers }), model);
end();
