package resume

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Bounds say how much of a stream is kept.
type Bounds struct {
	// Text is the longest text that is kept of one stream, in bytes as it is escaped.
	Text int
	// Store keeps it beside those of all other streams. Nil: there is always room.
	Store Store
}

// Seam follows one stream over its workers. Make it with New.
type Seam struct {
	request Request
	body    []byte
	bounds  Bounds
	perTok  float64

	why  Reason
	raw  bool   // what comes passes as it comes
	held []byte // of an event that is not whole yet
	out  []byte
	text prose // so far, escaped
	legs int   // cuts that were joined

	events         int    // that carried text, since the last cut
	bytes          int    // of text, since the last cut
	before         int    // tokens of the text at the cut
	blank          string // what the continuation has to bring again
	again          int    // tokens of that
	blanks         int    // tokens of white space that the text ends with
	sent           bool   // the cut was after some text that was sent along
	head, tail     []byte // of a plain event: all but its text
	id, made       []byte // raw values of the first event
	model, print   []byte
	finished, done bool
	failure        []byte // the event with which an engine gave up
	declined       []byte // the event with which an engine refused the request
	usage          openai.Usage
	scratch        event
}

// New follows the stream of a request that Examine let through. body must not change; perToken is bytes per token, for
// events that carry several.
func New(q Request, body []byte, perToken float64, b Bounds) *Seam {
	return &Seam{request: q, body: body, bounds: b, perTok: max(perToken, 1), text: prose{store: b.Store}}
}

// Pass returns what of the next bytes goes to the client: whole events, valid until the next call. Once an engine has
// sent an error, nothing more passes: see Failure.
func (s *Seam) Pass(p []byte) []byte {
	switch {
	case s.failure != nil:
		return nil
	case s.raw:
		return p
	}
	d, from := p, 0
	if len(s.held) > 0 {
		from = len(s.held)
		s.held = append(s.held, p...)
		d = s.held
	}
	s.out = s.out[:0]
	at := s.walk(d, from)
	if s.legs > 0 {
		if s.raw {
			s.out = append(s.out, d[at:]...)
		}
		s.hold(d[at:])
		return s.out
	}
	if s.raw {
		at = len(d)
	}
	out := d[:at]
	if from > 0 {
		s.out = append(s.out, out...)
		out = s.out
	}
	s.hold(d[at:])
	return out
}

// walk takes every whole event of d and returns where the rest begins.
func (s *Seam) walk(d []byte, from int) (at int) {
	for at < len(d) && !s.raw {
		n := next(d[at:], max(from-at, 0))
		if n == -2 || n == -1 && len(d)-at > maxEvent {
			s.lose(Form) // nobody can join it: it passes as it comes
			s.raw = true
		}
		if n < 0 || !s.take(d[at:at+n]) {
			return at
		}
		at += n
	}
	return at
}

// hold keeps what is not whole yet.
func (s *Seam) hold(rest []byte) {
	if s.raw || s.failure != nil {
		rest = nil
	}
	s.held = append(s.held[:0], rest...)
}

// lose gives up being able to resume. What comes then passes as it comes.
func (s *Seam) lose(why Reason) {
	if s.why == None {
		s.why = why
	}
	s.raw = s.raw || s.legs == 0
	s.forget()
}

// forget lets go of what a continuation would be made of.
func (s *Seam) forget() {
	s.text.drop()
	s.head, s.tail = nil, nil
}

// take reads one whole event; false when it must not pass and nothing after it.
func (s *Seam) take(ev []byte) bool {
	if s.legs == 0 && s.plain(ev) {
		return true
	}
	e := &s.scratch
	if !e.read(ev) {
		if s.legs == 0 {
			s.lose(Form)
		} else {
			s.out = append(s.out, ev...)
		}
		return true
	}
	if e.declined {
		s.decline(ev)
		return true
	}
	if e.failed {
		s.failure = bytes.Clone(ev)
		return false
	}
	s.done = s.done || e.done
	if s.legs > 0 {
		s.join(e, ev)
		return true
	}
	s.note(e, ev)
	return true
}

// decline ends a stream whose engine refuses the request in an event. The event passes, it is the answer, and nothing is
// resumed: another engine would refuse the same request.
func (s *Seam) decline(ev []byte) {
	s.declined, s.done = bytes.Clone(ev), true
	if s.legs > 0 {
		s.out = append(s.out, ev...)
		return
	}
	s.lose(Declined)
}

// plain takes an event that differs from an earlier one in nothing but its text.
func (s *Seam) plain(ev []byte) bool {
	if s.head == nil || s.finished || len(ev) < len(s.head)+len(s.tail) || !bytes.HasPrefix(ev, s.head) || !bytes.HasSuffix(ev, s.tail) {
		return false
	}
	text := ev[len(s.head) : len(ev)-len(s.tail)]
	if bytes.IndexByte(text, '"') >= 0 || len(text) > 0 && text[len(text)-1] == '\\' {
		return false
	}
	s.keep(text)
	return true
}

// note remembers of the first worker's event what is needed to go on.
func (s *Seam) note(e *event, ev []byte) {
	if e.more {
		s.lose(Delta)
		return
	}
	if s.id == nil && e.id.there() {
		s.id, s.made, s.model, s.print = bytes.Clone(e.id.of(ev)), bytes.Clone(e.created.of(ev)), bytes.Clone(e.model.of(ev)), bytes.Clone(e.print.of(ev))
	}
	s.finished = s.finished || e.finish.there()
	if e.usage.there() {
		s.usage = state(e.usage.of(ev))
	}
	text := e.text(ev)
	if s.head == nil && len(text) > 0 && !e.finish.there() && !e.usage.there() {
		s.head, s.tail = bytes.Clone(ev[:e.content.at+1]), bytes.Clone(ev[e.content.end-1:])
	}
	s.keep(text)
}

// keep adds to the text so far.
func (s *Seam) keep(text []byte) {
	if len(text) == 0 {
		return
	}
	s.events++
	s.bytes += len(text)
	switch n := blankEnd(text); {
	case n == len(text):
		s.blanks++
	case n > 0:
		s.blanks = 1
	default:
		s.blanks = 0
	}
	switch {
	case s.legs > 0 || s.why != None:
		return
	case s.text.size+len(text) > s.bounds.Text:
		s.lose(TooLong)
	case !s.text.add(text):
		s.lose(Memory)
	}
}

// blankEnd is how many bytes of white space an escaped text ends with.
func blankEnd(text []byte) (n int) {
	for n < len(text) {
		rest := text[:len(text)-n]
		switch c := rest[len(rest)-1]; {
		case c == ' ':
			n++
		case (c == 'n' || c == 't' || c == 'r') && slashes(rest[:len(rest)-1])%2 == 1:
			n += 2
		default:
			return n
		}
	}
	return n
}

// slashes counts the backslashes that a text ends with.
func slashes(text []byte) (n int) {
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n
}

// join writes an event of another worker as the first one would have.
func (s *Seam) join(e *event, ev []byte) {
	if e.comment || e.done {
		s.out = append(s.out, ev...)
		return
	}
	text := e.text(ev)
	if s.blank != "" && len(text) > 0 {
		text = s.trim(e.content.of(ev))
	}
	s.finished = s.finished || e.finish.there()
	if len(text) == 0 && !e.finish.there() && !e.usage.there() && !e.more && !e.empty {
		return // it only names the role again, or brings what the client has
	}
	s.keep(text)
	var edits []edit
	for _, m := range []struct {
		span
		first []byte
	}{{e.id, s.id}, {e.created, s.made}, {e.model, s.model}, {e.print, s.print}} {
		if m.there() && len(m.first) > 0 {
			edits = append(edits, edit{m.span, m.first})
		}
	}
	if e.usage.there() {
		s.usage = s.sum(state(e.usage.of(ev)))
		edits = append(edits, restate(ev, e.usage, s.usage)...)
	}
	switch {
	case e.more:
	case e.delta.there():
		delta := []byte("{}")
		if len(text) > 0 {
			delta = append(append([]byte(`{"content":"`), text...), `"}`...)
		}
		edits = append(edits, edit{e.delta, delta})
	case e.content.there():
		edits = append(edits, edit{e.content, append(append([]byte{'"'}, text...), '"')})
	}
	s.out = append(s.out, apply(ev, edits)...)
}

// trim takes out of a quoted text what the client has of it already, and returns the rest, escaped.
func (s *Seam) trim(quoted []byte) []byte {
	t := string(openai.Text(quoted))
	n := 0
	for n < len(t) && n < len(s.blank) && t[n] == s.blank[n] {
		n++
	}
	if n < len(t) {
		s.blank = ""
	} else {
		s.blank = s.blank[n:]
	}
	return escape(t[n:])
}

// sum is the usage of the whole answer by what the second worker stated.
func (s *Seam) sum(u openai.Usage) openai.Usage {
	if s.sent {
		u.Prompt = max(u.Prompt-s.before+s.again, 1)
	}
	u.Completion = max(u.Completion-s.again, 0) + s.before
	u.Cached = min(u.Cached, u.Prompt)
	return u
}

// state reads a usage object.
func state(v []byte) openai.Usage {
	var m openai.StreamMeter
	m.Chunk(append(append([]byte(`data: {"usage":`), v...), "}\n"...))
	return m.Usage
}

// escape is s as the inside of a JSON string.
func escape(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil { // a string always encodes
		return nil
	}
	return b.Bytes()[1 : b.Len()-2]
}

// spent is how many tokens have come since the last cut.
func (s *Seam) spent() int {
	if s.events == 0 {
		return 0
	}
	if float64(s.bytes) > 2.5*s.perTok*float64(s.events)+16 { // several tokens to an event
		return max(s.events, int(float64(s.bytes)/s.perTok))
	}
	return s.events
}

// Tokens is how many tokens of text have come in all, by count.
func (s *Seam) Tokens() int { return s.before + s.spent() }

// Resumed says that the stream was cut and joined.
func (s *Seam) Resumed() bool { return s.legs > 0 }

// Whole says that the stream has come to its proper end.
func (s *Seam) Whole() bool { return s.done }

// Short says that a stream that ends now lacks its proper end. A nil Seam knows nothing of that.
func (s *Seam) Short() bool { return s != nil && !s.raw && !s.done && !s.finished }

// Failure is the event with which an engine gave up in the middle; nil when none did. It has not passed.
func (s *Seam) Failure() []byte { return s.failure }

// Declined is the event with which an engine refused the request in the middle of the stream, a client error; nil when none
// did. It has passed.
func (s *Seam) Declined() []byte { return s.declined }

// Why says why the stream cannot be resumed; None when it can be.
func (s *Seam) Why() Reason {
	if s.legs > 0 && s.why == None {
		return Spent
	}
	return s.why
}

// Rest is what is held of an event that never became whole, for a stream that has ended well.
func (s *Seam) Rest() []byte { return s.held }

// Held is how much room the text takes, in bytes.
func (s *Seam) Held() int { return s.text.took }

// Release lets go of the text, for a stream that is over: it cannot be resumed any more. A nil Seam has none.
func (s *Seam) Release() {
	if s != nil {
		s.text.drop()
	}
}

// Usage is what the answer used: as engines stated it, or by count beside an estimate of the prompt.
func (s *Seam) Usage(prompt int) openai.Usage {
	if s.usage.Stated {
		return s.usage
	}
	return openai.Usage{Prompt: prompt, Completion: s.Tokens()}
}

// Cut ends the first worker's part. limit is the longest answer that is allowed where the request names no limit, 0 for
// none. Either the answer lacks nothing but its end, which is returned, or body is the request that goes on. Without
// either, the stream cannot be resumed; Why says why not.
func (s *Seam) Cut(limit, prompt int) (body, end []byte) {
	if s.Why() != None {
		return nil, nil
	}
	text, ok := s.decode()
	if !ok {
		s.lose(Text)
		return nil, nil
	}
	s.before = s.spent()
	left := s.request.limit
	if left == 0 {
		left = limit
	}
	if s.finished || left > 0 && left <= s.before {
		end = s.close(prompt)
		s.joined()
		return nil, end
	}
	if s.request.Chat {
		trimmed := strings.TrimRight(text, " \t\r\n")
		s.blank, s.again = text[len(trimmed):], s.blanks
		text = trimmed
	}
	if left > 0 {
		left += s.again - s.before
	}
	s.sent = text != ""
	body = s.request.Body(s.body, escape(text), left)
	s.joined()
	return body, nil
}

// joined begins the next worker's part.
func (s *Seam) joined() {
	s.legs++
	s.held, s.failure, s.events, s.bytes = nil, nil, 0, 0
	s.forget()
}

// decode is the text so far, if it can be sent back: not when it ends inside a character.
func (s *Seam) decode() (string, bool) {
	var text string
	quoted, err := s.text.append(append(make([]byte, 0, s.text.size+2), '"'))
	if err != nil || json.Unmarshal(append(quoted, '"'), &text) != nil || strings.HasSuffix(text, "\ufffd") {
		return "", false
	}
	return text, true
}
