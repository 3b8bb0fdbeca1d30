package pick

// passTokens is about what an engine prefills in one pass: a request of several sequences holds no more of the KV cache
// at a time, for each leaves as soon as it is done.
const passTokens = 8192

// longest is the longest prompt in the request.
func (q *Query) longest() int64 {
	prompt := max(0, q.PromptTokens)
	if q.Longest > 0 {
		return min(prompt, q.Longest)
	}
	return prompt
}

// Length is the longest sequence that the request needs context for, prompt and expected output, in tokens.
func (q *Query) Length() int64 { return q.longest() + max(0, q.OutputTokens) }

// KV is what the request holds of a worker's KV cache at a time, in tokens.
func (q *Query) KV() int64 {
	out := max(0, q.OutputTokens)
	if q.Longest > 0 {
		return min(max(0, q.PromptTokens), max(q.longest(), passTokens)) + out
	}
	return max(0, q.PromptTokens) + out
}
