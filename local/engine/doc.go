// Package engine speaks the dialects of inference engines: what a worker's metrics, health and model pages say, in the
// router's own units, and how its models are loaded and let go. One file is one engine. Auto finds out by itself which
// of them a worker is.
//
//	engine    health                 models                        load comes from
//	vllm      /health                /v1/models                    /metrics
//	sglang    /health, else models   /v1/models                    /metrics, with --enable-metrics
//	trtllm    /health                /v1/models                    /prometheus/metrics
//	triton    /v2/health/live        /v2/repository/index          :8002/metrics
//	tgi       /health                /v1/models, /info             /metrics
//	llamacpp  /health                /v1/models, /props            /metrics with --metrics, else /slots
//	ollama    /api/version           /api/tags, /api/ps            nowhere
//	openai    /health, else models   /v1/models                    nowhere
//
// # Cancelling
//
// The router cancels by closing the connection. vLLM, SGLang, TensorRT-LLM serve, TGI, llama.cpp and Ollama notice it
// and free the sequence at their next step. Triton's HTTP door does not: it computes to the end, and what it still
// holds is seen as somebody else's load in the next reading.
//
// # What is not believed
//
// A value that is not a number, negative, absurd, or at odds with another on the same page is left out and counted in
// Reading.Ignored; the last good one stays, and Reading.LoadAt tells how old it is. Every page is bounded in size, every
// list in length, and a Client bounds how many questions are under way at one time.
//
// The package never decides anything about a worker and never retries.
package engine
