package openai

// Usage is the token account of one answer.
type Usage struct {
	Prompt, Completion, Cached int
	// Stated: the engine said so. Otherwise the amounts are zero, or an Account's estimate.
	Stated bool
}

// Source is where the amounts are from, for metrics.
func (u *Usage) Source() string {
	if u.Stated {
		return "stated"
	}
	return "estimated"
}

// Account is the stream's usage as the engine stated it. Without a statement, because the caller did not ask for one
// (stream_options.include_usage) or the stream broke off, it is an estimate: of the prompt the one that is given, and of
// the completion the events that carried content. That is the number of tokens where an engine sends each by itself, and
// too few where it puts several into one event (speculative decoding, stream intervals).
func (m *StreamMeter) Account(prompt int) Usage {
	if m.Usage.Stated {
		return m.Usage.whole(prompt)
	}
	if m.Bytes == 0 {
		return m.Usage
	}
	return Usage{Prompt: prompt, Completion: int(m.Events)}
}

// whole is usage with the estimate of the prompt where the engine stated none: TGI counts what it generates alone, and
// Ollama leaves a prompt out that it has cached.
func (u Usage) whole(prompt int) Usage {
	if u.Prompt == 0 {
		u.Prompt = prompt
	}
	return u
}

// isUsage reports whether a member of an answer states usage: OpenAI's and Anthropic's usage, SGLang's meta_info, TGI's
// details, Ollama's and llama.cpp's counts.
func isUsage(key []byte) bool {
	switch string(key) {
	case "usage", "meta_info", "details", "prompt_eval_count", "eval_count", "tokens_evaluated", "tokens_predicted":
		return true
	}
	return false
}

// member takes what a member of an answer states.
func (u *Usage) member(key, v []byte) {
	switch string(key) {
	case "usage", "meta_info", "details":
		u.read(v)
	case "prompt_eval_count", "tokens_evaluated":
		u.Prompt, u.Stated = amount(v), true
	case "eval_count", "tokens_predicted":
		u.Completion, u.Stated = amount(v), true
	}
}

// read takes the amounts of a usage object. Both of OpenAI's spellings are known.
func (u *Usage) read(v []byte) {
	o, ok := open(v)
	if !ok {
		return
	}
	var n Usage
	total, parts := 0, false
	beside := 0 // what Anthropic counts of a prompt beside its input: read from the cache, or written to it
	for {
		key, v, ok := o.next()
		if !ok {
			break
		}
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			n.Prompt = amount(v)
			n.Stated, parts = true, true
		case "completion_tokens", "output_tokens", "generated_tokens":
			n.Completion = amount(v)
			n.Stated = true
		case "total_tokens": // all that rerankers state
			total = amount(v)
			n.Stated = n.Stated || total > 0
		case "cached_tokens":
			n.Cached = amount(v)
		case "cache_read_input_tokens":
			n.Cached = amount(v)
			beside += n.Cached
		case "cache_creation_input_tokens":
			beside += amount(v)
		case "prompt_tokens_details", "input_tokens_details":
			n.Cached = cached(v)
		}
	}
	if n.Stated && !o.bad {
		if !parts {
			n.Prompt = max(total-n.Completion, 0)
		}
		if n.Prompt > 0 {
			n.Prompt += beside
		} else { // Anthropic states the prompt as a stream begins, and the answer as it ends
			n.Prompt, n.Cached = u.Prompt, max(u.Cached, n.Cached)
		}
		*u = n
	}
}

func cached(v []byte) int {
	o, ok := open(v)
	if !ok {
		return 0
	}
	for {
		key, v, ok := o.next()
		if !ok {
			return 0
		}
		if string(key) == "cached_tokens" {
			return amount(v)
		}
	}
}

// amount is a token count, 0 where the text is none.
func amount(v []byte) int {
	n, err := count("usage", v)
	if err != nil {
		return 0
	}
	return n
}

// BodyMeter reads the usage of an answer that is not a stream, while it passes. The zero value is ready.
type BodyMeter struct {
	// Bytes that passed.
	Bytes  int64
	stated Usage
	finder finder
}

// Chunk takes the next bytes of the body.
func (m *BodyMeter) Chunk(p []byte) {
	first := m.Bytes == 0
	m.Bytes += int64(len(p))
	if !first || !m.atOnce(p) {
		m.finder.feed(p, (*bodyTarget)(m))
	}
}

// atOnce reads a piece that is one whole object, as short answers come: it takes half as long as the finder. False when it
// is something else, of which nothing was read.
func (m *BodyMeter) atOnce(p []byte) bool {
	members, ok := OpenMembers(p)
	if !ok {
		return false
	}
	var u Usage
	for {
		key, v, ok := members.Next()
		if !ok {
			break
		}
		if isUsage(key) && len(v) <= maxFound {
			u.member(key, v)
		}
	}
	if !members.Whole() {
		return false
	}
	m.stated, m.finder.values = u, 1
	return true
}

// bodyTarget is a BodyMeter as its finder sees it.
type bodyTarget BodyMeter

func (m *bodyTarget) wants(key []byte) bool { return isUsage(key) }
func (m *bodyTarget) enters([]byte) bool    { return false }

func (m *bodyTarget) found(key, value []byte) {
	if !m.finder.array {
		m.stated.member(key, value)
		return
	}
	var u Usage // of one of several answers
	u.member(key, value)
	m.stated.Prompt += u.Prompt
	m.stated.Completion += u.Completion
	m.stated.Cached += u.Cached
	m.stated.Stated = m.stated.Stated || u.Stated
}

// Usage is what the body has stated so far: where it does so more than once, the last counts. Text that looks like it is not
// taken for it: only members of the answer's own object are read.
func (m *BodyMeter) Usage() Usage { return m.stated }

// Account is the body's usage as the engine stated it, or else the estimates that are given: nothing in a body says how
// many tokens it took. Of a stream of JSON values, one a line, each is taken for a token.
func (m *BodyMeter) Account(prompt, completion int) Usage {
	u := m.Usage()
	switch {
	case u.Stated:
		return u.whole(prompt)
	case m.Bytes == 0:
		return u
	case m.finder.values > 1:
		completion = m.finder.values
	}
	return Usage{Prompt: prompt, Completion: completion}
}
