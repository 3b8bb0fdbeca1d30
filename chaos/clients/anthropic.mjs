// The official @anthropic-ai/sdk against /v1/messages of a gateway, with the key in either header.
import { check, end, env, want } from "./planet.mjs";
import Anthropic from "@anthropic-ai/sdk";

const messages = [{ role: "user", content: "Where do I run?" }];
const model = "llama-3.1-8b";
const probe = await fetch(`${env("GATEWAY_URL")}/v1/messages`, { method: "POST", headers: { authorization: `Bearer ${env("PLANET_KEY")}` }, body: JSON.stringify({ model, messages, max_tokens: 1 }) });
const said = await probe.text();
if (probe.status === 404 && said.includes("no such path")) {
  console.log("skip  this gateway or its workers do not serve /v1/messages");
  process.exit(0);
}
for (const [how, auth] of [["x-api-key", { apiKey: env("PLANET_KEY") }], ["bearer", { authToken: env("PLANET_KEY"), apiKey: null }]]) {
  const ai = new Anthropic({ baseURL: env("GATEWAY_URL"), maxRetries: 0, ...auth });
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
  const ai = new Anthropic({ baseURL: env("GATEWAY_URL"), maxRetries: 0, apiKey: env("PLANET_KEY") });
  const e = await ai.messages.create({ model: "no-such", messages, max_tokens: 5 }).catch((e) => e);
  want(e instanceof Anthropic.NotFoundError, `${e?.constructor?.name} ${e}`);
});
end();
