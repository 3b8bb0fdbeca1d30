package resume

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/spillway-lb/spillway/internal/openai"
)

// NotResumableReason is why a stream cannot be resumed; None if it can. It is a metric label: the set is fixed.
type NotResumableReason string

// The reasons: first of requests, then of streams.
const (
	Resumable        NotResumableReason = ""
	UnsupportedPath  NotResumableReason = "path"       // neither chat nor completions, or not streamed
	Choices          NotResumableReason = "choices"    // n or best_of
	Tools            NotResumableReason = "tools"      // a tool call cannot be continued as text
	Structured       NotResumableReason = "structured" // the grammar would restart
	Logprobs         NotResumableReason = "logprobs"
	Stop             NotResumableReason = "stop"      // a stop string may begin before the cut
	Penalties        NotResumableReason = "penalties" // they count generated tokens, which become prompt
	MinTokens        NotResumableReason = "min_tokens"
	Prompt           NotResumableReason = "prompt"    // images, tokens, or several prompts
	Template         NotResumableReason = "template"  // the client controls the chat template itself
	Parameter        NotResumableReason = "parameter" // a parameter not known to be harmless
	EventForm        NotResumableReason = "form"      // events of an unknown format
	NonTextDelta     NotResumableReason = "delta"     // the response has more than text: reasoning, tool calls
	UnusableText     NotResumableReason = "text"      // the text so far cannot be sent back unchanged
	TextTooLong      NotResumableReason = "too_long"  // the text so far exceeds the limit per stream
	NoTextMemory     NotResumableReason = "memory"    // the memory for texts is used up
	NoOtherEngine    NotResumableReason = "engine"    // no other worker's engine supports continuation
	Forbidden        NotResumableReason = "forbidden" // by the tenant or the spec
	DeclinedByEngine NotResumableReason = "declined"  // the engine refused the request, in an event of the stream
	WorkerDeaths     NotResumableReason = "kills"     // workers died while serving the request
	AlreadyResumed   NotResumableReason = "spent"     // it was resumed before
	NoRetryBudget    NotResumableReason = "budget"    // the retry budget is used up
	NoEndpoint       NotResumableReason = "no_place"  // no other endpoint is eligible
)

// span is a range of offsets in a body.
type span struct{ start, end int }

// ResumableRequest records where the text so far is inserted into a resumable request.
type ResumableRequest struct {
	// IsChat: the request has messages and not a prompt.
	IsChat bool
	// WantsUsage: the client requested the usage of the stream.
	WantsUsage bool

	insertInString bool // insert into the last string, before its closing quote
	insertAt       int
	limitSpans     [2]span // of the output limits, if set
	outputLimit    int     // the smaller one; 0 if none is set
	objectEnd      int     // offset of the closing bracket of the object
}

// ExamineRequest determines whether a streamed request may be resumed. continued means that it is itself a
// continuation, written by ContinuationBody.
func ExamineRequest(body []byte, path string, continued bool) (ResumableRequest, NotResumableReason) {
	q := ResumableRequest{IsChat: path == openai.PathChat, insertAt: -1}
	if !q.IsChat && path != openai.PathCompletions {
		return q, UnsupportedPath
	}
	m, ok := openai.OpenMembers(body)
	streamed := false
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		if string(key) == "stream" {
			streamed = string(v) == "true"
		}
		if why := q.examineMember(string(key), v, m.EndOffset(), continued); why != Resumable {
			return q, why
		}
	}
	switch {
	case m.IsMalformed() || !streamed:
		return q, UnsupportedPath
	case q.insertAt < 0:
		return q, Prompt
	}
	q.objectEnd = m.EndOffset() - 1
	return q, Resumable
}

// examineMember checks one member of the body.
func (q *ResumableRequest) examineMember(key string, v []byte, end int, continued bool) NotResumableReason {
	switch key {
	case "messages", "prompt":
		if q.IsChat != (key == "messages") || q.insertAt >= 0 {
			return Prompt
		}
		return q.findInsertPoint(v, end-len(v), continued)
	case "max_tokens", "max_completion_tokens":
		return q.readLimit(key, v, end)
	case "stream_options":
		return q.readStreamOptions(v)
	case "model", "stream", "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "user", "metadata", "store",
		"service_tier", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "priority", "request_id",
		"logit_bias", "safety_identifier", "prompt_cache_key", "cache_salt", "parallel_tool_calls", "include_stop_str_in_output":
		return Resumable
	case "continue_final_message", "add_generation_prompt":
		if continued || isUnset(v) == (key == "continue_final_message") {
			return Resumable
		}
		return Template
	}
	if isHarmless(key, v) {
		return Resumable
	}
	return reasonForParameter(key)
}

// isHarmless reports whether a parameter has no effect.
func isHarmless(key string, v []byte) bool {
	switch key {
	case "n", "best_of":
		return string(v) == "1" || string(v) == "null"
	case "repetition_penalty", "length_penalty":
		return string(v) == "1" || string(v) == "1.0" || string(v) == "null"
	case "response_format":
		return string(v) == "null" || string(bytes.ReplaceAll(v, []byte(" "), nil)) == `{"type":"text"}`
	case "tool_choice", "function_call":
		return string(v) == "null" || string(v) == `"none"` || string(v) == `"auto"`
	case "logprobs":
		return string(v) == "null" || string(v) == "false"
	}
	return isUnset(v)
}

// isUnset reports whether a value is null, false or empty.
func isUnset(v []byte) bool {
	switch string(v) {
	case "null", "false", "0", "0.0", "[]", "{}", `""`:
		return true
	}
	return false
}

func reasonForParameter(key string) NotResumableReason {
	switch key {
	case "n", "best_of", "use_beam_search":
		return Choices
	case "tools", "tool_choice", "functions", "function_call":
		return Tools
	case "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "json_schema", "regex", "ebnf":
		return Structured
	case "logprobs", "top_logprobs", "prompt_logprobs", "return_tokens_as_token_ids", "return_token_ids":
		return Logprobs
	case "stop", "stop_token_ids", "stop_sequences":
		return Stop
	case "presence_penalty", "frequency_penalty", "repetition_penalty", "length_penalty":
		return Penalties
	case "min_tokens":
		return MinTokens
	case "echo", "suffix":
		return Prompt
	case "chat_template", "chat_template_kwargs", "add_special_tokens", "documents", "reasoning_effort":
		return Template
	}
	return Parameter
}

// readLimit records an output limit.
func (q *ResumableRequest) readLimit(key string, v []byte, end int) NotResumableReason {
	if string(v) == "null" {
		return Resumable
	}
	n, err := strconv.Atoi(string(v))
	if err != nil || n < 1 {
		return Parameter
	}
	i := 0
	if key == "max_completion_tokens" {
		i = 1
	}
	q.limitSpans[i] = span{end - len(v), end}
	if q.outputLimit == 0 || n < q.outputLimit {
		q.outputLimit = n
	}
	return Resumable
}

func (q *ResumableRequest) readStreamOptions(v []byte) NotResumableReason {
	m, ok := openai.OpenMembers(v)
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch {
		case string(key) == "include_usage":
			q.WantsUsage = string(v) == "true"
		case !isUnset(v):
			return Parameter
		}
	}
	return Resumable
}

// findInsertPoint finds where the text is inserted.
func (q *ResumableRequest) findInsertPoint(v []byte, at int, continued bool) NotResumableReason {
	if !q.IsChat {
		if len(v) < 2 || v[0] != '"' {
			return Prompt
		}
		q.insertInString, q.insertAt = true, at+len(v)-1
		return Resumable
	}
	list, ok := openai.OpenElements(v)
	last := span{-1, -1} // the text of the last message, if its role is assistant
	for ok {
		var msg []byte
		if msg, ok = list.Next(); !ok {
			break
		}
		role, content, why := readMessage(msg)
		if why != Resumable {
			return why
		}
		last = span{-1, -1}
		if role == `"assistant"` {
			start := at + list.EndOffset() - len(msg)
			last = span{start + content.start, start + content.end}
		}
		q.insertAt = at + list.EndOffset()
	}
	switch {
	case list.IsMalformed() || q.insertAt < 0:
		return Prompt
	case continued:
		if last.end <= 0 || last.end-last.start < 2 {
			return Template
		}
		q.insertInString, q.insertAt = true, last.end-1
	case last.start >= 0: // the client's own beginning of a response
		return Template
	}
	return Resumable
}

// readMessage parses one message: its role, and the span of its text if that is one string.
func readMessage(msg []byte) (role string, text span, why NotResumableReason) {
	m, ok := openai.OpenMembers(msg)
	if !ok {
		return "", text, Prompt
	}
	for {
		key, v, ok := m.Next()
		if !ok {
			return role, text, Resumable
		}
		switch string(key) {
		case "role":
			role = string(v)
		case "content":
			if v[0] == '"' {
				text = span{m.EndOffset() - len(v), m.EndOffset()}
			} else if !isTextParts(v) {
				return role, text, Prompt
			}
		}
	}
}

// isTextParts reports whether content is a list of texts, or null.
func isTextParts(v []byte) bool {
	if string(v) == "null" {
		return true
	}
	parts, ok := openai.OpenElements(v)
	if !ok {
		return false
	}
	for {
		p, ok := parts.Next()
		if !ok {
			return !parts.IsMalformed()
		}
		m, ok := openai.OpenMembers(p)
		if !ok {
			return false
		}
		kind := ""
		for {
			key, v, ok := m.Next()
			if !ok {
				break
			}
			if string(key) == "type" {
				kind = string(v)
			}
		}
		if kind != `"text"` {
			return false
		}
	}
}

// OutputLimit returns the output limit of the request, in tokens; 0 if none is set.
func (q *ResumableRequest) OutputLimit() int { return q.outputLimit }

// ContinuationBody returns the request that continues after text. body is the examined body, text an escaped
// JSON string without quotes, and left how many tokens may still follow; 0 means no limit. Without text the
// request is repeated.
func (q *ResumableRequest) ContinuationBody(body, text []byte, left int) []byte {
	var edits []textEdit
	for _, l := range q.limitSpans {
		if l.end > 0 && left > 0 {
			edits = append(edits, textEdit{l, strconv.AppendInt(nil, int64(left), 10)})
		}
	}
	if len(text) > 0 {
		if !q.insertInString {
			text = append(append([]byte(`,{"role":"assistant","content":"`), text...), `"}`...)
		}
		edits = append(edits, textEdit{span{q.insertAt, q.insertAt}, text})
	}
	var tail []byte
	if q.IsChat && !q.insertInString && len(text) > 0 {
		tail = append(tail, `,"continue_final_message":true,"add_generation_prompt":false`...)
	}
	if left > 0 && q.outputLimit == 0 {
		tail = strconv.AppendInt(append(tail, `,"max_tokens":`...), int64(left), 10)
	}
	return applyEdits(body, append(edits, textEdit{span{q.objectEnd, q.objectEnd}, tail}))
}

// textEdit replaces a span by text.
type textEdit struct {
	span
	text []byte
}

// applyEdits returns a copy of d with edits, which must not overlap.
func applyEdits(d []byte, edits []textEdit) []byte {
	slices.SortStableFunc(edits, func(a, b textEdit) int { return cmp.Compare(a.start, b.start) })
	n := len(d)
	for _, e := range edits {
		n += len(e.text)
	}
	out, at := make([]byte, 0, n), 0
	for _, e := range edits {
		out = append(append(out, d[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, d[at:]...)
}
