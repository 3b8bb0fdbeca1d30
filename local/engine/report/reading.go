// Package report defines what engines report about themselves as plain values: their load, their models, and what they
// can do with an answer that another worker began. It has no dependency on the calls that fetch these values.
package report

import "time"

// Reading is what a worker's metrics page reported. The zero Reading means that nothing was read yet. The slices that it
// refers to are shared and never change.
type Reading struct {
	// ReadAt is when the worker last answered.
	ReadAt time.Time
	// LoadReadAt is when the worker last reported a valid load; zero when it never did, as with engines that have no
	// metrics. Running, Waiting and KVUsage are of that time.
	LoadReadAt time.Time
	// Running and Waiting are numbers of sequences, summed over data-parallel engines.
	Running, Waiting int64
	// KVUsage is the share of the KV cache that running sequences hold, 0 to 1. It is valid only with KVReported.
	KVUsage float64
	// KVReported means that the engine reports its KV cache usage.
	KVReported bool
	// KVTotal is the size of the KV cache in tokens; 0 when unknown.
	KVTotal int64
	// Slots is how many sequences the engine runs at once; 0 when unknown.
	Slots int64
	// PromptTokens, OutputTokens, PrefixQueries and PrefixHits count tokens since the engine started.
	PromptTokens, OutputTokens, PrefixQueries, PrefixHits float64
	// Served counts requests since the engine started; Preemptions counts sequences that were evicted for lack of KV cache.
	Served, Preemptions float64
	// Asleep means that the engine has released its GPU memory and must be woken.
	Asleep bool
	// Adapters are the adapters with requests now, sorted. MaxAdapters is how many fit at once; 0 when unknown.
	Adapters    []string
	MaxAdapters int64
	// Ignored counts the impossible values that were ignored since the worker was declared.
	Ignored int64
}

// KVUsed is the used part of the KV cache in tokens; -1 when unknown.
func (r *Reading) KVUsed() int64 {
	if r.KVTotal <= 0 || !r.KVReported {
		return -1
	}
	return int64(r.KVUsage * float64(r.KVTotal))
}

// IsRestart reports whether the counters of next are lower, so that the engine was restarted and its cache is empty.
func (r *Reading) IsRestart(next *Reading) bool {
	return next.PromptTokens < r.PromptTokens || next.OutputTokens < r.OutputTokens || next.Served < r.Served
}

// CanContinue reports whether an engine continues an answer from a given beginning and returns only the rest: of a chat
// by continue_final_message, of a completion by its prompt.
//
// vLLM has the parameter since 0.6.2, SGLang since 0.4.4, TGI since 3.0. llama.cpp has it since May 2026, and older builds
// ignore it. Since April 2025 its server continues a final assistant message in any case, except with
// --no-prefill-assistant, and refuses one with status 400 where the chat template has a reasoning section. None of this
// can be detected from outside. Where the message is ignored, the model starts its answer again in the middle of the
// client's answer, so chats on llama.cpp are not continued. Ollama and unknown servers may put a completion's prompt into
// a chat template. TensorRT-LLM and Triton have no such parameter.
func CanContinue(name string, chat bool) bool {
	switch name {
	case "vllm", "sglang", "tgi":
		return true
	case "llamacpp":
		return !chat
	}
	return false
}
