package pick

// prefillPassTokens is about what an engine prefills in one pass. A request of several sequences holds at most this
// much KV cache at a time, because each sequence is removed as soon as it is done.
const prefillPassTokens = 8192

// longestPrompt returns the longest prompt in the request, in tokens.
func (q *PlacementQuery) longestPrompt() int64 {
	prompt := max(0, q.PromptTokens)
	if q.LongestPrompt > 0 {
		return min(prompt, q.LongestPrompt)
	}
	return prompt
}

// ContextTokens returns the longest sequence of the request, prompt and expected output, in tokens.
func (q *PlacementQuery) ContextTokens() int64 { return q.longestPrompt() + max(0, q.OutputTokens) }

// KVTokens returns how much of a worker's KV cache the request holds at a time, in tokens.
func (q *PlacementQuery) KVTokens() int64 {
	out := max(0, q.OutputTokens)
	if q.LongestPrompt > 0 {
		return min(max(0, q.PromptTokens), max(q.longestPrompt(), prefillPassTokens)) + out
	}
	return max(0, q.PromptTokens) + out
}
