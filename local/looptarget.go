package local

import "net/url"

// loopTarget is where the loop sends requests for a worker.
type loopTarget struct {
	url                 string // of the worker
	address, host, base string // to be dialled; of the Host header; of the URL's path
	plain               bool   // the loop can send to it
}

// findLoopTarget returns the target of the worker's URL.
func (w *zoneWorker) findLoopTarget() *loopTarget {
	if t := w.loopTarget.Load(); t != nil && t.url == w.Spec.URL {
		return t
	}
	t := &loopTarget{url: w.Spec.URL}
	if u, err := url.Parse(t.url); err == nil && u.Scheme == "http" && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" && u.RawPath == "" {
		t.address, t.host, t.base, t.plain = dialHostPort(u), u.Host, u.EscapedPath(), true
	}
	w.loopTarget.Store(t)
	return t
}
