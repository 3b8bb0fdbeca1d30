package openai

import "io"

// maxEdits is the largest number of edits of a body: its model, its output limit, the request for usage.
const maxEdits = 3

// EditedBody is a body in memory with a few edits. It is not copied: readers read the pieces in order. Offsets
// are those of the original body. The zero EditedBody is empty.
type EditedBody struct {
	raw   []byte
	edits [maxEdits]bodyEdit // in the order of their offsets
	n     int
}

// bodyEdit replaces a span of raw by text.
type bodyEdit struct {
	start, end int
	text       string
}

// NewEditedBody returns an unedited body.
func NewEditedBody(raw []byte) EditedBody { return EditedBody{raw: raw} }

// addEdit adds an edit. Edits must not overlap, and there are at most maxEdits.
func (w *EditedBody) addEdit(at, end int, text string) {
	i := w.n
	for ; i > 0 && w.edits[i-1].start > at; i-- {
		w.edits[i] = w.edits[i-1]
	}
	w.edits[i] = bodyEdit{at, end, text}
	w.n++
}

// IsEdited reports whether there are edits.
func (w *EditedBody) IsEdited() bool { return w.n > 0 }

// Len returns the length in bytes.
func (w *EditedBody) Len() int {
	n := len(w.raw)
	for i := range w.n {
		n += len(w.edits[i].text) - (w.edits[i].end - w.edits[i].start)
	}
	return n
}

// Bytes returns the body in one slice: a copy if there are edits.
func (w *EditedBody) Bytes() []byte {
	if w.n == 0 {
		return w.raw
	}
	return w.AppendTo(make([]byte, 0, w.Len()))
}

// AppendTo appends the body to b.
func (w *EditedBody) AppendTo(b []byte) []byte {
	at := 0
	for i := range w.n {
		e := &w.edits[i]
		b = append(append(b, w.raw[at:e.start]...), e.text...)
		at = e.end
	}
	return append(b, w.raw[at:]...)
}

// SetModel replaces the model: the engine must receive the resolved model of an alias. env is the envelope of
// the original body; nothing changes if it has no model or the same one.
func (w *EditedBody) SetModel(env *Envelope, model string) {
	raw := w.raw[env.ModelStart:env.ModelEnd]
	if env.isForm {
		if len(raw) > 0 && string(raw) != model {
			w.addEdit(env.ModelStart, env.ModelEnd, model)
		}
		return
	}
	if len(raw) == 0 || len(raw) == len(model)+2 && string(raw[1:len(raw)-1]) == model {
		return
	}
	w.addEdit(env.ModelStart, env.ModelEnd, string(appendQuoted(nil, model)))
}

// RequestUsage makes the body request the usage of its stream. MayRequestUsage must be true, and env is the
// envelope of the original body.
func (w *EditedBody) RequestUsage(env *Envelope) {
	at, end, text := env.usageEdit(w.raw)
	w.addEdit(at, end, text)
}

// EditedBodyReader reads an EditedBody.
type EditedBodyReader struct {
	body      *EditedBody
	nextPiece int    // index of the next piece
	editText  string // the rest of the current piece, if it is an edit
	bodyBytes []byte // the rest of the current piece, if it is of the body
}

// NewReader returns a reader from the start. The body must not be edited afterwards.
func (w *EditedBody) NewReader() *EditedBodyReader { return &EditedBodyReader{body: w} }

// loadNextPiece loads the next piece. It returns false if there is none.
func (r *EditedBodyReader) loadNextPiece() bool {
	i := r.nextPiece / 2
	if i > r.body.n || i == r.body.n && r.nextPiece%2 == 1 {
		return false
	}
	if r.nextPiece++; r.nextPiece%2 == 0 {
		r.editText = r.body.edits[i].text
		return true
	}
	from, to := 0, len(r.body.raw)
	if i > 0 {
		from = r.body.edits[i-1].end
	}
	if i < r.body.n {
		to = r.body.edits[i].start
	}
	r.bodyBytes = r.body.raw[from:to]
	return true
}

// Read implements io.Reader.
func (r *EditedBodyReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		k := copy(p[n:], r.bodyBytes)
		r.bodyBytes = r.bodyBytes[k:]
		if k == 0 {
			k = copy(p[n:], r.editText)
			r.editText = r.editText[k:]
		}
		if n += k; k == 0 && !r.loadNextPiece() {
			break
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}
