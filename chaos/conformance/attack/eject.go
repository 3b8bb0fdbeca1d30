package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

func sendRefusedUpgrades(ctx context.Context, t *targetFleet) (string, error) {
	for range 20 {
		got, err := t.sendRaw(ctx, t.gateway, "GET /v1/realtime?model=llama-3.1-8b HTTP/1.1\r\nHost: chat\r\nAuthorization: Bearer "+t.keys["mallory"]+
			"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 2*time.Second)
		if err != nil {
			return "", err
		}
		if !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 5") || strings.Contains(got, secretMark) {
			return "", fmt.Errorf("an upgrade is answered with %.200q", got)
		}
	}
	return t.expectAllReady(ctx, "20 refused upgrades, no page of a worker")
}

func sendRefusedGRPC(ctx context.Context, t *targetFleet) (string, error) {
	for range 10 {
		if _, err := t.grpcCall(ctx, t.keys["mallory"], "/inference.GRPCInferenceService/ModelInfer", modelInfer, 10*time.Second); err != nil {
			return "", err
		}
	}
	return t.expectAllReady(ctx, "10 calls to workers without gRPC")
}

func (t *targetFleet) expectAllReady(ctx context.Context, measured string) (string, error) {
	ready, total, err := t.readyWorkers(ctx)
	if err != nil {
		return "", err
	}
	if ready != total {
		return "", fmt.Errorf("%s, and %d of %d workers are no longer ready", measured, total-ready, total)
	}
	return fmt.Sprintf("%s; %d of %d workers ready", measured, ready, total), nil
}

func sendTooLongStreams(ctx context.Context, t *targetFleet) (string, error) {
	for i := range 24 {
		got, err := t.postJSON(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], streamBody(fmt.Sprint(markTooLong, " ", i)))
		if err != nil {
			return "", err
		}
		if got.status != http.StatusOK || !strings.Contains(got.body, "longer than the context") {
			return "", fmt.Errorf("answer %d is %d: %.200s", i, got.status, got.body)
		}
	}
	if n := t.countRequests(); n != 24 {
		return "", fmt.Errorf("24 streams were sent to workers %d times", n)
	}
	return t.expectAllReady(ctx, "24 streams, each sent once and its error passed on")
}

func sendEchoedPrompts(ctx context.Context, t *targetFleet) (string, error) {
	for i := range 24 {
		if _, err := t.postJSON(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], chatBody(fmt.Sprint(markEcho, " CUDA error: an illegal memory access; engine core died; out of memory ", i), 8)); err != nil {
			return "", err
		}
	}
	return t.expectAllReady(ctx, "24 prompts echoed by a 500")
}

func streamBody(prompt string) string {
	return strings.Replace(chatBody(prompt, 8), `"max_tokens":8`, `"max_tokens":8,"stream":true`, 1)
}

func sendPoisonRequest(ctx context.Context, t *targetFleet) (string, error) {
	body, last := chatBody(markBreakBefore+" same request", 8), targetAnswer{}
	for range 3 {
		var err error
		if last, err = t.postJSON(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], body); err != nil {
			return "", err
		}
	}
	return t.judgePoison(last)
}

func sendPoisonStream(ctx context.Context, t *targetFleet) (string, error) {
	body, last := streamBody(markBreakLate+" same stream"), targetAnswer{}
	for range 3 {
		var err error
		if last, err = t.postJSON(ctx, t.gateway+"/v1/chat/completions", t.keys["mallory"], body); err != nil {
			return "", err
		}
	}
	return t.judgePoison(last)
}

func (t *targetFleet) judgePoison(last targetAnswer) (string, error) {
	n := t.countDeaths()
	switch {
	case n > 2:
		return "", fmt.Errorf("three tries of one request killed %d workers", n)
	case n == 0:
		return "", errors.New("the request reached no worker: the attack was not made")
	case last.errorCode() != "request_kills_workers" || last.header.Get("X-Should-Retry") != "false":
		return "", fmt.Errorf("after %d deaths the answer is %d %s, x-should-retry %q", n, last.status, last.errorCode(), last.header.Get("X-Should-Retry"))
	}
	return fmt.Sprintf("3 tries: %d deaths, then %d %s, x-should-retry: false", n, last.status, last.errorCode()), nil
}
