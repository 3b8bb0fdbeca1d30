package local

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
)

// readDeadlines reads the deadline and the SLO of a request, from the gateway's remaining time and from the client's
// headers. The earlier deadline applies.
func (v *zoneRequest) readDeadlines(h http.Header) *openai.Error {
	t, e := forward.ReadSLO(h)
	if e != nil {
		return e
	}
	for _, w := range [...]time.Duration{v.hop.Deadline, t.Deadline} {
		if w > 0 && (v.Deadline.IsZero() || v.ArrivedAt.Add(w).Before(v.Deadline)) {
			v.Deadline = v.ArrivedAt.Add(w)
		}
	}
	v.SetSLO(t.TTFT, t.TPOT)
	return nil
}
