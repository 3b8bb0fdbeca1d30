package engine

// Continues reports whether an engine goes on with an answer that it is given the beginning of, and returns nothing but
// the rest: of a chat by continue_final_message, of a completion by its prompt.
//
// vLLM has the parameter since 0.6.2, SGLang since 0.4.4, TGI since 3.0. llama.cpp took it in May 2026 and older builds
// ignore it, so that the model would begin anew: its chats are not continued. Ollama and servers that are not known may
// put a completion's prompt into a chat template, and TensorRT-LLM and Triton know no such parameter.
func Continues(name string, chat bool) bool {
	switch name {
	case "vllm", "sglang", "tgi":
		return true
	case "llamacpp":
		return !chat
	}
	return false
}
