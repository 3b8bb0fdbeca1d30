// Package resume continues a stream of generated text whose worker failed on another worker, transparently for
// the client. It decides which requests may be continued, writes the continuation request, and joins the two
// responses.
//
// A request is resumable if the rest of its response depends only on the prompt and the text so far: plain
// text, one choice, and only parameters known to mean the same in the middle of a response. ExamineRequest
// checks this and returns the reason if not. A chat continues as its final, unfinished assistant message, a
// completion as a longer prompt.
//
// A Splicer follows one stream. It passes whole events only, so that a cut never splits an event, and keeps the
// escaped text. After a cut it rewrites the events of the second worker like those of the first: the same id,
// time and model, no second role, the usage of both. Trailing white space of the text is not sent back, because
// chat templates trim it: the continuation produces it again, and the splicer removes it.
//
// Accuracy: the tokens of the text so far are counted as one per event, as engines send them, or estimated by
// bytes if events clearly have more. Prompt and completion counts then shift by the same amount; their sum is
// the engine's own. At a temperature above 0 the continuation is statistically equivalent, not identical; a
// seed restarts.
//
// The package never chooses the endpoint, never blocks, and never keeps more text than its limit.
package resume

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spillway-lb/spillway/internal/openai"
)

// SpliceLimits bound what is kept of a stream.
type SpliceLimits struct {
	// MaxTextBytes is the longest text kept of one stream, in escaped bytes.
	MaxTextBytes int
	// Storage holds it together with those of all other streams. Nil: unbounded.
	Storage TextStorage
}

// Splicer follows one stream over its workers. It is created by NewSplicer.
type Splicer struct {
	request       ResumableRequest
	body          []byte
	limits        SpliceLimits
	bytesPerToken float64

	notResumable NotResumableReason
	passthrough  bool   // bytes pass unchanged
	partialEvent []byte // of an incomplete event
	output       []byte
	text         textBuffer // so far, escaped
	splices      int        // number of joined cuts

	textEvents               int    // events with text since the last cut
	textBytes                int    // bytes of text since the last cut
	tokensBeforeCut          int    // tokens of the text at the cut
	pendingWhitespace        string // white space that the continuation must produce again
	whitespaceTokens         int    // tokens of pendingWhitespace
	trailingSpaceTokens      int    // tokens of trailing white space of the text
	sentText                 bool   // the continuation request contained text
	plainPrefix, plainSuffix []byte // of a plain event: everything except its text
	id, created              []byte // raw values of the first event
	model, fingerprint       []byte
	finished, done           bool
	errorEvent               []byte // the event with which an engine failed
	declinedEvent            []byte // the event with which an engine refused the request
	usage                    openai.TokenUsage
	scratchEvent             streamEvent
}

// NewSplicer returns a Splicer for the stream of a request accepted by ExamineRequest. body must not change;
// perToken is bytes per token, for events with several.
func NewSplicer(q ResumableRequest, body []byte, perToken float64, b SpliceLimits) *Splicer {
	return &Splicer{request: q, body: body, limits: b, bytesPerToken: max(perToken, 1), text: textBuffer{store: b.Storage}}
}

// PassChunk returns the part of the next bytes that goes to the client: whole events, valid until the next
// call. After an error event of an engine nothing passes: see ErrorEvent.
func (s *Splicer) PassChunk(p []byte) []byte {
	switch {
	case s.errorEvent != nil:
		return nil
	case s.passthrough:
		return p
	}
	d, from := p, 0
	if len(s.partialEvent) > 0 {
		from = len(s.partialEvent)
		s.partialEvent = append(s.partialEvent, p...)
		d = s.partialEvent
	}
	s.output = s.output[:0]
	at := s.consumeEvents(d, from)
	if s.splices > 0 {
		if s.passthrough {
			s.output = append(s.output, d[at:]...)
		}
		s.holdPartial(d[at:])
		return s.output
	}
	if s.passthrough {
		at = len(d)
	}
	out := d[:at]
	if from > 0 {
		s.output = append(s.output, out...)
		out = s.output
	}
	s.holdPartial(d[at:])
	return out
}

// consumeEvents processes every whole event of d and returns the offset of the rest.
func (s *Splicer) consumeEvents(d []byte, from int) (at int) {
	for at < len(d) && !s.passthrough {
		n := eventLength(d[at:], max(from-at, 0))
		if n == -2 || n == -1 && len(d)-at > maxEventBytes {
			s.giveUpResuming(EventForm) // it cannot be joined and passes unchanged
			s.passthrough = true
		}
		if n < 0 || !s.handleEvent(d[at:at+n]) {
			return at
		}
		at += n
	}
	return at
}

// holdPartial buffers an incomplete event.
func (s *Splicer) holdPartial(rest []byte) {
	if s.passthrough || s.errorEvent != nil {
		rest = nil
	}
	s.partialEvent = append(s.partialEvent[:0], rest...)
}

// giveUpResuming marks the stream as not resumable. Later bytes pass unchanged.
func (s *Splicer) giveUpResuming(why NotResumableReason) {
	if s.notResumable == Resumable {
		s.notResumable = why
	}
	s.passthrough = s.passthrough || s.splices == 0
	s.dropText()
}

// dropText drops what a continuation would be made of.
func (s *Splicer) dropText() {
	s.text.releaseText()
	s.plainPrefix, s.plainSuffix = nil, nil
}

// handleEvent processes one whole event. It returns false if neither it nor anything after it may pass.
func (s *Splicer) handleEvent(ev []byte) bool {
	if s.splices == 0 && s.handlePlainEvent(ev) {
		return true
	}
	e := &s.scratchEvent
	if !e.parseEvent(ev) {
		if s.splices == 0 {
			s.giveUpResuming(EventForm)
		} else {
			s.output = append(s.output, ev...)
		}
		return true
	}
	if e.isClientError {
		s.recordDeclined(ev)
		return true
	}
	if e.isError {
		s.errorEvent = bytes.Clone(ev)
		return false
	}
	s.done = s.done || e.isDone
	if s.splices > 0 {
		s.rewriteEvent(e, ev)
		return true
	}
	s.recordEvent(e, ev)
	return true
}

// recordDeclined ends a stream whose engine refuses the request in an event. The event passes as the response,
// and nothing is resumed: another engine would refuse the same request.
func (s *Splicer) recordDeclined(ev []byte) {
	s.declinedEvent, s.done = bytes.Clone(ev), true
	if s.splices > 0 {
		s.output = append(s.output, ev...)
		return
	}
	s.giveUpResuming(DeclinedByEngine)
}

// handlePlainEvent processes an event that differs from an earlier one only in its text.
func (s *Splicer) handlePlainEvent(ev []byte) bool {
	if s.plainPrefix == nil || s.finished || len(ev) < len(s.plainPrefix)+len(s.plainSuffix) || !bytes.HasPrefix(ev, s.plainPrefix) || !bytes.HasSuffix(ev, s.plainSuffix) {
		return false
	}
	text := ev[len(s.plainPrefix) : len(ev)-len(s.plainSuffix)]
	if bytes.IndexByte(text, '"') >= 0 || len(text) > 0 && text[len(text)-1] == '\\' {
		return false
	}
	s.addText(text)
	return true
}

// recordEvent records from an event of the first worker what a continuation needs.
func (s *Splicer) recordEvent(e *streamEvent, ev []byte) {
	if e.hasOtherContent {
		s.giveUpResuming(NonTextDelta)
		return
	}
	if s.id == nil && e.id.isPresent() {
		s.id, s.created, s.model, s.fingerprint = bytes.Clone(e.id.sliceOf(ev)), bytes.Clone(e.created.sliceOf(ev)), bytes.Clone(e.model.sliceOf(ev)), bytes.Clone(e.fingerprint.sliceOf(ev))
	}
	s.finished = s.finished || e.finishReason.isPresent()
	if e.usage.isPresent() {
		s.usage = parseUsage(e.usage.sliceOf(ev))
	}
	text := e.contentText(ev)
	if s.plainPrefix == nil && len(text) > 0 && !e.finishReason.isPresent() && !e.usage.isPresent() {
		s.plainPrefix, s.plainSuffix = bytes.Clone(ev[:e.content.start+1]), bytes.Clone(ev[e.content.end-1:])
	}
	s.addText(text)
}

// addText appends to the text so far.
func (s *Splicer) addText(text []byte) {
	if len(text) == 0 {
		return
	}
	s.textEvents++
	s.textBytes += len(text)
	switch n := trailingSpaceBytes(text); {
	case n == len(text):
		s.trailingSpaceTokens++
	case n > 0:
		s.trailingSpaceTokens = 1
	default:
		s.trailingSpaceTokens = 0
	}
	switch {
	case s.splices > 0 || s.notResumable != Resumable:
		return
	case s.text.size+len(text) > s.limits.MaxTextBytes:
		s.giveUpResuming(TextTooLong)
	case !s.text.addText(text):
		s.giveUpResuming(NoTextMemory)
	}
}

// trailingSpaceBytes returns the number of trailing bytes of white space of an escaped text.
func trailingSpaceBytes(text []byte) (n int) {
	for n < len(text) {
		rest := text[:len(text)-n]
		switch c := rest[len(rest)-1]; {
		case c == ' ':
			n++
		case (c == 'n' || c == 't' || c == 'r') && trailingBackslashes(rest[:len(rest)-1])%2 == 1:
			n += 2
		default:
			return n
		}
	}
	return n
}

// trailingBackslashes counts the trailing backslashes of a text.
func trailingBackslashes(text []byte) (n int) {
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n
}

// rewriteEvent rewrites an event of another worker in the form of the first one's.
func (s *Splicer) rewriteEvent(e *streamEvent, ev []byte) {
	if e.isComment || e.isDone {
		s.output = append(s.output, ev...)
		return
	}
	text := e.contentText(ev)
	if s.pendingWhitespace != "" && len(text) > 0 {
		text = s.trimRepeatedSpace(e.content.sliceOf(ev))
	}
	s.finished = s.finished || e.finishReason.isPresent()
	if len(text) == 0 && !e.finishReason.isPresent() && !e.usage.isPresent() && !e.hasOtherContent && !e.noChoices {
		return // it only repeats the role, or what the client has already
	}
	s.addText(text)
	var edits []textEdit
	for _, m := range []struct {
		span
		first []byte
	}{{e.id, s.id}, {e.created, s.created}, {e.model, s.model}, {e.fingerprint, s.fingerprint}} {
		if m.isPresent() && len(m.first) > 0 {
			edits = append(edits, textEdit{m.span, m.first})
		}
	}
	if e.usage.isPresent() {
		s.usage = s.totalUsage(parseUsage(e.usage.sliceOf(ev)))
		edits = append(edits, editUsage(ev, e.usage, s.usage)...)
	}
	switch {
	case e.hasOtherContent:
	case e.delta.isPresent():
		delta := []byte("{}")
		if len(text) > 0 {
			delta = append(append([]byte(`{"content":"`), text...), `"}`...)
		}
		edits = append(edits, textEdit{e.delta, delta})
	case e.content.isPresent():
		edits = append(edits, textEdit{e.content, append(append([]byte{'"'}, text...), '"')})
	}
	s.output = append(s.output, applyEdits(ev, edits)...)
}

// trimRepeatedSpace removes what the client has already from a quoted text, and returns the rest, escaped.
func (s *Splicer) trimRepeatedSpace(quoted []byte) []byte {
	t := string(openai.UnquoteText(quoted))
	n := 0
	for n < len(t) && n < len(s.pendingWhitespace) && t[n] == s.pendingWhitespace[n] {
		n++
	}
	if n < len(t) {
		s.pendingWhitespace = ""
	} else {
		s.pendingWhitespace = s.pendingWhitespace[n:]
	}
	return escapeJSON(t[n:])
}

// totalUsage returns the usage of the whole response, given that reported by the second worker.
func (s *Splicer) totalUsage(u openai.TokenUsage) openai.TokenUsage {
	if s.sentText {
		u.Prompt = max(u.Prompt-s.tokensBeforeCut+s.whitespaceTokens, 1)
	}
	u.Completion = max(u.Completion-s.whitespaceTokens, 0) + s.tokensBeforeCut
	u.Cached = min(u.Cached, u.Prompt)
	return u
}

// parseUsage parses a usage object.
func parseUsage(v []byte) openai.TokenUsage {
	var m openai.StreamMeter
	m.AddChunk(append(append([]byte(`data: {"usage":`), v...), "}\n"...))
	return m.Usage
}

// escapeJSON returns s as an escaped JSON string without quotes.
func escapeJSON(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil { // a string always encodes
		return nil
	}
	return b.Bytes()[1 : b.Len()-2]
}

// tokensSinceCut returns the number of tokens since the last cut.
func (s *Splicer) tokensSinceCut() int {
	if s.textEvents == 0 {
		return 0
	}
	if float64(s.textBytes) > 2.5*s.bytesPerToken*float64(s.textEvents)+16 { // several tokens per event
		return max(s.textEvents, int(float64(s.textBytes)/s.bytesPerToken))
	}
	return s.textEvents
}

// CountTokens returns the counted tokens of the whole text.
func (s *Splicer) CountTokens() int { return s.tokensBeforeCut + s.tokensSinceCut() }

// IsSpliced reports whether the stream was cut and joined.
func (s *Splicer) IsSpliced() bool { return s.splices > 0 }

// IsComplete reports whether the stream has ended properly.
func (s *Splicer) IsComplete() bool { return s.done }

// LacksEnd reports whether a stream that ends now is incomplete. It is false for a nil Splicer.
func (s *Splicer) LacksEnd() bool { return s != nil && !s.passthrough && !s.done && !s.finished }

// ErrorEvent returns the event with which an engine failed in the middle, or nil. It was not passed.
func (s *Splicer) ErrorEvent() []byte { return s.errorEvent }

// DeclinedEvent returns the event with which an engine refused the request in the middle of the stream, a
// client error, or nil. It was passed.
func (s *Splicer) DeclinedEvent() []byte { return s.declinedEvent }

// WhyNotResumable returns why the stream cannot be resumed; None if it can.
func (s *Splicer) WhyNotResumable() NotResumableReason {
	if s.splices > 0 && s.notResumable == Resumable {
		return AlreadyResumed
	}
	return s.notResumable
}

// PartialEvent returns the buffered bytes of an incomplete event, for a stream that has ended successfully.
func (s *Splicer) PartialEvent() []byte { return s.partialEvent }

// ReservedBytes returns the space reserved for the text, in bytes.
func (s *Splicer) ReservedBytes() int { return s.text.reserved }

// ReleaseText drops the text of a finished stream, which can then not be resumed. A nil Splicer has none.
func (s *Splicer) ReleaseText() {
	if s != nil {
		s.text.releaseText()
	}
}

// UsageOrEstimate returns the usage of the response: as reported by engines, or counted, with prompt as the
// estimate of the prompt.
func (s *Splicer) UsageOrEstimate(prompt int) openai.TokenUsage {
	if s.usage.Stated {
		return s.usage
	}
	return openai.TokenUsage{Prompt: prompt, Completion: s.CountTokens()}
}

// CutStream ends the part of the current worker. limit is the longest allowed response if the request sets no
// limit, 0 for none. It returns the missing end if only that is missing, or else body, the continuation
// request. If both are nil, the stream cannot be resumed; WhyNotResumable returns the reason.
func (s *Splicer) CutStream(limit, prompt int) (body, end []byte) {
	if s.WhyNotResumable() != Resumable {
		return nil, nil
	}
	text, ok := s.decodeText()
	if !ok {
		s.giveUpResuming(UnusableText)
		return nil, nil
	}
	s.tokensBeforeCut = s.tokensSinceCut()
	left := s.request.outputLimit
	if left == 0 {
		left = limit
	}
	if s.finished || left > 0 && left <= s.tokensBeforeCut {
		end = s.closeStream(prompt)
		s.beginContinuation()
		return nil, end
	}
	if s.request.IsChat {
		trimmed := strings.TrimRight(text, " \t\r\n")
		s.pendingWhitespace, s.whitespaceTokens = text[len(trimmed):], s.trailingSpaceTokens
		text = trimmed
	}
	if left > 0 {
		left += s.whitespaceTokens - s.tokensBeforeCut
	}
	s.sentText = text != ""
	body = s.request.ContinuationBody(s.body, escapeJSON(text), left)
	s.beginContinuation()
	return body, nil
}

// beginContinuation begins the part of the next worker.
func (s *Splicer) beginContinuation() {
	s.splices++
	s.partialEvent, s.errorEvent, s.textEvents, s.textBytes = nil, nil, 0, 0
	s.dropText()
}

// decodeText returns the text so far if it can be sent back: not if it ends inside a character.
func (s *Splicer) decodeText() (string, bool) {
	var text string
	quoted, err := s.text.appendTo(append(make([]byte, 0, s.text.size+2), '"'))
	if err != nil || json.Unmarshal(append(quoted, '"'), &text) != nil || strings.HasSuffix(text, "\ufffd") {
		return "", false
	}
	return text, true
}

// closeStream returns the missing end of a stream that has all its text.
func (s *Splicer) closeStream(prompt int) []byte {
	var out []byte
	if !s.finished {
		choice := `"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]`
		if s.request.IsChat {
			choice = `"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]`
		}
		out = s.appendEvent(out, choice)
		s.finished = true
	}
	if s.request.WantsUsage && !s.usage.Stated {
		s.usage = openai.TokenUsage{Prompt: prompt, Completion: s.tokensBeforeCut, Stated: true}
		u := []byte(`"choices":[],"usage":{"prompt_tokens":`)
		u = strconv.AppendInt(u, int64(prompt), 10)
		u = strconv.AppendInt(append(u, `,"total_tokens":`...), int64(prompt+s.tokensBeforeCut), 10)
		u = strconv.AppendInt(append(u, `,"completion_tokens":`...), int64(s.tokensBeforeCut), 10)
		out = s.appendEvent(out, string(append(u, '}')))
	}
	s.done = true
	return append(out, "data: [DONE]\n\n"...)
}

// appendEvent appends a synthesized event in the format of the engine.
func (s *Splicer) appendEvent(out []byte, rest string) []byte {
	object := `"text_completion"`
	if s.request.IsChat {
		object = `"chat.completion.chunk"`
	}
	out = append(out, `data: {`...)
	for _, m := range []struct {
		key string
		v   []byte
	}{{"id", s.id}, {"object", []byte(object)}, {"created", s.created}, {"model", s.model}} {
		if len(bytes.TrimSpace(m.v)) > 0 {
			out = append(append(append(out, '"'), m.key...), `":`...)
			out = append(append(out, m.v...), ',')
		}
	}
	return append(append(out, rest...), "}\n\n"...)
}
