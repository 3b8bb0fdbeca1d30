// Package engine implements the dialects of inference engines: it reads a worker's metrics, health and model pages,
// in Spillway's own units, and loads and unloads its models. One file is one engine. NameAuto detects the engine of a
// worker.
//
//	engine    health                 models                        load comes from
//	vllm      /health                /v1/models                    /metrics
//	sglang    /health, else models   /v1/models                    /metrics, with --enable-metrics
//	trtllm    /health                /v1/models                    /prometheus/metrics
//	triton    /v2/health/live        /v2/repository/index          :8002/metrics
//	tgi       /health                /v1/models, /info             /metrics
//	llamacpp  /health                /v1/models, /props            /metrics with --metrics, else /slots
//	ollama    /api/version           /api/tags, /api/ps            none
//	openai    /health, else models   /v1/models                    none
//
// # Cancellation
//
// Spillway cancels a request by closing the connection. vLLM, SGLang, TensorRT-LLM serve, TGI, llama.cpp and Ollama
// detect that and free the sequence at their next step. Triton's HTTP server does not: it computes to the end, and
// the next reading shows that as foreign load.
//
// # Validation
//
// A value that is not a number, negative, out of range, or inconsistent with another on the same page is dropped and
// counted in Reading.Ignored; the last valid value stays, and Reading.LoadReadAt gives its age. Every page is bounded
// in size, every list in length, and a Client bounds its concurrent calls.
//
// The parser of the Prometheus text format is the package's own: it reads only the lines that are used, so a page of
// vLLM takes 0.1 ms and 13 allocations, where Prometheus's expfmt takes 7 ms and 48,000 (BenchmarkParseVLLM).
//
// The package makes no decisions about workers and does not retry.
package engine
