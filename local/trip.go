package local

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local/batch"
)

// travel makes a call and fills in each part's share. What a worker refuses, or answers so that it does not add up, is
// asked for again part by part, once: each part then has its own answer or its own error.
func (b *batcher) travel(ctx context.Context, t *trip) {
	parts := t.call.Parts()
	t.shares = make([]*share, len(parts))
	rec := b.call(ctx, merged(ctx, t.visits, parts))
	if len(parts) == 1 {
		t.shares[0] = rec.share()
		return
	}
	cause := "refused"
	if rec.status/100 == 2 {
		if answers, ok := batch.Split(parts, rec.body); ok {
			for i := range answers {
				t.shares[i] = &share{status: rec.status, header: rec.header, body: answers[i]}
			}
			return
		}
		cause = "does_not_add_up"
	} else if !refusesContent(rec.status) {
		for i := range t.shares {
			t.shares[i] = rec.failure()
		}
		return
	}
	b.refuse.WithLabelValues(t.visits[0].model, cause).Inc()
	b.alone(ctx, t)
}

// alone makes a call for each part.
func (b *batcher) alone(ctx context.Context, t *trip) {
	var wg sync.WaitGroup
	for i := range t.visits {
		wg.Go(func() {
			t.shares[i] = b.call(ctx, merged(ctx, t.visits[i:i+1], t.call.Parts()[i:i+1])).share()
		})
	}
	wg.Wait()
	t.refused = true
	for _, s := range t.shares {
		t.refused = t.refused && s.status/100 == 2
	}
}

// refusesContent says that a status may be the fault of one part. The others are of the caller, the model or the load.
func refusesContent(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return status/100 == 4
}

// merged is the visit that stands for several: the first one's, with everybody's body.
func merged(ctx context.Context, visits []*visit, parts []*batch.Part) *visit {
	v := *visits[0]
	v.r = v.r.Clone(ctx)
	v.query.Blocks, v.query.Exclude, v.excluded = nil, nil, [2]int32{-1, -1}
	if len(visits) == 1 {
		return &v
	}
	v.r.Header = http.Header{"Content-Type": {"application/json"}}
	v.body = batch.Merge(parts)
	v.env.Prompt, v.env.User = nil, ""
	v.env.ModelStart, v.env.ModelEnd = 0, 0 // what is merged names the model that it goes to
	v.query.Blocks = v.blocks[:0]           // no prefix: the parts have nothing in common
	v.longest = visits[0].heaviest()
	v.prints = slices.Clone(v.prints)
	for _, o := range visits[1:] {
		v.prints = append(v.prints, o.prints...)
		v.estimate += o.estimate
		v.longest = max(v.longest, o.heaviest())
		v.retries = max(v.retries, o.retries)
		if o.deadline.IsZero() || !v.deadline.IsZero() && o.deadline.After(v.deadline) {
			v.deadline = o.deadline // each rider minds its own
		}
	}
	return &v
}

// heaviest is the longest input of a visit, in tokens.
func (v *visit) heaviest() int64 {
	if v.longest > 0 {
		return v.longest
	}
	return v.estimate
}

// call serves a visit into memory.
func (b *batcher) call(ctx context.Context, v *visit) (rec *recorder) {
	rec = &recorder{header: http.Header{}}
	defer func() {
		// relay.Abort says that the answer broke off; nobody has seen any of it yet.
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			rec.fail(openai.UpstreamLost())
		}
		if rec.over {
			rec.fail(openai.Upstream("the answer is larger than " + strconv.Itoa(maxShared) + " bytes"))
		}
		if rec.status == 0 {
			rec.fail(openai.Upstream("the call was given up"))
		}
	}()
	b.agent.serve(rec, v)
	return rec
}

// maxShared bounds an answer that is held in memory, in bytes: some 2,000 vectors of 4,096 numbers.
const maxShared = 128 << 20

// recorder keeps an answer.
type recorder struct {
	status int
	header http.Header
	body   []byte
	over   bool
}

var errTooLarge = errors.New("the answer is too large to be held")

// Header is the answer's.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader keeps the first status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write keeps p, within bounds.
func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if len(r.body)+len(p) > maxShared {
		r.over = true
		return 0, errTooLarge
	}
	if r.body == nil {
		n, err := strconv.Atoi(r.header.Get("Content-Length"))
		if err == nil && n > len(p) && n <= 16<<20 {
			r.body = make([]byte, 0, n)
		}
	}
	r.body = append(r.body, p...)
	return len(p), nil
}

// fail replaces the answer by an error.
func (r *recorder) fail(e *openai.Error) {
	r.status, r.over = e.Status, false
	r.header = http.Header{"Content-Type": {"application/json"}}
	r.body = e.JSON()
}

func (r *recorder) share() *share {
	return &share{status: r.status, header: r.header, body: batch.Answer{r.body}}
}

// failure is an error of the whole call for one of those who shared it. A worker's own words are left out: they may
// speak of what another one sent.
func (r *recorder) failure() *share {
	s := r.share()
	if r.header.Get(relay.HeaderRoute) != "" {
		e := openai.Upstream("the worker failed a call that several requests shared")
		s.body = batch.Answer{e.JSON()}
		s.header = r.header.Clone()
		s.header.Set("Content-Type", "application/json")
	}
	return s
}

// write sends a rider its share.
func (s *share) write(w http.ResponseWriter, v *visit) {
	h := w.Header()
	for name, values := range s.header {
		h[name] = append([]string(nil), values...)
	}
	if v.hop.RequestID != "" {
		h.Set(relay.HeaderXRequestID, v.hop.RequestID)
	}
	h.Set("Content-Length", strconv.Itoa(s.body.Len()))
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(shareTimeout)) // a writer without deadlines is a test's
	w.WriteHeader(s.status)
	for _, piece := range s.body {
		if _, err := w.Write(piece); err != nil {
			return // the caller has left
		}
	}
	_ = rc.SetWriteDeadline(time.Time{}) // as above
}

// shareTimeout bounds how long a caller may take to read its share.
const shareTimeout = time.Minute
