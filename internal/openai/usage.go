package openai

// TokenUsage is the token usage of one response.
type TokenUsage struct {
	Prompt, Completion, Cached int
	// Stated: the engine reported it. Otherwise the amounts are zero or an estimate.
	Stated bool
}

// Source returns the origin of the amounts, for metrics.
func (u *TokenUsage) Source() string {
	if u.Stated {
		return "stated"
	}
	return "estimated"
}

// FinalUsage returns the usage of the stream as reported by the engine. Otherwise, because the client did not
// request it (stream_options.include_usage) or the stream broke off, it is an estimate: prompt for the prompt,
// and for the completion the number of events with content. That is the number of tokens if an engine sends
// each separately, and too low if it puts several into one event (speculative decoding, stream intervals).
func (m *StreamMeter) FinalUsage(prompt int) TokenUsage {
	if m.Usage.Stated {
		return m.Usage.withPromptEstimate(prompt)
	}
	if m.Bytes == 0 {
		return m.Usage
	}
	return TokenUsage{Prompt: prompt, Completion: int(m.Events)}
}

// withPromptEstimate returns the usage with the estimate of the prompt if the engine reported none: TGI counts
// only generated tokens, and Ollama omits a cached prompt.
func (u TokenUsage) withPromptEstimate(prompt int) TokenUsage {
	if u.Prompt == 0 {
		u.Prompt = prompt
	}
	return u
}

// isUsageMember reports whether a member of a response contains usage: OpenAI's and Anthropic's usage, SGLang's
// meta_info, TGI's details, Ollama's and llama.cpp's counts.
func isUsageMember(key []byte) bool {
	switch string(key) {
	case "usage", "meta_info", "details", "prompt_eval_count", "eval_count", "tokens_evaluated", "tokens_predicted":
		return true
	}
	return false
}

// readMember reads the usage in a member of a response.
func (u *TokenUsage) readMember(key, v []byte) {
	switch string(key) {
	case "usage", "meta_info", "details":
		u.readUsageObject(v)
	case "prompt_eval_count", "tokens_evaluated":
		u.Prompt, u.Stated = parseAmount(v), true
	case "eval_count", "tokens_predicted":
		u.Completion, u.Stated = parseAmount(v), true
	}
}

// readUsageObject reads the amounts of a usage object, in both of OpenAI's spellings.
func (u *TokenUsage) readUsageObject(v []byte) {
	o, ok := openObject(v)
	if !ok {
		return
	}
	var n TokenUsage
	total, parts := 0, false
	cacheTokens := 0 // Anthropic's prompt tokens in addition to input_tokens: read from or written to the cache
	for {
		key, v, ok := o.nextMember()
		if !ok {
			break
		}
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			n.Prompt = parseAmount(v)
			n.Stated, parts = true, true
		case "completion_tokens", "output_tokens", "generated_tokens":
			n.Completion = parseAmount(v)
			n.Stated = true
		case "total_tokens": // rerankers report only this
			total = parseAmount(v)
			n.Stated = n.Stated || total > 0
		case "cached_tokens":
			n.Cached = parseAmount(v)
		case "cache_read_input_tokens":
			n.Cached = parseAmount(v)
			cacheTokens += n.Cached
		case "cache_creation_input_tokens":
			cacheTokens += parseAmount(v)
		case "prompt_tokens_details", "input_tokens_details":
			n.Cached = parseCachedTokens(v)
		}
	}
	if n.Stated && !o.malformed {
		if !parts {
			n.Prompt = max(total-n.Completion, 0)
		}
		if n.Prompt > 0 {
			n.Prompt += cacheTokens
		} else { // Anthropic reports the prompt at the beginning of a stream and the completion at its end
			n.Prompt, n.Cached = u.Prompt, max(u.Cached, n.Cached)
		}
		*u = n
	}
}

func parseCachedTokens(v []byte) int {
	o, ok := openObject(v)
	if !ok {
		return 0
	}
	for {
		key, v, ok := o.nextMember()
		if !ok {
			return 0
		}
		if string(key) == "cached_tokens" {
			return parseAmount(v)
		}
	}
}

// parseAmount parses a token count; 0 for anything else.
func parseAmount(v []byte) int {
	n, err := parseCount("usage", v)
	if err != nil {
		return 0
	}
	return n
}

// BodyMeter reads the usage of a response that is not a stream, while it passes. The zero value is ready to
// use.
type BodyMeter struct {
	// Bytes is the number of bytes passed.
	Bytes  int64
	stated TokenUsage
	finder memberFinder
}

// AddChunk processes the next bytes of the body.
func (m *BodyMeter) AddChunk(p []byte) {
	first := m.Bytes == 0
	m.Bytes += int64(len(p))
	if !first || !m.readWholeBody(p) {
		m.finder.feedBytes(p, (*bodyFinderTarget)(m))
	}
}

// readWholeBody parses a piece that is one complete object, as for short responses: it takes half as long as
// the finder. It returns false, with nothing read, for anything else.
func (m *BodyMeter) readWholeBody(p []byte) bool {
	members, ok := OpenMembers(p)
	if !ok {
		return false
	}
	var u TokenUsage
	for {
		key, v, ok := members.Next()
		if !ok {
			break
		}
		if isUsageMember(key) && len(v) <= maxValueBytes {
			u.readMember(key, v)
		}
	}
	if !members.IsWholeDocument() {
		return false
	}
	m.stated, m.finder.valuesEnded = u, 1
	return true
}

// bodyFinderTarget is the BodyMeter as a finderTarget.
type bodyFinderTarget BodyMeter

func (m *bodyFinderTarget) wantsMember(key []byte) bool { return isUsageMember(key) }
func (m *bodyFinderTarget) entersMember([]byte) bool    { return false }

func (m *bodyFinderTarget) takeMember(key, value []byte) {
	if !m.finder.topIsArray {
		m.stated.readMember(key, value)
		return
	}
	var u TokenUsage // of one of several results
	u.readMember(key, value)
	m.stated.Prompt += u.Prompt
	m.stated.Completion += u.Completion
	m.stated.Cached += u.Cached
	m.stated.Stated = m.stated.Stated || u.Stated
}

// Usage returns the usage that the body has reported so far; the last one counts. Only members of the response
// object itself are read, so that generated text cannot imitate it.
func (m *BodyMeter) Usage() TokenUsage { return m.stated }

// FinalUsage returns the usage reported by the engine, or else the given estimates: the body itself does not
// show its number of tokens. In a stream of JSON values, one per line, each counts as a token.
func (m *BodyMeter) FinalUsage(prompt, completion int) TokenUsage {
	u := m.Usage()
	switch {
	case u.Stated:
		return u.withPromptEstimate(prompt)
	case m.Bytes == 0:
		return u
	case m.finder.valuesEnded > 1:
		completion = m.finder.valuesEnded
	}
	return TokenUsage{Prompt: prompt, Completion: completion}
}
