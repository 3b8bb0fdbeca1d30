package discover

import (
	"fmt"
	"net/url"
	"strings"
)

// Kind is what a worker was found by, the strongest first: what an operator wrote wins over what was found out, and that
// over what a worker says of itself.
type Kind uint8

// The kinds of sources.
const (
	Static Kind = iota
	File
	DNS
	Registered
	kinds
)

// String names the kind in status and metrics.
func (k Kind) String() string {
	return [...]string{"static", "file", "dns", "registration", "none"}[min(k, kinds)]
}

// lists are what each source has found.
type lists [kinds][]Worker

// clash is a worker that was left out.
type clash struct {
	worker string
	source Kind
	holder string // who has its name or URL; empty when there is no room
	by     Kind   // the holder's source
}

func (c *clash) String() string {
	if c.holder == "" {
		return fmt.Sprintf("one local instance takes %d workers: split the zone", MaxWorkers)
	}
	return fmt.Sprintf("worker %s of source %s has its name or URL", c.holder, c.by)
}

// merge is the one list of all sources. A name and a URL stand only once in it: the stronger source has them, or within
// one source the earlier worker.
func (l *lists) merge() (all []Worker, from map[string]Kind, clashes map[clash]struct{}) {
	from, clashes = map[string]Kind{}, map[clash]struct{}{}
	urls := map[string]string{}
	for k := range kinds {
		for _, w := range l[k] {
			at := place(w.URL)
			holder, taken := urls[at]
			if _, named := from[w.Name]; named {
				holder, taken = w.Name, true
			}
			if taken || len(all) >= MaxWorkers {
				clashes[clash{worker: w.Name, source: k, holder: holder, by: from[holder]}] = struct{}{}
				continue
			}
			all = append(all, w)
			from[w.Name], urls[at] = k, w.Name
		}
	}
	return all, from, clashes
}

// place is a worker's URL in the one form that tells whether two are the same.
func place(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + " " + port
}
