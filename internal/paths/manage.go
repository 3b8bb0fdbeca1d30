package paths

import "strings"

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
