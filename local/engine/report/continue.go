package report

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
