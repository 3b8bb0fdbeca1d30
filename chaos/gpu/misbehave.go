package gpu

import (
	"net"
	"net/http"
)

// wrongSeed changes the answers of a worker in ModeWrong.
const wrongSeed = 0xbad5eed

// answerSeed stands for the weights of the model that answers.
func (s *Server) answerSeed() uint64 {
	if s.chaos.loadCurrent().Mode == ModeWrong {
		return s.cfg.AnswerSeed ^ wrongSeed
	}
	return s.cfg.AnswerSeed
}

// resetByChaos resets the connection of a worker that refuses connections or whose process has ended. The chaos page
// always answers.
func (s *Server) resetByChaos(w http.ResponseWriter, r *http.Request) bool {
	if !s.chaos.down.Load() && s.chaos.loadCurrent().Mode != ModeRefuse || r.URL.Path == "/chaos" {
		return false
	}
	h, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	c, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
	return true
}

// hangByChaos sends the headers of an answer in ModeHang and waits until the client leaves.
func (s *Server) hangByChaos(w http.ResponseWriter, r *http.Request, stream bool) bool {
	if s.chaos.loadCurrent().Mode != ModeHang {
		return false
	}
	kind := "application/json"
	if stream {
		kind = "text/event-stream; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	<-r.Context().Done()
	return true
}
