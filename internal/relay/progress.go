package relay

import (
	"net/http"

	"github.com/spillway-lb/spillway/internal/wire"
)

// Progress observes a request until its final answer.
type Progress = wire.Progress

// Values of HeaderProgress.
const (
	ProgressQueued  = "queued"  // the request waits for room on a worker
	ProgressStarted = "started" // a request that was queued has gone to a worker
)

// WriteProgress writes an interim answer 102 to the tier above. The final answer must not have begun.
func WriteProgress(w http.ResponseWriter, progress string) {
	h := w.Header()
	h.Set(HeaderProgress, progress)
	w.WriteHeader(http.StatusProcessing)
	h.Del(HeaderProgress)
}
