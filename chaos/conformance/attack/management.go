package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// managementPaths are paths that change or reveal an engine: vLLM, SGLang, TensorRT-LLM and Triton, TGI, llama.cpp, Ollama.
var managementPaths = []string{
	"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter", "/sleep", "/wake_up", "/is_sleeping",
	"/reset_prefix_cache", "/reset_mm_cache", "/collective_rpc", "/update_weights", "/init_weight_transfer_engine", "/start_profile", "/stop_profile",
	"/abort_request", "/flush_cache", "/update_weights_from_disk", "/update_weights_from_tensor", "/update_weights_from_distributed",
	"/init_weights_update_group", "/get_weights_by_name", "/release_memory_occupation", "/resume_memory_occupation", "/set_internal_state",
	"/get_server_info", "/get_model_info", "/open_session", "/close_session", "/configure_logging", "/pause_generation", "/continue_generation",
	"/slots", "/slots/0", "/props", "/lora-adapters", "/models/load", "/models/unload",
	"/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/sha256:0", "/api/ps", "/api/tags", "/api/show",
	"/v2/repository/index", "/v2/repository/models/llama-3.1-8b/load", "/v2/repository/models/llama-3.1-8b/unload",
	"/v2/systemsharedmemory/region/a/register", "/v2/cudasharedmemory/unregister", "/v2/trace/setting", "/v2/logging",
	"/metrics", "/prometheus/metrics", "/server_info", "/version", "/docs", "/openapi.json", "/shutdown", "/kill",
}

func (t *targetFleet) expectNotFound(ctx context.Context, c *http.Client, base string, path string, header ...string) error {
	header = append(header, "X-Model", "llama-3.1-8b")
	got, err := t.sendRequest(ctx, c, http.MethodPost, base+path, t.keys["mallory"], strings.NewReader(`{"model":"llama-3.1-8b"}`), header...)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if got.status != http.StatusNotFound || strings.Contains(got.body, secretMark) {
		return fmt.Errorf("%s is answered with %d: %.100s", path, got.status, got.body)
	}
	return nil
}

func postManagementPaths(ctx context.Context, t *targetFleet) (string, error) {
	for _, path := range managementPaths {
		if err := t.expectNotFound(ctx, t.client, t.gateway, path); err != nil {
			return "", err
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d paths: 404, none reached a worker", len(managementPaths)), nil
}

func sendManagementToZone(ctx context.Context, t *targetFleet) (string, error) {
	c, base, err := t.zoneClient()
	if err != nil {
		return "", err
	}
	for _, path := range managementPaths {
		if err := t.expectNotFound(ctx, c, base, path); err != nil {
			return "", err
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d paths with a gateway's certificate: 404, none reached a worker", len(managementPaths)), nil
}

func upgradeManagementPaths(ctx context.Context, t *targetFleet) (string, error) {
	for _, path := range managementPaths {
		got, err := t.sendRaw(ctx, t.gateway, "GET "+path+"?model=llama-3.1-8b HTTP/1.1\r\nHost: chat\r\nAuthorization: Bearer "+t.keys["mallory"]+
			"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", time.Second)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if !strings.HasPrefix(got, "HTTP/1.1 404 ") || strings.Contains(got, secretMark) {
			return "", fmt.Errorf("%s is answered with %.100q", path, got)
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d paths: 404, none reached a worker", len(managementPaths)), nil
}

// sendDisguisedPaths are spellings of a management path that some server reads as that path.
func sendDisguisedPaths(ctx context.Context, t *targetFleet) (string, error) {
	disguises := []string{
		"//sleep", "/./sleep", "/v1/../sleep", "/v1/chat/completions/../../../sleep", "/%73leep", "/sleep/", "/sleep?x=/v1/chat/completions", "/SLEEP",
		"/v1/chat/completions/%2e%2e/%2e%2e/%2e%2e/sleep", "/v1%2f..%2fsleep", "/v1/chat/completions%00/../sleep", "/v1/chat/completions;/../sleep",
		"/v1/audio/../load_lora_adapter", "/v1/audio/%2e%2e/load_lora_adapter", "/sleep#/v1/chat/completions",
	}
	for _, path := range disguises {
		body := `{"model":"llama-3.1-8b"}`
		got, err := t.sendRaw(ctx, t.gateway, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: chat\r\nAuthorization: Bearer %s\r\nX-Model: llama-3.1-8b\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			path, t.keys["mallory"], len(body), body), 2*time.Second)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 30") {
			return "", fmt.Errorf("%s is answered with %.100q", path, got)
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d spellings, none reached a worker", len(disguises)), nil
}

func callManagementByGRPC(ctx context.Context, t *targetFleet) (string, error) {
	methods := []string{
		"/inference.GRPCInferenceService/RepositoryModelLoad", "/inference.GRPCInferenceService/RepositoryModelUnload", "/inference.GRPCInferenceService/RepositoryIndex",
		"/inference.GRPCInferenceService/SystemSharedMemoryRegister", "/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
		"/inference.GRPCInferenceService/TraceSetting", "/inference.GRPCInferenceService/LogSettings", "/sglang.grpc.scheduler.SglangScheduler/Abort",
		"/vllm.Engine/Sleep", "/any.Service/Method", "/sleep",
	}
	for _, m := range methods {
		got, err := t.grpcCall(ctx, t.keys["mallory"], m, []byte{}, 5*time.Second)
		if err != nil {
			return "", fmt.Errorf("%s: %s %w", m, got, err)
		}
		if !strings.Contains(got, "grpc-status=12") && !strings.Contains(got, "grpc-status=5") && !strings.Contains(got, ":status=404") {
			return "", fmt.Errorf("%s is answered with %s", m, got)
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d calls reached a worker", n)
	}
	return fmt.Sprintf("%d methods: UNIMPLEMENTED or NOT_FOUND, none reached a worker", len(methods)), nil
}

// sendSmuggledRequests are requests that a gateway and a worker might read differently. None may be answered as two.
func sendSmuggledRequests(ctx context.Context, t *targetFleet) (string, error) {
	auth := "Host: chat\r\nAuthorization: Bearer " + t.keys["mallory"] + "\r\nContent-Type: application/json\r\n"
	second := "POST /sleep HTTP/1.1\r\nHost: worker\r\nContent-Length: 0\r\n\r\n"
	cases := []string{
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: 5\r\nContent-Length: 60\r\n\r\nhello" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: +5\r\n\r\nhello" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Length: 0x5\r\n\r\nhello" + second,
		"POST /v1/chat/completions HTTP/1.1\n" + auth + "Transfer-Encoding: chunked\r\n\r\n5;\nx\r\nhello\r\n0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "X: a\r\n Content-Length: 60\r\nContent-Length: 0\r\n\r\n" + second,
		"POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n" + second,
	}
	for i, c := range cases {
		got, err := t.sendRaw(ctx, t.gateway, c, 1500*time.Millisecond)
		if err != nil {
			return "", fmt.Errorf("case %d: %w", i, err)
		}
		if n := strings.Count(got, "HTTP/1.1 2"); n > 0 {
			return "", fmt.Errorf("case %d is answered with %.200q", i, got)
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d ambiguous requests refused, none reached a worker", len(cases)), nil
}
