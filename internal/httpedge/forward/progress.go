package forward

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
)

// ProgressObserver observes a request until its final response.
type ProgressObserver = http1.ProgressObserver

// Values of HeaderProgress.
const (
	ProgressQueued  = "queued"  // the request waits for capacity of a worker
	ProgressStarted = "started" // a queued request was dispatched to a worker
)

// WriteProgress writes an interim response (102) to the tier above. The final response must not have begun.
func WriteProgress(w http.ResponseWriter, progress string) {
	h := w.Header()
	h.Set(HeaderProgress, progress)
	w.WriteHeader(http.StatusProcessing)
	h.Del(HeaderProgress)
}

// ObserveInterim returns ctx with interim called for each interim response to a request that net/http carries.
func ObserveInterim(ctx context.Context, interim func(h http.Header)) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		interim(http.Header(h))
		return nil
	}})
}
