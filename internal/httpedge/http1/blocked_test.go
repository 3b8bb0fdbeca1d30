package http1

import (
	"io"
	"net/http"
	"testing"
)

// TestSlowClientIsReportedAsBlocked: the DetachHandler is notified when a stream starts and stops waiting for
// its client.
func TestSlowClientIsReportedAsBlocked(t *testing.T) {
	if !canDetach {
		t.Skip("nothing is followed on this system")
	}
	up := startEndlessServer(t)
	held, ended := [2]chan bool{make(chan bool, 1), make(chan bool, 1)}, make(chan bool)
	tr := newTestTransport(t, nil)
	addr, _ := startServer(t, &http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, up.URL, nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		if !DetachStream(w, resp.Body, &recordingHandler{writer: w, resp: resp, blockedSignals: held, onFinish: func(*recordingHandler) { close(ended) }}) {
			t.Error("it is not followed")
		}
	})}, false)
	c := openStream(t, addr)
	<-held[1]
	for free := false; !free; {
		if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
			t.Fatal(err)
		}
		select {
		case <-held[0]:
			free = true
		default:
		}
	}
	_ = c.Close()
	<-ended
}
