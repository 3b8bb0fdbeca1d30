package http1

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// TestStreamsPassWhenNoLoopCanBeMade: if the process has no descriptors left for a loop, streams still pass and
// no descriptor leaks.
func TestStreamsPassWhenNoLoopCanBeMade(t *testing.T) {
	streamLoops.mu.Lock()
	all := streamLoops.all
	streamLoops.all = []*streamLoop{} // no loop could be created
	streamLoops.mu.Unlock()
	defer func() {
		streamLoops.mu.Lock()
		streamLoops.all = all
		streamLoops.mu.Unlock()
	}()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer up.Close()
	ended := make(chan *recordingHandler, 1)
	addr, _, followed := startDetachingProxy(t, up.URL, nil, false, func(p *recordingHandler) { ended <- p })
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(list)
	}
	before := 0
	for i := range 20 {
		resp, err := client.Get("http://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if p := <-ended; err != nil || p.err != io.EOF || string(text) != "data: x\n\ndata: x\n\ndata: x\n\n" {
			t.Fatalf("%q, %v; the end was %v", text, err, p.err)
		}
		if i == 0 {
			before = descriptors()
		}
	}
	if n := followed.Load(); n != 20 {
		t.Errorf("%d streams were followed", n)
	}
	if n := descriptors(); n > before {
		t.Errorf("%d descriptors are open, %d after the first stream", n, before)
	}
}
