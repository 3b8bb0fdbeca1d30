package wire

import (
	"io"
	"net/http"
	"testing"
)

// TestASlowClientIsToldOf: whoever follows a stream hears that it waits for its client, and that it does not any more.
func TestASlowClientIsToldOf(t *testing.T) {
	if !canFollow {
		t.Skip("nothing is followed on this system")
	}
	up := torrent(t)
	held, ended := [2]chan bool{make(chan bool, 1), make(chan bool, 1)}, make(chan bool)
	tr := over(t, nil)
	addr, _ := served(t, &http.Server{ErrorLog: discard, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		if !Follow(w, resp.Body, &passer{w: w, resp: resp, held: held, over: func(*passer) { close(ended) }}) {
			t.Error("it is not followed")
		}
	})}, false)
	c := began(t, addr)
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
