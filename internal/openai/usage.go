package openai

import "bytes"

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
	if m.Usage.Stated || m.Bytes == 0 {
		return m.Usage
	}
	return Usage{Prompt: prompt, Completion: int(m.Events)}
}

// read takes the amounts of a usage object. Both of OpenAI's spellings are known.
func (u *Usage) read(v []byte) {
	o, ok := open(v)
	if !ok {
		return
	}
	var n Usage
	beside := 0 // what Anthropic counts of a prompt beside its input: read from the cache, or written to it
	for {
		key, v, ok := o.next()
		if !ok {
			break
		}
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			n.Prompt = amount(v)
			n.Stated = true
		case "completion_tokens", "output_tokens":
			n.Completion = amount(v)
			n.Stated = true
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

// tailBytes is how much of an answer's end BodyMeter keeps. Every engine writes usage after the choices.
const tailBytes = 4096

// BodyMeter reads the usage of an answer that is not a stream, while it passes. The zero value is ready.
type BodyMeter struct {
	// Bytes that passed.
	Bytes int64
	tail  []byte
	found Usage // in the first read bytes
	read  int64
}

// Chunk takes the next bytes of the body.
func (m *BodyMeter) Chunk(p []byte) {
	m.Bytes += int64(len(p))
	if len(p) >= tailBytes {
		m.tail = append(m.tail[:0], p[len(p)-tailBytes:]...)
		return
	}
	if over := len(m.tail) + len(p) - tailBytes; over > 0 {
		m.tail = m.tail[:copy(m.tail, m.tail[over:])]
	}
	m.tail = append(m.tail, p...)
}

// Usage is what the body said, once it has passed. A quoted "usage" cannot be mistaken for it: inside a JSON string
// its quotes are escaped.
func (m *BodyMeter) Usage() Usage {
	if m.read != m.Bytes {
		m.found, m.read = m.look(), m.Bytes
	}
	return m.found
}

func (m *BodyMeter) look() Usage {
	var u Usage
	i := bytes.LastIndex(m.tail, []byte(`"usage":`))
	if i < 0 {
		return u
	}
	rest := m.tail[i+len(`"usage":`):]
	start := space(rest, 0)
	var w walk
	if end := w.value(rest, start); end > 0 {
		u.read(rest[start:end])
	}
	return u
}

// Account is the body's usage as the engine stated it, or else the estimates that are given: nothing in a body says how
// many tokens it took.
func (m *BodyMeter) Account(prompt, completion int) Usage {
	u := m.Usage()
	if u.Stated || m.Bytes == 0 {
		return u
	}
	return Usage{Prompt: prompt, Completion: completion}
}
