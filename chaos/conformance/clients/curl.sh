#!/bin/bash
# curl against a gateway and through the redirect, with the versions of HTTP that it has.
set -u
failed=0
say() { if [ "$2" = "$3" ]; then echo "ok    $1: $2"; else echo "FAIL  $1: $2, want $3"; failed=1; fi; }
auth="Authorization: Bearer $FLEET_KEY"
body='{"model":"llama-3.1-8b","stream":true,"max_tokens":10,"messages":[{"role":"user","content":"Where do I run?"}]}'
names=()
for n in "" virginia. frankfurt. tokyo.; do
  a=$(dig +short "@${FLEET_DNS%:*}" -p "${FLEET_DNS#*:}" "${n}chat.spillway.test" A 2>/dev/null | head -1)
  [ -n "$a" ] && names+=(--resolve "${n}chat.spillway.test:8080:$a")
done
code() { curl -s -o /dev/null -m 20 -w '%{http_code}' "$@"; }
done_of() { curl -sN -m 20 "$@" | grep -c '^data: \[DONE\]'; }
say "stream from a gateway, HTTP/1.1" "$(done_of --http1.1 "$GATEWAY_URL/v1/chat/completions" -H "$auth" -d "$body")" 1
say "stream with Expect: 100-continue" "$(done_of -H 'Expect: 100-continue' "$GATEWAY_URL/v1/chat/completions" -H "$auth" -d "$body")" 1
say "stream, chunked body" "$(done_of -H 'Transfer-Encoding: chunked' "$GATEWAY_URL/v1/chat/completions" -H "$auth" -d "$body")" 1
if [ "${#names[@]}" -gt 1 ]; then
  say "stream through the redirect" "$(done_of -L "${names[@]}" "$GLOBAL_URL/v1/chat/completions" -H "$auth" -d "$body")" 1
else
  echo "skip  stream through the redirect: dig is not installed (Debian: apt-get install bind9-dnsutils)"
fi
if curl --version | grep -q HTTP2; then
  say "stream from a gateway, HTTP/2 offered in the clear" "$(done_of --http2 "$GATEWAY_URL/v1/chat/completions" -H "$auth" -d "$body")" 1
fi
if curl --version | grep -q HTTP3 && [ -n "${GATEWAY_TLS_URL:-}" ]; then
  say "stream from a gateway, HTTP/3" "$(done_of --http3-only -k "$GATEWAY_TLS_URL/v1/chat/completions" -H "$auth" -d "$body")" 1
else
  echo "skip  HTTP/3: this curl has none, or the gateway has no TLS"
fi
say "no key" "$(code "$GATEWAY_URL/v1/models")" 401
say "unknown model" "$(code "$GATEWAY_URL/v1/chat/completions" -H "$auth" -d '{"model":"no-such","messages":[]}')" 404
say "no JSON" "$(code "$GATEWAY_URL/v1/chat/completions" -H "$auth" -d '{')" 400
say "one model" "$(code "$GATEWAY_URL/v1/models/llama-3.1-8b" -H "$auth")" 200
say "no capacity" "$(code "$GATEWAY_URL/v1/chat/completions" -H "$auth" -d '{"model":"unserved-model","messages":[]}')" 503
# Headers of errors: x-should-retry, and Retry-After where there is a time to wait.
retry_headers() { curl -s -m 20 -o /dev/null -w '%header{x-should-retry} %header{retry-after}' "$@"; }
chat() { retry_headers "$GATEWAY_URL/v1/chat/completions" "$@"; }
if [ "$(curl -s -o /dev/null -w '%header{content-type}' "$GATEWAY_URL/v1/models")" = application/json ]; then
  say "retry headers, wrong key" "$(chat -H 'Authorization: Bearer wrong' -d "$body")" "false "
  say "retry headers, unknown model" "$(chat -H "$auth" -d '{"model":"no-such","messages":[]}')" "false "
  say "retry headers, a deadline that cannot be met" "$(chat -H "$auth" -H 'X-Spillway-Deadline-Ms: 1' -d "${body/Where do I run?/$(printf 'word %.0s' {1..4000})}")" "false "
  say "retry headers, no capacity" "$(chat -H "$auth" -d '{"model":"unserved-model","messages":[]}')" "true 2"
else
  echo "skip  headers of errors: this curl cannot print them"
fi
exit $failed
