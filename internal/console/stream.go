package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// serveStream sends live figures as server-sent events: an event with the name of its feed for each changed answer, "fault"
// for a feed that cannot be read, and each second "tick" with the age of each feed's last reading.
func (c *Console) serveStream(w http.ResponseWriter, r *http.Request) {
	if _, ok := c.cfg.IdentifyCaller(r); !ok {
		writeLoginRequired(w, c.cfg.CheckToken != nil)
		return
	}
	v, ok := c.hub.addViewer(strings.Split(r.URL.Query().Get("feeds"), ","))
	if !ok {
		w.Header().Set("Retry-After", "5")
		writeRefusal(w, http.StatusServiceUnavailable, fmt.Sprintf("too many viewers: this node serves %d streams", maxViewers), "close other pages of the console")
		return
	}
	defer c.hub.removeViewer(v)
	setSafeHeaders(w.Header())
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	s := eventWriter{w: w, control: http.NewResponseController(w)}
	if err := s.control.SetReadDeadline(time.Time{}); err != nil { // the server's timeout for requests would end the stream
		writeRefusal(w, http.StatusInternalServerError, "the connection cannot be kept open", "")
		return
	}
	fmt.Fprintf(w, "retry: %d\n\n", retryMS)
	if !s.sendEvent("tick", map[string]int64{}) {
		return
	}
	end := time.NewTimer(maxStreamAge)
	tick := time.NewTicker(tickInterval)
	defer end.Stop()
	defer tick.Stop()
	for {
		ok := true
		select {
		case <-r.Context().Done():
			return
		case <-c.hub.done:
			return
		case <-end.C:
			return
		case <-v.wake:
			ok = s.sendUpdates(c.hub.takePending(v))
		case now := <-tick.C:
			ok = s.sendEvent("tick", c.hub.readAges(v, now))
		}
		if !ok {
			return
		}
	}
}

// eventWriter writes server-sent events with a deadline for each.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s *eventWriter) sendUpdates(updates []feedUpdate) bool {
	for _, u := range updates {
		ok := false
		if u.failure != "" {
			ok = s.sendEvent("fault", map[string]string{"feed": u.feed, "message": u.failure})
		} else {
			ok = s.sendRaw(u.feed, u.payload)
		}
		if !ok {
			return false
		}
	}
	return true
}

func (s *eventWriter) sendEvent(name string, data any) bool {
	text, err := json.Marshal(data)
	return err == nil && s.sendRaw(name, text)
}

// sendRaw sends JSON without line breaks. It returns false if the viewer is gone or too slow.
func (s *eventWriter) sendRaw(name string, text []byte) bool {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return false
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, text); err != nil {
		return false
	}
	return s.control.Flush() == nil
}
