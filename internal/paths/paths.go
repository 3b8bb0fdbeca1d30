// Package paths decides which request paths and gRPC methods are forwarded to workers.
//
// Only inference is. An engine has one HTTP server for inference and for its management (loading and unloading
// models, sleeping, flushing caches, other tenants' prompts in /slots). A management path that were forwarded
// by mistake would give any tenant control of the worker. Both tiers use this package; a path that it does not
// list is answered with 404.
//
// A path is compared byte by byte as the client wrote it. Doubled slashes, dot segments, escapes, another case
// or a trailing slash make it a different path, which is not listed.
//
// Engine-specific generation paths are not forwarded by default. Each engine also has OpenAI's paths, and the
// bodies of its own can manage the engine or select a model where no check reads it: Ollama's keep_alive
// unloads a model and its options.num_ctx reloads it; SGLang's and TGI's /generate name no model; llama.cpp's
// /completion selects a slot. The spec key routing.extra_paths adds paths one by one; their usage and limits
// are then read in the engine's format.
//
// The package never reads a body and keeps no state.
package paths

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/openai"
)

// PathProtocol is the protocol of a request.
type PathProtocol uint8

// The protocols.
const (
	// HTTP is a POST whose body is read completely.
	HTTP PathProtocol = iota
	// WebSocket is an upgrade (RFC 6455).
	WebSocket
	// GRPC is a call: the path is /package.Service/Method.
	GRPC
)

// RealtimePath is the only WebSocket path forwarded by default.
const RealtimePath = "/v1/realtime"

// MatchPath reports whether a request to u is forwarded, and the shape of its body. extra is the spec's
// routing.extra_paths. An extra path is forwarded for each protocol.
func MatchPath(p PathProtocol, u *url.URL, extra []string) (shape openai.Shape, ok bool) {
	path := u.EscapedPath()
	if p == HTTP {
		shape = openai.ShapeOf(path)
	}
	if passesByDefault(p, path, shape) {
		return shape, true
	}
	for _, pattern := range extra {
		if pattern == path || matchesPattern(pattern, path) && !IsManagementPath(path) {
			return shape, true
		}
	}
	return openai.ShapeUnknown, false
}

// passesByDefault reports whether a path is forwarded by default.
func passesByDefault(p PathProtocol, path string, shape openai.Shape) bool {
	switch p {
	case WebSocket:
		return path == RealtimePath
	case GRPC:
		method, ok := strings.CutPrefix(path, grpcmeta.InferenceService)
		if !ok {
			return false
		}
		switch method {
		case "ModelInfer", "ModelStreamInfer", "ModelMetadata", "ModelReady", "ServerLive", "ServerReady", "ServerMetadata":
			return true
		}
		return false
	}
	switch shape {
	case openai.ShapeUnknown, openai.ShapeOllama, openai.ShapeOllamaEmbed, openai.ShapeNative, openai.ShapeLlamaCPP:
		return false
	}
	return true
}

// DefaultPaths returns the paths forwarded by default, as patterns, for documents and error messages.
func DefaultPaths() []string {
	return []string{
		openai.PathChat, openai.PathCompletions, openai.PathEmbeddings, openai.PathResponses, openai.PathMessages, openai.PathCountTokens,
		"/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech",
		"/v1/images/generations", "/v1/images/edits", "/v1/images/variations",
		"/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score", "/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize",
		"/v2/models/{model}/infer", "/v2/models/{model}/generate", "/v2/models/{model}/generate_stream", RealtimePath,
	}
}

// NotFoundError returns the 404 error for a path that is not forwarded. It quotes at most 64 bytes of the path.
func NotFoundError(path string) *openai.Error {
	return &openai.Error{
		Status: 404, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound, NoRetry: true,
		Message: "no such path: " + strconv.Quote(path[:min(len(path), 64)]) + " (served: " + openai.PathModels + "[/MODEL], " +
			strings.Join(DefaultPaths(), ", ") + ", and those of routing.extra_paths)",
	}
}

// matchesPattern reports whether a path matches a pattern: equal segments, except that {name} matches one
// segment and a final * matches the rest. A wildcard matches plain text only: letters, digits and the marks - _
// . ~ : @ without escapes, and no empty or dot segment.
func matchesPattern(pattern, path string) bool {
	for {
		var want, have string
		var more, left bool
		want, pattern, more = strings.Cut(pattern, "/")
		if want == "*" && !more {
			for s := range strings.SplitSeq(path, "/") {
				if !isPlainSegment(s) {
					return false
				}
			}
			return true
		}
		have, path, left = strings.Cut(path, "/")
		named := len(want) > 2 && want[0] == '{' && want[len(want)-1] == '}'
		if named && !isPlainSegment(have) || !named && want != have || more != left {
			return false
		}
		if !more {
			return true
		}
	}
}

// isPlainSegment reports whether a segment means the same to every server.
func isPlainSegment(s string) bool {
	if s == "" || strings.Trim(s, ".") == "" {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.~:@", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// MaxExtraPaths bounds the extra paths of a spec: each request to an unknown path is compared with all of them.
const MaxExtraPaths = 64

// CheckPattern returns what is wrong with a pattern of routing.extra_paths, or nil.
func CheckPattern(pattern string) error {
	rest, ok := strings.CutPrefix(pattern, "/")
	switch {
	case !ok:
		return fmt.Errorf("the path %q does not begin with /", pattern)
	case len(pattern) > 256:
		return errors.New("the path is longer than 256 bytes")
	}
	wild := false
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		name, opened := strings.CutPrefix(s, "{")
		name, closed := strings.CutSuffix(name, "}")
		switch {
		case s == "*" && i == len(segments)-1 && i > 0, opened && closed && isPlainSegment(name):
			wild = true
		case !isPlainSegment(s):
			return fmt.Errorf("the segment %q of %q is neither plain (letters, digits, - _ . ~ : @), nor {name}, nor a * at the end", s, pattern)
		}
	}
	if !wild {
		return nil
	}
	for _, m := range ManagementPaths() {
		if matchesPattern(pattern, m) {
			return fmt.Errorf("%q covers %s, which manages an engine", pattern, m)
		}
	}
	return nil
}

// managementPatterns are the paths and gRPC methods for the management and monitoring of the engines of
// local/engine, from their route tables (vLLM 0.11, SGLang 0.5, llama.cpp b6500, Ollama 0.12, TGI 3.3, Triton
// 25.09, TensorRT-LLM 1.0). {name} is one segment. A wildcard of routing.extra_paths never matches them; a path
// that is neither here nor forwarded is refused as well.
var managementPatterns = []string{
	// vLLM
	"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/sleep", "/wake_up", "/is_sleeping", "/reset_prefix_cache",
	"/reset_mm_cache", "/reset_encoder_cache", "/collective_rpc", "/start_profile", "/stop_profile", "/server_info", "/load",
	"/pause", "/resume", "/is_paused", "/abort_requests", "/scale_elastic_ep", "/is_scaling_elastic_ep",
	"/init_weight_transfer_engine", "/update_weights", "/get_world_size", "/metrics", "/health", "/ping", "/version",
	// SGLang
	"/flush_cache", "/abort_request", "/update_weights_from_disk", "/update_weights_from_tensor",
	"/update_weights_from_distributed", "/update_weights_from_ipc", "/init_weights_update_group",
	"/destroy_weights_update_group", "/init_weights_send_group_for_remote_instance", "/send_weights_to_remote_instance",
	"/get_weights_by_name", "/update_weight_version", "/weights_checker", "/release_memory_occupation",
	"/resume_memory_occupation", "/load_lora_adapter", "/load_lora_adapter_from_tensors", "/unload_lora_adapter",
	"/start_expert_distribution_record", "/stop_expert_distribution_record", "/dump_expert_distribution_record",
	"/configure_logging", "/freeze_gc", "/slow_down", "/pause_generation", "/continue_generation", "/open_session",
	"/close_session", "/set_internal_state", "/get_internal_state", "/get_server_info", "/get_model_info", "/model_info",
	"/get_load", "/v1/loads", "/clear_hicache_storage_backend", "/hicache/storage-backend", "/set_trace_level", "/health_generate",
	// llama.cpp
	"/slots", "/slots/{id}", "/props", "/lora-adapters", "/models", "/models/load", "/models/unload",
	// Ollama
	"/api/pull", "/api/push", "/api/create", "/api/delete", "/api/copy", "/api/show", "/api/tags", "/api/ps", "/api/version",
	"/api/blobs/{digest}", "/api/me", "/api/signout",
	// TGI
	"/info",
	// Triton
	"/v2/repository/index", "/v2/repository/models/{model}/load", "/v2/repository/models/{model}/unload",
	"/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/{name}/register", "/v2/systemsharedmemory/region/{name}/unregister",
	"/v2/systemsharedmemory/unregister", "/v2/cudasharedmemory/status", "/v2/cudasharedmemory/region/{name}/register",
	"/v2/cudasharedmemory/region/{name}/unregister", "/v2/cudasharedmemory/unregister", "/v2/trace/setting", "/v2/logging",
	"/v2/models/{model}/trace/setting", "/v2/models/{model}/config", "/v2/models/{model}/stats",
	"/inference.GRPCInferenceService/RepositoryIndex", "/inference.GRPCInferenceService/RepositoryModelLoad",
	"/inference.GRPCInferenceService/RepositoryModelUnload", "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
	"/inference.GRPCInferenceService/SystemSharedMemoryRegister", "/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
	"/inference.GRPCInferenceService/CudaSharedMemoryStatus", "/inference.GRPCInferenceService/CudaSharedMemoryRegister",
	"/inference.GRPCInferenceService/CudaSharedMemoryUnregister", "/inference.GRPCInferenceService/ModelConfig",
	"/inference.GRPCInferenceService/ModelStatistics", "/inference.GRPCInferenceService/TraceSetting",
	"/inference.GRPCInferenceService/LogSettings",
	// TensorRT-LLM
	"/prometheus/metrics", "/perf_metrics", "/kv_cache_events", "/release_memory", "/resume_memory",
	// gRPC servers of SGLang and vLLM
	"/sglang.grpc.scheduler.SglangScheduler/Abort", "/vllm.grpc.engine.VllmEngine/Abort",
}

// ManagementPaths returns the management paths of known engines, with an x for each variable segment.
func ManagementPaths() []string {
	out := make([]string, len(managementPatterns))
	for i, m := range managementPatterns {
		for {
			at := strings.IndexByte(m, '{')
			if at < 0 {
				break
			}
			m = m[:at] + "x" + m[at+strings.IndexByte(m[at:], '}')+1:]
		}
		out[i] = m
	}
	return out
}

// IsManagementPath reports whether a path is a management path of a known engine.
func IsManagementPath(path string) bool {
	for _, m := range managementPatterns {
		if m == path || matchesPattern(m, path) {
			return true
		}
	}
	return false
}
