package openai

import "io"

// maxEdits is how many places of a body are written anew at most: its model, its output limit, the question for usage.
const maxEdits = 3

// Wording is a body in memory of which a few places are written anew. It is not copied for that: whoever sends it reads one
// piece after the other. Places are those of the body as it came. The zero Wording is empty.
type Wording struct {
	raw   []byte
	edits [maxEdits]edit // in the order of their places
	n     int
}

// edit puts text where raw has what lies between two places.
type edit struct {
	at, end int
	text    string
}

// WordingOf is a body as it came.
func WordingOf(raw []byte) Wording { return Wording{raw: raw} }

// edit notes a change. Changes do not overlap, and there are at most maxEdits.
func (w *Wording) edit(at, end int, text string) {
	i := w.n
	for ; i > 0 && w.edits[i-1].at > at; i-- {
		w.edits[i] = w.edits[i-1]
	}
	w.edits[i] = edit{at, end, text}
	w.n++
}

// Edited says whether anything is written anew.
func (w *Wording) Edited() bool { return w.n > 0 }

// Len is the length, in bytes.
func (w *Wording) Len() int {
	n := len(w.raw)
	for i := range w.n {
		n += len(w.edits[i].text) - (w.edits[i].end - w.edits[i].at)
	}
	return n
}

// Bytes is all of it in one piece: a copy where something is written anew.
func (w *Wording) Bytes() []byte {
	if w.n == 0 {
		return w.raw
	}
	out := make([]byte, 0, w.Len())
	at := 0
	for i := range w.n {
		e := &w.edits[i]
		out = append(append(out, w.raw[at:e.at]...), e.text...)
		at = e.end
	}
	return append(out, w.raw[at:]...)
}

// SetModel has the body name another model: an alias must reach the engine as the model it resolved to. env is the
// envelope of the body as it came; nothing changes where that names no model or this one.
func (w *Wording) SetModel(env *Envelope, model string) {
	raw := w.raw[env.ModelStart:env.ModelEnd]
	if env.form {
		if len(raw) > 0 && string(raw) != model {
			w.edit(env.ModelStart, env.ModelEnd, model)
		}
		return
	}
	if len(raw) == 0 || len(raw) == len(model)+2 && string(raw[1:len(raw)-1]) == model {
		return
	}
	w.edit(env.ModelStart, env.ModelEnd, string(appendQuoted(nil, model)))
}

// AskUsage has the body ask for the usage of its stream. MayAskUsage must hold, and env is the envelope of the body as it
// came.
func (w *Wording) AskUsage(env *Envelope) {
	at, end, text := env.usageSplice(w.raw)
	w.edit(at, end, text)
}

// WordingReader reads a Wording.
type WordingReader struct {
	of   *Wording
	next int    // piece
	rest string // of the piece before, where that is an edit's
	raw  []byte // the same, where it is the body's
}

// Reader begins to read from the start. The wording must not change any more.
func (w *Wording) Reader() *WordingReader { return &WordingReader{of: w} }

// turn takes the next piece up; false when there is none.
func (r *WordingReader) turn() bool {
	i := r.next / 2
	if i > r.of.n || i == r.of.n && r.next%2 == 1 {
		return false
	}
	if r.next++; r.next%2 == 0 {
		r.rest = r.of.edits[i].text
		return true
	}
	from, to := 0, len(r.of.raw)
	if i > 0 {
		from = r.of.edits[i-1].end
	}
	if i < r.of.n {
		to = r.of.edits[i].at
	}
	r.raw = r.of.raw[from:to]
	return true
}

// Read implements io.Reader.
func (r *WordingReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		k := copy(p[n:], r.raw)
		r.raw = r.raw[k:]
		if k == 0 {
			k = copy(p[n:], r.rest)
			r.rest = r.rest[k:]
		}
		if n += k; k == 0 && !r.turn() {
			break
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}
