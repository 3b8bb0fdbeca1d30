// The official @anthropic-ai/sdk against /v1/messages of a gateway, with the key in either header, and through the redirect of
// a global node.
import { check, end, env, retries, want } from "./fleet.mjs";
import Anthropic from "@anthropic-ai/sdk";

const messages = [{ role: "user", content: "Where do I run?" }];
const model = "llama-3.1-8b";
const client = (more) => new Anthropic({ apiKey: env("FLEET_KEY"), baseURL: env("GATEWAY_URL"), maxRetries: 0, ...more });
for (const [how, options] of [
  ["x-api-key", {}],
  ["bearer", { authToken: env("FLEET_KEY"), apiKey: null }],
  ["through the redirect", { baseURL: env("GLOBAL_URL") }],
]) {
  const ai = client(options);
  await check(`messages, ${how}`, async () => {
    const r = await ai.messages.create({ model, messages, max_tokens: 20 });
    want(r.type === "message" && r.content[0].text && r.usage.output_tokens > 0, JSON.stringify(r));
    return `${r.usage.output_tokens} tokens`;
  });
  await check(`messages, streamed, ${how}`, async () => {
    let text = "";
    const stream = ai.messages.stream({ model, messages, max_tokens: 20 }).on("text", (t) => { text += t; });
    const last = await stream.finalMessage();
    want(text && last.stop_reason && last.usage.output_tokens > 0, `${text} ${JSON.stringify(last)}`);
    return `${last.usage.output_tokens} tokens, ${last.stop_reason}`;
  });
}
await check("an unknown model is a NotFoundError", async () => {
  const e = await client().messages.create({ model: "no-such", messages, max_tokens: 5 }).catch((e) => e);
  want(e instanceof Anthropic.NotFoundError, `${e?.constructor?.name} ${e}`);
});
await retries(client, (ai, { model, content, headers }) => ai.messages.create({ model, messages: [{ role: "user", content }], max_tokens: 5 }, { headers }), model);
end();
