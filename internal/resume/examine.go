package resume

import (
	"bytes"
	"strconv"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Reason says why a stream cannot be resumed; None that it can. It is a label of metrics: the set is fixed.
type Reason string

// The reasons, of requests first and of streams after them.
const (
	None       Reason = ""
	Path       Reason = "path"       // neither chat nor completions, or not streamed
	Choices    Reason = "choices"    // n or best_of
	Tools      Reason = "tools"      // a call cannot be continued as text
	Structured Reason = "structured" // the grammar would begin anew
	Logprobs   Reason = "logprobs"
	Stop       Reason = "stop"      // a stop string may begin before the cut
	Penalties  Reason = "penalties" // they count what was generated, which becomes prompt
	MinTokens  Reason = "min_tokens"
	Prompt     Reason = "prompt"    // images, tokens, or several prompts
	Template   Reason = "template"  // the caller handles the chat template itself
	Parameter  Reason = "parameter" // one that is not known to be harmless
	Form       Reason = "form"      // events that are not what engines send
	Delta      Reason = "delta"     // the answer is more than text: reasoning, calls
	Text       Reason = "text"      // the text so far cannot be sent back as it is
	TooLong    Reason = "too_long"  // the text so far is longer than is kept
	Memory     Reason = "memory"    // no room is left for the texts of all streams
	Engine     Reason = "engine"    // no other worker's engine can go on with an answer
	Forbidden  Reason = "forbidden" // by the tenant or the spec
	Declined   Reason = "declined"  // the engine refused the request, in an event of the stream
	Kills      Reason = "kills"     // workers died under the request
	Spent      Reason = "spent"     // it was resumed here before
	Budget     Reason = "budget"    // the retry budget is spent
	NoPlace    Reason = "no_place"  // nobody else could take it
)

// span is a place in a body.
type span struct{ at, end int }

// Request is where a resumable request is cut open to put the text so far in.
type Request struct {
	// Chat: messages and not a prompt.
	Chat bool
	// Usage: the caller asked for the usage of the stream.
	Usage bool

	open   bool // the text goes into the last string there is, before its closing quote
	insert int
	limits [2]span // of the output, where they are named
	limit  int     // the smaller one; 0 when none is named
	end    int     // of the object: where its closing bracket stands
}

// Examine says whether a streamed request may be resumed. continued means that it is the continuation of a stream already,
// written by Body.
func Examine(body []byte, path string, continued bool) (Request, Reason) {
	q := Request{Chat: path == openai.PathChat, insert: -1}
	if !q.Chat && path != openai.PathCompletions {
		return q, Path
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
		if why := q.member(string(key), v, m.End(), continued); why != None {
			return q, why
		}
	}
	switch {
	case m.Broken() || !streamed:
		return q, Path
	case q.insert < 0:
		return q, Prompt
	}
	q.end = m.End() - 1
	return q, None
}

// member judges one member of the body.
func (q *Request) member(key string, v []byte, end int, continued bool) Reason {
	switch key {
	case "messages", "prompt":
		if q.Chat != (key == "messages") || q.insert >= 0 {
			return Prompt
		}
		return q.prompt(v, end-len(v), continued)
	case "max_tokens", "max_completion_tokens":
		return q.named(key, v, end)
	case "stream_options":
		return q.options(v)
	case "model", "stream", "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "user", "metadata", "store",
		"service_tier", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "priority", "request_id",
		"logit_bias", "safety_identifier", "prompt_cache_key", "cache_salt", "parallel_tool_calls", "include_stop_str_in_output":
		return None
	case "continue_final_message", "add_generation_prompt":
		if continued || nothing(v) == (key == "continue_final_message") {
			return None
		}
		return Template
	}
	if harmless(key, v) {
		return None
	}
	return blame(key)
}

// harmless says that a parameter asks for nothing.
func harmless(key string, v []byte) bool {
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
	return nothing(v)
}

// nothing says that a value is none, off or empty.
func nothing(v []byte) bool {
	switch string(v) {
	case "null", "false", "0", "0.0", "[]", "{}", `""`:
		return true
	}
	return false
}

func blame(key string) Reason {
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

// named notes an output limit.
func (q *Request) named(key string, v []byte, end int) Reason {
	if string(v) == "null" {
		return None
	}
	n, err := strconv.Atoi(string(v))
	if err != nil || n < 1 {
		return Parameter
	}
	i := 0
	if key == "max_completion_tokens" {
		i = 1
	}
	q.limits[i] = span{end - len(v), end}
	if q.limit == 0 || n < q.limit {
		q.limit = n
	}
	return None
}

func (q *Request) options(v []byte) Reason {
	m, ok := openai.OpenMembers(v)
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch {
		case string(key) == "include_usage":
			q.Usage = string(v) == "true"
		case !nothing(v):
			return Parameter
		}
	}
	return None
}

// prompt finds where the text goes.
func (q *Request) prompt(v []byte, at int, continued bool) Reason {
	if !q.Chat {
		if len(v) < 2 || v[0] != '"' {
			return Prompt
		}
		q.open, q.insert = true, at+len(v)-1
		return None
	}
	list, ok := openai.OpenElements(v)
	last := span{-1, -1} // the last message's text, when it is the assistant's
	for ok {
		var msg []byte
		if msg, ok = list.Next(); !ok {
			break
		}
		role, content, why := message(msg)
		if why != None {
			return why
		}
		last = span{-1, -1}
		if role == `"assistant"` {
			start := at + list.End() - len(msg)
			last = span{start + content.at, start + content.end}
		}
		q.insert = at + list.End()
	}
	switch {
	case list.Broken() || q.insert < 0:
		return Prompt
	case continued:
		if last.end <= 0 || last.end-last.at < 2 {
			return Template
		}
		q.open, q.insert = true, last.end-1
	case last.at >= 0: // the caller's own beginning of an answer
		return Template
	}
	return None
}

// message reads one message: its role, and where its text stands when that is one string.
func message(msg []byte) (role string, text span, why Reason) {
	m, ok := openai.OpenMembers(msg)
	if !ok {
		return "", text, Prompt
	}
	for {
		key, v, ok := m.Next()
		if !ok {
			return role, text, None
		}
		switch string(key) {
		case "role":
			role = string(v)
		case "content":
			if v[0] == '"' {
				text = span{m.End() - len(v), m.End()}
			} else if !textParts(v) {
				return role, text, Prompt
			}
		}
	}
}

// textParts says that content is a list of texts, or null.
func textParts(v []byte) bool {
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
			return !parts.Broken()
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

// Limit is the output limit that the request names, in tokens; 0 when it names none.
func (q *Request) Limit() int { return q.limit }

// Body writes the request that goes on after text: body is what was examined, text the escaped inside of a JSON string,
// and left how many tokens may still come; 0 when there is no limit. Without text the request is asked anew.
func (q *Request) Body(body, text []byte, left int) []byte {
	var edits []edit
	for _, l := range q.limits {
		if l.end > 0 && left > 0 {
			edits = append(edits, edit{l, strconv.AppendInt(nil, int64(left), 10)})
		}
	}
	if len(text) > 0 {
		if !q.open {
			text = append(append([]byte(`,{"role":"assistant","content":"`), text...), `"}`...)
		}
		edits = append(edits, edit{span{q.insert, q.insert}, text})
	}
	var tail []byte
	if q.Chat && !q.open && len(text) > 0 {
		tail = append(tail, `,"continue_final_message":true,"add_generation_prompt":false`...)
	}
	if left > 0 && q.limit == 0 {
		tail = strconv.AppendInt(append(tail, `,"max_tokens":`...), int64(left), 10)
	}
	return apply(body, append(edits, edit{span{q.end, q.end}, tail}))
}
